"""A first treegen.yaml for tables, and the section of a device, with limits measured or looked up."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import geometric_mean, median

from treegen.core.errors import InputError, shown, table_errors_as_input_errors
from treegen.core.files import device_key, problem_with_package_name
from tuning_table import read
from tuning_table.names import letters_for
from tuning_table.table import RecordedTable, TableConfig

_MOST_PRODUCTS = 3  # features of which all products of two are listed


def spec_text(folders: Sequence[Path], spec: Path, output: str) -> str:
    """The text of a spec at `spec` that compiles the tables in `folders` into the folder `output`.

    Raises InputError: a table cannot be read or lies outside the spec's folder, two are of one kernel and
    device, or a name in one cannot be Python's.
    """
    kernels: dict[str, dict[str, tuple[Path, RecordedTable]]] = {}
    devices: dict[str, Gpu] = {}
    for folder in folders:
        with table_errors_as_input_errors():
            table = read(folder, running=True)
        device = table.header.provenance["device"]
        gpu = Gpu(table.header.device_name, str(device.get("arch", "")), None)
        problem = problem_with_package_name(table.header.kernel)
        if problem is not None:
            raise InputError(
                folder, f"the kernel {shown(table.header.kernel)} {problem}; rename it in run.yaml"
            )
        tables = kernels.setdefault(table.header.kernel, {})
        if gpu.key in tables:
            what = f"a table of {table.header.kernel} on {gpu.key}, as {tables[gpu.key][0]} is"
            raise InputError(folder, what)
        tables[gpu.key] = (folder, table)
        devices[gpu.key] = gpu
    lines = [
        "# What treegen compiles, and how; docs/spec.md of treegen explains every word.",
        "format: 1",
        f"output: {output}  # the package that `treegen build` writes; import it by this name",
        "",
        "devices:",
        *(line for gpu in devices.values() for line in device_section(gpu)),
        "",
        "kernels:",
    ]
    for kernel, tables in kernels.items():
        lines += _kernel_lines(kernel, tables, spec)
    return "\n".join(lines) + "\n"


def _kernel_lines(kernel: str, tables: dict[str, tuple[Path, RecordedTable]], spec: Path) -> list[str]:
    headers = [table.header for _, table in tables.values()]
    features = list(dict.fromkeys(name for header in headers for name in header.features))
    configs = headers[0].configs
    parameters = list(dict.fromkeys(name for header in headers for name in header.configs[0].parameters))
    variants = list(dict.fromkeys(c.variant for header in headers for c in header.configs if c.variant))
    words = {
        name: values
        for header in headers
        for name, values in header.provenance.get("values", {}).items()
        if isinstance(values, list)
    }
    plain = [name for name in features if name not in words]
    steadiest = _steadiest([table for _, table in tables.values()])
    fallback = steadiest or configs[0]
    source = "This is the fastest of those that never failed." if steadiest else "Nothing was timed yet."
    lines = [
        f"  {kernel}:",
        f"    features: [{', '.join(features)}]  # what a launch knows: the arguments of `choose`",
    ]
    if words:
        lines.append("    values:  # the words that 0, 1, ... stand for")
        lines += [f"      {name}: [{', '.join(map(_text, values))}]" for name, values in words.items()]
    lines += [
        "    # constants: [...]  # features that are fixed for a running program, such as a layer's sizes",
        "    # classes:  # kinds of programs that may launch other configs, by conditions on the constants",
        "    #   small: FEATURE <= 1024",
        "    #   large: otherwise",
    ]
    lines += _derived_lines(plain)
    lines.append("    config:")
    if variants:
        lines.append(f"      variants: [{', '.join(variants)}]")
    lines.append("      parameters:  # with the letters that stand for each in names of configs")
    lines += [f"        {name}: {letters}" for name, letters in letters_for(parameters).items()]
    lines += [
        "    # constraints: []  # conditions that a config must meet, as `2 * BLOCK <= shared_memory`",
        "    # The config for unknown devices, and where no config of a row may be launched. The kernel",
        f"    # must accept it for every shape on every GPU. {source}",
        f"    fallback: {_mapping(fallback, with_variant=bool(variants))}",
        "    tables:",
    ]
    for key, (folder, _) in tables.items():
        path = Path(os.path.relpath(folder.resolve(), spec.resolve().parent)).as_posix()
        if path.startswith(".."):
            raise InputError(
                folder, f"lies outside the folder of {spec}, below which all tables of a spec lie"
            )
        lines.append(f"      {key}: {path}")
    return lines


def _derived_lines(plain: Sequence[str]) -> list[str]:
    if len(plain) < 2:
        return []
    lines = ["    derived:  # what a tree may ask about, too: sizes that decide how a launch fills the GPU"]
    pairs = list(combinations(plain, 2)) if len(plain) <= _MOST_PRODUCTS else [(plain[0], plain[1])]
    return [*lines, *(f"      {one}_{other}: {one} * {other}" for one, other in pairs)]


def _steadiest(tables: Sequence[RecordedTable]) -> TableConfig | None:
    """The config with the least geometric mean slowdown of those that never failed; None without a time.

    Configs that are timed in less than half as many scenarios as another do not count.
    """
    slowdowns: dict[str, list[float]] = {}
    failed: set[str] = set()
    known: dict[str, TableConfig] = {}
    for table in tables:
        ids = [config.id for config in table.header.configs]
        known.update({config.id: config for config in table.header.configs})
        times: dict[str, dict[str, list[float]]] = {}
        for row in table.rows:
            for config, time in zip(ids, row.times, strict=True):
                if time == math.inf:
                    failed.add(config)
                elif time == time:  # NaN was not measured
                    times.setdefault(row.scenario, {}).setdefault(config, []).append(time)
        for cells in times.values():
            medians = {config: median(values) for config, values in cells.items()}
            best = min(medians.values())
            for config, time in medians.items():
                slowdowns.setdefault(config, []).append(time / best)
    steady = {config: values for config, values in slowdowns.items() if config not in failed} or slowdowns
    most = max(map(len, steady.values()), default=0)
    counted = {c: geometric_mean(values) for c, values in steady.items() if 2 * len(values) >= most}
    return known[min(counted, key=counted.__getitem__)] if counted else None


def _mapping(config: TableConfig, *, with_variant: bool) -> str:
    entries = {**({"variant": config.variant} if with_variant else {}), **config.parameters}
    return "{" + ", ".join(f"{name}: {value}" for name, value in entries.items()) + "}"


def _text(word: object) -> str:
    """A word as YAML text: quoted, so that `true` stays one."""
    return f'"{word}"'


# Bytes of shared memory that a block may have: NVIDIA, CUDA C++ Programming Guide, technical specifications
# per compute capability; AMD, CDNA3 and RDNA3 instruction set architectures, LDS of a workgroup.
SHARED_MEMORY = {
    "sm_70": 98304,
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_87": 166912,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_103": 232448,
    "sm_120": 101376,
    "gfx90a": 65536,
    "gfx942": 65536,
    "gfx950": 163840,
    "gfx1100": 65536,
}
_PROBE = """
import json, torch
card = torch.cuda.get_device_properties(0)
arch = card.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{card.major}{card.minor}"
names = "shared_memory_per_block_optin", "shared_memory_per_block"
print(json.dumps([card.name, arch, next((getattr(card, n) for n in names if hasattr(card, n)), None)]))
"""
_PROBE_SECONDS = 120


@dataclass(frozen=True)
class Gpu:
    """A GPU, or the CPU, on which Triton's interpreter runs kernels."""

    name: str  # as the driver reports it
    arch: str
    shared_memory: int | None  # measured bytes a block; None: look it up

    @property
    def key(self) -> str:
        return "cpu" if self.arch == "cpu" else device_key(self.name)

    @property
    def vendor(self) -> str:
        if self.arch.startswith("sm_"):
            return "nvidia"
        return "amd" if self.arch.startswith("gfx") else self.key.partition("_")[0]


def gpu_here() -> Gpu:
    """The first GPU of this machine, read in another process. Raises InputError without torch or GPU."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
        name, arch, shared = json.loads(asked.stdout)
    except (subprocess.SubprocessError, ValueError, OSError):
        what = "torch finds no GPU here; describe one: --name 'NVIDIA L40S' --arch sm_89"
        raise InputError("new-device", what) from None
    return Gpu(str(name), str(arch), None if shared is None else int(shared))


def device_section(gpu: Gpu) -> list[str]:
    """The lines below `devices:`, with comments."""
    if gpu.arch == "cpu":
        return ["  cpu:", "    vendor: cpu  # Triton's interpreter"]
    lines = [
        f"  {gpu.key}:",
        f"    names: [{_quoted(gpu.name)}]  # as the driver reports it; also longer names that begin so",
    ]
    if gpu.arch:
        arch = f"    arch: {_quoted(gpu.arch)}  # the first device of an architecture serves its other GPUs"
        lines.append(arch)
    lines.append(f"    vendor: {gpu.vendor}")
    shared = gpu.shared_memory or SHARED_MEMORY.get(gpu.arch)
    if shared is None:
        return [
            *lines,
            "    # limits: {shared_memory: ...}  # bytes a block, for constraints and `treegen check`",
        ]
    source = "measured by torch" if gpu.shared_memory else f"what {gpu.arch} has by its vendor's manual"
    return [
        *lines,
        "    limits:  # for constraints and `treegen check`",
        f"      shared_memory: {shared}  # bytes a block; {source}",
    ]


def _quoted(text: str) -> str:
    """A YAML scalar of plain text. Raises InputError for other text."""
    if not text.isascii() or not text.isprintable() or len(text) > 200:
        raise InputError("device", f"{shown(text)} is not a plain name")
    plain = all(c.isalnum() or c in " _.()/-" for c in text) and text[:1].isalpha() and text == text.strip()
    return text if plain else json.dumps(text)
