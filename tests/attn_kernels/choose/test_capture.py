"""What plans ``for_capture`` choose, what a Workspace holds for them, and that any variant replays right."""

import logging
import random
import sys

import pytest
import torch
from captured_server import MAX_SEQS, Server, batch_of, random_lens
from kernel_cases import NAMES, assert_close, make_config

from attn_kernels import Config, Model, Workspace, plan
from attn_kernels.choose import capture, heuristic
from attn_kernels.choose.capture import ON_DEVICE, STREAM_K, choose_for_capture, configs_for_capture
from generated.unified_attention import MODULES

CPU = torch.device("cpu")
DESCRIBED = {
    "nvidia_h100": ("NVIDIA H100 80GB HBM3", "sm_90", "nvidia"),
    "nvidia_h200": ("NVIDIA H200", "sm_90", "nvidia"),
    "amd_mi300x": ("AMD Instinct MI300X", "gfx942", "amd"),
    "default": ("cpu", "cpu", "cpu"),
}


pytestmark = pytest.mark.usefixtures("new_process")


@pytest.fixture
def gpu(monkeypatch):
    """A function that puts a GPU in place of every device."""

    def put(key, multiprocessors=132):
        for module in (heuristic, capture):
            monkeypatch.setattr(module, "describe_device", lambda device: DESCRIBED[key])
        monkeypatch.setattr(capture, "multiprocessors", lambda device: multiprocessors)

    return put


def maxima(num_seqs, num_kv_heads=8, query_len=1, queries_per_kv=4, head_size=128, context=8192):
    return {
        "num_seqs": num_seqs,
        "num_query_tokens": num_seqs * query_len,
        "num_kv_tokens": num_seqs * context,
        "max_query_len": query_len,
        "max_seq_len": context,
        "num_query_heads": num_kv_heads * queries_per_kv,
        "num_kv_heads": num_kv_heads,
        "head_size": head_size,
        "block_size": 16,
        "kv_element_size": 2,
    }


@pytest.mark.parametrize(
    "features, expected",
    [
        (maxima(1), None),
        (maxima(8), None),  # 64 programs on 132 multiprocessors
        (maxima(9), ON_DEVICE),
        (maxima(16), ON_DEVICE),
        (maxima(17), STREAM_K),
        (maxima(256), STREAM_K),
        (maxima(66, num_kv_heads=1), None),
        (maxima(67, num_kv_heads=1), ON_DEVICE),
        (maxima(132, num_kv_heads=1), ON_DEVICE),
        (maxima(133, num_kv_heads=1), STREAM_K),
        (maxima(2, num_kv_heads=32), None),
        (maxima(4, num_kv_heads=32), ON_DEVICE),
        (maxima(5, num_kv_heads=32), STREAM_K),
        (maxima(64, query_len=4), STREAM_K),  # 16 rows
        (maxima(64, query_len=5), None),
        (maxima(64, queries_per_kv=32), STREAM_K),
        (maxima(64, query_len=2, queries_per_kv=16), None),
        (maxima(64, head_size=64), STREAM_K),
        (maxima(16, head_size=32), STREAM_K),  # whose contexts the tree never splits
        (maxima(16, queries_per_kv=32), ON_DEVICE),
        (maxima(16, context=512), STREAM_K),
        (maxima(2, head_size=256), ON_DEVICE),
        (maxima(64, head_size=129, queries_per_kv=32), None),
        (maxima(64, head_size=129, context=512), None),
        (maxima(1, head_size=256), ON_DEVICE),
        (maxima(1, query_len=5, head_size=256), None),
    ],
)
@pytest.mark.parametrize("key", ["nvidia_h100", "nvidia_h200"])
def test_the_gpu_decides_for_many_decode_programs_and_else_the_tree(features, expected, key, gpu):
    gpu(key)
    chosen = choose_for_capture(CPU)(**features)
    by_tree = MODULES[key].choose(**features)
    assert chosen == (by_tree if by_tree.variant == "stream_k" else expected or by_tree)


@pytest.mark.parametrize(
    "features, expected",
    [
        (maxima(8), None),
        (maxima(9), STREAM_K),
        (maxima(64), STREAM_K),
        (maxima(1, head_size=256), None),
        (maxima(64, head_size=256), None),
    ],
)
def test_modules_without_triton_functions_choose_for_graphs_as_well(features, expected, gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "generated.unified_attention.in_kernel", None)
    gpu("nvidia_h100")
    assert choose_for_capture(CPU)(**features) == (expected or MODULES["nvidia_h100"].choose(**features))
    assert ON_DEVICE not in configs_for_capture(CPU)
    assert planned(16).config == STREAM_K


def test_many_is_by_the_multiprocessors(gpu):
    gpu("nvidia_h100", multiprocessors=128)
    assert choose_for_capture(CPU)(**maxima(16)) == ON_DEVICE
    choose_for_capture.cache_clear()
    gpu("nvidia_h100", multiprocessors=126)
    assert choose_for_capture(CPU)(**maxima(16)) == STREAM_K


@pytest.mark.parametrize("key", ["amd_mi300x", "default"])
def test_where_nothing_was_timed_the_tree_chooses(key, gpu):
    gpu(key)
    assert choose_for_capture(CPU) is MODULES[key].choose
    assert not {ON_DEVICE, STREAM_K} & set(configs_for_capture(CPU))


def test_a_tree_of_another_device_chooses_where_it_is_named(gpu):
    gpu("nvidia_h100")
    features = maxima(4)
    assert choose_for_capture(CPU, "amd_mi300x")(**features) == MODULES["amd_mi300x"].choose(**features)
    with pytest.raises(ValueError, match="device_key is 'none', but the generated modules are"):
        choose_for_capture(CPU, "none")


def test_a_forced_config_is_launched_for_every_batch(gpu, monkeypatch):
    gpu("nvidia_h100")
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "qblock_M64_T64_W4_S3")
    forced = Config.parse("qblock_M64_T64_W4_S3")
    assert choose_for_capture(CPU)(**maxima(64)) == forced
    assert configs_for_capture(CPU) == [forced]


def test_choices_for_capture_are_logged(gpu, monkeypatch, caplog):
    gpu("nvidia_h100")
    monkeypatch.setenv("ATTN_KERNELS_LOG", "1")
    with caplog.at_level(logging.INFO, logger="attn_kernels"):
        choose_for_capture(CPU)(**maxima(64))
    (record,) = caplog.records
    assert record.getMessage().startswith(f"nvidia_h100 for capture chose {STREAM_K} for num_seqs=64")


def test_everything_that_can_be_chosen_is_listed(gpu):
    gpu("nvidia_h100")
    listed, rng = configs_for_capture(CPU), random.Random(0)
    chosen = choose_for_capture(CPU)
    for _ in range(3000):
        features = maxima(
            rng.choice((1, 4, 16, 64, 256)),
            rng.choice((1, 2, 8, 32)),
            rng.choice((1, 1, 2, 8, 512)),
            rng.choice((1, 4, 8, 20)),
            rng.choice((32, 64, 128, 256)),
            rng.choice((512, 8192, 131072)),
        )
        assert capture.complete(chosen(**features)) in listed
    assert {ON_DEVICE, STREAM_K} <= set(listed)


MODEL = Model(32, 8, 128, 16, torch.bfloat16)


def planned(num_seqs, config=None, for_capture=True, workspace=None, query_len=1, **options):
    """A plan of a server that has captured nothing yet: its buffers are empty."""
    return plan(
        torch.zeros(num_seqs + 1, dtype=torch.int32),
        torch.zeros(num_seqs, dtype=torch.int32),
        torch.zeros(num_seqs, 512, dtype=torch.int32),
        MODEL,
        num_query_tokens=num_seqs * query_len,
        max_query_len=query_len,
        max_seq_len=8192,
        config=config,
        for_capture=for_capture,
        workspace=workspace,
        **options,
    )


def test_plans_for_capture_take_that_choice_unless_a_config_is_given(gpu):
    gpu("nvidia_h100")
    assert planned(64).config == STREAM_K
    given = make_config("qblock")
    assert planned(64, given).config == given
    tree = planned(64, for_capture=False, check=False).config
    assert tree == capture.complete(MODULES["nvidia_h100"].choose(**maxima(64)))
    assert tree != STREAM_K
    with pytest.raises(ValueError, match="cu_seqlens_q ends with 0"):
        planned(64, check=True)


def test_a_workspace_holds_what_every_capture_size_needs(gpu):
    gpu("nvidia_h100")
    sizes = {"max_query_tokens": 16, "max_num_seqs": 256}
    workspace = Workspace.for_maxima(CPU, MODEL, for_capture=True, **sizes)
    variants = set()
    for num_seqs in (256, 64, 16, 8, 4, 1):  # from 17 on none keeps partial results: 16 tokens suffice
        made = planned(num_seqs, workspace=workspace)
        variants.add(made.config.variant)
        fresh = planned(num_seqs).workspace
        assert all(shared.numel() >= each.numel() for shared, each in zip(made.workspace, fresh, strict=True))
    assert variants == {"segmented", "stream_k"}
    with pytest.raises(ValueError, match="one of configs and max_segments is needed"):
        Workspace.for_maxima(CPU, MODEL, for_capture=True, max_segments=4, **sizes)
    further = Config("stream_k", 64, 16, programs_per_sm=4)
    rows = Workspace.for_maxima(CPU, MODEL, for_capture=True, configs=[further], **sizes).max_fragment_rows
    assert rows == 3 * 4 * 64  # of the interpreter's three multiprocessors
    assert workspace.max_fragment_rows == 3 * STREAM_K.programs_per_sm * STREAM_K.block_m


def test_a_workspace_holds_what_a_named_module_needs():
    sizes = {"max_query_tokens": 16, "max_num_seqs": 16, "for_capture": True}
    key = "nvidia_h100"
    workspace = Workspace.for_maxima(CPU, MODEL, device_key=key, **sizes)
    made = planned(1, workspace=workspace, device_key=key, check=False)
    assert made.config.variant == "segmented"
    with pytest.raises(ValueError, match="never grows"):
        planned(1, workspace=Workspace.for_maxima(CPU, MODEL, **sizes), device_key=key, check=False)
    with pytest.raises(ValueError, match="device_key is 'h100', but the generated modules are: amd"):
        Workspace.for_maxima(CPU, MODEL, device_key="h100", **sizes)


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("query_len", [1, 2, None])
def test_every_variant_replays_for_smaller_batches(variant, query_len):
    rng = random.Random(f"{variant}/{query_len}")
    server = Server(make_config(variant), query_len=query_len)
    lens = [random_lens(rng, query_len or 5) for _ in range(2)]
    lens.append(([1] * MAX_SEQS, [70] * MAX_SEQS))  # a decode step, whatever the maxima
    for seed, (query_lens, context_lens) in enumerate(lens):
        batch = batch_of(query_lens, context_lens, seed)
        if len(batch.q):
            assert_close(server.replay(batch), batch.reference())
