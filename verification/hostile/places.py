"""Files and folders that are something else than they seem: links, pipes, devices, folders."""

from __future__ import annotations

from random import Random

from verification.hostile.folder import CASE, EMPTY, PIPE, Entry, Folder, Link
from verification.hostile.project import CACHE, CSV_FILES, LOCK, MODULES, OUTPUT, SPEC, YAML_FILES

_TARGETS = (
    *("/dev/zero", "/dev/null", "/dev/full", "/dev/stdin", "/proc/self/mem", "/etc/passwd", "/nowhere"),
    *(f"{CASE}/outside", f"{CASE}/outside/other.py", f"{CASE}/outside/text.txt", f"{CASE}/{SPEC}"),
    *("..", ".", "self", "../outside", "../../outside/other.py", "notes.txt", "x" * 300),
)
_READ = (*YAML_FILES, *CSV_FILES, CACHE)
_WRITTEN = (
    LOCK,
    *MODULES,
    f"{OUTPUT}/__init__.py",
    f"{OUTPUT}/scale/__init__.py",
    f"{OUTPUT}/scale/config.py",
    f"{OUTPUT}/scale/stale.py",
    f"{OUTPUT}/.treegen-litter",
    f"{OUTPUT}/scale/.treegen-litter",
)


def damage(random: Random, folder: Folder) -> None:
    """One file or folder replaced by something else."""
    name = random.choice(
        (*_READ, *_WRITTEN, *_WRITTEN, OUTPUT, f"{OUTPUT}/scale", "project/tables", "project/link")
    )
    if random.random() < 0.3:
        _move(folder, name, random.choice(("outside/moved", "project/moved")))
        return
    target = name.rsplit("/", 1)[-1] if (found := random.choice(_TARGETS)) == "self" else found
    entry: Entry = random.choice((Link(target), Link(target), Link(target), PIPE, EMPTY, b"", b"\0"))
    _remove(folder, name)
    folder[name] = entry


def _move(folder: Folder, name: str, to: str) -> None:
    """The file or folder moved elsewhere, with a link in its place."""
    for found in [found for found in folder if found == name or found.startswith(f"{name}/")]:
        folder[to + found.removeprefix(name)] = folder.pop(found)
    folder[name] = Link(f"{CASE}/{to}")


def _remove(folder: Folder, name: str) -> None:
    for found in [found for found in folder if found == name or found.startswith(f"{name}/")]:
        del folder[found]
