"""From a torch device to the generated function that chooses its configs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from attn_kernels.choose.choice_log import logged
from attn_kernels.choose.overrides import CONFIG, DEVICE, overrides
from attn_kernels.choose.packages import heuristics_package, kernel_package, named_by
from attn_kernels.choose.untuned import warn_if_untuned
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.kernels.registry import VARIANTS
from triton_tune.core.device import describe_device

Choose = Callable[..., LaunchConfig]
KERNEL = "unified_attention"


@dataclass(frozen=True)
class Heuristic:
    """A ``choose`` and where it is from."""

    key: str  # the generated module or environment variable
    choose: Choose


def heuristic_for_device(device: torch.device) -> Heuristic:
    """Return what environment variables force, else the generated module nearest to ``device``.

    A forced config for both parts of a mixed batch chooses nothing else.

    Warns once of a GPU without a module of its own. Raises ValueError about an environment variable.
    """
    config = overrides().config
    if config is not None and not VARIANTS[config.variant].mixed:
        return Heuristic(CONFIG, lambda **features: config)
    return _module_for_device(device)


def _module_for_device(device: torch.device) -> Heuristic:
    forced = overrides().device_key
    if forced is not None:
        return heuristic_for_key(forced, DEVICE)
    unified_attention = _package()
    described = describe_device(device)
    choose: Choose = unified_attention.for_device(*described)
    key = key_of(unified_attention, choose)
    if described[2] != "cpu":
        warn_if_untuned(described, key, unified_attention.for_device)
    return Heuristic(key, choose)


def _package() -> ModuleType:
    """Return this kernel's generated package. Raises ValueError where the package that is named has none."""
    try:
        return kernel_package(KERNEL)
    except ModuleNotFoundError as error:
        name = heuristics_package()
        if name is None or error.name != f"{name}.{KERNEL}":
            raise
        raise ValueError(f"package {named_by(name)}, has no modules of {KERNEL}, which are needed") from None


def key_of(package: ModuleType, choose: Choose) -> str:
    """Return the key of the generated module, among those of a kernel's package, that this function is of."""
    modules: dict[str, ModuleType] = package.MODULES
    return next(key for key, module in modules.items() if module.choose is choose)


def heuristic_for_key(device_key: str, named: str = "device_key") -> Heuristic:
    """Return the generated module of this name, whatever the device. Raises ValueError about ``named``."""
    unified_attention = _package()
    try:
        return Heuristic(device_key, unified_attention.MODULES[device_key].choose)
    except KeyError:
        known = ", ".join(sorted(unified_attention.MODULES))
        raise ValueError(f"{named} is {device_key!r}, but the generated modules are: {known}") from None


def heuristic_for(device: torch.device, device_key: str | None) -> Heuristic:
    """Return the named module, or the device's if None. Raises ValueError."""
    return heuristic_for_device(device) if device_key is None else heuristic_for_key(device_key)


def choose_of(heuristic: Heuristic) -> Choose:
    """Return its ``choose``, which logs if the environment variable is set."""
    return logged(heuristic.key, heuristic.choose) if overrides().log else heuristic.choose


@cache
def choose_for_device(device: torch.device) -> Choose:
    """Return the ``choose`` that serves a device. Raises ValueError."""
    return choose_of(heuristic_for_device(device))


@cache
def choose_for_key(device_key: str) -> Choose:
    """Return the ``choose`` of the generated module of this name. Raises ValueError."""
    return choose_of(heuristic_for_key(device_key))


@cache
def segments_function(device: torch.device, device_key: str | None = None) -> Any:
    """Return the Triton function ``num_segments`` of the module that is named, or that serves this device.

    Raises ValueError where no module has one, and about ``device_key`` or an environment variable.
    """
    module = _module_for_device(device) if device_key is None else heuristic_for_key(device_key)
    function = segments_function_of(module.key)
    if function is None:
        needed = "generated modules with 'in_kernel: [num_segments]' in treegen.yaml are needed"
        raise ValueError(f"config.device_segments is 1, but {needed}")
    return function


def segments_function_of(key: str) -> Any | None:
    """Return ``num_segments`` of the module of this name; None where the spec does not list it."""
    try:
        functions = import_module(f"{kernel_package(KERNEL).__name__}.in_kernel")
    except ImportError:  # no such folder
        return None
    return getattr(getattr(functions, "MODULES", {}).get(key), "num_segments", None)


def configs_of(module: ModuleType) -> list[Config]:
    """List the configs that a generated module can choose, each once."""
    constants = vars(module).items()
    configs = [value for name, value in constants if name.isupper() and hasattr(value, "variant")]
    return list(dict.fromkeys(map(complete, configs)))
