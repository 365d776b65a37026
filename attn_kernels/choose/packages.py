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
USUAL = "generated"  # in a checkout
INSTALLED = (
    "attn_kernels.generated"  # in a wheel; in a checkout where a project has others called `generated`
)

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
def heuristics_package() -> str:
    """The package that a call, the variable or an entry point names, or else ours. Raises ValueError."""
    name, source = _named[0] if _named else os.environ.get(VARIABLE), "use_heuristics" if _named else VARIABLE
    if not name:
        points = sorted({point.value for point in entry_points(group=GROUP)})
        if len(points) > 1:
            raise ValueError(f"entry points of {GROUP} name {', '.join(points)}: choose one with {VARIABLE}")
        if not points:
            return _ours()
        name, source = points[0], f"group {GROUP}"
    try:
        import_module(f"{name}.unified_attention")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.unified_attention".startswith(error.name):
            raise
        raise ValueError(f"there is no package {error.name}, which {source} needs") from None
    return name


def _ours() -> str:
    """Our package: in ``attn_kernels`` of a wheel; beside it in a checkout, where a project's may hide it."""
    package, beside = Path(__file__).parents[1], Path(__file__).parents[2]
    if (package / USUAL).is_dir():
        return INSTALLED
    try:
        import_module(f"{USUAL}.unified_attention")
        return USUAL
    except ImportError:
        spec = PathFinder.find_spec(USUAL, [str(beside)])
        if spec is None or spec.loader is None:
            raise
    spec.name = INSTALLED
    spec.loader.name = INSTALLED  # type: ignore[attr-defined]
    module = module_from_spec(spec)
    sys.modules[INSTALLED] = module
    spec.loader.exec_module(module)
    return INSTALLED


def kernel_package(kernel: str) -> ModuleType:
    """The generated package of a kernel, such as ``generated.unified_attention``.

    Raises:
        ImportError: this kernel has none.
        ValueError: the package that is named does not exist, or has no modules of ``unified_attention``.
    """
    return import_module(f"{heuristics_package()}.{kernel}")
