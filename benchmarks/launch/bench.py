"""Configs, batches, timers and output that the sections of ``launch_cost`` share."""

import timeit
from collections.abc import Callable, Mapping

import torch

from attn_kernels import Config
from attn_kernels.measure.batches import Batch, HeadLayout, decode, prefill
from benchmarks.launch.timing import cpu_us, first_us

CONFIGS = {
    "naive": Config("naive", 1, 64),
    "prefix_prefill": Config("prefix_prefill", 64, 64),
    "split": Config("split", 64, 64),
    "qblock": Config("qblock", 16, 64),
    "qblock hopper": Config("qblock", 128, 64, num_warps=8, descriptors=1),
    "segmented": Config("segmented", 16, 64, num_segments=8),
    "static_grid": Config("static_grid", 16, 64),
    "static_grid N4": Config("static_grid", 16, 64, num_segments=4),
    "stream_k": Config("stream_k", 16, 64),
}
SMOKE_CONFIGS = ("qblock", "static_grid N4")  # two only, as the interpreter is slow
SMALL = HeadLayout(4, 2, 16)


class LaunchBench:
    """Timers and a table of their figures."""

    def __init__(self, device: torch.device, smoke: bool) -> None:
        self.device, self.smoke = device, smoke
        self.bursts = 1 if smoke else 60
        self.configs = {name: CONFIGS[name] for name in SMOKE_CONFIGS} if smoke else CONFIGS
        self.lines: list[str] = []  # of the table at the end

    def batch(self, batch: Batch) -> Batch:
        """Return the batch, or a small layout of it for the interpreter."""
        return batch.at(SMALL, dtype=torch.float16) if self.smoke else batch

    @property
    def named(self) -> dict[str, Batch]:
        batches = (
            (decode(1, 16), prefill(1, 16))
            if self.smoke
            else (decode(8, 2048), decode(64, 8192), prefill(1, 2048))
        )
        return {batch.name: self.batch(batch) for batch in batches}

    def say(self, line: str) -> None:
        """Print now, and again in the table at the end."""
        print(line, flush=True)
        self.lines.append(line)

    def row(self, name: str, *figures: float, note: str = "") -> None:
        self.say(f"{name:28}" + "".join(f"{us:10.1f}" for us in figures) + note)

    def head(self, name: str, *columns: str) -> None:
        self.say(f"\n{name:28}" + "".join(f"{column:>10}" for column in columns))

    def cpu_us(self, call: Callable[[], object]) -> float:
        return cpu_us(call, self.device, self.bursts)

    def first_us(self, call: Callable[[], object]) -> float:
        return first_us(call, self.device, self.bursts)

    def ns(self, call: Callable[[], object]) -> float:
        """Time a call that launches nothing, in nanoseconds."""
        number = 10 if self.smoke else 20_000
        return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e9

    def call_ns(self, function: Callable[..., object], values: Mapping[str, int]) -> float:
        """Time a call with keyword arguments that are variables, as in `plan`, in nanoseconds."""
        number = 10 if self.smoke else 20_000
        call = f"function({', '.join(f'{name}={name}' for name in values)})"
        setup = "; ".join(f"{name} = {value}" for name, value in values.items())
        timed = timeit.repeat(call, setup, number=number, repeat=5, globals={"function": function})
        return min(timed) / number * 1e9
