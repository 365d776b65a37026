"""Write or compare the output folder. Every file is replaced whole, and none before all could be written."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from treegen.emit.python import MARK
from treegen.errors import InputError, reason
from treegen.files import looked_at

_STAGED = ".treegen-"


def write_files(folder: Path, files: Mapping[str, str], *, remove: list[Path] | None = None) -> list[str]:
    """Bring `folder` to hold exactly these texts; returns the relative paths that changed.

    First all changed files are written beside their targets, then all are renamed into place, then the
    files in `remove` go. A failure in the first step (disk full, no permission, Ctrl-C) leaves everything as
    it was; what a kill leaves behind, the next call clears away. Raises InputError.
    """
    _check_targets(folder, files)
    changed = [name for name, text in files.items() if _content(folder / name) != text.encode()]
    staged: list[tuple[Path, Path]] = []
    made: list[Path] = []
    try:
        for name in changed:
            target = folder / name
            _make_folders(target.parent, made)
            staged.append((_stage(target, files[name].encode()), target))
        for temporary, target in staged:
            temporary.replace(target)
        for path in [*(remove or ()), *_litter(folder, files)]:
            path.unlink(missing_ok=True)
    except BaseException as error:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError | ValueError):
            raise InputError(folder, f"cannot be written: {reason(error)}") from None
        raise
    return changed


def _check_targets(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse, before anything is written, targets that are folders or lie behind a link out of `folder`."""
    for name in files:
        target = folder / name
        looked_at(target, Path.exists)
        if looked_at(target, Path.is_dir):
            raise InputError(target, "is a folder, but a file belongs there")
        for parent in target.relative_to(folder).parents:
            if (folder / parent).is_symlink() and parent != Path():
                raise InputError(folder / parent, "is a symbolic link; nothing is written through it")


def _stage(target: Path, content: bytes) -> Path:
    """A complete file beside `target`, on disk, with ordinary permissions."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=_STAGED)
    try:
        with open(descriptor, "wb") as out:  # noqa: PTH123 - it is a descriptor
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o666 & ~_umask())
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)


def _litter(folder: Path, files: Mapping[str, str]) -> Iterator[Path]:
    """Staged files of a run that was killed."""
    for parent in sorted({(folder / name).parent for name in files}):
        yield from (path for path in sorted(parent.glob(f"{_STAGED}*")) if path.is_file())


def foreign_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Modules in the place of generated ones that treegen did not write: not to be replaced unasked."""
    looked_at(folder, Path.exists)
    modules = [folder / name for name in files if name.endswith(".py")]
    return [
        path for path in modules if _content(path) is not None and not path.is_symlink() and not _marked(path)
    ]


def stale_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Modules in `folder` that treegen once wrote and that no longer belong there."""
    # A folder with a generated config.py is a kernel's package; any other may be another project's output.
    packages = [path.parent for path in sorted(folder.glob("*/config.py")) if _marked(path)]
    folders = [folder, *(path for path in packages if not path.is_symlink())]
    found = [path for package in folders for path in sorted(package.glob("*.py"))]
    return [path for path in found if path.relative_to(folder).as_posix() not in files and _marked(path)]


def differences(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """One line for every file in `folder` that is not what a build would write."""
    for name, text in sorted(files.items()):
        current = _content(folder / name)
        if current is None:
            yield f"{folder / name} is missing"
        elif current != text.encode():
            yield f"{folder / name} is stale: {_first_difference(current, text)}"
    for path in stale_files(folder, files):
        yield f"{path} belongs to no table of the spec any more"


def _first_difference(current: bytes, wanted: str) -> str:
    text = current.decode(errors="replace")
    if text.split() == wanted.split() and text.splitlines() == wanted.splitlines():
        return "its line ends are not those that a build writes"
    old, new = text.splitlines(), wanted.splitlines()
    first = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    have = ascii(old[first].strip()) if first < len(old) else "the end of the file"
    need = ascii(new[first].strip()) if first < len(new) else "the end of the file"
    return f"line {first + 1} is {have}, a build gives {need}"


def _marked(path: Path) -> bool:
    return MARK.encode() in (_content(path) or b"").split(b"\n", 1)[0]


def _content(path: Path) -> bytes | None:
    """What a plain file holds; None where there is none."""
    try:
        return path.read_bytes() if stat.S_ISREG(path.stat().st_mode) else None
    except (OSError, ValueError):
        return None


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make `folder` and its parents, noting which did not exist."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        made.append(path)
    if not folder.is_dir():
        raise FileExistsError(17, "File exists")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
