"""The configs that a tree can return for a model, found by following all its paths."""

from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_kernels import Lengths
from attn_kernels.choose.choices import configs_of
from attn_kernels.choose.reachable import reachable
from attn_kernels.core.config import complete
from generated.unified_attention import MODULES

MODEL = {"num_query_heads": 32, "num_kv_heads": 8, "head_size": 128, "block_size": 16, "kv_element_size": 2}
FALLBACK = "qblock_M64_T32_W4_S2"
PACKED = ("qblock", "segmented", "static_grid", "stream_k")  # need a row for each query head of a KV head

models = st.fixed_dictionaries(
    {
        "num_query_heads": st.sampled_from((1, 4, 8, 28, 32, 64, 128)),
        "num_kv_heads": st.sampled_from((1, 2, 4, 8, 32)),
        "head_size": st.sampled_from((16, 63, 64, 96, 128, 129, 192, 256)),
        "block_size": st.sampled_from((1, 16, 128)),
        "kv_element_size": st.sampled_from((1, 2, 4)),
    }
)
lengths = st.one_of(st.integers(0, 16), st.integers(0, 2**17))


def names_for(key, **changes):
    choose = partial(MODULES[key].choose, **(MODEL | changes))
    return {str(complete(config)) for config in reachable(choose)}


@given(
    key=st.sampled_from(sorted(MODULES)),
    model=models,
    batch=st.fixed_dictionaries(dict.fromkeys(Lengths._fields, lengths)),
)
def test_no_batch_is_given_another_config(key, model, batch):
    choose = partial(MODULES[key].choose, **model)
    assert choose(**batch) in reachable(choose)


@pytest.mark.parametrize("key", MODULES)
def test_only_what_a_guard_leaves_is_reachable(key):
    """Beyond a guard on the model there are only configs that it allows, or the fallback."""
    packed = [name for name in names_for(key, num_kv_heads=1) if name.startswith(PACKED)]
    assert packed and all(rows_of(name) >= 32 for name in packed)
    assert names_for(key, head_size=32) == {FALLBACK}
    assert names_for(key) <= set(map(str, configs_of(MODULES[key])))


def rows_of(name):
    """``block_m`` of a config's name."""
    return int(name.split("_M")[1].split("_")[0])


def test_a_models_features_exclude_leaves():
    plain, large = (names_for("nvidia_h200", head_size=size) for size in (128, 256))
    assert "qblock_M128_T128_W8_S3_D1" in plain - large
    assert "qblock_M64_T64_W4_S3" in plain & large


def nested(*, num_seqs, num_query_tokens, num_kv_tokens, max_query_len, max_seq_len, head_size):
    """All that a generated module may compute."""
    mean = num_query_tokens // max(1, num_seqs)
    power = 1 << max(0, max_query_len - 1).bit_length()
    small = min(3, num_kv_tokens) - 2 * mean
    if head_size <= 64:
        return "small heads"
    if power + 1 > max_seq_len - num_seqs:
        return "long" if -small < 3 else "short"
    if 2 - power >= 0 and num_seqs != 3:
        return "ones" if mean == 1 else "none"
    return "never" if head_size > 256 else "rest"


@pytest.mark.parametrize("head_size", [64, 128, 512])
def test_every_expression_of_the_compiler_can_be_followed(head_size):
    choose, small = partial(nested, head_size=head_size), range(-1, 6)
    met = {choose(**Lengths(*values)._asdict()) for values in product(small, repeat=5)}
    assert set(reachable(choose)) == met
    assert head_size > 64 or met == {"small heads"}


def test_a_path_is_followed_once():
    calls = []

    def choose(**features):
        calls.append(features)
        return features["num_seqs"] <= 3, features["max_seq_len"] > 7

    assert set(reachable(choose)) == set(product((True, False), repeat=2))
    assert len(calls) == 4
