"""`@tuned`: a kernel whose launch parameters a generated module chooses, in place of `@triton.autotune`."""

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

from triton_tune.launch.device import current_device, device_number
from triton_tune.launch.overrides import AUTOTUNE, CONFIG, DEVICE, Overrides, read_overrides
from triton_tune.launch.words import OF_DTYPE, integer_of

Feature = Callable[[Mapping[str, Any]], Any]  # from a launch's arguments by name to a value
_UNSET = {"maxnreg": 0, "num_ctas": 0}  # values of parameters that a config does not set


def tuned(
    package: str | ModuleType, *, features: Mapping[str, Feature] | None = None
) -> Callable[[Any], "Tuned"]:
    """Let the generated package of a kernel choose its launch parameters.

        @tuned("heuristics.matmul")
        @triton.autotune(configs=..., key=["M", "N", "K"])  # stays for tuning again, or may go
        @triton.jit
        def matmul(...): ...

    A launch reads its features from its arguments, calls `choose` of the device's module, and launches. It
    allocates no device memory, times nothing and waits for nothing, so it can be captured as a CUDA graph.
    Each feature of the package is an argument of the kernel by the same name, the element type of one
    (`a_ptr_dtype`), or in `features`.

    Args:
        package: of the kernel, as `treegen build` writes it; by name, it is imported at the first launch.
        features: functions from the arguments by name to an integer, boolean, element type or word.

    Raises:
        TypeError: what is decorated is no Triton kernel, or `@triton.autotune` lies deeper below it.
        ValueError: at a launch: a feature is no argument, or an environment variable has no valid value
            (docs/your_kernel.md).
    """

    def decorate(kernel: Any) -> Tuned:
        return Tuned(kernel, package, features or {})

    return decorate


@dataclass(frozen=True)
class _Launch:
    """What a config adds to a launch."""

    keywords: dict[str, Any]
    pre_hook: Callable[[dict[str, Any]], object] | None = None


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
        self._package = package
        self._autotuner = fn if isinstance(fn, Autotuner) else None
        self._below = fn.fn if isinstance(fn, Autotuner) else fn
        self._choosers: dict[int, Callable[..., Any]] = {}
        self._devices = 0  # how many there are; 0 before the first launch
        self._readers: list[tuple[str, int, Any]] = []
        self._values: Mapping[str, Mapping[str, int]] = {}
        self._integers: dict[tuple[str, Any], int] = {}  # of a feature's values that are no integers
        self._launches: dict[Any, _Launch] = {}
        self._fallback: Any = None
        self._missing = False  # the package cannot be imported, so Triton's autotuner chooses

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or compile only (`warmup`), with the config that the generated module chooses."""
        if not self._devices:
            self._prepare()
        if self._missing:
            return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)
        choose = self._choosers.get(0 if self._devices == 1 else device_number()) or self._chooser()
        config = self._choose(choose, args, kwargs)
        launch = self._launches.get(config) or self._launch(config)
        if launch.pre_hook is not None:
            launch.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs, **launch.keywords})
        return self._below.run(*args, grid=grid, warmup=warmup, **kwargs, **launch.keywords)

    def chosen(self, *args: Any, **kwargs: Any) -> Any:
        """The generated `Config` that a launch with these arguments gets."""
        if not self._devices:
            self._prepare()
        if self._missing:
            raise ValueError(f"{self._package} does not exist yet: run `treegen build`")
        choose = self._choosers.get(0 if self._devices == 1 else device_number()) or self._chooser()
        return self._choose(choose, args, kwargs)

    def _choose(self, choose: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = {}
        count = len(args)
        for name, position, read in self._readers:
            if read is None:
                value = args[position] if position < count else kwargs[self.arg_names[position]]
            else:
                value = read(args, kwargs)
            if type(value) is not int:
                integer = self._integers.get((name, value))
                if integer is None:
                    try:
                        integer = integer_of(value, self._values.get(name, {}))
                    except KeyError:  # a word that was not tuned
                        return self._fallback
                    self._integers[name, value] = integer
                value = integer
            values[name] = value
        return choose(**values)

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
                    stacklevel=4,
                )
                self._missing, self._devices = True, 1
                return
        self._overrides: Overrides = read_overrides(package.__name__.rpartition(".")[2])
        if self._overrides.autotune:
            if self._autotuner is None:
                raise ValueError(f"{CONFIG} names {AUTOTUNE}, but {self.__name__} has no @triton.autotune")
            self._missing, self._devices = True, 1
            return
        self._generated: Any = package
        default = package.MODULES["default"].choose
        names = default.__code__.co_varnames[: default.__code__.co_kwonlyargcount]
        self._values = getattr(package, "VALUES", {})
        self._readers = [self._reader(name) for name in names]
        self._fallback = default(**dict.fromkeys(names, 0))
        torch = sys.modules.get("torch")
        self._devices = max(1, torch.cuda.device_count()) if torch else 2

    def _reader(self, name: str) -> tuple[str, int, Any]:
        """The feature's name, and the position of its argument or a function that reads it."""
        if name in self.features:
            function = self.features[name]

            def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                return function({**dict(zip(self.arg_names, args, strict=False)), **kwargs})

            return name, -1, read
        if name in self.arg_names:
            return name, self.arg_names.index(name), None
        argument = name.removesuffix(OF_DTYPE)
        if argument in self.arg_names:
            position = self.arg_names.index(argument)

            def read_dtype(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                return (args[position] if position < len(args) else kwargs[argument]).dtype

            return name, -1, read_dtype
        raise ValueError(
            f"{self.__name__} has no argument {name!r}, which {self._package} needs as a feature: "
            "give @tuned a function for it in features"
        )

    def _chooser(self) -> Callable[..., Any]:
        """What chooses on the current device; it is kept."""
        overrides, modules = self._overrides, self._generated.MODULES
        choose: Callable[..., Any]
        if overrides.config is not None:
            forced = self._forced(overrides.config)
            choose = lambda **features: forced  # noqa: E731
        elif overrides.device_key is not None:
            if overrides.device_key not in modules:
                known = ", ".join(sorted(modules))
                raise ValueError(f"{DEVICE} is {overrides.device_key!r}, but the modules are: {known}")
            choose = modules[overrides.device_key].choose
        else:
            choose = self._generated.for_device(*current_device())
        if overrides.log:
            choose = _logged(self.__name__, choose)
        self._choosers[0 if self._devices == 1 else device_number()] = choose
        return choose

    def _forced(self, parameters: dict[str, int]) -> Any:
        known = {name: value for name, value in self._fallback._asdict().items() if name != "variant"}
        for name in parameters:
            if name not in known:
                raise ValueError(f"{CONFIG} names {name!r}, but the parameters are: {', '.join(known)}")
        return self._fallback._replace(**parameters)

    def _launch(self, config: Any) -> _Launch:
        """What a config adds to a launch; it is kept."""
        wanted = {name: value for name, value in config._asdict().items() if name != "variant"}
        launch = _Launch({name: value for name, value in wanted.items() if _UNSET.get(name) != value})
        for known in self._autotuner.configs if self._autotuner is not None else ():
            keywords = known.all_kwargs()
            if all(int(keywords.get(name) or 0) == value for name, value in launch.keywords.items()):
                launch = _Launch(keywords, known.pre_hook)
                break
        self._launches[config] = launch
        return launch


def function_of(kernel: Any) -> Any:
    """The Python function of a kernel."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


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
