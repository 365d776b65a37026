"""A workspace: as large as its maxima need and never larger, for one plan after another."""

import pytest
import torch
from kernel_cases import assert_close, make_config, random_batch
from launch_recorder import layer_of
from launch_recorder import run as run_layer
from torch.utils._python_dispatch import TorchDispatchMode

from attn_kernels import Model, Workspace
from attn_kernels.choose import choices
from attn_kernels.kernels.variant import ScratchSizes
from attn_kernels.testing.poisoned import run_poisoned

VARIANTS = ("segmented", "stream_k")
MODEL = Model(8, 2, 32, 16, torch.float16)
MAXIMA = {"max_query_tokens": 9, "max_num_seqs": 4}
LENS = ((3, 1, 0, 5), (20, 50, 7, 5))


def batch_of(lens=LENS, **options):
    return random_batch(lens, **({"ratio": 4, "kv_heads": 2, "head_size": 32} | options))


def config_of(variant, num_segments=3):
    return make_config(variant, num_segments=num_segments)


def workspace_for(*configs, **changes):
    return Workspace.for_maxima("cpu", MODEL, **(MAXIMA | changes), configs=configs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_of_the_maxima_fits(variant):
    config, batch = config_of(variant), batch_of()
    assert (len(batch.q), len(batch.seqused_k)) == (9, 4)
    plan = batch.plan(config=config, workspace=workspace_for(config))
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize(
    "variant, lens, options, named",
    [
        ("segmented", ((10,), (10,)), {}, "num_query_tokens"),
        ("segmented", LENS, {"kv_heads": 3}, "num_query_heads"),
        ("segmented", LENS, {"head_size": 40}, "head_size"),
        ("segmented", LENS, {"num_segments": 4}, "num_segments"),
        ("stream_k", LENS, {"head_size": 40}, "head_size"),
    ],
)
def test_a_larger_batch_is_refused_by_the_name_of_its_maximum(variant, lens, options, named):
    workspace = workspace_for(*map(config_of, VARIANTS))
    config = config_of(variant, options.pop("num_segments", 3))
    with pytest.raises(ValueError, match=rf"\A{named} is \d+"):
        batch_of(lens, **options).plan(config=config, workspace=workspace)


def test_a_config_that_a_workspace_was_not_made_for_is_refused():
    config, workspace = config_of("stream_k"), workspace_for(config_of("segmented"))
    with pytest.raises(ValueError, match="stream_k"):
        batch_of().plan(config=config, workspace=workspace)


def test_a_batch_without_partial_results_may_be_larger():
    batch = batch_of(((40,), (40,)))
    for variant in ("qblock", "split"):
        plan = batch.plan(config=make_config(variant), workspace=workspace_for(config_of("segmented")))
        assert plan.workspace == ()


@pytest.mark.parametrize("variant", VARIANTS)
def test_plans_use_the_same_memory_one_after_another(variant):
    """Smaller and larger batches follow one another."""
    config = config_of(variant)
    workspace = workspace_for(config)
    addresses = set()
    for lens in (LENS, ((1,), (300,)), ((2, 2, 2, 3), (9, 90, 40, 3)), ((0, 9), (0, 100)), LENS):
        batch = batch_of(lens)
        plan = batch.plan(config=config, workspace=workspace)
        addresses.add(tuple(tensor.data_ptr() for tensor in plan.workspace))
        assert_close(run_poisoned(batch, plan), batch.reference())
    assert len(addresses) == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_of_plans_in_siblings_take_turns(variant):
    config = config_of(variant)
    workspace = workspace_for(config)
    batches = [batch_of(((1, 1, 1, 6), (33, 8, 60, 16))), batch_of()]  # the second has fewer Q-Blocks
    plans = [
        batch.plan(config=config, workspace=memory)
        for batch, memory in zip(batches, (workspace, workspace.sibling()), strict=True)
    ]
    for _ in range(2):
        for batch, plan in zip(batches, plans, strict=True):
            assert_close(run_poisoned(batch, plan), batch.reference())


def test_siblings_share_what_one_layer_uses_at_a_time():
    workspace = workspace_for(config_of("segmented"), config_of("stream_k"))
    sibling = workspace.sibling()
    sizes = ScratchSizes(num_seqs=2, num_query_tokens=1, num_query_heads=1, head_padded=16, num_segments=2)
    assert sibling.partials(sizes) is workspace.partials(sizes)
    assert sibling.fragments(1, sizes) is workspace.fragments(1, sizes)
    for part in range(2):
        ours, theirs = (memory.num_segments(sizes._replace(part=part)) for memory in (workspace, sibling))
        assert ours.data_ptr() != theirs.data_ptr()


class Operations(TorchDispatchMode):
    """Records torch's operations; allocating and waiting for a GPU are such."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_graph_captures_kernels_and_nothing_else(variant, recorder):
    """Neither the plan nor a layer allocates, copies or reads a tensor.

    Cases: a launch through Triton, one that is filled in anew, and a repeated one.
    """
    config, batch = config_of(variant), batch_of()
    workspace, layer = workspace_for(config), layer_of(batch)
    options = {"sinks": torch.ones(8), "k_scale": torch.ones(1)}
    with Operations() as operations:
        for _ in range(3):
            plan = batch.plan(config=config, workspace=workspace, check=False)
            for _ in range(3):
                run_layer(plan, layer)
                run_layer(plan, layer | options)
    assert recorder.direct
    assert operations.names == []
    with Operations() as operations:
        batch.plan(config=config, check=False)
    assert {name.split(".")[1] for name in operations.names} & {"empty", "zeros"}


@pytest.mark.parametrize(
    "changes, error, name",
    [
        ({"max_query_tokens": 0}, ValueError, "max_query_tokens"),
        ({"max_num_seqs": True}, TypeError, "max_num_seqs"),
        ({"max_segments": 3}, ValueError, "max_segments"),
        ({"for_capture": True, "configs": None, "max_segments": 3}, ValueError, "max_segments"),
        ({"configs": None}, ValueError, "max_segments"),
        ({"configs": None, "max_segments": -1}, ValueError, "max_segments"),
    ],
)
def test_impossible_maxima_are_refused(changes, error, name):
    with pytest.raises(error, match=name):
        Workspace.for_maxima("cpu", MODEL, **(MAXIMA | {"configs": [config_of("segmented")]} | changes))


def test_a_workspace_of_another_device_is_refused(new_process, monkeypatch):
    monkeypatch.setattr(choices, "describe_device", lambda device: ("no GPU", "none", "cpu"))
    workspace = Workspace.for_maxima("meta", MODEL, **MAXIMA, max_segments=3)
    with pytest.raises(ValueError, match="workspace"):
        batch_of().plan(config=config_of("segmented"), workspace=workspace)


@pytest.mark.parametrize(
    "models", [MODEL, [Model(4, 1, 32, 16, torch.float16), Model(8, 4, 16, 16, torch.float16)]]
)
def test_its_memory_is_what_its_maxima_need(models):
    workspace = Workspace.for_maxima("cpu", models, **MAXIMA, max_segments=5)
    needs = ScratchSizes(num_seqs=2, num_query_tokens=1, num_query_heads=1, head_padded=16, num_segments=2)
    sizes = [tensor.numel() for tensor in workspace.partials(needs)]
    assert sizes == [9 * 8 * 5 * 32, 9 * 8 * 5, 9 * 8 * 5]
