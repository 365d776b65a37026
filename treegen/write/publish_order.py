"""The order in which a build's files are replaced, and the interim files.

Files are renamed one after another, so a killed build leaves some old and some new ones. At each moment, a
kernel's package either works, with all choices of a device old or all new, or raises an ImportError that says
why. The next build recognises the tree of each module. `files.write_files` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from treegen.core.spec import FALLBACK_DEVICE
from treegen.emit.environment import MARK
from treegen.write.files import content_of
from treegen.write.lock import LOCK, interim_lock, read_lock

_CONFIG, _PACKAGE = "config.py", "__init__.py"
_LAST = (_CONFIG, _PACKAGE)


def publish_order(files: Mapping[str, str]) -> dict[str, str]:
    """A build's files by relative path, each after the files that it imports.

    Of each kernel first the modules that its Triton code imports, then its devices, config and package. Then
    comes the package of all kernels, and last the lock, which says that the build is complete.
    """

    def rank(name: str) -> tuple[bool, bool, str, bool, int, str]:
        folder, _, file = name.rpartition("/")
        kernel, _, inner = folder.partition("/")
        place = _LAST.index(file) + 1 if file in _LAST else 0
        return name == LOCK, not kernel, kernel, not inner, place, file

    return {name: files[name] for name in sorted(files, key=rank)}


def interim_files(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """The texts that some of a build's files get while the others are renamed.

    The lock has entries for the old and the new modules. If a package's configs or arguments change, its
    config.py raises ImportError. The new config.py could change the meaning of old modules, for instance if
    the default of a parameter changed.
    """
    interim = {LOCK: interim_lock(files[LOCK], read_lock(folder))}
    for name in files:
        kernel, _, file = name.rpartition("/")
        if file == _CONFIG and content_of(folder / name) is not None:
            interface = (name, f"{kernel}/{FALLBACK_DEVICE}.py")
            if any(content_of(folder / part) != files[part].encode() for part in interface):
                interim[name] = _closed(kernel)
    return interim


def _closed(kernel: str) -> str:
    return f'''"""The launch config of {kernel}, which a build is about to replace. {MARK}"""

raise ImportError("{kernel}: `treegen build` was cut off; run it again")
'''
