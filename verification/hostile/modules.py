"""The modules that a build wrote: what they hold, what importing them does, and how they choose."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType

from treegen.core.names import IN_KERNEL
from treegen.core.spec import FALLBACK_DEVICE, Spec
from treegen.review.compiled_trees import NO_DEVICE
from verification.hostile import syntax, syntax_in_kernel, total
from verification.hostile.watch import watched
from verification.hostile.wrong import Wrong

_NAME = "generated_sandbox"
_POINTS = 40


def check_modules(spec: Spec, random: Random, points: int = _POINTS) -> None:
    """Raise Wrong unless the output folder holds plain modules that choose valid configs everywhere."""
    names = ["__init__.py"]
    for name, kernel in spec.kernels.items():
        names += [f"{name}/{file}.py" for file in ("__init__", "config", FALLBACK_DEVICE, *kernel.tables)]
    for_kernels = [
        f"{name}/{IN_KERNEL}/{file}.py"
        for name, kernel in spec.kernels.items()
        for file in (("__init__", FALLBACK_DEVICE, *kernel.tables) if kernel.in_kernel else ())
    ]
    try:
        syntax.check_package({name: (spec.output / name).read_text() for name in names})
        syntax_in_kernel.check_package({name: (spec.output / name).read_text() for name in for_kernels})
    except (syntax.Forbidden, SyntaxError) as error:
        raise Wrong(f"a generated module holds {error}") from None
    with sandboxed(spec.output) as package:
        for name, kernel in spec.kernels.items():
            for key, module in getattr(package, name).MODULES.items():
                device = spec.devices.get(key, NO_DEVICE)
                for point in total.points(module, random, points):
                    if wrong := total.wrong_choice(module, kernel, device, point):
                        raise Wrong(f"{name}/{key}: {wrong}"[:400])


@contextlib.contextmanager
def sandboxed(folder: Path) -> Iterator[ModuleType]:
    """The package in a folder, imported under a name of its own. Raises Wrong if that does anything else."""
    spec = importlib.util.spec_from_file_location(
        _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    modules, writes = set(sys.modules), sys.dont_write_bytecode
    sys.modules[_NAME], sys.dont_write_bytecode = package, True
    try:
        with watched() as deeds:
            try:
                spec.loader.exec_module(package)
            except Exception as error:
                raise Wrong(f"the package cannot be imported: {error!r}"[:400]) from None
        strange = {module for module in set(sys.modules) - modules if module.split(".")[0] != _NAME}
        if deeds.written or deeds.forbidden or strange - {"typing", "collections", "collections.abc"}:
            raise Wrong(f"importing the package does {deeds} and imports {sorted(strange)}"[:400])
        yield package
    finally:
        sys.dont_write_bytecode = writes
        for name in [name for name in sys.modules if name.split(".")[0] == _NAME]:
            del sys.modules[name]
