"""The launches that batches of a model can need."""

from collections.abc import Callable, Iterable
from itertools import product

from attn_kernels.core.config import LaunchConfig, complete
from attn_kernels.core.model import Model
from attn_kernels.kernels.registry import check_config
from attn_kernels.warmup.dummy_launch import FEATURES, DummyLaunch
from attn_kernels.warmup.reachable import reachable

MODEL_FEATURES = ("num_query_heads", "num_kv_heads", "head_size", "block_size", "kv_element_size")


def enumerate_launches(
    chooses: Iterable[Callable[..., LaunchConfig]],
    models: Iterable[Model],
    *,
    features: Iterable[Iterable[str]] = ((),),
    configs: Iterable[LaunchConfig] = (),
    sizes: tuple[bool, ...] = (False,),
    device_key: str | None = None,
) -> list[DummyLaunch]:
    """List a launch of each config in ``configs`` and each that one of ``chooses`` can return for a model.

    Args:
        sizes: whether caches take more than 2 GiB. The other arguments are those of ``compile_ahead``.
    """
    chooses = list(chooses)
    kinds = [_checked_kind(words) for words in features]
    given = [complete(config) for config in configs]
    for config in given:
        check_config(config)
    launches = []
    for model in models:
        known = {name: getattr(model, name) for name in MODEL_FEATURES}
        chosen = [complete(config) for choose in chooses for config in reachable(choose, **known)]
        for config, words, large in product(dict.fromkeys(chosen + given), kinds, sizes):
            key = device_key if config.device_segments else None
            launches.append(DummyLaunch(config, model, words, large, key))
    return launches


def _checked_kind(words: Iterable[str]) -> frozenset[str]:
    if isinstance(words, str):
        raise TypeError(f"features holds {words!r}, but a kind of layer is needed, such as ({words!r},)")
    kind = frozenset(words)
    for word in kind - set(FEATURES):
        raise ValueError(f"features holds {word!r}, but the features are: {', '.join(FEATURES)}")
    return kind
