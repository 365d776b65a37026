"""Both ways to tell that tensors are as those before them were see every change, and agree."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels.launch import layout_guard
from attn_kernels.launch.signature import read


def same_as(tensors):
    return layout_guard.same_as(tensors, read(*tensors[:4]))


@pytest.fixture(params=["guard", "reading"])
def way(request, monkeypatch):
    if request.param == "reading":
        monkeypatch.setattr(layout_guard, "_guard_works", lambda: False)
    elif not layout_guard._guard_works():
        pytest.skip("this version of torch has no such guard")
    return request.param


def tensors():
    """out, q, k_cache, v_cache and one more."""
    shapes = ((4, 8, 32), (4, 8, 32), (5, 16, 2, 32), (5, 16, 2, 32), (4, 4))
    return tuple(torch.zeros(shape, dtype=torch.float16) for shape in shapes)


def gapped(tensor):
    return torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 8, dtype=tensor.dtype)[..., : tensor.shape[-1]]


def change_data(tensor, other):
    tensor.data = other


IN_PLACE = {
    "fewer": lambda tensor: tensor.resize_(tensor.shape[0] - 1, *tensor.shape[1:]),
    "more": lambda tensor: tensor.resize_(tensor.shape[0] + 1, *tensor.shape[1:]),
    "other strides": lambda tensor: tensor.set_(gapped(tensor)),
    "other strides of the same memory": lambda tensor: tensor.as_strided_(
        tensor.shape, (tensor.stride(0) // 2, *tensor.stride()[1:])
    ),
    "swapped": lambda tensor: tensor.transpose_(0, 1),
    "one dimension more": lambda tensor: tensor.unsqueeze_(0),
    "other dtype": lambda tensor: change_data(tensor, tensor.data.bfloat16()),
    "other dtype of the same memory": lambda tensor: change_data(tensor, tensor.data.view(torch.bfloat16)),
}
REPLACED = {
    "other device": lambda tensor: tensor.to("meta"),
    "other dtype": lambda tensor: tensor.float(),
    "fewer": lambda tensor: tensor[1:],
    "list": lambda tensor: tensor.tolist(),
    "None": lambda tensor: None,
}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("index", range(5))
def test_changes_in_place_are_seen(way, index, change):
    mine = tensors()
    same = same_as(mine)
    assert same(*mine)
    IN_PLACE[change](mine[index])
    assert not same(*mine)
    assert same(*tensors())


@pytest.mark.parametrize("change", REPLACED)
@pytest.mark.parametrize("index", range(5))
def test_other_tensors_are_seen(way, index, change):
    mine = list(tensors())
    same = same_as(tuple(mine))
    mine[index] = REPLACED[change](mine[index])
    assert not same(*mine)


def test_contents_and_addresses_do_not_count(way):
    mine = tensors()
    same = same_as(mine)
    assert same(*(tensor.clone().fill_(2) for tensor in mine))
    for tensor in mine:
        tensor.fill_(1)
        tensor.set_(tensor.clone())
    assert same(*mine)


def test_one_tensor_may_have_two_places(way):
    """Which torch's guard never finds the same."""
    out, q, k_cache, _, other = tensors()
    mine = (out, q, k_cache, k_cache, other)
    same = same_as(mine)
    assert same(*mine)
    assert same(*(tensor.clone() for tensor in mine))
    assert not same(out, q, k_cache, k_cache[1:], other)


GEOMETRIES = st.sampled_from(
    [
        ((2, 3), (3, 1)),
        ((2, 3), (4, 1)),
        ((2, 3), (1, 2)),
        ((3, 2), (3, 1)),
        ((1, 3), (3, 1)),
        ((1, 3), (7, 1)),
        ((0, 3), (3, 1)),
        ((3,), (1,)),
        ((3, 1), (1, 1)),
        ((), ()),
    ]
)
KINDS = st.tuples(
    GEOMETRIES, st.sampled_from([torch.float16, torch.bfloat16]), st.sampled_from(["cpu", "meta"])
)


def tensor_of(kind):
    (shape, strides), dtype, device = kind
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


@settings(max_examples=300, deadline=None)
@given(st.lists(KINDS, min_size=5, max_size=5), st.integers(0, 4), KINDS)
def test_guard_and_reading_agree(kinds, index, other):
    if not layout_guard._guard_works():
        pytest.skip("this version of torch has no such guard")
    mine = tuple(map(tensor_of, kinds))
    others = list(map(tensor_of, kinds))
    others[index] = tensor_of(other)
    assert layout_guard._guard(mine)(*others) == (kinds[index] == other)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64, "meta"])
def test_torchs_defaults_do_not_decide_whether_the_guard_works(default):
    """A server sets them while it loads a model."""
    works = layout_guard._guard_works()
    layout_guard._guard_works.cache_clear()
    before = torch.get_default_dtype()
    try:
        if default == "meta":
            with torch.device(default):
                assert layout_guard._guard_works() == works
        else:
            torch.set_default_dtype(default)
            assert layout_guard._guard_works() == works
    finally:
        torch.set_default_dtype(before)
        layout_guard._guard_works.cache_clear()


@pytest.mark.parametrize(
    "guards",
    [
        None,
        lambda *tensors, **options: torch.Generator(),
        lambda *tensors, **options: type("Agreeable", (), {"check": lambda self, *others: True})(),
        lambda *tensors, **options: type("Contrary", (), {"check": lambda self, *others: False})(),
    ],
    ids=["missing", "of another kind", "agreeable", "contrary"],
)
def test_a_guard_that_does_not_work_is_left_alone(guards, monkeypatch):
    monkeypatch.setattr(layout_guard, "TensorGuards", guards)
    layout_guard._guard_works.cache_clear()
    try:
        mine = tensors()
        same = same_as(mine)
        assert same(*mine)
        mine[1].transpose_(0, 1)
        assert not same(*mine)
    finally:
        layout_guard._guard_works.cache_clear()
