"""A workspace: as large as its maxima need and never larger, for one plan after another."""

import pytest
import torch
from kernel_cases import assert_close, make_config
from launch_recorder import batch_of, layer_of
from launch_recorder import run as run_layer
from torch.utils._python_dispatch import TorchDispatchMode

from attn_kernels import Model, Parts, Workspace
from attn_kernels.choose import choices
from attn_kernels.choose.mixed import SEPARATE, SINGLE
from attn_kernels.core import checks
from attn_kernels.kernels.splits import MAX_SPLITS_OF_FEW
from attn_kernels.testing.poisoned import run_poisoned

CONFIG = make_config()
MODEL = Model(8, 2, 32, 16, torch.float16)
MAXIMA = {"max_query_tokens": 9, "max_num_seqs": 4}
LENS = ((3, 1, 0, 5), (20, 50, 7, 5))


pytestmark = pytest.mark.usefixtures("many_splits")


def workspace_for(*configs, **changes):
    return Workspace.for_maxima("cpu", MODEL, **(MAXIMA | changes), configs=configs)


def test_what_exceeds_the_maxima_is_refused_by_name():
    with pytest.raises(ValueError, match=r"\Ahead_size is \d+"):
        batch_of(LENS, head_size=40).plan(config=CONFIG, workspace=workspace_for())
    lens = (1, 1, 1, 1, 20), (33,) * 5
    with pytest.raises(ValueError, match=r"\Anum_seqs is \d+"):
        batch_of(lens).plan(config=SEPARATE, parts=Parts.of(*lens), workspace=workspace_for(SEPARATE))


def test_the_more_query_tokens_and_heads_the_less_contexts_are_split():
    """Down to one split, which needs no memory."""
    workspace = workspace_for()
    counts = []
    for tokens, ratio in ((9, 4), (48, 4), (48, 16), (1100, 16), (1100, 32)):
        batch = batch_of(((tokens,), (1100,)), ratio=ratio, head_size=16)
        plan = batch.plan(config=CONFIG, workspace=workspace)
        counts.append(plan.num_splits)
        assert plan.num_splits == 1 or plan.num_splits * tokens * 2 * ratio <= workspace.max_partials
    assert sorted(counts, reverse=True) == counts
    assert counts[0] > counts[1] > counts[2] > counts[3] == counts[4] == 1


def test_parts_and_siblings_keep_apart_what_is_computed_once_per_plan():
    workspace = workspace_for()
    own = []
    for space in (workspace, workspace.sibling()):
        own += [space.split_keys(part) for part in (0, 1)]
        own += [space.schedule(1, part) for part in (0, 1, 2)]
        own += space.cu_parts(1)
    assert len({tensor.data_ptr() for tensor in own}) == len(own)


@pytest.mark.parametrize("way", [SEPARATE, SINGLE])
def test_a_way_without_a_kernel_needs_no_memory_of_its_own(way):
    batch = batch_of(((1, 2, 9), (50, 20, 12)))
    plan = batch.plan(
        config=way, parts=Parts.of(batch.query_lens, batch.context_lens), workspace=workspace_for(way)
    )
    assert_close(run_poisoned(batch, plan), batch.reference())


def test_plans_use_the_same_memory_one_after_another():
    """Smaller and larger batches follow one another."""
    workspace = workspace_for()
    addresses = set()
    for lens in (LENS, ((1,), (300,)), ((2, 2, 2, 3), (9, 90, 40, 3)), ((0, 9), (0, 100)), LENS):
        batch = batch_of(lens)
        plan = batch.plan(config=CONFIG, workspace=workspace)
        if lens == LENS:  # a batch of the maxima
            assert plan.num_splits == batch.plan(config=CONFIG).num_splits > 1
        addresses.add(tuple(tensor.data_ptr() for tensor in plan.workspace))
        assert_close(run_poisoned(batch, plan), batch.reference())
    assert len(addresses) == 1


def test_layers_of_plans_in_siblings_take_turns():
    """They share what one layer uses at a time, and each has what a plan finds for all its layers."""
    workspace = workspace_for()
    sibling = workspace.sibling()
    assert sibling.partials(1, 2, 16) is workspace.partials(1, 2, 16)
    assert sibling.fragments(0, 16, 16) is workspace.fragments(0, 16, 16)
    for part in range(2):
        ours, theirs = (memory.split_keys(part) for memory in (workspace, sibling))
        assert ours.data_ptr() != theirs.data_ptr()
    batches = [batch_of(((1, 1, 1, 6), (33, 8, 60, 16))), batch_of(LENS)]  # the second has fewer Q-Blocks
    plans = [
        batch.plan(config=CONFIG, workspace=memory, for_capture=True)
        for batch, memory in zip(batches, (workspace, sibling), strict=True)
    ]
    for _ in range(2):
        for batch, plan in zip(batches, plans, strict=True):
            assert_close(run_poisoned(batch, plan), batch.reference())


class Operations(TorchDispatchMode):
    """Records torch's operations; allocating and waiting for a GPU are such."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_graph_captures_kernels_and_nothing_else(recorder):
    """Neither the plan nor a layer allocates, copies or reads a tensor.

    Cases: a launch through Triton, one that is filled in anew, and a repeated one.
    """
    batch = batch_of(LENS)
    workspace, layer = workspace_for(), layer_of(batch)
    options = {"sinks": torch.ones(8), "k_scale": torch.ones(1)}
    with Operations() as operations:
        for _ in range(3):
            plan = batch.plan(config=CONFIG, workspace=workspace, check=False)
            for _ in range(3):
                run_layer(plan, layer)
                run_layer(plan, layer | options)
    assert recorder.direct
    assert operations.names == []
    with Operations() as operations:
        batch.plan(config=CONFIG, check=False)
    assert {name.split(".")[1] for name in operations.names} & {"empty", "zeros"}


def test_a_workspace_of_another_device_is_refused(new_process, monkeypatch):
    monkeypatch.setattr(choices, "describe_device", lambda device: ("no GPU", "none", "cpu"))
    monkeypatch.setattr(checks, "DEVICE_TYPES", ("cpu", "meta"))
    workspace = Workspace.for_maxima("meta", MODEL, **MAXIMA)
    with pytest.raises(ValueError, match="workspace"):
        batch_of(LENS).plan(config=CONFIG, workspace=workspace)


@pytest.mark.parametrize(
    "models", [MODEL, [Model(4, 1, 32, 16, torch.float16), Model(8, 4, 16, 16, torch.float16)]]
)
def test_its_memory_is_what_its_maxima_need(models):
    workspace = Workspace.for_maxima("cpu", models, **MAXIMA)
    sizes = [tensor.numel() for tensor in workspace.partials(1, 2, 16)]
    assert sizes == [9 * 8 * MAX_SPLITS_OF_FEW * 32, 9 * 8 * MAX_SPLITS_OF_FEW, 9 * 8 * MAX_SPLITS_OF_FEW]
