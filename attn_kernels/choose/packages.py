"""The generated packages that choose: those installed with the kernels, or those of another package."""

import os
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

VARIABLE = "ATTN_KERNELS_HEURISTICS"
GROUP = "attn_kernels.heuristics"  # of entry points
USUAL = "generated"
_HIDDEN = "_attn_kernels_generated"  # the name of our packages where a project has others called `generated`

_named: list[str] = []


def use_heuristics(package: str) -> None:
    """Let the kernels' packages in ``package``, as ``treegen build`` writes them, choose configs.

    Without a call, the environment variable ``ATTN_KERNELS_HEURISTICS`` names it, or else the only entry
    point of the group ``attn_kernels.heuristics``. Without these, it is the one installed with this package.

    Raises RuntimeError after the first choice of this process, as layers could then launch by two packages,
    and TypeError if ``package`` is no name.
    """
    if not isinstance(package, str):
        raise TypeError(
            f"package is a {type(package).__name__}, but its name is needed, such as 'my_project.heuristics'"
        )
    if heuristics_package.cache_info().currsize:
        raise RuntimeError("use_heuristics must be called before the first plan")
    _named[:] = [package]


@cache
def heuristics_package() -> str | None:
    """The package that a call, the variable or an entry point names; None for ours. Raises ValueError."""
    if _named:
        return _named[0]
    if variable := os.environ.get(VARIABLE):
        return variable
    points = sorted({point.value for point in entry_points(group=GROUP)})
    if len(points) > 1:
        raise ValueError(f"entry points of {GROUP} name {', '.join(points)}: choose one with {VARIABLE}")
    return points[0] if points else None


def named_by(name: str) -> str:
    """Return the package's name, and what names it."""
    source = "use_heuristics" if _named else VARIABLE if os.environ.get(VARIABLE) else f"group {GROUP}"
    return f"{name!r}, which {source} names"


def kernel_package(kernel: str) -> ModuleType:
    """The generated package of a kernel, such as ``generated.unified_attention``.

    Raises:
        ImportError: this kernel has none.
        ValueError: the package that is named does not exist.
    """
    name = heuristics_package()
    if name is not None:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            raise ValueError(f"there is no package {named_by(name)}") from None
        return import_module(f"{name}.{kernel}")
    try:
        return import_module(f"{USUAL}.{kernel}")
    except ImportError:
        if not _is_hidden():
            raise
        return import_module(f"{_ours()}.{kernel}")


def _is_hidden() -> bool:
    """Return whether a package `generated` without attention hides the one beside ``attn_kernels``."""
    folder = Path(__file__).parents[2] / USUAL
    hiding = getattr(sys.modules.get(USUAL), "__file__", None)
    if not folder.is_dir() or hiding is None or Path(hiding).parent == folder:
        return False
    return not (Path(hiding).parent / "unified_attention").is_dir()


@cache
def _ours() -> str:
    """Import the package beside ``attn_kernels`` by another name, which is returned."""
    spec = PathFinder.find_spec(USUAL, [str(Path(__file__).parents[2])])
    if spec is None or spec.loader is None:
        raise ImportError(f"{USUAL} is missing beside attn_kernels")
    spec.name = _HIDDEN
    spec.loader.name = _HIDDEN  # type: ignore[attr-defined]
    module = module_from_spec(spec)
    sys.modules[_HIDDEN] = module
    spec.loader.exec_module(module)
    return _HIDDEN
