"""A first treegen.yaml for tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np

from treegen.core import expr
from treegen.core.errors import InputError
from treegen.core.table import median_times, needless
from treegen.read.problem import as_table, spec_problem
from treegen.read.spec import read_spec
from treegen.read.words import CONFIG, FORMAT, SPEC
from treegen.start.gpu import SHARED_MEMORY, Gpu, described, device_section, gpu_of, quoted
from treegen.start.shared_memory import shared_memory_constraint
from tuning_table import read
from tuning_table.names import letters_for, listed, numbered
from tuning_table.table import RecordedTable, TableConfig, TableHeader

_MOST_PRODUCTS = 3  # features of which all products of two are listed


class GpuTable(NamedTuple):
    """A table and the GPU that measured it. The table may have no times yet."""

    folder: Path
    gpu: Gpu
    table: RecordedTable

    @property
    def kernel(self) -> str:
        return self.table.header.kernel


def gpu_table(folder: Path) -> GpuTable:
    """The table in a folder, finished or not. Raises InputError."""
    table = read(folder, running=True)
    return GpuTable(folder, gpu_of(table.header.provenance["device"]), table)


def spec_text(folders: Sequence[Path], spec: Path, output: str) -> str:
    """The text of a spec at `spec` that compiles the tables in `folders` into the folder `output`.

    Raises InputError: a table cannot be read or lies outside the spec's folder, two are of one kernel and
    device, or a build would refuse the spec because of a name in a table.
    """
    kernels: dict[str, dict[str, GpuTable]] = {}
    every = list(map(gpu_table, folders))
    for measured in every:
        tables = kernels.setdefault(measured.kernel, {})
        if (other := tables.setdefault(measured.gpu.key, measured)) is not measured:
            what = f"a table of {measured.kernel} on {measured.gpu.key}, as {other.folder} is"
            raise InputError(measured.folder, what)
    gpus = {measured.gpu.key: measured.gpu for measured in every}
    lines = [
        "# What treegen compiles, and how; docs/spec.md of treegen explains every word.",
        f"format: {FORMAT}",
        described("output", quoted(output), SPEC.inside, 0),
        "",
        "devices:",
        *(line for gpu in gpus.values() for line in device_section(gpu)),
        "",
        "kernels:",
        *(line for kernel, tables in kernels.items() for line in kernel_section(kernel, tables, spec)),
    ]
    text = "\n".join(lines) + "\n"
    refuse_unbuildable(text, spec, every)
    return text


def refuse_unbuildable(text: str, spec: Path, tables: Sequence[GpuTable]) -> None:
    """Raise InputError if a build would refuse this text of a spec, or one of the tables because of it."""
    try:
        read = read_spec(spec, text)
        measured = {own.folder.resolve(): own for own in tables if own.table.visits}
        for kernel in read.kernels.values():
            for device, folder in kernel.tables.items():
                if own := measured.get(folder):
                    spec_problem(kernel, read.devices[device], as_table(own.folder, own.table))
    except InputError as error:
        unwritten = re.compile(f"^{re.escape(str(spec))}:[0-9]+: ", re.MULTILINE)
        what = "; ".join(unwritten.sub("", str(error)).split("\n"))
        where = ", ".join(str(own.folder) for own in tables)
        raise InputError(where, f"a build would refuse its spec: {what}") from None


def kernel_section(kernel: str, tables: Mapping[str, GpuTable], spec: Path) -> list[str]:
    """The lines of a kernel below `kernels:`, with comments."""
    recorded = [measured.table for measured in tables.values()]
    columns = _columns(recorded)
    parameters = list(dict.fromkeys(n for table in recorded for n in table.header.configs[0].parameters))
    words = _words([table.header for table in recorded], [*columns, *parameters])
    headers = [table.header for table in recorded]
    left_out = needless(columns)
    left_out = {} if len(left_out) == len(columns) else left_out
    features = [name for name in columns if name not in left_out]
    words = {name: numbers for name, numbers in words.items() if name not in left_out}
    plain = [name for name in features if name not in words]
    variants = list(dict.fromkeys(c.variant for header in headers for c in header.configs if c.variant))
    lines = [f"  {quoted(kernel)}:"]
    functions = {f for header in headers if (f := header.provenance.get("function"))}
    if len(functions) == 1:
        lines.append(described("function", quoted(functions.pop())))
    if left_out:
        lines.append(f"    # The table's other features tell nothing: {'; '.join(left_out.values())}.")
    lines.append(described("features", _flow(features)))
    if words:
        lines.append(described("values"))
        lines += [f"      {quoted(name)}: {json.dumps(listed(numbers))}" for name, numbers in words.items()]
    lines += _held_out(features, words, columns, headers)
    waves = all(measured.gpu.multiprocessors for measured in tables.values())
    derived = _derived(plain, {*columns, *parameters, "multiprocessors"}, recorded, waves=waves)
    if derived:
        lines.append(described("derived"))
        lines += [f"      {name}: {formula}" for name, formula in derived.items()]
    lines.append("    config:")
    if variants:
        lines.append(f"      variants: {_flow(variants)}")
    if parameters:
        lines.append(described("parameters", "", CONFIG, 6))
        for name, letters in letters_for(parameters).items():
            absent = next((number for number, word in words.get(name, {}).items() if word == "absent"), None)
            default = f"{{letter: {quoted(letters)}, default: {absent}}}"
            lines.append(f"        {quoted(name)}: {quoted(letters) if absent is None else default}")
    limits = [(own.folder, SHARED_MEMORY.get(own.gpu.arch, 0)) for own in tables.values()]
    constraint = shared_memory_constraint(limits, plain) if all(limit for _, limit in limits) else None
    if constraint is None:
        lines.append(described("# constraints", "[]"))
    else:
        why = "every config that failed for lack of it breaks this, and none that worked"
        lines.append(f"    constraints: [{json.dumps(constraint)}]  # {why}")
    steadiest = _steadiest(recorded)
    source = "This is the fastest of those that never failed." if steadiest else "Nothing was timed yet."
    fallback = _mapping(*(steadiest or (headers[0], headers[0].configs[0])), words)
    return [
        *lines,
        "    # The config for unknown devices, and where no config of a row may be launched. The kernel",
        f"    # must accept it for every shape on every GPU. {source}",
        f"    fallback: {fallback}",
        "    tables:",
        *(f"      {table_entry(key, measured, spec)}" for key, measured in tables.items()),
    ]


def _held_out(
    features: Sequence[str],
    words: Collection[str],
    columns: Mapping[str, Mapping[tuple[int, str], int | str]],
    headers: Sequence[TableHeader],
) -> list[str]:
    """What a model fixes and groups of scenarios share, by the run or, without that, by a guess."""
    constants = [name for name in features if any(name in header.constants for header in headers)]
    held = [name for name in constants if name not in words] or constants  # a new model has known types
    what = "what a model or a layer fixes: figures say what new ones get"
    sizes = [name for name in features if name not in words]
    if not constants and len(sizes) > 1:
        step = max(sizes, key=lambda name: len(set(columns[name].values())))
        held = [name for name in sizes if name != step]
        what = f"a guess, as {step} has the most values; {what}"
    return [
        f"    {'' if held else '# '}hold_out_by: {_flow(held)}  # {what}",
        described("# constants", _flow(constants or held)),
        described("# classes"),
        "    #   small: FEATURE <= 1024",
        "    #   large: otherwise",
    ]


def _flow(names: Sequence[str]) -> str:
    """A list in one line; with dots to fill in if there is none."""
    return f"[{', '.join(map(quoted, names)) or '...'}]"


def _words(headers: Sequence[TableHeader], names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The words of all tables by new integers, and `absent` for a parameter that some tables lack."""
    numbers: dict[str, dict[int, str]] = {}
    for name in names:
        of_tables = [[c.parameters[name] for c in h.configs if name in c.parameters] for h in headers]
        lacking = any(of_tables) and not all(of_tables)
        words = dict.fromkeys(["absent"] if lacking else [])
        words |= dict.fromkeys(word for header in headers for word in header.words.get(name, {}).values())
        worded = [header.words.get(name, {}) for header in headers]
        plain = {v for own, values in zip(worded, of_tables, strict=True) for v in values if v not in own}
        if words:
            numbers[name] = numbered(words, plain)
    return numbers


def table_entry(key: str, measured: GpuTable, spec: Path) -> str:
    """The entry of a table under `tables`."""
    path = Path(os.path.relpath(measured.folder.resolve(), spec.resolve().parent)).as_posix()
    return f"{quoted(key)}: {quoted(path)}"


def _columns(tables: Sequence[RecordedTable]) -> dict[str, dict[tuple[int, str], int | str]]:
    """By feature, its value or word in each scenario of each table."""
    columns: dict[str, dict[tuple[int, str], int | str]] = {}
    for place, table in enumerate(tables):
        for at, name in enumerate(table.header.features):
            words = table.header.words.get(name, {})
            column = columns.setdefault(name, {})
            column |= {(place, s): words.get(row[at], row[at]) for s, row in table.scenarios.items()}
    return columns


def _derived(
    plain: Sequence[str], taken: set[str], tables: Sequence[RecordedTable], *, waves: bool
) -> dict[str, str]:
    """Products of features, or numbers of tiles where parameters are tiles' sizes, as BLOCK_K is along K.

    waves: whether the limit `multiprocessors` is known.
    """
    tiles = {f"tiles_{n}": f"ceil_div({n}, {size})" for n in plain if (size := _tile(n, tables))}
    formulas = dict(tiles)
    if len(tiles) > 1:  # the first two: those of the output
        formulas["tiles"] = " * ".join(list(tiles)[:2])
        if waves:
            formulas["waves"] = "ceil_div(tiles, max(1, multiprocessors))"
    elif len(plain) > 1:
        pairs = list(combinations(plain, 2)) if len(plain) <= _MOST_PRODUCTS else [(plain[0], plain[1])]
        formulas |= {f"{one}_{other}": f"{one} * {other}" for one, other in pairs}
    kept: dict[str, str] = {}
    rows = [dict(zip(t.header.features, row, strict=True)) for t in tables for row in t.scenarios.values()]
    for name, formula in formulas.items():
        parsed = expr.parse(formula)
        parts = expr.names(parsed) - {"multiprocessors"}
        complete = [row for row in rows if parts <= row.keys()]
        values = [expr.evaluate(parsed, {**row, "multiprocessors": 1}) for row in complete]
        if name in taken or not values or max(value.bit_length() for value in values) > 62:
            continue
        kept[name] = formula
        for row, value in zip(complete, values, strict=True):
            row[name] = value
    return kept


def _tile(feature: str, tables: Sequence[RecordedTable]) -> int:
    """The middle one of the sizes of tiles along a feature; 0 if no parameter is one."""
    size = re.compile(f"(B|BLOCK|BLOCK_SIZE|TILE|TILE_SIZE)_?{feature}|{feature}_?(BLOCK|TILE)", re.I)
    configs = [config.parameters for table in tables for config in table.header.configs]
    sizes = sorted({v for config in configs for n, v in config.items() if v > 1 and size.fullmatch(n)})
    return sizes[(len(sizes) - 1) // 2] if sizes else 0


def _steadiest(tables: Sequence[RecordedTable]) -> tuple[TableHeader, TableConfig] | None:
    """The config with the least geometric mean slowdown of those that never failed, and its table's header.

    Configs that are timed in less than half as many scenarios as another do not count. None without a time.
    """
    configs: dict[str, tuple[TableHeader, TableConfig]] = {}
    slowdowns: dict[str, list[float]] = {}
    failed: set[str] = set()
    for table in tables:
        if not table.visits:
            continue
        times = median_times(as_table(Path(), table))  # inf where a config failed
        timed = np.isfinite(times)
        slowdown = times / np.min(times, axis=1, where=timed, initial=np.inf, keepdims=True)
        for place, config in enumerate(table.header.configs):
            configs[config.id] = table.header, config
            slowdowns.setdefault(config.id, []).extend(slowdown[timed[:, place], place].tolist())
            if np.isinf(times[:, place]).any():
                failed.add(config.id)
    timed_ids = {config: values for config, values in slowdowns.items() if values}
    steady = {config: values for config, values in timed_ids.items() if config not in failed} or timed_ids
    most = max(map(len, steady.values()), default=0)
    counted = {c: geometric_mean(values) for c, values in steady.items() if 2 * len(values) >= most}
    return configs[min(counted, key=counted.__getitem__)] if counted else None


def _mapping(header: TableHeader, config: TableConfig, words: Mapping[str, Mapping[int, str]]) -> str:
    """A config of a table with that header, with the integers that stand for words in the spec."""
    texts = [] if config.variant is None else [f"variant: {quoted(config.variant)}"]
    for name, value in config.parameters.items():
        word = header.words.get(name, {}).get(value)
        number = next((n for n, own in words.get(name, {}).items() if own == word), value)
        texts.append(f"{quoted(name)}: {number}")
    return "{" + ", ".join(texts) + "}"
