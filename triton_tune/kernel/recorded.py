"""The kernels of a record as `Tuning`s: their launches made again, from the record alone."""

import contextlib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import triton.language as tl
from triton.runtime.autotuner import Autotuner

from triton_tune.core.errors import TuningError, in_one_line
from triton_tune.core.source import source_hash
from triton_tune.kernel.tuning import Tuning, load_tunings, table_name
from triton_tune.launch.every_autotuner import function_name, function_of, layers
from triton_tune.launch.features import OF_SIZE, NotAFeature, known_feature, word_of
from triton_tune.record.lines import Record, RecordedKernel, read_record, values_of
from triton_tune.record.recorder import extent, is_narrow, is_wide
from tuning_table.names import kernel_name, problem_with_name

GUARD = 4096  # bytes of zeros around each storage, as some kernels read past the ends of tensors
OUTSIDE = "memory outside of its arguments"
LARGEST_SAMPLE = 1e4  # magnitudes above it are taken for memory that nobody wrote


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedTuning(Tuning):
    """A kernel of a record."""

    function: str  # `module:function`
    weight: float  # its share of all launches' time
    least_bytes: int  # of all tensors of the smallest launch
    wrote: Callable[[int], Mapping[str, float]]  # the share of each tensor that a launch has changed


@dataclass(frozen=True)
class Recorded:
    """A record's kernels that can be tuned, by the names of their tables, and why others cannot."""

    tunings: Mapping[str, RecordedTuning]
    refused: Mapping[str, str]  # by `module:function`, in words


def tunings_in(path: Path) -> Mapping[str, Tuning]:
    """Every `Tuning` of a file or of a record, by name. Raises TuningError."""
    return load_recorded(path).tunings if path.is_dir() else load_tunings(path)


@cache
def load_recorded(folder: Path) -> Recorded:
    """Import the kernels of a record. Raises TuningError if none can be used, or the record is damaged."""
    record = read_record(folder)
    names, total = _names(record.kernels), sum(kernel.us for kernel in record.kernels.values())
    tunings: dict[str, RecordedTuning] = {}
    refused: dict[str, str] = {}
    for function, kernel in record.kernels.items():
        name, weight = names[function], kernel.us / total
        try:
            tunings[name] = Replay(record, kernel).tuning(name, weight)
        except TuningError as error:
            refused[function] = str(error)
    if not tunings:
        function, why = next(iter(refused.items()))
        raise TuningError(f"{folder}: none of its {len(refused)} kernels can be launched: {function}: {why}")
    return Recorded(tunings, refused)


def _names(functions: Iterable[str]) -> dict[str, str]:
    """A name for each function's table: its own, or with its module where several functions have that."""
    short = {function: kernel_name(function.rpartition(":")[2]) for function in functions}
    names: dict[str, str] = {}
    for function, own in short.items():
        text = own if list(short.values()).count(own) == 1 else f"{function.partition(':')[0]}_{own}"
        name = table_name(text[-60:])
        while name in names.values():
            name = f"{name}_"
        names[function] = name
    return names


class Replay:
    """A recorded kernel, whose launches it repeats. Raises TuningError if that is impossible."""

    def __init__(self, record: Record, kernel: RecordedKernel) -> None:
        self._record, self._recorded = record, kernel
        self.tuner = find_autotuner(kernel.function)
        if source_hash([function_of(self.tuner)]) != kernel.source_hash:
            raise TuningError("its source has changed since it was recorded; record it again")
        for launch in kernel.launches:
            for name, value in launch.arguments.items():
                if isinstance(value, dict) and "other" in value:
                    raise TuningError(f"its argument {name} is a {value['other']}, which no record holds")

    def tuning(self, name: str, weight: float) -> RecordedTuning:
        features, rows = self._features
        changing = [f for f in features if len({row[f] for row in rows}) > 1]
        shapes = [{"launch": number, **{f: row[f] for f in changing}} for number, row in enumerate(rows)]
        return RecordedTuning(
            kernel=self.tuner,
            name=name,
            call=self.call,
            shapes=shapes,
            arguments=self.arguments,
            reference=None,
            features=features,
            constants=[f for f in changing if self._is_constant(f)] or None,
            function=self._recorded.function,
            weight=weight,
            least_bytes=min(sum(launch.storages) for launch in self._recorded.launches),
            wrote=lambda launch: self._recorded.launches[launch].wrote,
        )

    def arguments(self, launch: int, **_: Any) -> dict[str, Any]:
        """The launch's number, and memory for its tensors, filled as the record says."""
        recorded = self._recorded.launches[launch]
        buffers = [torch.zeros(GUARD + size + GUARD, dtype=torch.uint8) for size in recorded.storages]
        if not buffers or buffers[0].device.type != "meta":
            for described in recorded.arguments.values():
                if isinstance(described, dict) and "tensor" in described:
                    self._fill(_view(buffers, described), described)
        return {"launch": launch, "buffers": buffers}

    def call(self, launch: int, buffers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Launch the kernel, and return all its tensors; OUTSIDE: what then lies around them."""
        recorded = self._recorded.launches[launch]
        values = {n: _value(described, buffers) for n, described in recorded.arguments.items()}
        # Hooks and rules expect arguments where launches have them.
        positional = [values[name] for name in takewhile(values.__contains__, self.tuner.arg_names)]
        named = {n: v for n, v in values.items() if n not in self.tuner.arg_names[: len(positional)]}
        self.tuner[partial(_size_of, recorded.grids)](*positional, **named)
        guards = [part for memory in buffers for part in (memory[:GUARD], memory[-GUARD:])]
        tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
        return tensors | ({OUTSIDE: torch.cat(guards)} if guards else {})

    def _fill(self, tensor: torch.Tensor, described: Mapping[str, Any]) -> None:
        if described.get("zeros") or not tensor.numel():
            return
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0:  # elements that share memory are written once
                tensor = tensor.narrow(dimension, 0, 1)
        data = values_of(self._record.data[described["data"]])
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(tensor.dtype)
        part = flat.reshape(described["sample"]).to(tensor.device)
        if is_wide(part.dtype):
            numbers = part.float() if not part.dtype.is_complex else part.abs().float()
            if not bool(torch.isfinite(numbers).all()) or float(numbers.abs().max()) > LARGEST_SAMPLE:
                part = torch.randn(part.shape, device=part.device).to(part.dtype)
        if is_narrow(part.dtype):
            part, tensor = part.view(torch.uint8), tensor.view(torch.uint8)
        for dimension, size in enumerate(tensor.shape):
            if part.shape[dimension] != size:
                index = torch.arange(size, device=part.device) % part.shape[dimension]
                part = part.index_select(dimension, index)
        tensor.copy_(part)

    @cached_property
    def _features(self) -> tuple[dict[str, str], list[dict[str, Any]]]:
        """The features that a tree may ask about, by name with their expressions; their values per launch.

        Of several features that divide the launches in the same way, the first is kept. The autotuner's key
        comes first, then other integers, then sizes of tensors.
        """
        names = self.tuner.arg_names
        rows = []
        for launch in self._recorded.launches:
            given = {n: launch.arguments.get(n, 0) for n in dict.fromkeys([*self.tuner.keys, *names])}
            tensors = [(n, v["shape"]) for n, v in given.items() if isinstance(v, dict) and "tensor" in v]
            sizes = {f"{n}{OF_SIZE}{place}": size for n, shape in tensors for place, size in enumerate(shape)}
            rows.append({n: value for n, value in given.items() if _is_feature(value)} | sizes)
        every = dict.fromkeys(name for row in rows for name in row)
        kept: dict[str, str] = {}
        seen: set[tuple[int, ...]] = set()
        for name in every:
            column = [row.get(name, 0) for row in rows]
            if len({word_of(value) is None for value in column}) > 1:
                continue
            numbers: dict[Any, int] = {}
            pattern = tuple(numbers.setdefault(value, len(numbers)) for value in column)
            expression = known_feature(name, names)
            is_new = pattern not in seen or name in self.tuner.keys
            if expression is not None and is_new and not problem_with_name(name):
                seen.add(pattern)
                kept[name] = expression
        if len(kept) > 1:  # constant features distinguish nothing
            changing = {n: e for n, e in kept.items() if len({row.get(n, 0) for row in rows}) > 1}
            kept = changing or dict([next(iter(kept.items()))])
        if not kept:
            raise TuningError("neither its integers nor its tensors' sizes tell launches apart")
        return kept, [{name: row.get(name, 0) for name in kept} for row in rows]

    def _is_constant(self, feature: str) -> bool:
        """Whether no process had two values of it, and two processes had different ones."""
        _, rows = self._features
        values_by_run: dict[str, set[Any]] = {}
        for launch, row in zip(self._recorded.launches, rows, strict=True):
            for run in launch.runs:
                values_by_run.setdefault(run, set()).add(row[feature])
        return all(len(values) == 1 for values in values_by_run.values())


def _size_of(grids: Sequence[Any], arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """The recorded grid of a config."""
    for parameters, size in grids:
        if all(arguments.get(name) == value for name, value in parameters.items()):
            return tuple(size)
    raise RuntimeError("the record has no grid for this config")


def find_autotuner(function: str) -> Autotuner:
    """The autotuner of `module:function`. Raises TuningError."""
    module_name, _, name = function.partition(":")
    if module_name == "__main__":
        raise TuningError("it is defined in the program's script; move it into a module that can be imported")
    if "<locals>" in name:
        raise TuningError("it is made within a function, which may make several")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise TuningError(
            f"{type(error).__name__} while its module is imported: {in_one_line(error)}"
        ) from None
    named = []
    with contextlib.suppress(AttributeError):
        named.append(attrgetter(name)(module))  # perhaps of a class
    every = [each for value in [*named, *vars(module).values()] for each in layers(value)]
    tuners = [each for each in every if isinstance(each, Autotuner) and function_name(each) == function]
    if not tuners:
        raise TuningError("its module does not have it by any name")
    if len({str(list(map(str, tuner.configs))) for tuner in tuners}) > 1:
        raise TuningError("its module has two autotuners of it, with different configs")
    return tuners[0]


def _is_feature(value: Any) -> bool:
    if isinstance(value, float | dict):
        return False
    try:
        return word_of(value) is not None or abs(value) < 1 << 31
    except (NotAFeature, TypeError):
        return False


def _view(buffers: Sequence[torch.Tensor], described: Mapping[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, described["tensor"])
    shape, strides = described["shape"], described["strides"]
    empty = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    begin = GUARD + described["at"]
    part = buffers[described["storage"]][begin : begin + extent(empty)]
    view: torch.Tensor = part.view(dtype).as_strided(shape, strides)
    return view


def _value(described: Any, buffers: Sequence[torch.Tensor]) -> Any:
    if not isinstance(described, dict):
        return described
    if "dtype" in described:
        return getattr(torch, described["dtype"])
    if "triton" in described:
        return tl.dtype(described["triton"])
    return _view(buffers, described)
