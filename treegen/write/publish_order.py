"""The order in which the files of a build take their places, and the interim files that stand there.

Files are renamed one after another, so a kill leaves some old and some new. At each moment a kernel's package
works, with all choices of a device old or all new, or it cannot be imported and says why; and the next
build knows which tree it finds in a module. `output.write_files` does the writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from treegen.core.spec import FALLBACK_DEVICE
from treegen.emit.environment import MARK
from treegen.write.files import content_of
from treegen.write.lock import LOCK, read_lock, transitional

_CONFIG, _PACKAGE = "config.py", "__init__.py"
_LAST = (_CONFIG, _PACKAGE)


def in_publish_order(files: Mapping[str, str]) -> dict[str, str]:
    """A build's files by relative path, none before what it imports: of each kernel what its Triton code
    imports, its devices, config and package, then the package of all kernels. The lock, which says that all
    is done, is the last."""

    def rank(name: str) -> tuple[bool, bool, str, bool, int, str]:
        folder, _, file = name.rpartition("/")
        kernel, _, inner = folder.partition("/")
        place = _LAST.index(file) + 1 if file in _LAST else 0
        return name == LOCK, not kernel, kernel, not inner, place, file

    return {name: files[name] for name in sorted(files, key=rank)}


def interim_files(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """What stands in the place of some of a build's files while the others are renamed.

    The lock knows both the old and the new modules. A package whose configs or arguments change is closed: a
    new config.py may give old modules another meaning, such as where the default of a parameter changed.
    """
    found = {LOCK: transitional(files[LOCK], read_lock(folder))}
    for name in files:
        kernel, _, file = name.rpartition("/")
        if file == _CONFIG and content_of(folder / name) is not None:
            interface = (name, f"{kernel}/{FALLBACK_DEVICE}.py")
            if any(content_of(folder / part) != files[part].encode() for part in interface):
                found[name] = _closed(kernel)
    return found


def _closed(kernel: str) -> str:
    return f'''"""The launch config of {kernel}, which a build is about to replace. {MARK}"""

raise ImportError("{kernel}: `treegen build` was cut off; run it again")
'''
