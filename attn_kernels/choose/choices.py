"""All choices of configs for the layers of one model on one device."""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from attn_kernels.choose.capture import ON_DEVICE, STREAM_K, TIMED_ON, for_decode
from attn_kernels.choose.mixed import KERNEL as MIXED
from attn_kernels.choose.mixed import SERIES, WITHOUT_KERNEL, mixed_features, needs_parts
from attn_kernels.choose.overrides import CONFIG, DEVICE, logged, overrides
from attn_kernels.choose.packages import kernel_package
from attn_kernels.choose.reachable import reachable
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.core.errors import warn_if_untuned
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.kernels.arguments import multiprocessors
from attn_kernels.kernels.registry import check_config
from triton_tune.core.device import describe_device

KERNEL = "unified_attention"
MAX_CONFIGS = 1024  # whose launches are kept; all are dropped when there are more
Choose = Callable[..., LaunchConfig]


@lru_cache(maxsize=4096, typed=True)  # tuples of different types are equal
def checked(config: LaunchConfig) -> Config:
    """Return a config with all launch parameters. Raises TypeError and ValueError about ``config``."""
    full_config = complete(config)
    if full_config not in WITHOUT_KERNEL:
        check_config(full_config)
    return full_config


class Choices:
    """All that depends on a model and a device alone: what chooses configs, and the launches bound so far.

    Made once a model and device, by ``choices_for``, and asked at every step. What chooses is the generated
    module of ``device_key``, of ``ATTN_KERNELS_DEVICE``, or the one nearest to the device; a config in
    ``ATTN_KERNELS_CONFIG`` takes its place. The first question finds it, and warns of a GPU that has no
    module of its own. It raises ValueError about ``device_key`` or an environment variable.
    """

    def __init__(self, model: Model, device: torch.device, device_key: str | None = None) -> None:
        self.model, self.device, self.device_key = model, device, device_key
        self._launches: dict[Config, dict[Hashable, Any]] = {}
        self._resolved = False

    def launch_cache(self, config: Config) -> dict[Hashable, Any]:
        """The launches by signature that plans of a config share."""
        if len(self._launches) >= MAX_CONFIGS:
            self._launches.clear()
        return self._launches.setdefault(config, {})

    def _resolve(self) -> None:
        """Find what chooses, once. Threads may do so at once: a fork could copy a lock while it is held."""
        if self._resolved:
            return
        forced = overrides().config if self.device_key is None else None
        key, module = _unified_module(self.device, self.device_key)
        source, tree = key, module.choose
        count = 0  # of multiprocessors; 0 where configs for graphs were not timed
        way, fused = _always(SERIES), list[Config]()
        if forced is not None and not needs_parts(forced):
            source, tree = CONFIG, _always(forced)
        elif describe_device(self.device)[1] in TIMED_ON:
            count = multiprocessors(self.device)
        if forced is not None and needs_parts(forced):
            way, fused = logged(CONFIG, _always(forced)), [forced]
        elif forced is None and (mixed := _mixed_module(self.device, self.device_key)):
            way, fused = logged(f"{mixed[0]} of {MIXED}", mixed[1].choose), configs_of(mixed[1])
        self._key, self._module, self._tree, self._multiprocessors = key, module, tree, count
        self._choose = _for_model(logged(source, tree), self.model)
        self._choose_for_graph = _for_model(logged(f"{source} for capture", self._graph_config), self.model)
        self._choose_way, self._fused = way, [config for config in fused if config not in WITHOUT_KERNEL]
        self._resolved = True

    def config(self, lengths: Lengths, for_capture: bool = False) -> Config:
        """Choose for a batch of these lengths, or for a graph of batches up to them."""
        if not self._resolved:
            self._resolve()
        if self.model.sliding_window is not None:
            lengths = lengths.in_window(self.model.sliding_window)
        return checked(self._choose_for_graph(lengths) if for_capture else self._choose(lengths))

    def way(self, parts: Parts) -> Config:
        """Choose how a mixed batch is computed: ``SERIES``, ``WHOLE`` or a config of a mixed variant.

        It is ``SERIES`` where no module of ``mixed_attention`` serves the device or is called
        ``device_key``, and where ``ATTN_KERNELS_CONFIG`` is no config for mixed batches.
        """
        self._resolve()
        return checked(self._choose_way(**mixed_features(parts, self.model)))

    @property
    def segments_function(self) -> Any:
        """The Triton function ``num_segments`` of the module. Raises ValueError where it has none."""
        self._resolve()
        function = _segments_function(self._key)
        if function is None:
            needed = "generated modules with 'in_kernel: [num_segments]' in treegen.yaml are needed"
            raise ValueError(f"config.device_segments is 1, but {needed}")
        return function

    def possible(self, for_capture: bool = False) -> list[Config]:
        """List what ``config`` can return; with ``for_capture``, also for graphs."""
        self._resolve()
        trees = [self._tree, self._graph_config] if for_capture else [self._tree]
        found = [reachable(partial(tree, **self.model.features)) for tree in trees]
        return list(dict.fromkeys(checked(config) for configs in found for config in configs))

    def for_any_model(self) -> list[Config]:
        """List the configs of batches and graphs of any model on this device."""
        self._resolve()
        if self._tree is not self._module.choose:
            return [checked(self._tree())]
        for_graphs = [STREAM_K] if _segments_function(self._key) is None else [ON_DEVICE, STREAM_K]
        return configs_of(self._module) + (for_graphs if self._multiprocessors else [])

    def fused(self) -> list[Config]:
        """List the configs of one launch for both parts of a mixed batch of any model."""
        self._resolve()
        return self._fused

    def _graph_config(self, **maxima: int) -> LaunchConfig:
        """The tree's choice for the maxima of a graph, or a config that adapts to each batch."""
        by_tree: LaunchConfig = self._tree(**maxima)
        if not self._multiprocessors or by_tree.variant == STREAM_K.variant:
            return by_tree
        can_split = checked(by_tree).num_segments > 1 and _segments_function(self._key) is not None
        sizes = maxima["num_seqs"], maxima["max_query_len"]
        return for_decode(self.model, *sizes, self._multiprocessors, can_split) or by_tree


choices_for = lru_cache(maxsize=1024)(Choices)


def _for_model(choose: Choose, model: Model) -> Callable[[Lengths], LaunchConfig]:
    """Return a generated ``choose`` for the batches of one model, which takes their lengths."""
    num_query_heads, num_kv_heads, head_size, block_size, kv_element_size = model.features.values()

    def for_lengths(lengths: Lengths) -> LaunchConfig:
        num_seqs, num_query_tokens, max_query_len, max_seq_len, num_kv_tokens = lengths
        return choose(
            num_seqs=num_seqs,
            num_query_tokens=num_query_tokens,
            num_kv_tokens=num_kv_tokens,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
            num_query_heads=num_query_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            block_size=block_size,
            kv_element_size=kv_element_size,
        )

    return for_lengths


def _always(config: Config) -> Choose:
    return lambda **features: config


def _unified_module(device: torch.device, device_key: str | None) -> tuple[str, ModuleType]:
    """Return the generated module that is named or serves a device, with its key. Raises ValueError."""
    package = kernel_package(KERNEL)
    key = overrides().device_key if device_key is None else device_key
    if key is None:
        key = _key_for(package, device)
        described = describe_device(device)
        if described[2] != "cpu" and overrides().config is None:
            warn_if_untuned(described, key, package.for_device)
    if key not in package.MODULES:
        named, known = DEVICE if device_key is None else "device_key", ", ".join(sorted(package.MODULES))
        raise ValueError(f"{named} is {key!r}, but the generated modules are: {known}")
    return key, package.MODULES[key]


def _mixed_module(device: torch.device, device_key: str | None) -> tuple[str, ModuleType] | None:
    """Return the generated module of mixed batches, with its key; None where there is none."""
    try:
        package = kernel_package(MIXED)
    except ImportError:  # no table of this kernel was compiled
        return None
    key = overrides().device_key if device_key is None else device_key
    if key is None:
        key = _key_for(package, device)
    # A key that is named can be one of unified_attention, which has modules for more devices.
    return (key, package.MODULES[key]) if key in package.MODULES else None


def _key_for(package: ModuleType, device: torch.device) -> str:
    """Return the key of the module of a kernel's generated package that serves a device."""
    choose = package.for_device(*describe_device(device))
    modules: dict[str, ModuleType] = package.MODULES
    return next(key for key, module in modules.items() if module.choose is choose)


def _segments_function(key: str) -> Any | None:
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
