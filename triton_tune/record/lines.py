"""Read a folder of recorded launches: one `*.jsonl` file per process, to which whole lines are appended."""

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_tune.core.errors import TuningError

FORMAT = 1
SUFFIX = ".jsonl"


@dataclass
class RecordedLaunch:
    """Launches with equal arguments, of all processes together."""

    arguments: Mapping[str, Any]
    storages: tuple[int, ...]  # bytes
    grids: list[Any]
    wrote: Mapping[str, float]  # of tensors: the share that the first of these launches changed
    count: int = 0
    us: float | None = None  # of the shortest that was timed; None: none was made twice
    runs: set[str] = field(default_factory=set)  # the processes


@dataclass
class RecordedKernel:
    function: str  # `module:function`
    source_hash: str
    by_shape: dict[str, RecordedLaunch] = field(default_factory=dict)  # all but tensors' contents

    @property
    def launches(self) -> list[RecordedLaunch]:
        return list(self.by_shape.values())

    @property
    def us(self) -> float:
        """The time of all launches. Those that were not timed count with the mean of the timed ones."""
        timed = [launch for launch in self.launches if launch.us is not None]
        total = sum(launch.count * (launch.us or 0) for launch in timed)
        counted = sum(launch.count for launch in timed)
        return (total / counted if counted else 1.0) * sum(launch.count for launch in self.launches)


@dataclass(frozen=True)
class Record:
    kernels: Mapping[str, RecordedKernel]  # by function, those that take most time first
    data: Mapping[str, bytes]  # as files have it: `values_of` decodes it


def values_of(data: bytes) -> bytes:
    """The bytes of a tensor's values. Raises TuningError."""
    try:
        return zlib.decompress(base64.b64decode(data))
    except (ValueError, zlib.error) as error:
        raise TuningError(f"a record is damaged: {error}") from None


def read_record(folder: Path) -> Record:
    """Read what all processes of a record noted. An incomplete line at the end of a file is ignored.

    Raises TuningError for a folder without launches, lines in another format, or two versions of a kernel.
    """
    kernels: dict[str, RecordedKernel] = {}
    data: dict[str, bytes] = {}
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            _read_file(file, kernels, data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise TuningError(f"{file}: is damaged, or no record of this version: {problem:.150}") from None
        except OSError as error:
            raise TuningError(f"{file}: {error.strerror}") from None
    ranked = sorted((k for k in kernels.values() if k.launches), key=lambda kernel: -kernel.us)
    if not ranked:
        command = "triton-tune --record DIR -- COMMAND"
        raise TuningError(f"{folder}: holds no launch of an autotuned kernel; record some with {command}")
    for kernel in ranked:
        for launch in kernel.launches:
            for name, value in launch.arguments.items():
                if isinstance(value, dict) and value.get("data", "") not in {"", *data}:
                    raise TuningError(f"{folder}: is cut: it lacks what {name} of {kernel.function} held")
    return Record({kernel.function: kernel for kernel in ranked}, data)


def _read_file(file: Path, kernels: dict[str, RecordedKernel], data: dict[str, bytes]) -> None:
    """Add what a process noted. Only its last counts matter; a launch without one was made once."""
    text = file.read_bytes()
    launches: dict[int, RecordedLaunch] = {}
    counts: dict[str, tuple[int, float | None]] = {}
    for place, encoded in enumerate(text[: text.rfind(b"\n") + 1].splitlines()):
        line = json.loads(encoded)
        if place == 0:
            if line["format"] != FORMAT:
                raise ValueError(f"format {line['format']} instead of {FORMAT}")
        elif "data" in line:
            data[line["data"]] = line["bytes"].encode()
        elif "function" in line:
            name, source = line["function"], line["source_hash"]
            if kernels.setdefault(name, RecordedKernel(name, source)).source_hash != source:
                raise TuningError(f"{file}: has another version of {name} than the files before it")
        elif "launch" in line:
            fields = {key: line[key] for key in ("arguments", "grids", "wrote")}
            launch = RecordedLaunch(storages=tuple(line["storages"]), **fields)
            by_shape = kernels[line["kernel"]].by_shape
            launches[line["launch"]] = by_shape.setdefault(_shape_of(launch), launch)
        else:
            counts = line["counts"]
    for number, launch in launches.items():
        count, us = counts.get(str(number), (1, None))
        launch.count += int(count)
        launch.runs.add(file.name)
        if us is not None:
            launch.us = min(float(us), launch.us or math.inf)


def _shape_of(launch: RecordedLaunch) -> str:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: part for key, part in value.items() if key not in ("data", "sample", "zeros")}
        return "float" if isinstance(value, float) else value

    return json.dumps([{name: bare(value) for name, value in launch.arguments.items()}, launch.grids])
