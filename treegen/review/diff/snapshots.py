"""The two sides of a comparison: a git revision, a folder or a file, each as the modules it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from treegen.core.errors import InputError, one_line, shown
from treegen.core.files import looked_at, read_text
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, KernelSpec, Spec
from treegen.emit.environment import MARK
from treegen.read.spec_file import DEFAULT_PATH, find_spec, read_spec
from treegen.review.compiled_trees import NO_DEVICE, Module, read_committed
from treegen.review.git_revision import find_revision, lay_out, why_no_repository

Key = tuple[str, str]
"""A kernel's name and a device's key."""

_TITLE = re.compile(r'"""([a-z][a-z0-9_]*) on ([a-z][a-z0-9_]*): .*')


@dataclass(frozen=True)
class Snapshot:
    """label: what the user called it. texts: every generated file by its path below the output folder.
    modules: those of the spec's kernels and devices; a text says why one cannot be read. single: whether the
    user named one file. laid_out: the temporary folder that holds a git revision."""

    label: str
    spec: Spec
    texts: Mapping[str, str]
    modules: Mapping[Key, Module | str]
    single: bool = False
    laid_out: Path | None = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Errors met while a file of this side is read name the revision, not the temporary folder."""
        with _named(self.laid_out, self.label):
            yield


@contextmanager
def _named(folder: Path | None, name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if folder is None:
            raise
        raise InputError.from_message(_in_words(str(error), folder, name)) from None


def _in_words(message: str, folder: Path, name: str) -> str:
    return message.replace(one_line(f"{folder}/"), one_line(f"{name}:"))


def read_here(spec: Path | None) -> Snapshot:
    """The project of the spec of this folder, or of the one given. Raises InputError."""
    found = read_spec(find_spec(spec))
    folder = found.path.parent
    return _folder("this folder" if folder == Path() else str(folder), found, found.output)


def read_side(name: str, spec: Path | None, stack: ExitStack) -> Snapshot:
    """What `name` is: a file or a folder if there is one, else a git revision. Raises InputError.

    A folder is a project if it holds a spec of that name, else an output folder. A file is one module. Both
    of these are read by the spec of this folder, or the one given. stack: removes what is laid out for it.
    """
    if not name:
        raise InputError("''", "names no revision, folder or file")
    path = Path(name)
    if looked_at(path, Path.is_dir):
        own = path / (spec or DEFAULT_PATH).name
        if looked_at(own, Path.is_file):
            found = read_spec(own)
            return _folder("this folder" if name == "." else name, found, found.output)
        return _folder(name, read_spec(find_spec(spec)), path)
    if looked_at(path, Path.exists):
        return _file(name, path, read_spec(find_spec(spec)))
    place = find_spec(spec) if spec is None or looked_at(spec, Path.exists) else spec
    revision = find_revision(name, place.resolve().parent)
    if revision is None:
        why = why_no_repository(place.resolve().parent)
        what = "is neither a file nor a folder, nor a git revision here"
        raise InputError(shown(name), f"{what} ({why})" if why else what)
    temporary = stack.enter_context(TemporaryDirectory(prefix="treegen-"))
    folder = Path(temporary).resolve()
    with _named(folder, name):
        found = read_spec(lay_out(revision, place, folder))
        side = _folder(name, found, found.output)
    told = {k: _in_words(m, folder, name) if isinstance(m, str) else m for k, m in side.modules.items()}
    return replace(side, modules=told, laid_out=folder)


def _folder(name: str, spec: Spec, output: Path) -> Snapshot:
    if not looked_at(output, Path.is_dir):
        raise InputError(output, "no such output folder; `treegen build` writes it")
    kernels = [output / kernel for kernel in spec.kernels]
    paths = [path for folder in (output, *kernels) for path in sorted(folder.glob("*.py"))]
    texts = {path.relative_to(output).as_posix(): read_text(path) for path in paths if path.is_file()}
    modules: dict[Key, Module | str] = {}
    for kernel in spec.kernels.values():
        for key in (*kernel.tables, FALLBACK_DEVICE):
            if f"{kernel.name}/{key}.py" in texts:
                device = spec.devices.get(key, NO_DEVICE)
                modules[kernel.name, key] = _module(kernel, device, output / kernel.name / f"{key}.py")
    if not modules:
        raise InputError(output, f"holds no generated module of {', '.join(spec.kernels)}")
    return Snapshot(name, spec, texts, modules)


def _file(name: str, path: Path, spec: Spec) -> Snapshot:
    title = _TITLE.match(read_text(path).split("\n", 1)[0])
    if title is None or MARK not in title.group():
        raise InputError(path, "is no module that treegen wrote")
    kernel, key = title.groups()
    if kernel not in spec.kernels or (key != FALLBACK_DEVICE and key not in spec.devices):
        raise InputError(path, f"is of {kernel} on {key}, which {spec.path} does not know")
    module = read_committed(spec.kernels[kernel], spec.devices.get(key, NO_DEVICE), path)
    texts = {f"{kernel}/{key}.py": module.text}
    return Snapshot(name, spec, texts, {(kernel, key): module}, single=True)


def _module(kernel: KernelSpec, device: DeviceSpec, path: Path) -> Module | str:
    try:
        return read_committed(kernel, device, path)
    except InputError as error:
        return str(error)
