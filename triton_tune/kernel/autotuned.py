"""Read a kernel that `@triton.autotune` decorates: its configs, and what decides among them."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton.runtime.autotuner import Autotuner

from triton_tune.core.errors import TuningError
from triton_tune.launch.choosing import OWN
from triton_tune.launch.every_autotuner import apply_rules, defaults_of, function_of, layers, run_first
from triton_tune.launch.tuned import Tuned
from tuning_table.names import letters_for, problem_with_name
from tuning_table.table import LARGEST_PARAMETER


@dataclass(frozen=True)
class Launch:
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grid: Any


@dataclass(frozen=True)
class KernelConfig:
    id: str
    parameters: Mapping[str, int]
    config: Any  # triton.Config


class AutotunedKernel:
    """A kernel with its autotuner. Raises TuningError if it has none, or configs that no table can hold."""

    def __init__(self, kernel: Any) -> None:
        self.tuner: Any = next((each for each in layers(kernel) if isinstance(each, Autotuner)), None)
        if self.tuner is None or getattr(self.tuner, "autotuner", self.tuner) is None:
            raise TuningError(f"{kernel!r:.60} has no @triton.autotune, which states the configs to time")
        self.function = function_of(kernel)
        self.name: str = self.function.__name__
        self.tuned_features = self.tuner.features if isinstance(self.tuner, Tuned) else {}
        self._defaults = defaults_of(self.function)
        self.others: set[str] = set()  # the other kernels with @triton.autotune that calls launched
        self.configs = _configs(self.name, self.tuner.configs, self._defaults)
        self._by_config = {config.config: config.id for config in self.configs.values()}

    @property
    def tiles(self) -> list[int]:
        """Sizes at whose multiples the kernel may change its speed: its parameters', and 16."""
        values = (v for c in self.configs.values() for name, v in c.parameters.items() if name not in OWN)
        return sorted({16, *(value for value in values if value >= 16)})

    @contextlib.contextmanager
    def launched_by(self, run: Callable[[Launch], Any]) -> Iterator[None]:
        """Call `run` in place of each launch in this context. Autotuners of other kernels do not search."""

        def intercept(*args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            return run(Launch(args, kwargs, grid))

        def without_search(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
            if len(tuner.configs) == 1:
                return search(tuner, *args, **kwargs)
            self.others.add(function_of(tuner).__name__)
            return run_first(tuner, search, args, kwargs)

        search, Autotuner.run, self.tuner.run = Autotuner.run, without_search, intercept
        try:
            yield
        finally:
            del self.tuner.run
            Autotuner.run = search

    def arguments(self, launch: Launch) -> dict[str, Any]:
        """The launch's arguments by name, with the kernel's defaults."""
        return {**self._defaults, **self._given(launch)}

    def _given(self, launch: Launch) -> dict[str, Any]:
        """The arguments without defaults, as Triton passes them to hooks."""
        return {**dict(zip(self.tuner.arg_names, launch.args, strict=False)), **launch.kwargs}

    def run(self, launch: Launch, config: Any, *, compile_only: bool = False) -> None:
        """Launch with a config, after the config's own hook; callers may read `best_config` afterwards."""
        self.tuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self._given(launch), **config.all_kwargs()})
        self.tuner.fn.run(
            *launch.args, grid=launch.grid, warmup=compile_only, **launch.kwargs, **config.all_kwargs()
        )

    @property
    def has_hooks(self) -> bool:
        """Return whether the autotuner resets, restores or calls a hook around a launch."""
        tuner = self.tuner
        names = ("reset_to_zero", "restore_value", "user_defined_pre_hook", "user_defined_post_hook")
        return any(getattr(tuner, name, None) for name in names)

    def run_as_tuned(self, launch: Launch, config: Any, *, only_hooks: bool = False) -> None:
        """Launch as the autotuner does when it times: after resetting, before restoring."""
        arguments = {**self._given(launch), **config.all_kwargs()}
        self.tuner.pre_hook(arguments)
        if not only_hooks:
            self.run(launch, config)
        self.tuner.post_hook(arguments, exception=None)

    def pruned(self, launch: Launch) -> tuple[tuple[str, ...], frozenset[str]]:
        """The configs to time, and those that `early_config_prune`, but no performance model, excludes."""
        tuner, kwargs = self.tuner, dict(launch.kwargs)
        configs, tuner.configs = tuner.configs, list(tuner.configs)  # a rule may change its list
        tuner.nargs = dict(zip(tuner.arg_names, launch.args, strict=False))
        try:
            kept = self._ids(tuner.prune_configs(kwargs))
            early = tuner.early_config_prune
            left = early(list(configs), tuner.nargs, **kwargs) if early else configs
            possible = self._ids(left)
        finally:
            tuner.nargs = None
            tuner.configs = configs
        return kept, frozenset(self.configs) - frozenset(possible)

    def chosen(self, launch: Launch) -> str | None:
        """The id of the config that `@tuned` would launch; None without it, its module or such a config."""
        config = self.tuner.chosen(*launch.args, **launch.kwargs) if isinstance(self.tuner, Tuned) else None
        return None if config is None else self._by_config.get(config)

    def _ids(self, configs: Sequence[Any]) -> tuple[str, ...]:
        ids = [self._by_config.get(config) for config in configs]
        if None in ids:
            raise TuningError("prune_configs_by returns a config that @triton.autotune does not list")
        return tuple(dict.fromkeys(filter(None, ids)))

    def specialisation(self, launch: Launch) -> tuple[object, ...]:
        """What a launch's arguments add to a compiled kernel's key. It is finer than Triton's own key."""
        params = getattr(jitted(self.tuner), "params", ())
        constants = {p.name for p in params if p.is_constexpr}
        plain = {p.name for p in params if p.do_not_specialize}
        arguments = self.arguments(launch)
        each = (config.config.all_kwargs() for config in self.configs.values())
        computed = [apply_rules(self.tuner, {**arguments, **config}) for config in each]
        given = [
            repr(v) if n in constants else _special(v, plain=n in plain) for n, v in sorted(arguments.items())
        ]
        return (*given, repr(computed))


def jitted(kernel: Any) -> Any:
    """What `@triton.jit` makes, below all other decorators."""
    return [*layers(kernel)][-2]


def _special(value: Any, *, plain: bool) -> object:
    if isinstance(value, tuple):
        return tuple(_special(each, plain=plain) for each in value)
    if plain and isinstance(value, int) and not isinstance(value, bool):
        return abs(value) >> 31 > 0
    if hasattr(value, "data_ptr"):
        return str(value.dtype), value.data_ptr() % 16 == 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value == 1, value % 16 == 0, abs(value) >> 31 > 0
    if hasattr(value, "base") and hasattr(value, "block_shape"):  # a tensor descriptor
        return str(value.base.dtype), len(value.block_shape)
    return repr(value) if isinstance(value, str | bool | float | type(None)) else type(value).__name__


def _configs(kernel: str, configs: Sequence[Any], defaults: Mapping[str, Any]) -> dict[str, KernelConfig]:
    """The different configs by id, with the kernel's defaults. Raises TuningError for what is no integer."""
    own = ["num_warps", "num_stages"]
    if any(getattr(config, "num_ctas", 1) not in (1, None) for config in configs):
        own.append("num_ctas")
    if any(getattr(config, "maxnreg", None) is not None for config in configs):
        own.append("maxnreg")
    names = [*dict.fromkeys(name for config in configs for name in config.kwargs), *own]
    letters = letters_for(names)
    by_id: dict[str, KernelConfig] = {}
    for config in configs:
        overridden = getattr(config, "ir_override", None) is not None
        problem = "ir_override is no launch parameter" if overridden else ""
        values = {name: config.kwargs.get(name, getattr(config, name, defaults.get(name))) for name in names}
        for name, value in values.items():
            if value is None and name not in OWN:
                problem = f"lacks {name}, which other configs have"
            elif not isinstance(value, int | None) or not 0 <= (value or 0) <= LARGEST_PARAMETER:
                problem = f"{name} is {value!r:.40}, but tables hold integers from 0 to {LARGEST_PARAMETER}"
            elif reserved := problem_with_name(name):
                problem = f"its parameter {name} {reserved}"
        if problem:
            raise TuningError(f"{kernel}: config {config}: {problem}")
        parameters = {name: int(value or 0) for name, value in values.items()}
        key = "_".join(f"{letters[name]}{value}" for name, value in parameters.items())
        if by_id.setdefault(key, KernelConfig(key, parameters, config)).config.pre_hook != config.pre_hook:
            raise TuningError(f"{kernel}: two configs {config} have different pre_hooks")
    return by_id
