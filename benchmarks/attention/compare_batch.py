"""One batch, several implementations: check each against the reference, then time them together."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief, exceeds_device
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Expected, check, expect
from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.tensors import BatchTensors, materialise, rotation
from attn_kernels.measure.timing import Timed, prepare, time_briefly, time_together
from benchmarks.common.implementations import Implementation, NotApplicable, Ours, Prepared
from benchmarks.common.report import SKIPPED, Result
from benchmarks.common.space import Candidates

TOO_LARGE = "too large for this device"
GIVE_UP = 1.3  # times the fastest so far: a slower config is timed once only


@dataclass(frozen=True)
class Contest:
    """What a run needs beside the batch and the candidates."""

    device: torch.device
    implementations: Sequence[Implementation]
    ceilings: Ceilings
    repeats: int

    def hold(self, batch: Batch, space: Mapping[str, Candidates]) -> dict[str, Result]:
        """Check and time every implementation, and every variant of `space` at its best config, by name."""
        tensors = materialise(batch, self.device, num_sets=rotation(batch, self.device))
        expected = expect(tensors)
        results: dict[str, Result] = {}
        ready: dict[str, Ready] = {}

        def enter(implementation: Implementation) -> None:
            got = get_ready(implementation, tensors, expected)
            if isinstance(got, Ready):
                ready[implementation.name] = got
            results[implementation.name] = got.result if isinstance(got, Ready) else got

        for implementation in self.implementations:
            enter(implementation)
        finals = {name: search(tensors, expected, name, tried) for name, tried in space.items()}
        chosen = results["ours"].config
        for name, found in finals.items():
            if found.config and str(found.config) != chosen:  # what was chosen is timed already
                enter(Ours(found.config, name))
        timings = time_together({name: entry.timed for name, entry in ready.items()}, self.repeats)
        for name, entry in ready.items():
            results[name] = entry.check_replay(tensors, expected).timed(batch, timings[name], self.ceilings)
        for name, found in finals.items():
            own = results.get(name) or Result.of(batch, len(tensors.sets), name, found.skipped)
            same = str(found.config) == chosen
            alike = chosen.startswith(f"{name}_M") and own.ok and faster(results["ours"], own)
            if same or alike:  # what was chosen is a config of this variant
                own = dataclasses.replace(results["ours"], implementation=name)
            rejected = "; ".join(found.rejected)
            results[name] = dataclasses.replace(own, tried=found.tried, rejected=rejected)
        return with_best(results, finals)


def faster(one: Result, other: Result) -> bool:
    """Whether `one` is right and took less time."""
    return one.ok and bool(one.time_us and other.time_us and one.time_us < other.time_us)


def with_best(results: dict[str, Result], variants: Mapping[str, object]) -> dict[str, Result]:
    """Add `best`: the fastest right result of ours, whatever its config came from."""
    own = [results[name] for name in ("ours", *variants) if name in results]
    fit = [result for result in own if result.ok and result.time_us]
    if not variants or not fit:
        return results
    fastest = min(fit, key=lambda result: result.time_us or 0.0)
    best = dataclasses.replace(fastest, implementation="best", note="", tried=0, rejected="")
    return {**results, "best": best}


@dataclass(frozen=True)
class Ready:
    """An implementation that was launched on the batch, checked, and captured for timing."""

    result: Result
    prepared: Prepared
    timed: Timed

    def check_replay(self, tensors: BatchTensors, expected: Expected) -> Result:
        """Check again what a replay of the timed launches writes onto a poisoned output."""
        tensors.sets[0].out.fill_(torch.nan)
        self.timed.sample(1)
        again = judge(self.result, self.prepared, expected)
        return again if self.result.ok else self.result


def judge(result: Result, prepared: Prepared, expected: Expected) -> Result:
    """Record how far KV set 0's output is from the reference."""
    found = check(prepared.output(0), expected)
    return dataclasses.replace(
        result,
        error=found.error,
        worst_head=found.worst_head,
        rows_checked=found.rows,
        ok=found.ok,
        note="" if found.ok else f"WRONG: {found}",
    )


def launch_once(
    implementation: Implementation, tensors: BatchTensors, expected: Expected
) -> tuple[Result, Prepared | None]:
    """Launch onto a poisoned output and check; without what was prepared, the result says what went wrong."""
    result = Result.of(tensors.batch, len(tensors.sets), implementation.name)
    try:
        prepared = implementation.prepare(tensors)
        result = dataclasses.replace(result, config=prepared.config)
        tensors.sets[0].out.fill_(torch.nan)
        prepared.launches[0]()
        return judge(result, prepared, expected), prepared
    except NotApplicable as error:
        return dataclasses.replace(result, note=str(error)), None
    except Exception as error:
        if exceeds_device(error):
            return dataclasses.replace(result, note=f"{TOO_LARGE}: {brief(error)}"), None
        return failed(result, error, tensors.device), None


def failed(result: Result, error: Exception, device: torch.device) -> Result:
    if device.type == "cuda":
        torch.cuda.synchronize()  # raises again if the device itself is lost, which ends the run
    return dataclasses.replace(result, ok=False, note=f"FAILED: {brief(error)}")


def get_ready(implementation: Implementation, tensors: BatchTensors, expected: Expected) -> Ready | Result:
    """Launch, check, capture; a Result alone says what went wrong."""
    result, prepared = launch_once(implementation, tensors, expected)
    if prepared is None:
        return result
    try:
        return Ready(result, prepared, prepare(prepared.launches, tensors.device))
    except Exception as error:
        return failed(result, error, tensors.device)


@dataclass(frozen=True)
class Found:
    """What a search among the configs of one variant found."""

    config: Config | None = None
    tried: int = 0
    rejected: tuple[str, ...] = ()
    skipped: str = ""


def search(tensors: BatchTensors, expected: Expected, variant: str, candidates: Candidates) -> Found:
    """The fastest right config by a short timing; a config too large for the device is no failure."""
    best: Config | None = None
    best_us = float("inf")
    tried = 0
    rejected: list[str] = []
    notes = [SKIPPED + candidates.skipped] if candidates.skipped else []
    for config in candidates.configs:
        result, prepared = launch_once(Ours(config, variant), tensors, expected)
        if prepared is None or not result.ok:
            if result.note.startswith(TOO_LARGE):
                notes.append(f"{config} {TOO_LARGE}")
            else:
                rejected.append(f"{config} {result.note}")
            continue
        try:
            us = time_briefly(prepared.launches, tensors.device, GIVE_UP * best_us)
        except Exception as error:
            rejected.append(f"{config} {failed(result, error, tensors.device).note}")
            continue
        tried += 1
        if us < best_us:
            best, best_us = config, us
    return Found(best, tried, tuple(rejected), "" if best else "; ".join(notes))
