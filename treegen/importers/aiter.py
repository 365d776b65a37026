"""Import the tuned CSV files of aiter (https://github.com/ROCm/aiter), for GEMM and fused MoE.

Each row holds a shape, the kernel that won and its time in microseconds. A file can hold several GPUs, of
which it says the number of compute units, and in newer versions the architecture. It keeps no losing kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.measurements import ImportOptions, Measurement, Measurements
from treegen.importers.sources import files_of, read_csv, value_of
from treegen.importers.tables import merged

TOOL = "aiter"
_DEVICE = ("gfx", "cu_num")
_RESULTS = {"us", "us1", "us2", "err1", "err2", "errRatio", "tflops", "bw", "_tag"}
_SHAPE = {"B", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "q_dtype_w", "q_dtype_a"}
_SHAPE |= {"token", "model_dim", "inter_dim", "expert", "topk", "act_type", "q_type", "use_g1u1"}
_SHAPE |= {"doweight_stage1"}
_NOTES = """\
Imported by `treegen import aiter`, not measured by this project.
Only winners: the other kernels' times were not kept."""


def read_aiter(source: Path, options: ImportOptions) -> list[Measurements]:
    """The winners of every tuned CSV file at or below `source`, by GPU. Raises InputError."""
    paths = files_of(source, "*tuned*.csv", TOOL)
    return merged(part for path in paths if "untuned" not in path.name for part in _read_file(path, options))


def _read_file(path: Path, options: ImportOptions) -> list[Measurements]:
    rows: dict[str, list[Measurement]] = {}
    for line, row in enumerate(read_csv(path, ("cu_num", "us"), TOOL), 2):
        parameters = [name for name in row if name not in (*_DEVICE, *_RESULTS, *_SHAPE)]
        if "kernelId" in parameters:  # the name says the same
            parameters = [name for name in parameters if name != "kernelName"]
        try:
            time = float(row["us"])
        except ValueError:
            raise InputError(
                path, f"us is {shown(row['us'])}, no number of microseconds", line=line
            ) from None
        shape = {name: value_of(row[name]) for name in row if name in _SHAPE}
        config = {name: value_of(row[name]) for name in parameters}
        rows.setdefault(_device(row), []).append(Measurement(shape, config, time))
    kernel = options.kernel or path.stem.replace("_tuned", "").replace("tuned_", "")
    return [
        Measurements(
            TOOL,
            path,
            kernel,
            options.device if options.device and len(rows) == 1 else device,
            Cells.WINNERS,
            tuple(found),
            "aiter's tuner, microseconds",
            _NOTES,
            {"tool": TOOL},
        )
        for device, found in rows.items()
    ]


def _device(row: Mapping[str, str]) -> str:
    arch = f"AMD {row['gfx']}" if row.get("gfx") else "AMD"
    return f"{arch} with {row['cu_num']} compute units"
