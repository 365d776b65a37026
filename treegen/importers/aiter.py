"""Import the tuned CSV files of aiter (https://github.com/ROCm/aiter), for GEMM and fused MoE.

Each row holds a shape, the kernel that won and its time in microseconds. A file can hold several GPUs, of
which it says the number of compute units, and in newer versions the architecture. With --device, all are one.
It keeps no losing kernels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.files import device_key, problem_with_name
from treegen.core.table import Cells
from treegen.importers.sources import (
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    files_of,
    microseconds,
    read_csv,
    value_of,
)
from treegen.importers.tables import merged

TOOL = "aiter"
_DEVICE = ("gfx", "cu_num")
_RESULTS = {"us", "us1", "us2", "err1", "err2", "errRatio", "tflops", "bw", "_tag"}
_SHAPE = {"B", "M", "N", "K", "b", "m", "n", "k", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle"}
_SHAPE |= {"token", "model_dim", "inter_dim", "expert", "topk", "act_type", "q_type", "use_g1u1"}
_SHAPE |= {"q_dtype_w", "q_dtype_a", "doweight_stage1"}
_NOTES = "Only winners: the other kernels' times were not kept."


def read_aiter(source: Path, options: ImportOptions) -> list[Measurements]:
    """The winners of every tuned CSV file at or below `source`, by GPU. Raises InputError."""
    paths = files_of(source, "*tuned*.csv", TOOL)
    return merged(part for path in paths if "untuned" not in path.name for part in _read_file(path, options))


def _read_file(path: Path, options: ImportOptions) -> list[Measurements]:
    rows: dict[tuple[str, str], list[Measurement]] = {}
    for line, row in enumerate(read_csv(path, ("us",), TOOL, ragged=True), 2):
        parameters = [name for name in row if name not in (*_DEVICE, *_RESULTS, *_SHAPE)]
        if {"kernelId", "solidx"} & set(parameters):  # the name says the same
            parameters = [name for name in parameters if name != "kernelName"]
        try:
            time = microseconds(path, float(row["us"]), "us", line)
        except ValueError:
            raise InputError(
                path, f"us is {shown(row['us'])}, no number of microseconds", line=line
            ) from None
        if not 0 < time < math.inf:
            continue  # no kernel worked
        shape = {name: _value(row[name]) for name in row if name in _SHAPE}
        config = {name: _value(row[name]) for name in parameters}
        rows.setdefault(_device(path, row, options), []).append(Measurement(shape, config, time))
    if not rows:
        raise InputError(path, "holds no kernel with a time")
    kernel = options.kernel or re.sub(r"\W", "_", path.stem.replace("_tuned", "").replace("tuned_", ""))[:64]
    timing, origin = "aiter's tuner, microseconds", {"tool": TOOL}
    return [
        Measurements("aiter", path, kernel, device, Cells.WINNERS, tuple(found), timing, _NOTES, origin, key)
        for (device, key), found in rows.items()
    ]


def _value(text: str) -> Value:
    return value_of(text) if text else None


def _device(path: Path, row: Mapping[str, str], options: ImportOptions) -> tuple[str, str]:
    """The GPU's name, and the key of its folder: GPUs of one architecture differ in their compute units."""
    if options.device is not None:
        return options.device, device_key(options.device)
    arch, units = row.get("gfx", ""), row.get("cu_num", "")
    if not arch and not units:
        raise InputError(
            path, "has neither a column gfx nor cu_num, which say what GPU it is from; give --device NAME"
        )
    name = " with ".join(part for part in (f"AMD {arch}".strip(), units and f"{units} compute units") if part)
    key = "_".join(part for part in ("amd", arch.lower(), units and f"{units}cu") if part)
    if problem_with_name(key) is not None:
        raise InputError(path, f"has the GPU {shown(name)}, which gives no name of a folder")
    return name, key
