"""`@tuned`: a kernel whose launch parameters a generated module chooses, in place of `@triton.autotune`."""

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

from triton_tune.launch.environment import (
    AUTOTUNE,
    CONFIG,
    DEVICE,
    Overrides,
    current_device,
    device_number,
    read_overrides,
)
from triton_tune.launch.known_configs import ConfigLaunch, KnownConfigs
from triton_tune.launch.words import OF_DTYPE, integer_of, plain

_MOST_KEPT = 4096  # answers of a rule that a kernel remembers
Feature = Callable[[Mapping[str, Any]], Any]  # from a launch's arguments by name to a value


def tuned(
    package: str | ModuleType, *, features: Mapping[str, Feature] | None = None
) -> Callable[[Any], "Tuned"]:
    """Let the generated package of a kernel choose its launch parameters.

        @tuned("heuristics.matmul")
        @triton.autotune(configs=..., key=["M", "N", "K"])  # stays for tuning again, or may go
        @triton.jit
        def matmul(...): ...

    A launch allocates no device memory, times nothing and waits for nothing, so it can be captured as a CUDA
    graph. Each feature of the package is an argument of the kernel by the same name, the element type of one
    (`a_ptr_dtype`), or in `features`. A word that was not tuned launches the fallback, with a warning.

    From `@triton.autotune` come a config's `pre_hook` and the rule `early_config_prune`, which runs once for
    each set of features. `best_config` is that of the last launch.

    Args:
        package: of the kernel, as `treegen build` writes it; by name, it is imported at the first launch.
        features: functions from the arguments by name to an integer, boolean, element type or word.

    Raises:
        TypeError: what is decorated is no Triton kernel, or `@triton.autotune` lies deeper below it; at a
            launch: an argument is missing.
        ValueError: at a launch: a feature is no argument; an environment variable has no valid value
            (docs/your_kernel.md); or configs of `@triton.autotune` have a `pre_hook`, and the chosen one is
            not among them.
    """
    return lambda kernel: Tuned(kernel, package, features or {})


class Tuned(KernelInterface):  # type: ignore[misc]
    """A kernel with a generated package. Launch it as any Triton kernel: `kernel[grid](...)`."""

    def __init__(self, fn: Any, package: str | ModuleType, features: Mapping[str, Feature]) -> None:
        if not hasattr(fn, "arg_names"):
            raise TypeError(f"@tuned decorates Triton kernels, and {fn!r:.60} is none")
        inner = getattr(fn, "fn", None)
        while inner is not None:
            if isinstance(inner, Autotuner):
                raise TypeError("@tuned must stand directly above @triton.autotune")
            inner = getattr(inner, "fn", None)
        self.fn, self.arg_names, self.features = fn, list(fn.arg_names), features
        self.__name__ = function_of(fn).__name__
        self.best_config: Any = None  # the triton.Config of the last launch, as the autotuner has it
        self._package = package
        self._autotuner = fn if isinstance(fn, Autotuner) else None
        self._below = fn.fn if isinstance(fn, Autotuner) else fn
        self._defaults = defaults_of(function_of(fn))
        self._known = KnownConfigs(self.__name__, self._autotuner, self._defaults)
        self._choosers: dict[int, Callable[..., Any]] = {}
        self._devices = 0  # how many there are; 0 before the first launch
        self._readers: list[tuple[str, int, Any]] = []
        self._values: Mapping[str, Mapping[str, int]] = {}
        self._integers: dict[tuple[str, Any], int] = {}  # of a feature's values that are no integers
        self._unknown: set[tuple[str, Any]] = set()  # words that a warning named
        self._launches: dict[Any, ConfigLaunch] = {}
        self._prunes = False
        self._kept: dict[tuple[Any, ...], Any] = {}  # configs by the choice and its features
        self._fallback: Any = None
        self._forced: Any = None  # the config of TRITON_TUNE_CONFIG
        self._autotunes = False  # the package cannot be imported, or a variable says so

    def __getitem__(self, grid: Any) -> Any:
        """What launches on a grid; without the Python frame that Triton's has."""
        return partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or compile only (`warmup`), with the config that the generated module chooses."""
        if not self._devices:
            self._prepare()
        if self._autotunes:
            result = self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)
            self.best_config = self.fn.best_config
            return result
        config = self._choose(args, kwargs)
        launch = self._launches.get(config)
        if launch is None:
            launch = self._launches[config] = self._known.launch_of(config)
        self.best_config = launch.config
        if launch.pre_hook is not None and not warmup:
            launch.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **launch.keywords})
        return self._below.run(*args, grid=grid, warmup=warmup, **kwargs, **launch.keywords)

    def chosen(self, *args: Any, **kwargs: Any) -> Any:
        """The generated `Config` that a launch with these arguments gets."""
        if not self._devices:
            self._prepare()
        if self._autotunes:
            raise ValueError(f"{self.__name__}: Triton's autotuner chooses its configs")
        return self._choose(args, kwargs)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        choose = self._choosers.get(0 if self._devices == 1 else device_number()) or self._chooser()
        values: dict[str, Any] = {}
        count = len(args)
        for name, position, read in self._readers:
            if read is not None:
                value = read(args, kwargs)
            elif position < count:
                value = args[position]
            else:
                value = kwargs[name] if name in kwargs else self._default(name)
            if type(value) is not int:
                integer = self._integers.get((name, value))
                if integer is None:
                    values[name] = value = plain(value)
                    try:
                        integer = integer_of(value, self._values.get(name, {}))
                    except KeyError:
                        config = self._for_unknown_word(name, value)
                        break
                    self._integers[name, value] = integer
                value = integer
            values[name] = value
        else:
            config = choose(**values)
        if self._prunes:
            config = self._keep(config, values.values(), args, kwargs)
        return config

    def _default(self, name: str) -> Any:
        if name not in self._defaults:
            raise TypeError(f"{self.__name__} is launched without its argument {name!r}")
        return self._defaults[name]

    def _for_unknown_word(self, name: str, value: Any) -> Any:
        """The config for a word that was not tuned."""
        if self._forced is not None:
            return self._forced
        if (name, value) not in self._unknown:
            self._unknown.add((name, value))
            known = ", ".join(self._values.get(name, {})) or "none"
            what = f"{name} is {value}, but was tuned for: {known}"
            warnings.warn(f"{self.__name__} launches the fallback: {what}", stacklevel=4)
        return self._fallback

    def _keep(self, chosen: Any, values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the autotuner's rule leaves of a choice; asked once for these features and element types."""
        types = [getattr(value, "dtype", None) for value in (*args, *kwargs.values())]
        key = (chosen, tuple(values), *types)
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = self._known.kept(chosen, self._fallback, args, kwargs)
        return self._kept[key]

    def _prepare(self) -> None:
        package = self._package
        if isinstance(package, str):
            try:
                package = importlib.import_module(package)
            except ModuleNotFoundError as error:
                if self._autotuner is None or error.name is None or not package.startswith(error.name):
                    raise
                warnings.warn(
                    f"{package} does not exist yet, so Triton's autotuner chooses for {self.__name__}: "
                    "measure a table with triton-tune, then run `treegen build`",
                    stacklevel=3,
                )
                self._autotunes, self._devices = True, 1
                return
        self._kernel = package.__name__.rpartition(".")[2]
        self._overrides: Overrides = read_overrides(self._kernel)
        if self._overrides.autotune:
            if self._autotuner is None:
                raise ValueError(f"{CONFIG} names {AUTOTUNE}, but {self.__name__} has no @triton.autotune")
            self._autotunes, self._devices = True, 1
            return
        self._generated: Any = package
        default = package.MODULES["default"].choose
        names = default.__code__.co_varnames[: default.__code__.co_kwonlyargcount]
        self._values = getattr(package, "VALUES", {})
        self._readers = [self._reader(name) for name in names]
        self._fallback = default(**dict.fromkeys(names, 0))
        forced = self._overrides.config
        if forced is not None:
            known = [name for name in self._fallback._fields if name != "variant"]
            for name in forced:
                if name not in known:
                    raise ValueError(f"{CONFIG} names {name!r}, but the parameters are: {', '.join(known)}")
            self._forced = self._fallback._replace(**forced)
        rule = getattr(self._autotuner, "early_config_prune", None)
        self._prunes = rule is not None and self._forced is None
        torch = sys.modules.get("torch")
        self._devices = max(1, torch.cuda.device_count()) if torch else 2

    def _reader(self, name: str) -> tuple[str, int, Any]:
        """The feature's name, and the position of its argument or a function that reads it."""
        if name in self.features:
            function = self.features[name]

            def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                given = dict(zip(self.arg_names, args, strict=False))
                return function({**self._defaults, **given, **kwargs})

            return name, -1, read
        if name in self.arg_names:
            return name, self.arg_names.index(name), None
        argument = name.removesuffix(OF_DTYPE)
        if argument in self.arg_names:
            position = self.arg_names.index(argument)

            def read_dtype(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                tensor = args[position] if position < len(args) else kwargs.get(argument)
                return None if tensor is None else tensor.dtype

            return name, -1, read_dtype
        raise ValueError(
            f"{self.__name__} has no argument {name!r}, which {self._package} needs as a feature: "
            "give @tuned a function for it in features"
        )

    def _chooser(self) -> Callable[..., Any]:
        """What chooses on the current device; it is kept."""
        key, modules, forced = self._overrides.device_key, self._generated.MODULES, self._forced
        choose: Callable[..., Any]
        if forced is not None:
            choose = lambda **features: forced  # noqa: E731
        elif key is None:
            choose = self._generated.for_device(*current_device())
        elif key in modules:
            choose = modules[key].choose
        else:
            raise ValueError(f"{DEVICE} is {key!r}, but the modules are: {', '.join(sorted(modules))}")
        if self._overrides.log:
            choose = _logged(self._kernel, choose)
        self._choosers[0 if self._devices == 1 else device_number()] = choose
        return choose


def function_of(kernel: Any) -> Any:
    """The Python function of a kernel."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def defaults_of(function: Any) -> dict[str, Any]:
    """The defaults of a function's arguments, by name."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _logged(kernel: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    seen: set[Any] = set()

    def choose_and_log(**features: int) -> Any:
        config = choose(**features)
        if config not in seen:
            seen.add(config)
            values = " ".join(f"{name}={value}" for name, value in features.items())
            print(f"triton_tune: {kernel} launches {config} for {values}", file=sys.stderr)
        return config

    return choose_and_log
