"""All choices of configs for the layers of one model on one device."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from attn_kernels.choose.mixed import KERNEL as MIXED
from attn_kernels.choose.mixed import SEPARATE, WITHOUT_KERNEL, mixed_lengths, needs_parts
from attn_kernels.choose.overrides import CONFIG, DEVICE, logged, overrides
from attn_kernels.choose.packages import heuristics_package, kernel_package
from attn_kernels.core.checks import check_device
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.core.errors import brief, warn_if_untuned, warn_user
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.kernels.arguments import check_shared_memory
from attn_kernels.kernels.registry import VARIANTS, check_config
from triton_tune.core.device import describe_device

KERNEL = "unified_attention"
INVARIANT = "invariant_attention"  # chooses for models with ``batch_invariant``, by their constants alone
MAX_CONFIGS = 1024  # launches of this many configs are kept; beyond that, all are dropped
Choose = Callable[..., LaunchConfig]


@lru_cache(maxsize=4096, typed=True)  # tuples of different types are equal
def checked(config: LaunchConfig) -> Config:
    """Return a config with all launch parameters. Raises TypeError and ValueError about ``config``."""
    full_config = complete(config)
    if full_config not in WITHOUT_KERNEL:
        check_config(full_config)
    return full_config


def check_batch_invariant(model: Model, name: str, config: Config) -> None:
    """Raise ValueError if the model is batch-invariant and the config, which ``name`` set, is not."""
    if not model.batch_invariant or config in WITHOUT_KERNEL or VARIANTS[config.variant].batch_invariant:
        return
    fitting = ", ".join(name for name, variant in VARIANTS.items() if variant.batch_invariant)
    raise ValueError(f"{name} is {config}, but a model with batch_invariant needs the variant {fitting}")


class Choices:
    """All that depends on a model and a device alone: what each row launches, and the launches bound so far.

    ``choices_for`` makes one per model and device, and every step asks it. The generated module that
    ``device_key`` or ``ATTN_KERNELS_DEVICE`` names chooses, or else the one nearest to the device; a config
    in ``ATTN_KERNELS_CONFIG`` overrides it. The module is loaded at the first question, with a warning if the
    GPU has none of its own. This raises ValueError about ``device_key``, an environment variable, or a head
    that is too large for the device.
    """

    def __init__(self, model: Model, device: torch.device, device_key: str | None = None) -> None:
        check_device("device", device)
        self.model, self.device, self.device_key = model, device, device_key
        self._launches: dict[tuple[Config, bool], dict[Hashable, Any]] = {}
        self._failed: list[Config] = []  # what does not fit the device
        self._loaded = False

    def launch_cache(self, config: Config, for_capture: bool) -> dict[Hashable, Any]:
        """The launches by signature that plans of a config share; graphs have launches of their own."""
        if len(self._launches) >= MAX_CONFIGS:
            self._launches.clear()
        return self._launches.setdefault((config, for_capture), {})

    def _load(self) -> None:
        """Load the generated modules, once. There is no lock, which a fork could copy while it is held."""
        if self._loaded:
            return
        forced = overrides().config if self.device_key is None else None
        key = _unified_key(self.device, self.device_key)  # refuses names, and warns, for any model
        module = kernel_package(KERNEL).MODULES[key]
        if self.model.batch_invariant:
            key, module = _invariant_module(self.device, self.device_key)
        if forced is not None:
            check_batch_invariant(self.model, CONFIG, forced)
        constants = self.model.features
        source, step = key, module.for_model(**constants)
        possible, of_any_model = _possible_of(module, constants), configs_of(module)
        way, fused = _always(SEPARATE), list[Config]()
        if forced is not None and needs_parts(forced):
            way, fused = logged(CONFIG, _always(forced), self.model), [forced]
            of_any_model += fused
        elif forced is not None:
            source, step, possible, of_any_model = CONFIG, _always(forced), [forced], [forced]
        elif self.model.batch_invariant:
            pass  # each part has the same config: two launches give the bits of one
        elif mixed := _module_beside(MIXED, self.device, self.device_key):
            way = logged(f"{mixed[0]} of {MIXED}", mixed[1].for_model(**constants), self.model)
            fused = _launched_by(_rows(mixed[1], constants))
            of_any_model += configs_of(mixed[1])
        for config in possible:
            check_shared_memory(config, self.model, self.device)
        self._possible = list(dict.fromkeys(possible))
        self._of_any_model = with_kernel(of_any_model)
        self._source, self._module = source, module
        self._choose = logged(source, step, self.model)
        self._choose_way, self._fused = way, with_kernel(fused)
        self._loaded = True

    def config(self, lengths: Lengths) -> Config:
        """Choose for a batch of these lengths, or for a graph of batches up to them."""
        if not self._loaded:
            self._load()
        if self.model.sliding_window is not None:
            lengths = lengths.in_window(self.model.sliding_window)
        num_seqs, num_query_tokens, max_query_len, max_seq_len, num_kv_tokens = lengths
        return checked(
            self._choose(
                num_seqs=num_seqs,
                num_query_tokens=num_query_tokens,
                num_kv_tokens=num_kv_tokens,
                max_query_len=max_query_len,
                max_seq_len=max_seq_len,
            )
        )

    def way(self, parts: Parts) -> Config:
        """Choose how a mixed batch is computed: ``SEPARATE``, ``SINGLE`` or a config of a mixed variant.

        It is ``SEPARATE`` where no module of ``mixed_attention`` serves the device or is called
        ``device_key``, and where ``ATTN_KERNELS_CONFIG`` is no config for mixed batches.
        """
        self._load()
        chosen = checked(self._choose_way(**mixed_lengths(parts, self.model.sliding_window)))
        return SEPARATE if chosen in self._failed else chosen

    def step_down(self, config: Config, error: Exception) -> None:
        """Stop choosing a config that raised this error when it was launched, and warn once.

        Raises the error if the environment variable chose the config, or the module has no other one.
        """
        if self._source in (CONFIG, "default"):
            raise error
        if config not in self._failed:
            self._failed.append(config)
            failed = [one for one in _generated_configs(self._module) if complete(one) in self._failed]
            step = self._module.for_model(**self.model.features, passed_over=tuple(failed))
            self._choose = logged(self._source, step, self.model)
            warn_user(f"{config} cannot be launched, so the next config is, from now on: {brief(error)}")

    def possible(self) -> list[Config]:
        """List what ``config`` can return."""
        self._load()
        return self._possible

    def for_any_model(self) -> list[Config]:
        """List the configs of batches of any model on this device, those of ``fused`` included."""
        self._load()
        return self._of_any_model

    def fused(self) -> list[Config]:
        """List the configs of one launch for both parts of a mixed batch that ``way`` can return."""
        self._load()
        return self._fused


choices_for = lru_cache(maxsize=1024)(Choices)


def _always(config: Config) -> Choose:
    return lambda **features: config


def _unified_key(device: torch.device, device_key: str | None) -> str:
    """Return the key of the generated module that is named or serves a device. Raises ValueError."""
    package = kernel_package(KERNEL)
    if not hasattr(package, "key_for"):
        wrote = f"an earlier treegen wrote {heuristics_package()}.{KERNEL}"
        raise ValueError(f"{wrote}: run 'treegen build' again")
    key = overrides().device_key if device_key is None else device_key
    if key is None:
        described = describe_device(device)
        key = package.key_for(*described)
        if described[2] != "cpu" and overrides().config is None:
            warn_if_untuned(described, package.key_for)
    if key not in package.MODULES:
        named, possible = DEVICE if device_key is None else "device_key", ", ".join(sorted(package.MODULES))
        raise ValueError(f"{named} is {key!r}, but the generated modules are: {possible}")
    return key


def _invariant_module(device: torch.device, device_key: str | None) -> tuple[str, ModuleType]:
    """Return the generated module of models with ``batch_invariant``, with its key. Raises ValueError."""
    serving = _module_beside(INVARIANT, device, device_key)
    if serving is None:
        try:
            serving = "default", kernel_package(INVARIANT).MODULES["default"]
        except ImportError:
            package = f"{heuristics_package()} has no {INVARIANT}"
            raise ValueError(f"batch_invariant is True, but the package {package}") from None
    return serving


def _module_beside(
    kernel: str, device: torch.device, device_key: str | None
) -> tuple[str, ModuleType] | None:
    """Return the generated module of another kernel, with its key; None where there is none."""
    try:
        package = kernel_package(kernel)
    except ImportError:  # no table of this kernel was compiled
        return None
    key = overrides().device_key if device_key is None else device_key
    if key is None:
        key = package.key_for(*describe_device(device))
    # The user's key may name a module that only unified_attention has.
    return (key, package.MODULES[key]) if key in package.MODULES else None


def _possible_of(module: ModuleType, constants: Mapping[str, int]) -> list[Config]:
    """List what the rows of a generated module can launch on models with these constants."""
    rows = _rows(module, constants)
    if all(hasattr(row, "variant") for row in rows):  # no constraint depends on the step
        return _launched_by(rows)
    return [*_launched_by(rows), *configs_of(kernel_package(KERNEL).MODULES["default"])]


def _rows(module: ModuleType, constants: Mapping[str, int]) -> list[Any]:
    return [row for regime in module.configs(**constants) for row in regime]


def _launched_by(rows: list[Any]) -> list[Config]:
    """List what rows launch, without a fallback for some steps."""
    configs = [config for row in rows for config in ((row,) if hasattr(row, "variant") else row)]
    return list(dict.fromkeys(map(complete, configs)))


def with_kernel(ways: Iterable[Config]) -> list[Config]:
    return [config for config in ways if config not in WITHOUT_KERNEL]


def configs_of(module: ModuleType) -> list[Config]:
    """List the configs that a generated module can choose, each once."""
    return list(dict.fromkeys(map(complete, _generated_configs(module))))


def _generated_configs(module: ModuleType) -> list[LaunchConfig]:
    return [value for name, value in vars(module).items() if name.isupper() and hasattr(value, "variant")]
