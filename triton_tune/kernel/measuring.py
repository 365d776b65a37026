"""Time a kernel's configs at one shape, after a check of each against the reference."""

import contextlib
import math
import pickle
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from triton_tune.bench.timing import BYTES_PER_US, elapsed_us, first_time, time_launches
from triton_tune.bench.worker import DISAGREES
from triton_tune.core.device import cache_bytes, memory_bytes
from triton_tune.core.errors import TuningError, TuningWarning, place_of
from triton_tune.core.source import source_hash
from triton_tune.kernel.autotuned import AutotunedKernel, Launch
from triton_tune.kernel.batches import (
    agreed_result,
    disagreement,
    first_launch,
    launches_of,
    make,
    on_copies,
    result_of,
)
from triton_tune.kernel.ranges import constant_names, draw
from triton_tune.kernel.recorded import OUTSIDE, RecordedTuning, tunings_in
from triton_tune.kernel.tuning import Tuning
from triton_tune.record.recorder import changed_share, sampled
from tuning_table.table import Cell, Failure

TIMING = (
    "CUDA graph replay of the kernel's launches alone; consecutive launches on different tensors, of which "
    "they can read 3 times the last-level cache in all (32 sets at most, in half of the memory); median of "
    "2 to 5 replays after one that is not counted, or one launch, below 50 ms the faster of two, of what is "
    "over 1.5 times slower than the best so far; the autotuner's resetting is subtracted"
)
L2_MULTIPLE = 3
MAX_SETS = 32
MEMORY_SHARE = 0.5  # of the device's memory, for these sets
MAKING_S = 2.0  # what they may take to be made
IDLE_US = 2.0  # of a launch, in which it reads nothing
SHORT_US = 100.0  # up to here, the time of a launch between two events is mostly the host's
SHORTEST_US = 0.1
LEAST_WRITTEN = 0.5  # of what a recorded launch wrote

EXCLUDED = "left out by early_config_prune"


@dataclass(frozen=True)
class Shape:
    """A shape, named by its position in its file's list to be pickled, and what its first launch shows."""

    id: str
    file: "KernelFile"
    position: int
    values: Mapping[str, Any] = field(compare=False)  # of the features
    kept: tuple[str, ...]  # the configs to time
    excluded: frozenset[str]  # configs that `early_config_prune` leaves out
    judges: tuple[str, ...]  # configs of which two say what is right, where there is no reference
    chosen: str | None  # by the generated module, if that is asked for
    key: Hashable  # what kernels are compiled for
    launch: bytes | None  # by which they are compiled; as of ``without_memory``


@dataclass(frozen=True)
class KernelFile:
    """A `Tuning`, named by its file (or the folder of a record) and its name, so that it can be pickled."""

    path: Path
    name: str
    untuned: bool = False  # the shapes that were kept aside when shapes were drawn, instead of the others

    def look_where_it_writes(self, shape: Shape, expected: Any, untouched: Any) -> None:
        """Warn if launches write far less than the recorded one. Raises RuntimeError if elsewhere."""
        tuning = loaded(self).tuning
        if not isinstance(tuning, RecordedTuning):
            return
        if OUTSIDE in expected and bool(expected[OUTSIDE].any()):
            raise RuntimeError(f"it writes into {OUTSIDE}")
        for name, share in tuning.wrote(tuning.shapes[shape.position]["launch"]).items():
            ours = changed_share(expected[name], sampled(untouched[name]))
            if ours < LEAST_WRITTEN * share:
                what = f"launches write {ours:.0%} of {name}, and the recorded one wrote {share:.0%}"
                warnings.warn(f"{self.name}: {what}, as in {shape.id}", TuningWarning, stacklevel=1)

    @contextlib.contextmanager
    def located(self, kernel: AutotunedKernel) -> Iterator[None]:
        """Note at an error the line in the kernel's file or in this one where it arose."""
        try:
            yield
        except Exception as error:
            place = place_of(error, {str(self.path), kernel.function.__code__.co_filename})
            if place is not None:
                error.add_note(Path(place).name)
            raise


def prepare(shape: Shape, repeat: int, device: torch.device) -> Callable[[str, float], Cell]:
    """What checks and times a config at a shape (``bench.worker.Prepare``)."""
    file = shape.file
    tuning, kernel, _ = loaded(file)
    values = tuning.shapes[shape.position]
    with file.located(kernel):
        call, untouched = make(tuning, values, device), None
        if tuning.reference is not None:
            expected = on_copies(call, tuning.reference)
        else:
            untouched = result_of(kernel, call, None)
            expected = agreed_result(kernel, call, shape.judges, tuning.tolerance, untouched)
            file.look_where_it_writes(shape, expected, untouched)
    sets = Sets(lambda seed, config: launches_of(kernel, make(tuning, values, device, seed), config))

    @file.located(kernel)
    def measure(name: str, best_us: float) -> Cell:
        if name in shape.excluded:
            return Failure(EXCLUDED)
        config = kernel.configs[name].config
        result = result_of(kernel, call, config)
        wrong = disagreement(result, expected, tuning.tolerance, untouched)
        if wrong is not None:
            return Failure(f"{DISAGREES}: {wrong}")
        sets.grow(config, device)
        taken = _time(kernel, sets.launches, config, device, best_us)
        while sets.grow(config, device, taken):
            taken = _time(kernel, sets.launches, config, device, best_us)
        notes = []
        if kernel.others:
            names = ", ".join(sorted(kernel.others))
            notes.append(f"its call also launches {names}, whose configs are neither timed nor tuned")
        if sets.warm:
            what = "a launch reads so little of its tensors that caches may be warm"
            notes.append(f"{what}, as in {shape.id}")
        for note in notes:
            warnings.warn(f"{file.name}: {note}", TuningWarning, stacklevel=1)
        return taken

    return measure


@dataclass(frozen=True)
class CompileJob:
    shape: Shape
    config: str
    device: torch.device = field(compare=False)

    @property
    def needs(self) -> frozenset[Hashable]:
        if self.config in self.shape.excluded:
            return frozenset()
        return frozenset({(self.shape.file.name, self.shape.key, self.config)})

    @property
    def cost(self) -> int:
        kernel = loaded(self.shape.file).kernel
        return math.prod(max(1, value) for value in kernel.configs[self.config].parameters.values())

    def run(self, device: torch.device) -> None:
        tuning, kernel, _ = loaded(self.shape.file)
        launch: Launch | None
        if self.shape.launch is not None:  # with tensors that need no memory in each process
            launch = pickle.loads(self.shape.launch)
        else:
            launch = first_launch(kernel, make(tuning, tuning.shapes[self.shape.position], device))
        if launch is not None:
            kernel.run(launch, kernel.configs[self.config].config, compile_only=True)


class Loaded(NamedTuple):
    tuning: Tuning  # with the shapes that were drawn from its ranges
    kernel: AutotunedKernel
    source_hash: str


@cache
def loaded(file: KernelFile) -> Loaded:
    tunings = tunings_in(file.path)
    if file.name not in tunings:
        names = ", ".join(tunings)
        raise TuningError(f"{file.path}: defines no Tuning called {file.name!r:.60}; it has {names}")
    tuning = tunings[file.name]
    kernel = AutotunedKernel(tuning.kernel)
    # Now, as calls may change what functions refer to, such as caches.
    source = (kernel.function, tuning.call, tuning.arguments, tuning.reference, tuning.tolerance)
    return Loaded(_with_drawn_shapes(tuning, kernel, file.untuned), kernel, source_hash(source))


def _with_drawn_shapes(tuning: Tuning, kernel: AutotunedKernel, untuned: bool) -> Tuning:
    if not isinstance(tuning.shapes, Mapping):
        if untuned:
            raise TuningError("--untuned needs ranges, from which shapes are drawn; `shapes` is a list")
        return tuning
    shapes = draw(tuning.shapes, tuning.num_shapes, kernel.tiles)[untuned]
    if not shapes:
        raise TuningError(f"num_shapes is {tuning.num_shapes}, which leaves no shape for this: raise it")
    listed = constant_names(tuning.shapes)
    return replace(tuning, shapes=shapes, constants=listed if tuning.constants is None else tuning.constants)


class Sets:
    """The launches of enough calls on different tensors to keep their inputs out of the last-level cache.

    A launch cannot read more than its tensors hold, nor more than memory delivers while it runs: a kernel
    over experts' weights, for example, reads only a few of them.

    launches: of each call. warm: whether memory has room for fewer calls than needed.
    """

    def __init__(self, launches_of: Callable[[int, Any], tuple[Launch, ...]]) -> None:
        self.launches: list[tuple[Launch, ...]] = []
        self.warm = False
        self._launches_of = launches_of  # of the call with a seed, each made with a config

    def grow(self, config: Any, device: torch.device, taken_us: float = math.inf) -> bool:
        """Add the calls still missing, given the time of one call's launches; return whether any were."""
        before = len(self.launches)
        if not before:
            self.launches.append(self._launches_of(0, config))
            if not self.launches[0]:
                raise RuntimeError("the call did not launch the kernel")
        given = tree_leaves([(launch.args, dict(launch.kwargs)) for launch in self.launches[0]])
        bases = (getattr(value, "base", value) for value in given)  # of tensor descriptors
        tensors = [value for value in bases if isinstance(value, torch.Tensor)]
        storages = {t.untyped_storage().data_ptr(): t.numel() * t.element_size() for t in tensors}
        size = max(1, sum(storages.values()))
        read = min(size, BYTES_PER_US * max(SHORTEST_US, taken_us - IDLE_US))
        wanted = math.ceil(L2_MULTIPLE * cache_bytes(device) / read)
        most = min(MAX_SETS, int(MEMORY_SHARE * memory_bytes(device) / size))
        begun = time.monotonic()
        while len(self.launches) < min(wanted, most) and time.monotonic() < begun + MAKING_S:
            self.launches.append(self._launches_of(len(self.launches), config))
        self.warm = size > cache_bytes(device) > read * len(self.launches)
        return len(self.launches) > before


def _time(
    kernel: AutotunedKernel,
    sets: Sequence[tuple[Launch, ...]],
    config: Any,
    device: torch.device,
    best_us: float,
) -> float:

    def call(launches: tuple[Launch, ...], only_hooks: bool = False) -> None:
        for launch in launches:
            kernel.run_as_tuned(launch, config, only_hooks=only_hooks)

    if device.type != "cuda":
        start = time.perf_counter()
        call(sets[0])
        return max(SHORTEST_US, 1e6 * (time.perf_counter() - start))
    call(sets[0])
    rough, slow = first_time(partial(elapsed_us, partial(call, sets[0])), 1, best_us)
    if slow:
        return rough
    least = rough / 2 if rough > SHORT_US else 0.0
    taken = time_launches([partial(call, each) for each in sets], device, least_us=least, best_us=best_us)
    if kernel.has_hooks:
        taken -= time_launches([partial(call, each, only_hooks=True) for each in sets], device)
    return max(SHORTEST_US, taken)
