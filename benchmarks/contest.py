"""One batch, several implementations: check each against the reference, then time them together."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import configs
from benchmarks.batches import Batch
from benchmarks.checking import Expected, check, expect
from benchmarks.implementations import Implementation, NotApplicable, Ours, Prepared, brief
from benchmarks.report import Result
from benchmarks.roofline import Ceilings
from benchmarks.tensors import BatchTensors, materialise, rotation
from benchmarks.timing import Timed, prepare, time_together

SWEEP_REPEATS = 3
TOO_LARGE = "too large for this device"


@dataclass(frozen=True)
class Contest:
    """What a run needs beside the batch: `sweep` lists configs of ours to try for the result named `best`."""

    device: torch.device
    implementations: Sequence[Implementation]
    ceilings: Ceilings
    repeats: int
    sweep: Sequence[Any] = ()

    def hold(self, batch: Batch) -> dict[str, Result]:
        """Check and time every implementation on one batch; results by name."""
        tensors = materialise(batch, self.device, num_sets=rotation(batch, self.device))
        expected = expect(tensors)
        results: dict[str, Result] = {}
        ready: dict[str, Ready] = {}
        for implementation in self.implementations:
            got = get_ready(implementation, tensors, expected)
            if isinstance(got, Ready):
                ready[implementation.name] = got
            results[implementation.name] = got.result if isinstance(got, Ready) else got
        chosen = results["ours"].config
        best, wrong = fastest(tensors, expected, self.sweep)
        if best and best.result.config != chosen:
            ready["best"] = best
        timings = time_together({name: entry.timed for name, entry in ready.items()}, self.repeats)
        for name, entry in ready.items():
            results[name] = entry.check_replay(tensors, expected).timed(batch, timings[name], self.ceilings)
        if best and "best" not in results:
            results["best"] = dataclasses.replace(results["ours"], implementation="best", note="")
        if wrong:
            results["sweep"] = Result.of(batch, len(tensors.sets), "sweep", "WRONG: " + ", ".join(wrong))
        return results


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


def get_ready(implementation: Implementation, tensors: BatchTensors, expected: Expected) -> Ready | Result:
    """Launch onto a poisoned output, check, capture; a Result alone says what went wrong."""
    result = Result.of(tensors.batch, len(tensors.sets), implementation.name)
    try:
        prepared = implementation.prepare(tensors)
        result = dataclasses.replace(result, config=prepared.config)
        tensors.sets[0].out.fill_(torch.nan)
        prepared.launches[0]()
        result = judge(result, prepared, expected)
        return Ready(result, prepared, prepare(prepared.launches, tensors.device))
    except NotApplicable as error:
        return dataclasses.replace(result, note=str(error))
    except Exception as error:
        if configs.exceeds_device(error):
            return dataclasses.replace(result, note=f"{TOO_LARGE}: {brief(error)}")
        if tensors.device.type == "cuda":
            torch.cuda.synchronize()  # raises again if the device itself is lost, which ends the run
        return dataclasses.replace(result, ok=False, note=f"FAILED: {brief(error)}")


def fastest(
    tensors: BatchTensors, expected: Expected, candidates: Sequence[Any]
) -> tuple[Ready | None, list[str]]:
    """The fastest right config by a short timing, and the configs that were wrong or failed.

    A config too large for the device is neither.
    """
    best: Ready | None = None
    best_us = float("inf")
    wrong: list[str] = []
    for config in candidates:
        got = get_ready(Ours(config, "best"), tensors, expected)
        result = got.result if isinstance(got, Ready) else got
        if isinstance(got, Ready) and result.ok:
            us = min(got.timed.sample(SWEEP_REPEATS))
            if us < best_us:
                best, best_us = got, us
        elif not result.note.startswith(TOO_LARGE):
            wrong.append(f"{configs.config_text(config)} ({result.note})")
    return best, wrong
