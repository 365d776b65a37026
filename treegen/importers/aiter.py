"""Import the tuned files of aiter (https://github.com/ROCm/aiter): CSV of compiled kernels, JSON of Triton's.

Each row of a CSV file holds a shape, the kernel that won and mostly its time in microseconds. A file can hold
several GPUs, of which it says the number of compute units, and in newer versions the architecture. A JSON
file of GEMM holds the config for M up to each bound. Neither keeps losing kernels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.files import problem_with_name
from treegen.importers.sources import (
    NO_TIME,
    ImportOptions,
    Measurement,
    Measurements,
    config_of,
    read_csv,
    read_json,
    time_of,
    value_of,
)
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
_JSON = re.compile(r"(?:(gfx\w+)-)?([A-Z][\w-]*GEMM[\w-]*?|GEMM[\w-]*?)((?:-[A-Z][0-9]*=[1-9][0-9]{0,17})+)")


# By architecture and compute units, as aiter's jit/utils/chip_info.py tells them apart.
_NAMES = {("gfx942", 304): "AMD Instinct MI300X", ("gfx942", 80): "AMD Instinct MI308X"}
_NAMES |= {("gfx950", 256): "AMD Instinct MI355X"}


def tuned(paths: list[Path], options: ImportOptions) -> list[Path]:
    """The CSV files that hold a row, and the JSON files of GEMM, of several. Raises InputError for none."""
    found = paths if len(paths) == 1 else [path for path in paths if _is_tuned(path)]
    if not found:
        raise InputError(paths[0].parent, f"holds no tuned file of {TOOL}")
    return found


def _is_tuned(path: Path) -> bool:
    if path.suffix == ".json":
        return _JSON.fullmatch(path.stem) is not None
    named = path.suffix == ".csv" and "tuned" in path.name and "untuned" not in path.name
    return named and len(path.read_bytes().split()) > 1


def read(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners of a CSV file, or of a JSON file of a GEMM's sizes. Raises InputError."""
    yield from [_read_json(path)] if path.suffix == ".json" else _read_csv(path, options)


def _read_csv(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    rows: dict[tuple[str, str], list[Measurement]] = {}  # by architecture and compute units
    lines = read_csv(path, ragged=True)
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
        time = time_of(path, row["us"], "us", line) if "us" in row else NO_TIME
        if not 0 < time < math.inf:
            continue  # no kernel worked
        cells = {name: text for name, text in row.items() if name in features - no_matter}
        shape = {name: value_of(text) if text else None for name, text in cells.items()}
        config = {name: value_of(row[name]) for name in named if row[name]}
        if any(isinstance(value, float) for value in config.values()):
            left_out.append(line)  # a cell is missing, so that those behind it stand in wrong columns
            continue
        gpu = row.get("gfx", ""), row.get("cu_num", "")
        rows.setdefault(gpu, []).append(Measurement(shape, config, time))
    if not rows:
        raise InputError(path, "holds no kernel with a time")
    stem = path.stem.replace("_tuned", "").replace("tuned_", "")
    kernel = options.kernel or kernel_name(re.sub(r"\W", "_", stem))[:64]
    timing = {"timing": "aiter's tuner, microseconds"} if "us" in lines[0] else {}
    left = (f"{path}: lines {', '.join(map(str, left_out))}, which lack a cell",) if left_out else ()
    for (arch, units), found in rows.items():
        facts = {**_gpu(path, arch, units, options), **timing}
        yield Measurements(path, kernel, rows=tuple(found), origin={"tool": TOOL}, left_out=left, **facts)


def _gpu(path: Path, arch: str, units: str, options: ImportOptions) -> dict[str, Any]:
    """The fields of `Measurements` about a GPU: those of one architecture differ in their compute units."""
    count = int(units) if re.fullmatch("[1-9][0-9]{0,4}", units) else 0
    arch = arch or next((known for known, many in _NAMES if many == count), "")
    if not arch and options.device is None:
        raise InputError(path, "does not say of what architecture its GPU is; give --device NAME")
    if not arch:
        return {"device": options.device}
    known = f"AMD {arch}{f' with {units} compute units' if units else ''}"
    name = _NAMES.get((arch, count), known)
    key = f"amd_{arch.lower()}{f'_{units}cu' if units else ''}"
    if problem_with_name(key) is not None:
        raise InputError(path, f"has the GPU {shown(name)}, which gives no name of a folder")
    hardware = {"arch": arch, **({"multiprocessors": count} if count else {})}
    return {"device": name, "device_key": key, "hardware": hardware}


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
    rows = tuple(
        Measurement({"M": bound, **sizes}, config_of(path, key, content[key]), NO_TIME)
        for bound, key in keys.items()
        if key in content
    )
    if not rows:
        raise InputError(path, "holds no config for M_LEQ_<bound> or any")
    name = next((name for (known, _), name in _NAMES.items() if known == arch), f"AMD {arch}")
    gpu: dict[str, Any] = {"device_key": f"amd_{arch}", "hardware": {"arch": arch}}
    origin = {"tool": TOOL, "config_name": found[2], **({} if found[1] else {"layout": "nested"})}
    return Measurements(path, kernel, name, rows, origin, lookup={"M": "at_most"}, **gpu)
