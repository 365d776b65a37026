"""A kernel's own configs: how a generated config is launched, and which configs a pruning rule excludes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton.runtime.autotuner import Autotuner, Config

OWN = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # parameters of Triton's
_UNSET = {"maxnreg": 0, "num_ctas": 0}  # values of parameters that a config does not set


@dataclass(frozen=True)
class ConfigLaunch:
    """What a config adds to a launch."""

    keywords: dict[str, Any]
    pre_hook: Callable[[dict[str, Any]], object] | None
    config: Any  # the same as a triton.Config
    autotuner: Any = None  # what chooses instead, except while a graph is captured


@dataclass(frozen=True)
class OwnConfigs:
    """The configs of a kernel's `@triton.autotune`; none without it."""

    kernel: str
    autotuner: Autotuner | None
    defaults: Mapping[str, Any]  # of the kernel's arguments
    # By parameter, what integers stand for at a launch; `...` for a parameter that a config does not set.
    literals: Mapping[str, Mapping[int, Any]]

    def launch_of(self, config: Any) -> ConfigLaunch:
        """What a generated config adds to a launch, with the hook of the autotuner's equal config.

        Raises ValueError if no config of the autotuner equals it, and some have a hook: without its hook, a
        launch may compute something else.
        """
        set_values = {n: self.literals.get(n, {}).get(v, v) for n, v in _numbers(config).items()}
        keywords = {name: value for name, value in set_values.items() if value is not ...}
        equal = self._equal(config)
        if equal is not None:
            return ConfigLaunch(equal.all_kwargs(), equal.pre_hook, equal)
        if self.autotuner is not None and any(other.pre_hook for other in self.autotuner.configs):
            what = f"{config} is no config of @triton.autotune, whose configs have a pre_hook"
            raise ValueError(f"{self.kernel}: {what}: add it there, or tune the kernel again")
        own = {name: keywords[name] for name in OWN if name in keywords}
        others = {name: value for name, value in keywords.items() if name not in OWN}
        return ConfigLaunch(keywords, None, Config(others, **own))

    def kept(self, chosen: Any, fallback: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The chosen config if `early_config_prune` keeps it; else the fallback, or the first that is kept.

        The rule decides nothing about a config that is not the autotuner's, nor if it keeps none.
        """
        assert self.autotuner is not None
        given = dict(zip(self.autotuner.arg_names, args, strict=False))
        kept = list(self.autotuner.early_config_prune(list(self.autotuner.configs), given, **kwargs))
        for config in (chosen, fallback):
            own_config = self._equal(config)
            if own_config is None or not kept or own_config in kept:
                return config
        names = [name for name in fallback._fields if name != "variant"]
        for own_config in kept:
            numbers = {name: self._number(own_config, name) for name in names}
            if None not in numbers.values():
                return fallback._replace(**numbers)
        return chosen

    def _equal(self, config: Any) -> Any:
        for own_config in self.autotuner.configs if self.autotuner is not None else ():
            if all(self._number(own_config, name) == value for name, value in _numbers(config).items()):
                return own_config
        return None

    def _number(self, config: Any, name: str) -> int | None:
        """The integer that a generated config has for a parameter of the autotuner's; None if it has none."""
        literals = self.literals.get(name, {})
        default = ... if ... in literals.values() else self.defaults.get(name, ...)
        value = config.all_kwargs().get(name, default)
        for number, literal in literals.items():
            if type(literal) is type(value) and literal == value:
                return number
        if value is None or value is ...:
            return 0
        return None if isinstance(value, str) else int(value)


def _numbers(config: Any) -> dict[str, int]:
    """The parameters that a generated config sets, as it has them."""
    values = config._asdict().items()
    return {name: value for name, value in values if name != "variant" and _UNSET.get(name) != value}
