"""How configs are chosen on one device: by a module of the generated package, or forced by a variable."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from triton_tune.launch.environment import DEVICE, Overrides, current_device
from triton_tune.launch.own_configs import ConfigLaunch

Choose = Callable[..., Any]


@dataclass
class Choosing:
    """How a device's launches are chosen, and what was chosen so far."""

    choose: Choose  # from features to a generated config
    module: Any  # of the generated package; None if a config is forced
    not_tuned: str | None  # in words, if the GPU was not
    fallback_is_untuned: bool  # whether no row of the module has the fallback
    launches: dict[tuple[Any, ...], ConfigLaunch] = field(default_factory=dict)  # by the features' values
    failed: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)  # what did not fit, likewise


def choosing_here(package: ModuleType, overrides: Overrides, forced: Any, fallback: Any) -> Choosing:
    """How launches on the current device are chosen. Raises ValueError for a module that does not exist."""
    modules: dict[str, Any] = package.MODULES
    if not hasattr(package, "key_for"):
        raise ValueError(f"an earlier treegen wrote {package.__name__}: run `treegen build` again")
    key, not_tuned = overrides.device_key, None
    if forced is not None:
        choosing = Choosing(lambda **features: forced, None, None, False)
    elif key is not None and key not in modules:
        raise ValueError(f"{DEVICE} is {key!r}, but the modules are: {', '.join(sorted(modules))}")
    else:
        if key is not None:
            module = modules[key]
        else:
            name, arch, vendor = current_device()
            module = modules[package.key_for(name, arch, vendor)]
            # A vendor has many GPUs, but Triton has one interpreter.
            if package.key_for(name, arch, "") == "default" and vendor != "cpu":
                not_tuned = f"{name or arch} was not tuned"
        choosing = Choosing(
            module.choose, module, not_tuned, key is None and fallback not in _configs_of_rows(module)
        )
    if overrides.log:
        choosing.choose = _logged(package.__name__.rpartition(".")[2], choosing.choose)
    return choosing


def _configs_of_rows(module: Any) -> set[Any]:
    rows = [row for value in vars(module).values() if type(value) is tuple for row in value]
    return {config for row in rows for config in (row.config, *row.others.values(), *row.then)}


def _logged(kernel: str, choose: Choose) -> Choose:
    seen: set[Any] = set()

    def choose_and_log(**features: int) -> Any:
        config = choose(**features)
        if config not in seen:
            seen.add(config)
            values = " ".join(f"{name}={value}" for name, value in features.items())
            print(f"triton_tune: {kernel} launches {config} for {values}", file=sys.stderr)
        return config

    return choose_and_log
