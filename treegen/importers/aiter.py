"""Import the tuned files of aiter (https://github.com/ROCm/aiter): CSV of compiled kernels, JSON of Triton's.

Each row of a CSV file holds a shape, the kernel that won and mostly its time in microseconds. A file can hold
several GPUs, of which it says the number of compute units, and in newer versions the architecture. A JSON
file of GEMM holds the config for M up to each bound. Neither keeps losing kernels.
"""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

from treegen.core.errors import InputError, shown
from treegen.core.files import problem_with_name, try_path
from treegen.core.table import Cells
from treegen.importers.sources import (
    NO_TIME,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    config_of,
    files_of,
    microseconds,
    read_csv,
    read_each,
    read_json,
    value_of,
)
from treegen.importers.tables import merged
from tuning_table.names import kernel_name

TOOL = "aiter"
_DEVICE = ("gfx", "cu_num")
_RESULTS = {"us", "us1", "us2", "err1", "err2", "errRatio", "err_ratio", "tflops", "bw", "_tag"}
_SHAPE = {"B", "M", "N", "K", "b", "m", "n", "k", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle"}
_SHAPE |= {"token", "model_dim", "inter_dim", "expert", "topk", "act_type", "q_type", "use_g1u1", "q_dtype_w"}
_SHAPE |= {"q_dtype_a", "doweight_stage1", "gate_mode", "hidden_pad", "intermediate_pad", "V", "BT", "H"}
_SHAPE |= {"Hg", "shared_expert_id", "is_varlen", "use_h0", "store_fs", "snapshot_bf16", "state_bf16"}
_SHAPE |= {"T_flat", "total_chunks", "max_seq_chunks", "max_m"}
_PARAMETERS = {"libtype", "kernelId", "solidx", "splitK", "kernelName", "kernelName1", "kernelName2", "BV"}
_PARAMETERS |= {"block_m", "ksplit", "run_1stage", "xbf16", "flat", "tile_m", "tile_n", "tile_k", "tile_m2"}
_PARAMETERS |= {"tile_n2", "tile_k2", "m_warp", "n_warp", "m_warp2", "n_warp2", "num_buffers"}
_PARAMETERS |= {"num_buffer_stage2", "split_k1", "split_k2", "grouped_persistent_m", "persistent_workers"}
_PARAMETERS |= {"cluster_n", "wave_specialized_tdm", "tdm_as_in_prologue", "waves_per_tensor_tdm"}
_PARAMETERS |= {"next_stage_prefetch"}
_NOTES = "Only winners: the other kernels' times were not kept."
_JSON = re.compile(r"(?:(gfx\w+)-)?([A-Z][\w-]*GEMM[\w-]*?|GEMM[\w-]*?)((?:-[A-Z][0-9]*=[1-9][0-9]{0,17})+)")


class _Gpu(NamedTuple):
    name: str
    key: str | None
    hardware: tuple[tuple[str, str | int], ...] = ()  # arch, multiprocessors


# By architecture and compute units, as aiter's jit/utils/chip_info.py tells them apart.
_NAMES = {("gfx942", 304): "AMD Instinct MI300X", ("gfx942", 80): "AMD Instinct MI308X"}
_NAMES |= {("gfx950", 256): "AMD Instinct MI355X"}


def read_aiter(source: Path, options: ImportOptions) -> list[Measurements]:
    """The winners of every tuned CSV file and every JSON file of a GEMM's sizes at or below `source`.

    A CSV file of a folder that holds no row is left out. Raises InputError.
    """
    paths = files_of(source, "*.*", TOOL)
    if try_path(source, Path.is_dir):
        paths = [path for path in paths if _is_tuned(path)] or files_of(source, "*tuned*.csv", TOOL)
    return merged(read_each(paths, partial(_read_file, options=options)))


def _is_tuned(path: Path) -> bool:
    if path.suffix == ".json":
        return _JSON.fullmatch(path.stem) is not None
    named = path.suffix == ".csv" and "tuned" in path.name and "untuned" not in path.name
    return named and len(path.read_bytes().split()) > 1


def _read_file(path: Path, options: ImportOptions) -> list[Measurements]:
    return [_read_json(path)] if path.suffix == ".json" else _read_csv(path, options)


def _read_csv(path: Path, options: ImportOptions) -> list[Measurements]:
    rows: dict[_Gpu, list[Measurement]] = {}
    lines = read_csv(path, (), TOOL, ragged=True)
    features, parameters = _SHAPE | {*options.features}, _PARAMETERS | {*options.parameters}
    no_matter = {*_DEVICE, *_RESULTS, *options.leave_out}
    left_out: list[int] = []  # lines
    if unknown := [name for name in lines[0] if name not in features | parameters | no_matter]:
        what = f"of which nothing is known: {', '.join(unknown)}; name them in --features, --parameters"
        raise InputError(path, f"has columns {what} or --leave-out")
    named = [name for name in lines[0] if name in parameters - no_matter]
    if {"kernelId", "solidx"} & set(named):  # the name says the same
        named = [name for name in named if name != "kernelName"]
    for line, row in enumerate(lines, 2):
        try:
            time = microseconds(path, float(row.get("us", NO_TIME)), "us", line)
        except ValueError:
            raise InputError(
                path, f"us is {shown(row['us'])}, no number of microseconds", line=line
            ) from None
        if not 0 < time < math.inf:
            continue  # no kernel worked
        shape = {name: _value(row[name]) for name in row if name in features - no_matter}
        config = {name: value_of(row[name]) for name in named if row[name]}
        if any(isinstance(value, float) for value in config.values()):
            left_out.append(line)  # a cell is missing, so that those behind it stand in wrong columns
            continue
        gpu = _gpu(path, row.get("gfx", ""), row.get("cu_num", ""), options)
        rows.setdefault(gpu, []).append(Measurement(shape, config, time))
    if not rows:
        raise InputError(path, "holds no kernel with a time")
    stem = path.stem.replace("_tuned", "").replace("tuned_", "")
    kernel = options.kernel or kernel_name(re.sub(r"\W", "_", stem))[:64]
    timing = "aiter's tuner, microseconds" if "us" in lines[0] else "unknown, so each cell is 1"
    left = (f"{path}: lines {', '.join(map(str, left_out))}, which lack a cell",) if left_out else ()
    return [
        Measurements(
            "aiter", path, kernel, gpu.name, Cells.WINNERS, tuple(found), timing, _NOTES, {"tool": TOOL},
            gpu.key, dict(gpu.hardware), left_out=left,
        )
        for gpu, found in rows.items()
    ]  # fmt: skip


def _value(text: str) -> Value:
    return value_of(text) if text else None


def _gpu(path: Path, arch: str, units: str, options: ImportOptions) -> _Gpu:
    """The GPU of a row: those of one architecture differ in their compute units."""
    count = int(units) if re.fullmatch("[1-9][0-9]{0,4}", units) else 0
    arch = arch or next((known for known, many in _NAMES if many == count), "")
    if not arch and options.device is None:
        raise InputError(path, "does not say of what architecture its GPU is; give --device NAME")
    if not arch:
        return _Gpu(str(options.device), None)
    known = f"AMD {arch}{f' with {units} compute units' if units else ''}"
    name = _NAMES.get((arch, count), known)
    key = f"amd_{arch.lower()}{f'_{units}cu' if units else ''}"
    if problem_with_name(key) is not None:
        raise InputError(path, f"has the GPU {shown(name)}, which gives no name of a folder")
    return _Gpu(name, key, (("arch", arch), *((("multiprocessors", count),) if count else ())))


def _read_json(path: Path) -> Measurements:
    """The configs of a file such as gfx942-GEMM-A8W8-N=1280-K=8192.json, as aiter looks them up.

    It is the first M_LEQ_<bound> that is at least M, else the last M_GEQ_<bound> that is at most M, else
    `any` (aiter/ops/triton/utils/gemm_config_utils.py).
    """
    found = _JSON.fullmatch(path.stem)
    arch = (found and found[1]) or next((p for p in path.parts if re.fullmatch(r"gfx[0-9]\w*", p)), "")
    if found is None or not arch:
        what = "has no name of a tuned file of a GEMM, such as gfx942-GEMM-A8W8-N=1280-K=8192.json"
        raise InputError(path, what)
    sizes = {name: int(size) for name, size in re.findall("-([A-Z][0-9]*)=([0-9]+)", found[3])}
    kernel = kernel_name(found[2].replace("-", "_"))[:58] + ("_gluon" if "gluon" in path.parts else "")
    content = read_json(path, TOOL)
    bounds: dict[str, list[int]] = {"LEQ": [], "GEQ": []}
    for key in content:
        if match := re.fullmatch(r"M_(LEQ|GEQ)_([1-9][0-9]{0,17})", key):
            bounds[match[1]].append(int(match[2]))
    # By the last size that an entry serves; that of the last entry stands for all above.
    keys = {bound: f"M_LEQ_{bound}" for bound in sorted(bounds["LEQ"])}
    last = max(keys, default=0)
    above = [(last + 1, "any"), *((bound, f"M_GEQ_{bound}") for bound in sorted(bounds["GEQ"]))]
    ends = [start - 1 for start, _ in above[1:]] + [2 * max(start for start, _ in above)]
    keys |= {end: key for end, (_, key) in zip(ends, above, strict=True) if end > last}
    rows = []
    for bound, key in keys.items():
        if key in content:
            rows.append(Measurement({"M": bound, **sizes}, config_of(path, key, content[key]), NO_TIME))
    if not rows:
        raise InputError(path, "holds no config for M_LEQ_<bound> or any")
    name = next((name for (known, _), name in _NAMES.items() if known == arch), f"AMD {arch}")
    gpu = _Gpu(name, f"amd_{arch}", (("arch", arch),))
    origin = {"tool": TOOL, "config_name": found[2], **({} if found[1] else {"layout": "nested"})}
    return Measurements(
        "aiter", path, kernel, gpu.name, Cells.WINNERS, tuple(rows), "unknown, so each cell is 1", _NOTES,
        origin, gpu.key, dict(gpu.hardware), lookup={"M": "at_most"},
    )  # fmt: skip
