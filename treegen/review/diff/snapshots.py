"""The two snapshots that a diff compares: each is a git revision, a folder or a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from treegen.core.errors import InputError, one_line
from treegen.core.files import read_text, try_path
from treegen.core.spec import FALLBACK_DEVICE, Spec
from treegen.emit.environment import MARK
from treegen.read.spec_file import DEFAULT_PATH, find_spec, read_spec
from treegen.review.compiled_trees import NO_DEVICE, Module, ModuleKey, expected_modules, read_committed
from treegen.review.git_revision import find_revision, lay_out

_TITLE = re.compile(r'"""([a-z][a-z0-9_]*) on ([a-z][a-z0-9_]*): .*')


@dataclass(frozen=True)
class Snapshot:
    """The spec, modules and tables of one side of a diff."""

    label: str  # what the user called it
    spec: Spec
    texts: Mapping[str, str]  # every generated file, by its path below the output folder
    modules: Mapping[ModuleKey, Module | str]  # of the spec's kernels and devices, or why one cannot be read
    single: bool = False  # whether the user named one file
    temporary: Path | None = None  # the folder that holds a git revision


def read_here(spec: Path | None) -> Snapshot:
    """The project of the spec of this folder, or of the given spec. Raises InputError."""
    described = read_spec(find_spec(spec))
    folder = described.path.parent
    return _read_folder("this folder" if folder == Path() else str(folder), described, described.output)


def read_snapshot(name: str, spec: Path | None, stack: ExitStack) -> Snapshot:
    """Read a file or a folder if `name` is one, else a git revision. Raises InputError.

    A folder with a spec of that file name is a project, another folder is an output folder, and a file is one
    module. An output folder and a file are read by the spec of this folder, or by the given spec. The
    temporary folder of a revision exists until `stack` closes.
    """
    if not name:
        raise InputError("''", "names no revision, folder or file")
    path = Path(name)
    if try_path(path, Path.is_dir):
        inside = path / (spec or DEFAULT_PATH).name
        if try_path(inside, Path.is_file):
            described = read_spec(inside)
            return _read_folder("this folder" if name == "." else name, described, described.output)
        return _read_folder(name, read_spec(find_spec(spec)), path)
    if try_path(path, Path.exists):
        return _read_file(name, path, read_spec(find_spec(spec)))
    place = find_spec(spec) if spec is None or try_path(spec, Path.exists) else spec
    revision = find_revision(name, place.resolve().parent)
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="treegen-"))).resolve()
    with naming_revision(name, folder):
        described = read_spec(lay_out(revision, place, folder))
        return _read_folder(name, described, described.output, folder)


@contextmanager
def naming_revision(name: str, temporary: Path | None) -> Iterator[None]:
    """Let errors name the revision instead of its temporary folder. Does nothing without such a folder."""
    try:
        yield
    except InputError as error:
        if temporary is None:
            raise
        message = str(error).replace(one_line(f"{temporary}/"), one_line(f"{name}:"))
        raise InputError.from_message(message) from None


def _read_folder(name: str, spec: Spec, output: Path, temporary: Path | None = None) -> Snapshot:
    if not try_path(output, Path.is_dir):
        missing = "`treegen build` writes it" if temporary is None else "this revision does not hold it"
        raise InputError(output, f"no such output folder; {missing}")
    folders = (output, *map(output.joinpath, spec.kernels))
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    texts = {path.relative_to(output).as_posix(): read_text(path) for path in paths if path.is_file()}
    modules: dict[ModuleKey, Module | str] = {}
    for kernel, device, path in expected_modules(spec, output):
        if f"{kernel.name}/{device.key}.py" in texts:
            try:
                with naming_revision(name, temporary):
                    modules[kernel.name, device.key] = read_committed(kernel, device, path)
            except InputError as error:
                modules[kernel.name, device.key] = str(error)
    if not modules:
        raise InputError(output, f"holds no generated module of {', '.join(spec.kernels)}")
    return Snapshot(name, spec, texts, modules, temporary=temporary)


def _read_file(name: str, path: Path, spec: Spec) -> Snapshot:
    title = _TITLE.match(read_text(path).split("\n", 1)[0])
    if title is None or MARK not in title.group():
        raise InputError(path, "is no module that treegen wrote")
    kernel, key = title.groups()
    if kernel not in spec.kernels or (key != FALLBACK_DEVICE and key not in spec.devices):
        raise InputError(path, f"is of {kernel} on {key}, which {spec.path} does not know")
    module = read_committed(spec.kernels[kernel], spec.devices.get(key, NO_DEVICE), path)
    return Snapshot(name, spec, {f"{kernel}/{key}.py": module.text}, {(kernel, key): module}, single=True)
