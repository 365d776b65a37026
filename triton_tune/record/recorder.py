"""Note all launches of a program's autotuned kernels in a folder (`lines.py`), to make them again."""

import atexit
import base64
import contextlib
import hashlib
import json
import os
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

from triton_tune.core.errors import in_one_line
from triton_tune.core.source import source_hash
from triton_tune.launch.choosing import OWN
from triton_tune.launch.every_autotuner import (
    apply_rules,
    capturing,
    defaults_of,
    function_name,
    function_of,
    own_run,
    run_first,
    wrap_every,
)
from triton_tune.launch.features import plain
from triton_tune.record.lines import FORMAT, SUFFIX

VALUES_BYTES = 1 << 20  # integer tensors up to this size are kept whole: kernels use them as indices
SAMPLE = 1 << 14  # elements of other tensors that are kept
MOST_LAUNCHES = 200  # different ones of a kernel; a process counts further ones with the last
FLUSH_S = 5.0
TIMED = range(2, 5)  # the launches, among equal ones, that are timed; the first compiles


def record(folder: Path) -> None:
    """Record this process's launches from now on. Each one uses the first config that works."""
    recorder = Recorder(folder)
    wrap_every(recorder.wrap)
    os.register_at_fork(after_in_child=recorder.begin)
    atexit.register(recorder.flush)


@dataclass
class _Noted:
    """A launch that has been noted."""

    number: int
    config: Any  # that was launched
    count: int = 0
    us: float | None = None


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inside = threading.local()
        self.begin()

    def begin(self) -> None:
        """Forget what was noted, and begin another file, as in a forked process."""
        self._lock = threading.RLock()
        self._file: Path | None = None
        self._failed = False
        self._refused: set[str] = set()  # kernels with a launch that cannot be described
        self._noted: dict[Any, _Noted] = {}
        self._kernels: Counter[str] = Counter()  # different launches
        self._last: dict[str, _Noted] = {}
        self._stored: set[str] = set()
        self._flushed = time.monotonic()

    def wrap(self, tuner: Autotuner) -> Callable[..., Any]:
        """What launches the autotuner's kernel and notes it."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("warmup") or "grid" not in kwargs:
                return own_run(tuner, *args, **kwargs)
            return self._note(tuner, args, kwargs, self._launch_first)

        below, run_below = tuner.fn, getattr(tuner.fn, "run", None)

        def run_directly(*args: Any, **kwargs: Any) -> Any:
            """The `run` of `kernel.fn`, which programs use to launch the config that a search has found."""
            assert run_below is not None
            if getattr(self._inside, "depth", 0) or kwargs.get("warmup") or "grid" not in kwargs:
                return run_below(*args, **kwargs)
            chosen = {*OWN, "ir_override", *(name for config in tuner.configs for name in config.kwargs)}
            given = {name: value for name, value in kwargs.items() if name not in chosen}
            return self._note(tuner, args, given, lambda *_: run_below(*args, **kwargs))

        if run_below is not None:
            with contextlib.suppress(AttributeError):
                below.run = run_directly
        return run

    def _launch_first(self, tuner: Autotuner, noted: _Noted | None, args: Any, kwargs: Any) -> Any:
        with self._lock:  # as the autotuner's list is another one meanwhile
            return run_first(tuner, own_run, args, kwargs, noted and noted.config)

    def _note(self, tuner: Autotuner, args: Any, kwargs: dict[str, Any], launch: Callable[..., Any]) -> Any:
        depth = self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            if depth > 1 or len(tuner.configs) < 2:
                return launch(tuner, None, args, kwargs)
            key = (id(tuner), *map(_key, args), *((k, _key(v)) for k, v in kwargs.items() if k != "grid"))
            noted = self._noted.get(key)
            if noted is None and capturing():  # nothing can be read
                return launch(tuner, None, args, kwargs)
            if noted is None:
                return self._describe(key, tuner, args, kwargs, launch)
            noted.count += 1
            if noted.count in TIMED and not capturing():
                _synchronise()
                begun = time.perf_counter()
                result = launch(tuner, noted, args, kwargs)
                _synchronise()
                us = 1e6 * (time.perf_counter() - begun)
                noted.us = us if noted.us is None else min(us, noted.us)
            else:
                result = launch(tuner, noted, args, kwargs)
            if time.monotonic() > self._flushed + FLUSH_S:
                self.flush()
            return result
        finally:
            self._inside.depth -= 1

    def _describe(self, key: Any, tuner: Autotuner, args: Any, kwargs: Any, launch: Any) -> Any:
        """Make a launch for the first time, and note it."""
        name = function_name(tuner)
        if name in self._refused:
            return launch(tuner, None, args, kwargs)
        if self._kernels[name] >= MOST_LAUNCHES:
            self._noted[key] = self._last[name]
            self._last[name].count += 1
            return launch(tuner, None, args, kwargs)
        values = dict(zip(tuner.arg_names, args, strict=False))
        values |= {n: v for n, v in kwargs.items() if n not in ("grid", "warmup")}
        with self._lock:
            if not self._kernels[name]:  # before a launch, as calls may change what functions refer to
                self._write({"function": name, "source_hash": source_hash([function_of(tuner)])})
            try:
                arguments, storages, before = self._arguments(values)
                line = {"kernel": name, "arguments": arguments, "storages": storages}
                line["grids"] = grids(tuner, kwargs["grid"], values)
            except Exception as error:  # the program needs no record
                self._refused.add(name)
                problem = f"{type(error).__name__}: {in_one_line(error)}"
                warnings.warn(f"{name}: no new launch is recorded: {problem}", stacklevel=2)
                return launch(tuner, None, args, kwargs)
            result = launch(tuner, None, args, kwargs)
            wrote = {n: changed_share(values[n], sample) for n, sample in before.items()}
            line["wrote"] = {n: round(share, 4) for n, share in wrote.items() if share}
            self._kernels[name] += 1
            noted = _Noted(len(self._noted), getattr(tuner, "best_config", None), 1)
            self._write({"launch": noted.number, **line})
            self._noted[key] = self._last[name] = noted
        return result

    def _arguments(self, values: Mapping[str, Any]) -> tuple[Any, Any, dict[str, torch.Tensor]]:
        """A launch's arguments in plain data; the sizes of storages in bytes; and samples of tensors."""
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for tensor in tensors.values():
            storage = tensor.untyped_storage().data_ptr()
            begin = tensor.data_ptr() // 16 * 16
            begins[storage] = min(begin, begins.get(storage, begin))
            ends[storage] = max(tensor.data_ptr() + extent(tensor), ends.get(storage, 0))
        places = {storage: place for place, storage in enumerate(begins)}
        described: dict[str, Any] = {}
        samples = {}
        for name, value in values.items():
            if name not in tensors:
                described[name] = _plain(value)
                continue
            storage = value.untyped_storage().data_ptr()
            sample = samples[name] = sampled(value)
            described[name] = {
                "tensor": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
                "strides": list(value.stride()),
                "storage": places[storage],
                "at": value.data_ptr() - begins[storage],
                **self._content(value, sample),
            }
        return described, [ends[s] - begins[s] for s in places], samples

    def _content(self, tensor: torch.Tensor, sample: torch.Tensor) -> dict[str, Any]:
        """Describe what a tensor holds: only zeros, all of its values, or a sample of them."""
        wide = is_wide(tensor.dtype)
        if not wide and tensor.numel() * tensor.element_size() <= VALUES_BYTES:
            sample = tensor.detach().cpu().contiguous()
        elif wide and tensor.element_size() > 1 and not bool(sample.any()) and not bool(tensor.any()):
            return {"zeros": True}
        flat = sample.flatten().clone(memory_format=torch.contiguous_format)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        digest = hashlib.sha256(data).hexdigest()[:20]
        if digest not in self._stored:
            self._stored.add(digest)
            self._write({"data": digest, "bytes": base64.b64encode(zlib.compress(data, 1)).decode()})
        return {"data": digest, "sample": list(sample.shape)}

    def flush(self) -> None:
        """Write how often each launch was made so far."""
        self._flushed = time.monotonic()
        with self._lock:
            if self._noted:
                counts = {noted.number: [noted.count, noted.us] for noted in self._noted.values()}
                self._write({"counts": counts})

    def _write(self, line: Mapping[str, Any]) -> None:
        """Append a line as a whole. The program goes on without a record where that is not possible."""
        if self._failed:
            return
        text = json.dumps(line)
        if self._file is None:
            self._file = self._folder / f"{time.time_ns():x}-{os.getpid()}{SUFFIX}"
            text = json.dumps({"format": FORMAT}) + "\n" + text
        encoded = text.encode() + b"\n"
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                self._failed = os.write(file, encoded) < len(encoded)  # a cut line may only be the last
            finally:
                os.close(file)
        except OSError as error:
            self._failed = True
            warnings.warn(f"{self._file}: nothing more is recorded: {error.strerror}", stacklevel=2)


def extent(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first element to its last."""
    if not tensor.numel():
        return 0
    spans = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (1 + sum(spans)) * tensor.element_size()


def is_wide(dtype: torch.dtype) -> bool:
    """Whether the values are floating-point, so that no kernel can use them as indices."""
    return dtype.is_floating_point or dtype.is_complex


def is_narrow(dtype: torch.dtype) -> bool:
    """Whether values are floats of one byte, for which few operations exist."""
    return is_wide(dtype) and dtype.itemsize == 1


def sampled(tensor: torch.Tensor) -> torch.Tensor:
    """A part of a tensor from its middle, of at most SAMPLE elements, as a copy on the CPU."""
    part = tensor.detach()
    for dimension, size in enumerate(tensor.shape):
        if part.numel() <= SAMPLE:
            break
        inner = part.numel() // size
        rows = 1 << (max(1, SAMPLE // max(1, inner)).bit_length() - 1)
        rows = min(rows, size)
        part = part.narrow(dimension, (size // 2) // rows * rows, rows)
    return part.cpu().clone()


def changed(after: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Which elements differ; a NaN that stays one does not. Neither tensor holds floats of one byte."""
    return (after != before) & ~((after != after) & (before != before))


def changed_share(tensor: torch.Tensor, before: torch.Tensor) -> float:
    """The share of a tensor's sample that a launch has changed."""
    after = sampled(tensor)
    if not after.numel():
        return 0.0
    if is_narrow(after.dtype):
        after, before = after.view(torch.uint8), before.view(torch.uint8)
    return float(changed(after, before).float().mean())


def _key(value: Any) -> Any:
    """The part of an argument that tells launches apart. Floats and tensors' contents do not."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.data_ptr() % 16
    kind = type(value)
    if kind in (int, bool, str) or value is None:
        return kind, value
    return kind if kind is float else repr(value)


def _plain(value: Any) -> Any:
    value = plain(value)
    if value is None or isinstance(value, bool | int | str | float):
        return value  # JSON has the values of enums that are integers or texts
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if type(value).__module__.startswith("triton.language") and type(value).__name__ == "dtype":
        return {"triton": str(value.name)}
    return {"other": type(value).__name__}


def grids(tuner: Autotuner, grid: Any, values: Mapping[str, Any]) -> list[Any]:
    """The grid of each config, in order: `[{parameters}, [x, y, z]]`; just `[{}, [x, y, z]]` if all agree."""
    if not callable(grid):
        return [[{}, list(grid)]]
    entries: list[Any] = []
    for config in tuner.configs:
        arguments = {**defaults_of(function_of(tuner)), **values, **config.all_kwargs()}
        apply_rules(tuner, arguments)
        size = grid(arguments)
        size = list(size) if isinstance(size, tuple | list) else [size]
        entry = [{name: _plain(value) for name, value in config.kwargs.items()}, [int(n) for n in size]]
        if entry not in entries:
            entries.append(entry)
    return [[{}, entries[0][1]]] if len({tuple(size) for _, size in entries}) == 1 else entries


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
