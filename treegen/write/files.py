"""Write the output folder or compare it. Files are replaced whole, and only once all could be written."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from treegen.core.errors import InputError, reason
from treegen.core.files import MAX_BYTES, try_path
from treegen.core.names import IN_KERNEL
from treegen.emit.environment import MARK

_STAGED = ".treegen-"
_CONFIG = "config.py"


def write_files(
    folder: Path,
    files: Mapping[str, str | bytes],
    *,
    remove: list[Path] | None = None,
    interim: Mapping[str, str] | None = None,
) -> list[str]:
    """Write these texts and images below `folder`; returns the relative paths that changed.

    All changed files are first written beside their targets. Then they are renamed into place in the order of
    `files`. Then the files in `remove` are removed in their order. A failure (disk full, no permission,
    Ctrl-C) leaves everything as it was. The next call removes the leftovers of a killed one. Raises
    InputError.

    Args:
        folder: the folder to write below
        files: texts or images by relative path
        remove: files to remove
        interim: texts that some files get before the first rename
    """
    _check_targets(folder, files)
    changed = [name for name, text in files.items() if content_of(folder / name) != _encoded(text)]
    interim = interim if interim and changed else {}
    final = [(name, text) for name, text in files.items() if name in changed or name in interim]
    staged: list[tuple[Path, Path]] = []
    made: list[Path] = []
    replaced: list[tuple[Path, _Content]] = []
    try:
        for name, text in [*interim.items(), *final]:
            target = folder / name
            _make_folders(target.parent, made)
            staged.append((_stage(target, _encoded(text)), target))
        for temporary, target in staged:
            replaced.append((target, _content(target)))
            temporary.replace(target)
        for path in [*(remove or ()), *_leftovers(folder, files)]:
            replaced.append((path, _content(path)))
            path.unlink(missing_ok=True)
    except BaseException as error:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if isinstance(error, Exception | KeyboardInterrupt):
            for path, old in reversed(replaced):
                with contextlib.suppress(OSError):
                    _restore(path, old)
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError | ValueError):
            raise InputError(folder, f"cannot be written: {reason(error)}") from None
        raise
    return changed


_Content: TypeAlias = "bytes | Path | None"
"""The content of a path: a file's bytes, a link's target, or nothing."""


def _content(path: Path) -> _Content:
    return path.readlink() if path.is_symlink() else content_of(path)


def _restore(path: Path, old: _Content) -> None:
    if isinstance(old, bytes):
        temporary = _stage(path, old)
        try:
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return
    path.unlink(missing_ok=True)
    if old is not None:
        path.symlink_to(old)


def _encoded(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def check_writable(folder: Path, names: Iterable[str]) -> None:
    """Raise InputError if `write_files` would refuse these paths, before any work is done."""
    above = next(path for path in (folder, *folder.absolute().parents) if try_path(path, Path.exists))
    if not try_path(above, Path.is_dir):
        raise InputError(above, "is a file, but a folder belongs there")
    _check_targets(folder, names)


def _check_targets(folder: Path, files: Iterable[str]) -> None:
    """Raise InputError for a target that is a folder or too large, or that lies below a file or a link."""
    for name in files:
        target = folder / name
        try_path(target, Path.exists)
        if try_path(target, Path.is_dir):
            raise InputError(target, "is a folder, but a file belongs there")
        if target.is_file() and target.stat().st_size > MAX_BYTES:  # its old content could not be restored
            raise InputError(target, f"larger than {MAX_BYTES >> 20} MiB; remove it")
        for parent in target.relative_to(folder).parents:
            if (folder / parent).is_symlink() and parent != Path():
                raise InputError(folder / parent, "is a symbolic link; nothing is written through it")
            if (folder / parent).exists() and not (folder / parent).is_dir():
                raise InputError(folder / parent, "is a file, but a folder belongs there")


def _stage(target: Path, content: bytes) -> Path:
    """Write a complete file beside `target`, with ordinary permissions; returns its path."""
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


def _leftovers(folder: Path, files: Iterable[str]) -> Iterator[Path]:
    """Staged files that a killed run left behind."""
    for parent in sorted({(folder / name).parent for name in files}):
        yield from (path for path in sorted(parent.glob(f"{_STAGED}*")) if path.is_file())


def foreign_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Modules that a build would replace although treegen did not write them."""
    try_path(folder, Path.exists)
    modules = [folder / name for name in files if name.endswith(".py")]
    return [
        path
        for path in modules
        if content_of(path) is not None and not path.is_symlink() and not _marked(path)
    ]


def stale_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Modules in `folder` that treegen wrote for a table that left the spec, in order of removal."""
    # Only a folder with a generated config.py is a kernel's package of this project.
    packages = [path.parent for path in sorted(folder.glob(f"*/{_CONFIG}")) if _marked(path)]
    paths = sorted(folder.glob("*.py"))
    for package in packages:
        if package.is_symlink():
            continue
        if not (package / IN_KERNEL).is_symlink():
            paths += sorted(package.glob(f"{IN_KERNEL}/*.py"))
        # config.py goes last: by it the next build recognises a package that was removed in part.
        paths += sorted(package.glob("*.py"), key=lambda path: (path.name == _CONFIG, path))
    return [path for path in paths if path.relative_to(folder).as_posix() not in files and _marked(path)]


def differences(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """One line for every file in `folder` that a build would change."""
    for name, text in sorted(files.items()):
        current = content_of(folder / name)
        if current is None:
            yield f"{folder / name} is missing"
        elif current != text.encode():
            yield f"{folder / name} is stale: {_first_difference(current, text)}"
    for path in stale_files(folder, files):
        yield f"{path} belongs to no table of the spec any more"


def _first_difference(current: bytes, expected: str) -> str:
    old, new = current.decode(errors="replace").splitlines(), expected.splitlines()
    if old == new:
        return "its line ends are not those that a build writes"
    first = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    have = ascii(old[first].strip()) if first < len(old) else "the end of the file"
    need = ascii(new[first].strip()) if first < len(new) else "the end of the file"
    return f"line {first + 1} is {have}, a build gives {need}"


def _marked(path: Path) -> bool:
    return MARK.encode() in (content_of(path) or b"").split(b"\n", 1)[0]


def content_of(path: Path) -> bytes | None:
    """The bytes of a plain file (none if it is too large to be generated); None if there is no plain file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        return path.read_bytes() if status.st_size <= MAX_BYTES else b""
    except (OSError, ValueError):
        return None


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make `folder` and its parents; appends those that did not exist to `made`."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        made.append(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
