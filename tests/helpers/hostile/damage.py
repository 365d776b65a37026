"""Damage to a project's files, from single bytes to links in place of folders.

Each kind is a function of a `Random` and a folder, which it changes. One that finds nothing left to damage
changes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import yaml
from hostile.folder import CASE, EMPTY, PIPE, Entry, Folder, Link
from hostile.payloads import (
    CELLS,
    CODE,
    EXPRESSIONS,
    LINK_TARGETS,
    MODULE_LINES,
    NAMES,
    NUMBERS,
    PATHS,
    SNIPPETS,
    YAML_BLOCKS,
)
from hostile.project import (
    CACHE,
    CSV_FILES,
    LOCK,
    MODULES,
    OUTPUT,
    SPEC,
    WORDS,
    YAML_FILES,
    csv_bytes,
    yaml_bytes,
)

Damage = Callable[[Random, Folder], None]
Change = Callable[[Random, Any], None]

NOTHING_LEFT = (
    *(yaml.YAMLError, csv.Error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    RecursionError,
)
"""Errors of damage to what earlier damage left."""


def content(folder: Folder, name: str) -> bytes:
    """The bytes of a file; empty for anything else."""
    entry = folder.get(name)
    return entry if isinstance(entry, bytes) else b""


# Bytes


def damage_bytes(random: Random, folder: Folder, names: tuple[str, ...]) -> None:
    """Change one to three places of one file."""
    name = random.choice(names)
    for _ in range(random.choice((1, 1, 2, 3))):
        folder[name] = _damaged(random, content(folder, name))


def _damaged(random: Random, text: bytes) -> bytes:
    one, two, three = sorted(random.randint(0, len(text)) for _ in range(3))
    match random.randrange(11):
        case 0:
            return text[:one]
        case 1:
            return text[one:]
        case 2 | 3:
            return text[:one] + random.choice(SNIPPETS) + text[random.choice((one, min(one + 5, two))) :]
        case 4:
            flipped = bytearray(text)
            for _ in range(random.randint(1, 4) if text else 0):
                flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
            return bytes(flipped)
        case 5:
            return text[:one] + text[two:three] + text[one:two] + text[three:]
        case 6:
            return text[:two] + text[one:two] * random.choice((1, 2, 50)) + text[two:]
        case 7:
            lines = text.splitlines(keepends=True) or [b""]
            line, other = random.randrange(len(lines)), random.randrange(len(lines))
            lines[line : line + random.randrange(2)] = random.choice(([], [lines[other]]))
            return b"".join(lines)
        case 8:
            filling = random.choice((b"x", b" ", b"9", b"[", b"{a: ", b"(", b"- ", b"\n", b'"', b"\\"))
            return text[:one] + filling * random.choice((1_000, 200_000)) + text[one:]
        case 9:
            return text.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"")))
    encoding = random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"))
    return text.decode("utf-8", "replace").encode(encoding, "replace")


def yaml_tricks(random: Random, folder: Folder) -> None:
    """Insert YAML beyond plain data: aliases, tags, merge keys, documents, nesting, huge numbers."""
    name = random.choice(YAML_FILES)
    lines = content(folder, name).decode("utf-8", "replace").splitlines(keepends=True)
    place = random.choice((0, len(lines), random.randint(0, len(lines))))
    indent = " " * random.choice((0, 0, 2, 4))
    block = "".join(indent + line for line in random.choice(YAML_BLOCKS).splitlines(keepends=True))
    folder[name] = "".join([*lines[:place], block, *lines[place:]]).encode("utf-8", "surrogatepass")


# Nested data


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every mapping or list in nested data with each of its keys or indices, outermost first."""
    if isinstance(data, dict | list):
        for key in list(data) if isinstance(data, dict) else range(len(data)):
            yield data, key
            yield from places(data[key])


def damage_data(random: Random, folder: Folder, names: tuple[str, ...], *changes: Change) -> None:
    """Apply one change to the data of one YAML or JSON file."""
    name = random.choice(names)
    with contextlib.suppress(*NOTHING_LEFT):
        text = content(folder, name)
        if name.endswith(".yaml") and b"&" in text:
            return  # aliases may stand for more than there is memory
        data = yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)
        random.choice(changes)(random, data)
        folder[name] = yaml_bytes(data) if name.endswith(".yaml") else json.dumps(data).encode()


def value(random: Random, data: Any) -> None:
    """Another value in any place."""
    holder, key = random.choice(list(places(data)))
    holder[key] = random.choice((*NUMBERS, *NAMES, *CODE, [], {}, [[]], {"a": {}}, [None], "x" * 300_000))


def number(random: Random, data: Any) -> None:
    """Another number in place of one."""
    holder, key = random.choice([(h, k) for h, k in places(data) if isinstance(h[k], int | float)])
    holder[key] = random.choice(NUMBERS)


def text(random: Random, data: Any) -> None:
    """Code or markup in place of a text."""
    holder, key = random.choice([(h, k) for h, k in places(data) if isinstance(h[k], str)])
    holder[key] = random.choice(CODE)


def key(random: Random, data: Any) -> None:
    """Another key in the same position."""
    holder, old = random.choice([(h, k) for h, k in places(data) if isinstance(h, dict)])
    rename_key(holder, old, random.choice((*NAMES, *CODE[:-1])))


def rename_key(holder: dict[Any, Any], old: Any, new: str) -> None:
    items = [(new if name == old else name, inner) for name, inner in holder.items()]
    holder.clear()
    holder.update(items)


def structure(random: Random, data: Any) -> None:
    """An entry removed, swapped, copied, wrapped or multiplied."""
    every = list(places(data))
    (holder, where), (donor, source) = random.choice(every), random.choice(every)
    match random.randrange(5):
        case 0:
            del holder[where]
        case 1:
            holder[where], donor[source] = copy.deepcopy((donor[source], holder[where]))
        case 2:
            holder[where] = copy.deepcopy(donor[source])
        case 3:
            holder[where] = random.choice(([holder[where]], {"a": holder[where]}, {where: holder[where]}))
        case _ if isinstance(holder, list):
            holder[where:where] = copy.deepcopy([holder[where]] * random.choice((1, 2, 3000)))
        case _:
            many = random.choice((1, 40, 2000))
            holder |= {f"{where}{k}": copy.deepcopy(holder[where]) for k in range(many)}


def folder_of_spec(random: Random, data: Any) -> None:
    """Another folder for the output or a table."""
    tables = data["kernels"]["scale"]["tables"]
    holder, where = random.choice([(data, "output"), *((tables, device) for device in tables)])
    holder[where] = random.choice((*PATHS, f"{CASE}/project/generated", f"{CASE}/outside"))


def expression(random: Random, data: Any) -> None:
    """Another expression, or a chain of derived features that grow."""
    kernel = data["kernels"]["scale"]
    found = random.choice(EXPRESSIONS)
    match random.randrange(6):
        case 0:
            kernel["derived"][random.choice(("area", "share", "more"))] = found
        case 1:
            kernel["constraints"][random.randrange(len(kernel["constraints"]))] = found
        case 2:
            kernel["objective"]["weight"] = found
        case 3:
            kernel["regimes"][random.choice(("decode", "large"))] = f"{found} <= 4"
        case 4:
            kernel["invariants"][random.randrange(len(kernel["invariants"]))] = f"{found} <= 4"
        case _:
            operator, count = random.choice("*+-"), random.choice((1, 2, 4, 60))
            last = random.choice(("rows", "memory", "4611686018427387903"))
            for step in range(random.choice((1, 3, 40, 200, 2000))):
                product = operator.join([last] * count)[:280].rstrip("*+-")
                kernel["derived"][last := f"d{step}"] = product if count > 1 else f"{last} - 1"
            kernel["split_on"] = [last, *kernel["split_on"]]


# Tables, names, files


def damage_rows(random: Random, folder: Folder) -> None:
    """Change, move, double or remove a cell, column, row or id of a table."""
    name = random.choice(CSV_FILES)
    with contextlib.suppress(*NOTHING_LEFT):
        rows = list(csv.reader(io.StringIO(content(folder, name).decode(), newline="")))
        row = random.choice(rows[1:] or rows)
        one, two = (random.randrange(len(rows[0])) for _ in range(2))
        match random.randrange(8):
            case 0:
                row[one] = random.choice(CELLS)
            case 1:
                rows[0][one] = random.choice((*NAMES, *CELLS, rows[0][two]))
            case 2:  # with the header, which is harmless, or without
                for line in rows if random.random() < 0.4 else rows[1:]:
                    line[one], line[two] = line[two], line[one]
            case 3:
                rows.insert(random.randrange(len(rows)), list(row))
            case 4:
                rows.remove(row)
            case 5:
                row[one : one + 1] = [] if random.random() < 0.5 else [row[0], row[-1]]
            case 6:
                cell = random.choice(CELLS)
                for line in rows[1:]:
                    line[one] = cell
            case _:
                rows.extend([f"x{k}", *row[1:]] for k in range(random.choice((1, 100, 2000))))
        folder[name] = csv_bytes(rows)


def rename_everywhere(random: Random, folder: Folder) -> None:
    """Replace one name in the spec, the tables and the cache, so that only the name can be wrong."""
    old, new = random.choice(WORDS), random.choice(NAMES)

    def renamed(data: Any) -> Any:
        if isinstance(data, dict):
            return {renamed(str(name)): renamed(inner) for name, inner in data.items()}
        if isinstance(data, list):
            return [renamed(inner) for inner in data]
        return re.sub(rf"\b{old}\b", lambda _: new, data) if isinstance(data, str) else data

    with contextlib.suppress(*NOTHING_LEFT):
        for name in YAML_FILES:
            folder[name] = yaml_bytes(renamed(yaml.safe_load(content(folder, name))))
        for name in CSV_FILES:
            rows = csv.reader(io.StringIO(content(folder, name).decode(), newline=""))
            folder[name] = csv_bytes([renamed(row) for row in rows])
        folder[CACHE] = json.dumps(renamed(json.loads(content(folder, CACHE)))).encode()


def replace_files(random: Random, folder: Folder) -> None:
    """Replace a file or folder by a link, a pipe, a folder or an empty file."""
    package = f"{OUTPUT}/scale"
    names = (
        *YAML_FILES,
        *CSV_FILES,
        CACHE,
        LOCK,
        *MODULES,
        OUTPUT,
        package,
        "project/tables",
        "project/link",
    )
    name = random.choice((*names, *(f"{package}/{n}" for n in ("config.py", "stale.py", ".treegen-litter"))))
    below = [found for found in folder if found == name or found.startswith(f"{name}/")]
    if random.random() < 0.3:
        to = random.choice(("outside/moved", "project/moved"))
        for found in below:
            folder[to + found.removeprefix(name)] = folder.pop(found)
        folder[name] = Link(f"{CASE}/{to}")
        return
    for found in below:
        del folder[found]
    target = random.choice(
        (*LINK_TARGETS, name.rsplit("/", 1)[-1], f"{CASE}/outside/other.py", f"{CASE}/{SPEC}")
    )
    entries: tuple[Entry, ...] = (Link(target), Link(target), PIPE, EMPTY, b"", b"\0")
    folder[name] = random.choice(entries)


# The previous build's files


def previous_module(random: Random, folder: Folder) -> None:
    """Edit a module; most of the time the lock agrees with the edit."""
    name = random.choice(MODULES)
    old = content(folder, name)
    match random.randrange(4):
        case 0:
            damage_bytes(random, folder, (name,))
        case 1:
            lines = old.splitlines(keepends=True)
            lines.insert(random.randint(0, len(lines)), random.choice(MODULE_LINES).encode() + b"\n")
            folder[name] = b"".join(lines)
        case 2:
            new = random.choice((b"0", b"-1", b"10_000", b"1" + b"0" * 30, b"9" * 4000, b"1e3", b"rows"))
            numbers = list(re.finditer(rb"(?<=[= ])-?[0-9_]+", old))
            if numbers:
                start, end = random.choice(numbers).span()
                folder[name] = old[:start] + new + old[end:]
        case _:
            folder[name] = content(folder, random.choice(MODULES))
    if random.random() < 0.7:
        was, now = (hashlib.sha256(text).hexdigest().encode() for text in (old, content(folder, name)))
        folder[LOCK] = content(folder, LOCK).replace(was, now)


def previous_lock(random: Random, folder: Folder) -> None:
    """Damage the lock, or make it lie."""
    if random.random() < 0.3:
        damage_bytes(random, folder, (LOCK,))
    else:
        damage_data(random, folder, (LOCK,), value, number, key, structure, text)


_SPEC, _RUNS = (SPEC,), YAML_FILES[1:]

KINDS: dict[str, Damage] = {
    "bytes of the spec": partial(damage_bytes, names=_SPEC),
    "bytes of run.yaml": partial(damage_bytes, names=_RUNS),
    "bytes of a CSV file": partial(damage_bytes, names=CSV_FILES),
    "bytes of a cache": partial(damage_bytes, names=(CACHE,)),
    "bytes of modules and the lock": partial(damage_bytes, names=(*MODULES, LOCK)),
    "YAML tricks": yaml_tricks,
    "spec: values, keys, structure": lambda r, f: damage_data(r, f, _SPEC, value, key, structure),
    "spec: numbers": lambda r, f: damage_data(r, f, _SPEC, number),
    "spec: texts": lambda r, f: damage_data(r, f, _SPEC, text),
    "spec: expressions": lambda r, f: damage_data(r, f, _SPEC, expression),
    "spec: folders": lambda r, f: damage_data(r, f, _SPEC, folder_of_spec),
    "run.yaml: values, keys, structure": lambda r, f: damage_data(r, f, _RUNS, value, key, structure),
    "run.yaml: numbers, texts": lambda r, f: damage_data(r, f, _RUNS, number, text),
    "tables: rows, columns, cells": damage_rows,
    "a name everywhere": rename_everywhere,
    "cache: values, keys, structure": lambda r, f: damage_data(r, f, (CACHE,), value, key, structure),
    "cache: numbers, texts": lambda r, f: damage_data(r, f, (CACHE,), number, text),
    "links, pipes, folders": replace_files,
    "the previous build's modules": previous_module,
    "the previous build's lock": previous_lock,
}
