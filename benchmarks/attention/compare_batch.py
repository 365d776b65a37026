"""Check all implementations on one batch against the reference, then time them together."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Expected, check, expect
from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.tensors import BatchTensors, materialise, rotation
from attn_kernels.measure.timing import Timed, prepare, time_briefly, time_together
from benchmarks.attention.records import (
    SKIPPED,
    ComparisonRecord,
    Records,
    time_ratio,
    with_fastest_rival,
)
from benchmarks.common.environment import raise_if_lost
from benchmarks.common.implementations import Implementation, NotApplicable, Ours, PreparedLaunches
from benchmarks.common.space import Candidates
from triton_tune.core.device import exceeds_device

TOO_LARGE = "too large for this device"
GIVE_UP = 1.3  # a config this many times slower than the fastest so far is timed only once


@dataclass(frozen=True)
class ComparisonSettings:
    """The settings that all batches of a comparison share."""

    device: torch.device
    implementations: Sequence[Implementation]
    ceilings: Ceilings
    repeats: int  # graph replays that time an implementation


@dataclass(frozen=True)
class Captured:
    """An implementation that was launched once and captured, and what its output must be."""

    tensors: BatchTensors
    expected: Expected
    prepared: PreparedLaunches
    timed: Timed


class Measured:
    """The records of implementations that are first checked and captured one by one, then timed together."""

    def __init__(self, settings: ComparisonSettings) -> None:
        self.records: Records = {}
        self._settings = settings
        self._captured: dict[str, Captured] = {}

    def launch_and_capture(
        self, name: str, implementation: Implementation, tensors: BatchTensors, expected: Expected
    ) -> None:
        """Check one launch and capture the launches; the record says why where that fails."""
        record, prepared = launch_once(implementation, tensors, expected)
        self.records[name] = dataclasses.replace(record, implementation=name)
        if prepared is None:
            return
        try:
            timed = prepare(prepared.launches, tensors.device)
        except Exception as error:
            self.records[name] = failed(self.records[name], error, tensors.device)
        else:
            self._captured[name] = Captured(tensors, expected, prepared, timed)

    def time_all(self) -> None:
        """Time all that was captured, and check the output of each once more."""
        timings = time_together(
            {name: entry.timed for name, entry in self._captured.items()}, self._settings.repeats
        )
        for name, entry in self._captured.items():
            entry.tensors.sets[0].out.fill_(torch.nan)
            entry.timed.sample(1)
            record = self.records[name]
            if record.ok:
                record = with_check(record, entry.prepared, entry.expected)
            self.records[name] = record.timed(entry.tensors.batch, timings[name], self._settings.ceilings)


def compare_batch(batch: Batch, space: Mapping[str, Candidates], settings: ComparisonSettings) -> Records:
    """Check and time every implementation, and each variant of `space` at its best config."""
    device = settings.device
    tensors = materialise(batch, device, num_sets=rotation(batch, device))
    expected = expect(tensors)
    measured = Measured(settings)
    for implementation in settings.implementations:
        measured.launch_and_capture(implementation.name, implementation, tensors, expected)
    records = measured.records
    searches = {name: search(tensors, expected, name, tried) for name, tried in space.items()}
    chosen = records["ours"].config
    for name, result in searches.items():
        if result.config and str(result.config) != chosen:  # the chosen config is captured already
            measured.launch_and_capture(name, Ours(result.config, name), tensors, expected)
    measured.time_all()
    for name, result in searches.items():
        record = records.get(name) or ComparisonRecord.of(batch, len(tensors.sets), name, result.skipped)
        ratio = time_ratio(records, "ours", name)
        chosen_is_faster = chosen.startswith(f"{name}_M") and ratio is not None and ratio < 1.0
        if str(result.config) == chosen or chosen_is_faster:
            record = dataclasses.replace(records["ours"], implementation=name)
        records[name] = dataclasses.replace(record, tried=result.tried, rejected="; ".join(result.rejected))
    return with_fastest_rival(with_best(records, searches))


def with_best(records: Records, variants: Iterable[str]) -> Records:
    """Add `best`, the fastest right record of `ours` and of the variants, if there is a variant."""
    variants = list(variants)
    ours = [records[name] for name in ("ours", *variants) if name in records]
    right = [record for record in ours if record.ok and record.time_us]
    if not variants or not right:
        return records
    fastest = min(right, key=lambda record: record.time_us or 0.0)
    best = dataclasses.replace(fastest, implementation="best", note="", tried=0, rejected="")
    return {**records, "best": best}


def with_check(record: ComparisonRecord, prepared: PreparedLaunches, expected: Expected) -> ComparisonRecord:
    """Return the record with the error of KV set 0's output."""
    verdict = check(prepared.output(0), expected)
    return dataclasses.replace(
        record,
        error=verdict.error,
        worst_head=verdict.worst_head,
        rows_checked=verdict.rows,
        ok=verdict.ok,
        note="" if verdict.ok else f"WRONG: {verdict}",
    )


def launch_once(
    implementation: Implementation, tensors: BatchTensors, expected: Expected
) -> tuple[ComparisonRecord, PreparedLaunches | None]:
    """Launch onto an output of NaN and check it; None and a note if the implementation cannot launch."""
    record = ComparisonRecord.of(tensors.batch, len(tensors.sets), implementation.name)
    try:
        prepared = implementation.prepare(tensors)
        record = dataclasses.replace(record, config=prepared.config)
        tensors.sets[0].out.fill_(torch.nan)
        prepared.launches[0]()
        return with_check(record, prepared, expected), prepared
    except NotApplicable as error:
        return dataclasses.replace(record, note=str(error)), None
    except Exception as error:
        if exceeds_device(error):
            return dataclasses.replace(record, note=f"{TOO_LARGE}: {brief(error)}"), None
        return failed(record, error, tensors.device), None


def failed(record: ComparisonRecord, error: Exception, device: torch.device) -> ComparisonRecord:
    """Return the record of a launch that raised; raises if the device itself is lost."""
    raise_if_lost(device)
    return dataclasses.replace(record, ok=False, note=f"FAILED: {brief(error)}")


@dataclass(frozen=True)
class VariantSearch:
    """The result of a search among one variant's configs."""

    config: Config | None  # the fastest right one
    tried: int  # configs that were timed
    rejected: tuple[str, ...]  # configs that failed or were wrong
    skipped: str  # why there is no config


def search(tensors: BatchTensors, expected: Expected, variant: str, candidates: Candidates) -> VariantSearch:
    """Find the fastest right config by a short timing; a config too large for the device is no failure."""
    best: Config | None = None
    best_us = float("inf")
    tried = 0
    rejected: list[str] = []
    notes = [SKIPPED + candidates.skipped] if candidates.skipped else []
    for config in candidates.configs:
        record, prepared = launch_once(Ours(config, variant), tensors, expected)
        if prepared is None or not record.ok:
            if record.note.startswith(TOO_LARGE):
                notes.append(f"{config} {TOO_LARGE}")
            else:
                rejected.append(f"{config} {record.note}")
            continue
        try:
            us = time_briefly(prepared.launches, tensors.device, GIVE_UP * best_us)
        except Exception as error:
            rejected.append(f"{config} {failed(record, error, tensors.device).note}")
            continue
        tried += 1
        if us < best_us:
            best, best_us = config, us
    return VariantSearch(best, tried, tuple(rejected), "" if best else "; ".join(notes))
