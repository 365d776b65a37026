"""Launch every autotuned kernel of a program with the generated package that was built for it."""

import copy
import importlib
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from triton.runtime.autotuner import Autotuner

from triton_tune.launch.every_autotuner import (
    capturing,
    function_name,
    own_run,
    run_without_search,
    wrap_every,
)
from triton_tune.launch.tuned import Tuned

_installed: list[str] = []


def install(package: str) -> None:
    """Let the modules of a generated package choose for the kernels that they were tuned for.

    This covers kernels imported before and after the call, wherever they are launched, even if their class
    overrides `run`. A kernel without a module keeps its own autotuner, with one warning; so do launches with
    element types or on GPUs that were not tuned. While a CUDA graph is captured, nothing searches: such a
    kernel launches what it found earlier for equal arguments, or its first config.

    Args:
        package: the output of `treegen build` with tables of a record (docs/your_package.md).

    Raises:
        ModuleNotFoundError: there is no such package.
        ValueError: no module in it says which kernel it is for; or another package was installed before.
    """
    modules = packages_in(package)
    if _installed:
        if _installed != [package]:
            raise ValueError(f"{_installed[0]} was installed before {package}: a process takes one")
        return
    _installed.append(package)
    wrap_every(lambda tuner: serve(tuner, modules))


def packages_in(package: str) -> dict[str, ModuleType]:
    """The generated packages of kernels, by `module:function`. Raises as `install` does."""
    top = importlib.import_module(package)
    names = [f"{package}.{each.name}" for each in pkgutil.iter_modules(getattr(top, "__path__", ()))]
    packages = {getattr(module, "FUNCTION", None): module for module in map(importlib.import_module, names)}
    packages.pop(None, None)
    if not packages:
        raise ValueError(f"{package}: no module in it has a FUNCTION, as modules of recorded kernels have")
    return packages  # type: ignore[return-value]


def tuned_kernel(tuner: Autotuner, module: ModuleType) -> Tuned:
    """The kernel with its module's choice, apart from the autotuner itself."""
    own = copy.copy(tuner)
    vars(own).pop("run", None)
    return Tuned(own, module, {}, 0, True)


def serve(tuner: Autotuner, modules: Mapping[str, ModuleType]) -> Callable[..., Any]:
    """What launches an autotuner's kernel."""
    served: Any = None  # made at the first launch: until then, the autotuner may not be fully constructed

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal served
        if served is None:
            module = modules.get(function_name(tuner))
            served = own_run if module is None else tuned_kernel(tuner, module)
            if module is None and len(tuner.configs) > 1:
                problem = "has no module, so its own autotuner chooses"
                warnings.warn(f"{function_name(tuner)} {problem}", stacklevel=2)
        if served is own_run:
            launch = run_without_search if capturing() else own_run
            return launch(tuner, *args, **kwargs)
        try:
            return served.run(*args, **kwargs)
        finally:
            tuner.best_config = served.best_config  # which programs read

    return run
