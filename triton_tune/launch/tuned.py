"""`@tuned`: a kernel whose launch parameters a generated module chooses, in place of `@triton.autotune`."""

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple

from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import KernelInterface

from triton_tune.launch.choosing import (
    AUTOTUNE,
    CONFIG,
    DEVICE,
    DOES_NOT_FIT,
    OWN,
    Choosing,
    ConfigLaunch,
    current_device,
    device_number,
    logged,
    read_overrides,
)
from triton_tune.launch.every_autotuner import capturing, defaults_of, function_of, layers
from triton_tune.launch.features import Feature, Missing, Read, integer_of, parse_feature, plain, reader

_MOST_KEPT = 4096  # launches with different features that a kernel remembers
_MOST_TRIED = 64  # configs, where one does not fit the device
_UNSET = {"maxnreg": 0, "num_ctas": 0}  # values of parameters that a config does not set
FALLBACK = "fallback"


def tuned(
    package: str | ModuleType,
    *,
    features: Mapping[str, Feature] | None = None,
    autotune: int = 0,
    unknown: str = FALLBACK,
) -> Callable[[Any], "Tuned"]:
    """Let the generated package of a kernel choose its launch parameters.

    It stands above the kernel's other decorators::

        @tuned("heuristics.matmul")
        @triton.autotune(configs=..., key=["M", "N", "K"])  # stays for tuning again, or may go
        @triton.jit
        def matmul(...): ...

    docs/your_kernel.md shows how a kernel of another package is replaced.

    A launch allocates no device memory, times nothing and waits for nothing, so it can be captured as a CUDA
    graph. Each feature of the package is an argument of the kernel by the same name, the element type of one
    (`a_ptr_dtype`), or in `features`. A word that was not tuned launches the fallback, with a warning.

    From `@triton.autotune` come a config's `pre_hook` and the rule `early_config_prune`, which runs once for
    each set of features. `best_config` is that of the last launch. A config that does not fit the device, as
    another Triton may use more shared memory, is replaced by the module's next one that does; warns once.

    Args:
        package: of the kernel, as `treegen build` writes it; by name, it is imported at the first launch.
        features: by name, an expression in the kernel's arguments such as `"x_ptr.shape[2]"`, or a function
            from the arguments by name; to an integer, boolean, element type or word.
        autotune: from 2 on, Triton's autotuner times this many of the module's best configs, at the first
            launch of each set of features. While a graph is captured, the first of them is launched.
        unknown: what is launched on a GPU that was not tuned, for a word that was not, and where the module
            has only its fallback: "fallback", or "autotune", which leaves these launches to the kernel's own
            `@triton.autotune`, except while a graph is captured. Warns once of each reason.

    Raises:
        TypeError: what is decorated is no Triton kernel, or `@triton.autotune` lies deeper below it; at a
            launch: an argument is missing.
        ValueError: an option has no valid value; at a launch: a feature is no argument; an environment
            variable has no valid value (docs/your_kernel.md); or configs of `@triton.autotune` have a
            `pre_hook`, and the chosen one is not among them.
    """
    if type(autotune) is not int or autotune < 0:
        raise ValueError(f"autotune of @tuned is {autotune!r}, but a number of configs is needed")
    if unknown not in (FALLBACK, AUTOTUNE):
        raise ValueError(f'unknown of @tuned is {unknown!r}, but "{FALLBACK}" or "{AUTOTUNE}" is needed')
    return lambda kernel: Tuned(kernel, package, features or {}, autotune, unknown == AUTOTUNE)


class Tuned(Autotuner):  # type: ignore[misc]
    """A kernel with a generated package. Launch it as any Triton kernel: `kernel[grid](...)`.

    It is the kernel's autotuner with another choice, or one without configs, so `torch.library.wrap_triton`
    takes it.

    autotuner: of the kernel itself, if it has one.
    """

    def __init__(
        self,
        fn: Any,
        package: str | ModuleType,
        features: Mapping[str, Feature],
        autotune: int,
        leaves_unknown: bool,
    ) -> None:
        if not hasattr(fn, "arg_names"):
            raise TypeError(f"@tuned decorates Triton kernels, and {fn!r:.60} is none")
        if isinstance(fn, Tuned) or any(isinstance(each, Autotuner) for each in layers(fn.fn)):
            what = "@tuned must stand directly above @triton.autotune"
            raise TypeError(f"{what}: kernel.fn = tuned(...)(kernel.fn) puts it there")
        self.autotuner = fn if isinstance(fn, Autotuner) else None
        self.__dict__.update(vars(self.autotuner or Autotuner(fn, fn.arg_names, None, [], None, None)))
        self.__dict__.pop("run", None)  # of an autotuner whose launches are wrapped
        self.features = features
        self.__name__ = function_of(fn).__name__
        if leaves_unknown and self.autotuner is None:
            raise ValueError(f'unknown="{AUTOTUNE}" of @tuned: {self.__name__} has no @triton.autotune')
        for name, feature in features.items():
            if not callable(feature):
                parse_feature(name, feature, self.arg_names)
        self.best_config: Any = None  # the triton.Config of the last launch, as the autotuner has it
        self._package, self._most, self._leaves_unknown = package, autotune, leaves_unknown
        self._defaults = defaults_of(function_of(fn))
        self._choosing: dict[int, Choosing] = {}  # by device
        self._devices = 0  # how many there are; 0 before the first launch
        self._warned: set[Any] = set()  # reasons
        self._autotunes = False  # the package cannot be imported, or a variable says so

    def __getitem__(self, grid: Any) -> Any:
        """A function that launches on a grid, without the extra Python frame of Triton's own."""
        return partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or compile only (`warmup`), with the config that the generated module chooses."""
        if not self._devices:
            self._prepare()
        if self._autotunes:
            return super().run(*args, grid=grid, warmup=warmup, **kwargs)
        features = self._read(*args, **kwargs)
        choosing = self._choosing.get(0 if self._devices == 1 else device_number()) or self._choosing_here()
        launch = choosing.launches.get(features)
        if launch is None:
            launch = self._choose(_Request(choosing, features, args, kwargs))
        if launch.autotuner is not None and not warmup and not capturing():
            result = launch.autotuner.run(*args, grid=grid, warmup=warmup, **kwargs)
            best = self.best_config = launch.autotuner.best_config
            if launch.autotuner is not self.autotuner:  # it has timed these features once and for all
                choosing.launches[features] = ConfigLaunch(best.all_kwargs(), best)
            return result
        self.best_config = launch.config
        try:
            if launch.config.pre_hook is not None and not warmup:
                launch.config.pre_hook(
                    {**dict(zip(self.arg_names, args, strict=False)), **kwargs, **launch.keywords}
                )
            return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **launch.keywords)
        except DOES_NOT_FIT as error:
            return self._step_down(error, _Request(choosing, features, args, kwargs), grid, warmup)

    def _step_down(self, error: Exception, request: "_Request", grid: Any, warmup: bool) -> Any:
        """Launch the next config, which these features get from now on. Raises the error if none is left."""
        failed = self.best_config
        tried = request.choosing.failed.setdefault(request.features, [])
        tried.append(failed.all_kwargs())
        launches, _ = self._launches(request, _MOST_TRIED)
        possible = chain(launches, map(self._launch_of, [self._fallback]))
        following = next((one for one in possible if one.config.all_kwargs() not in tried), None)
        if following is None or self._forced is not None:
            raise error
        request.choosing.launches[request.features] = following
        if str(failed) not in self._warned:
            self._warned.add(str(failed))
            warning = f"{self.__name__} cannot be launched with {failed}, so the next config is: {error}"
            warnings.warn(warning, stacklevel=3)
        return self.run(*request.args, grid=grid, warmup=warmup, **request.kwargs)

    warmup = KernelInterface.warmup  # of the chosen config alone

    def chosen(self, *args: Any, **kwargs: Any) -> Any:
        """The `triton.Config` that a launch with these arguments gets; None if an autotuner chooses."""
        if not self._devices:
            self._prepare()
        if self._autotunes:
            return None
        request = _Request(self._choosing_here(), self._read(*args, **kwargs), args, kwargs)
        return self._launches(request, 1)[0][0].config

    def _choose(self, request: "_Request") -> ConfigLaunch:
        """What to launch for these features; it is kept."""
        choosing = request.choosing
        launches, not_tuned = self._launches(request, self._most)
        launch = launches[0]
        if not_tuned is not None:
            if self._leaves_unknown:
                launch = replace(launch, autotuner=self.autotuner)
            if not_tuned not in self._warned:
                self._warned.add(not_tuned)
                outcome = "is left to Triton's autotuner" if self._leaves_unknown else "launches the fallback"
                warnings.warn(f"{self.__name__} {outcome}: {not_tuned}", stacklevel=3)
        if len(launches) > 1 and launch.autotuner is None:
            launch = replace(launch, autotuner=self._autotuner_of([each.config for each in launches]))
        if len(choosing.launches) >= _MOST_KEPT:
            choosing.launches.clear()
            choosing.failed.clear()
        choosing.launches[request.features] = launch
        return launch

    def _launches(self, request: "_Request", most: int) -> tuple[list[ConfigLaunch], str | None]:
        """What to launch or to try, best first; and what was not tuned, if anything."""
        choosing = request.choosing
        values, unknown = self._integers(request.features)
        not_tuned = choosing.not_tuned
        if unknown is None:
            configs = [choosing.choose(**values)]
            if most > 1 and choosing.module is not None:
                configs = list(choosing.module.candidates(most, **values))
            if choosing.fallback_is_untuned and configs[0] == self._fallback:
                not_tuned = not_tuned or "some launches have no config of their own"
        elif self._forced is None:
            configs, not_tuned = [self._fallback], unknown
        else:
            configs = [self._forced]
        launches = [self._launch_of(config) for config in configs]
        return self._kept(launches, request) if self._prunes else launches, not_tuned

    def _integers(self, features: tuple[Any, ...]) -> tuple[dict[str, Any], str | None]:
        """The features by name as integers; and a text about a word that was not tuned, if there is one."""
        values: dict[str, Any] = dict(zip(self._names, features, strict=False))  # element types may follow
        for name, value in values.items():
            if type(value) is int:
                continue
            if isinstance(value, Missing):
                raise TypeError(value.problem)
            words = self._values.get(name, {})
            try:
                values[name] = integer_of(plain(value), words)
            except KeyError:
                return values, f"{name} is {plain(value)}, but was tuned for: {', '.join(words) or 'none'}"
        return values, None

    def _autotuner_of(self, configs: list[Any]) -> Autotuner:
        """The kernel's autotuner, but with these configs alone, which no rule leaves out."""
        tuner = object.__new__(Autotuner)
        vars(tuner).update(vars(self))
        tuner.configs, tuner.keys, tuner.cache, tuner.cache_results = configs, [], {}, False
        tuner.early_config_prune = tuner.perf_model = None
        return tuner

    def _launch_of_config(self, config: Any) -> ConfigLaunch:
        """What a generated config adds to a launch, as the autotuner's equal config, with its hook.

        Raises ValueError if no config of the autotuner equals it, and some have a hook: without its hook, a
        launch may compute something else.
        """
        numbers, configs = _numbers(config), () if self.autotuner is None else self.configs
        for own_config in configs:
            if all(self._number(own_config, name) == value for name, value in numbers.items()):
                return ConfigLaunch(own_config.all_kwargs(), own_config)
        if any(own_config.pre_hook for own_config in configs):
            what = f"{config} is no config of @triton.autotune, whose configs have a pre_hook"
            raise ValueError(f"{self.__name__}: {what}: add it there, or tune the kernel again")
        set_values = {n: self._literals.get(n, {}).get(v, v) for n, v in numbers.items()}
        keywords = {name: value for name, value in set_values.items() if value is not ...}
        own = {name: keywords[name] for name in OWN if name in keywords}
        others = {name: value for name, value in keywords.items() if name not in OWN}
        return ConfigLaunch(keywords, Config(others, **own))

    def _kept(self, launches: list[ConfigLaunch], request: "_Request") -> list[ConfigLaunch]:
        """What `early_config_prune` keeps; if nothing, the fallback if it keeps that, or the first it keeps.

        The rule decides nothing about a config that is not the autotuner's, nor if it keeps none.
        """
        given = dict(zip(self.arg_names, request.args, strict=False))
        kept = list(self.early_config_prune(list(self.configs), given, **request.kwargs))
        if not kept:
            return launches
        others = map(self._launch_of, [self._fallback])
        for some in (launches, others):
            if left := [one for one in some if one.config in kept or one.config not in self.configs]:
                return left
        return [ConfigLaunch(kept[0].all_kwargs(), kept[0])]

    def _number(self, config: Any, name: str) -> int | None:
        """The integer that a generated config has for a parameter of the autotuner's; None if it has none."""
        literals = self._literals.get(name, {})
        default = ... if ... in literals.values() else self._defaults.get(name, ...)
        value = config.all_kwargs().get(name, default)
        for number, literal in literals.items():
            if type(literal) is type(value) and literal == value:
                return number
        if value is None or value is ...:
            return 0
        return None if isinstance(value, str) else int(value)

    def _prepare(self) -> None:
        package = self._package
        if isinstance(package, str):
            try:
                package = importlib.import_module(package)
            except ModuleNotFoundError as error:
                if self.autotuner is None or error.name is None or not package.startswith(error.name):
                    raise
                what = f"{package} does not exist yet, so Triton's autotuner chooses for {self.__name__}"
                remedy = "measure a table with triton-tune, then run `treegen build`"
                warnings.warn(f"{what}: {remedy}", stacklevel=3)
                self._autotunes, self._devices = True, 1
                return
        self._overrides = read_overrides(package.__name__.rpartition(".")[2])
        if self._overrides.autotune:
            if self.autotuner is None:
                raise ValueError(f"{CONFIG} names {AUTOTUNE}, but {self.__name__} has no @triton.autotune")
            self._autotunes, self._devices = True, 1
            return
        self._generated: Any = package
        default = package.MODULES["default"].choose
        self._names = names = default.__code__.co_varnames[: default.__code__.co_kwonlyargcount]
        self._values: Mapping[str, Mapping[str, int]] = getattr(package, "VALUES", {})
        # By parameter, what integers stand for at a launch; `...` for a parameter that a config does not set.
        self._literals: Mapping[str, Mapping[int, Any]] = getattr(package, "LITERALS", {})
        self._launch_of = cache(self._launch_of_config)
        self._fallback: Any = default(**dict.fromkeys(names, 0))
        forced = self._overrides.config  # of TRITON_TUNE_CONFIG
        parameters = [name for name in self._fallback._fields if name != "variant"]
        for name in set(forced or ()).difference(parameters):
            raise ValueError(f"{CONFIG} names {name!r}, but the parameters are: {', '.join(parameters)}")
        self._forced: Any = None if forced is None else self._fallback._replace(**forced)
        rule = getattr(self.autotuner, "early_config_prune", None)
        self._prunes = rule is not None and forced is None
        read = reader(self.__name__, self.arg_names, self._defaults, self.features, names)

        def read_with_types(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            """The rule may depend on the element types of all arguments."""
            types = (getattr(value, "dtype", None) for value in (*args, *kwargs.values()))
            return (*read(*args, **kwargs), *types)

        self._read: Read = read_with_types if self._prunes else read
        torch = sys.modules.get("torch")
        self._devices = max(1, torch.cuda.device_count()) if torch else 2

    def _choosing_here(self) -> Choosing:
        """What chooses on the current device; it is kept. Raises ValueError: there is no such module."""
        number = 0 if self._devices == 1 else device_number()
        if number not in self._choosing:
            choosing = self._choosing[number] = self._make_choosing()
            if self._overrides.log:
                choosing.choose = logged(self._generated.__name__.rpartition(".")[2], choosing.choose)
        return self._choosing[number]

    def _make_choosing(self) -> Choosing:
        package, key, not_tuned = self._generated, self._overrides.device_key, None
        if self._forced is not None:
            return Choosing(lambda **features: self._forced, None, None, False)
        if key is not None and key not in package.MODULES:
            known = ", ".join(sorted(package.MODULES))
            raise ValueError(f"{DEVICE} is {key!r}, but the modules are: {known}")
        if key is None:
            name, arch, vendor = current_device()
            # A vendor has many GPUs, but Triton has one interpreter.
            if package.key_for(name, arch, "") == "default" and vendor != "cpu" and self._leaves_unknown:
                not_tuned = f"{name or arch} was not tuned"
            module = package.MODULES[package.key_for(name, arch, vendor)]
        else:
            module = package.MODULES[key]
        rows = [row for value in vars(module).values() if type(value) is tuple for row in value]
        own = {config for row in rows for config in (row.config, *row.others.values(), *row.then)}
        is_untuned = self._leaves_unknown and key is None and self._fallback not in own
        return Choosing(module.choose, module, not_tuned, is_untuned)


class _Request(NamedTuple):
    """A launch for which a config is chosen."""

    choosing: Choosing
    features: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _numbers(config: Any) -> dict[str, int]:
    """The parameters that a generated config sets, as it has them."""
    values = config._asdict().items()
    return {name: value for name, value in values if name != "variant" and _UNSET.get(name) != value}
