"""Which module serves a device, its warning and log lines, and the environment variables."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch

from attn_kernels import Config
from attn_kernels.choose import heuristic
from attn_kernels.choose.heuristic import choose_for_device, choose_for_key
from attn_kernels.choose.untuned import AttnKernelsWarning
from attn_kernels.testing.poisoned import make_batch
from generated.unified_attention import MODULES

GPU = torch.device("cuda", 0)
H100 = ("NVIDIA H100 80GB HBM3", "sm_90", "nvidia")
GH200 = ("NVIDIA GH200 480GB", "sm_90", "nvidia")
A100 = ("NVIDIA A100-SXM4-80GB", "sm_80", "nvidia")
MI250 = ("AMD Instinct MI250X", "gfx90a", "amd")
ARC = ("Intel Arc", "xe2", "intel")
VARIABLES = ("ATTN_KERNELS_DEVICE", "ATTN_KERNELS_CONFIG", "ATTN_KERNELS_LOG")
ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("new_process")


@pytest.fixture
def gpu(monkeypatch):
    """A function that puts a GPU in place of every device."""

    def put(described):
        monkeypatch.setattr(heuristic, "describe_device", lambda device: described)

    return put


def batch():
    heads = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 64, "block_size": 16}
    return make_batch((3, 1), (20, 50), **heads)


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [warning for warning in caught if warning.category is AttnKernelsWarning]


@pytest.mark.parametrize(
    "described, key",
    [
        (H100, "nvidia_h100"),
        (("NVIDIA H100 PCIe", "sm_90", "nvidia"), "nvidia_h100"),
        (("NVIDIA H200", "sm_90", "nvidia"), "nvidia_h200"),
        (("AMD Instinct MI300X", "gfx942", "amd"), "amd_mi300x"),
        (("cpu", "cpu", "cpu"), "default"),
    ],
)
def test_a_device_with_its_own_table_is_served_without_a_word(gpu, described, key):
    gpu(described)
    assert not warned(lambda: choose_for_device(GPU))
    assert choose_for_device(GPU) is MODULES[key].choose  # itself: choosing costs no call more


@pytest.mark.parametrize(
    "described, key, why",
    [
        (GH200, "nvidia_h100", "of the same architecture (sm_90)"),
        (A100, "nvidia", "stands in for GPUs of that vendor"),
        (MI250, "amd", "stands in for GPUs of that vendor"),
        (ARC, "default", "the same one for every batch"),
    ],
)
def test_an_untuned_gpu_is_warned_of_once(gpu, described, key, why):
    gpu(described)
    (warning,) = warned(lambda: batch().plan())
    text = str(warning.message)
    assert text.startswith(f"{described[0]} has no heuristic of its own: {key}")
    assert why in text
    assert "attn-tune --budget 600" in text and "treegen build" in text and "docs/tuning.md" in text
    assert issubclass(AttnKernelsWarning, UserWarning)
    assert warning.filename == __file__  # the user's, however deep the package's own calls are
    assert choose_for_device(torch.device("cpu")) is MODULES[key].choose
    assert not warned(lambda: batch().plan())
    assert not warned(lambda: choose_for_device(torch.device("cuda", 1)))  # another one of that model


def test_each_model_is_warned_of(gpu):
    models = {}
    for index, described in enumerate((GH200, A100, GH200)):
        gpu(described)
        models[index] = len(warned(lambda index=index: choose_for_device(torch.device("cuda", index))))
    assert models == {0: 1, 1: 1, 2: 0}


def test_threads_that_plan_first_at_once_warn_once(gpu, monkeypatch):
    gpu(A100)
    barrier = threading.Barrier(8)
    described = heuristic.describe_device

    def describe(device):
        barrier.wait(10)  # all are inside: no choice is cached yet
        return described(device)

    monkeypatch.setattr(heuristic, "describe_device", describe)
    found = []

    def plan_first():
        found.append(choose_for_device(GPU))

    def all_at_once():
        threads = [threading.Thread(target=plan_first) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    assert len(warned(all_at_once)) == 1
    assert found == [MODULES["nvidia"].choose] * 8


def test_a_variable_forces_a_devices_tree(gpu, monkeypatch):
    gpu(A100)
    monkeypatch.setenv("ATTN_KERNELS_DEVICE", "amd_mi300x")
    assert not warned(lambda: choose_for_device(GPU))
    assert choose_for_device(GPU) is MODULES["amd_mi300x"].choose


def test_a_variable_forces_a_config(monkeypatch):
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "segmented_M32_T16_N3_W2_S1")
    forced = Config("segmented", 32, 16, num_segments=3, num_warps=2, num_stages=1)
    assert batch().plan().config == forced
    assert batch().plan(config=Config("qblock", 16, 32)).config == Config("qblock", 16, 32)
    assert batch().plan(device_key="default").config == Config("qblock", 64, 32)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"DEVICE": "h100"}, "ATTN_KERNELS_DEVICE is 'h100', but the generated modules are: amd, amd_mi300x"),
        ({"CONFIG": "fast"}, "ATTN_KERNELS_CONFIG is 'fast', which is no config: .* qblock_M64_T32_W4_S2"),
        ({"CONFIG": "block_M16_T16"}, "ATTN_KERNELS_CONFIG is 'block_M16_T16', .* the variants are: naive"),
        ({"CONFIG": "qblock_M17_T16"}, "ATTN_KERNELS_CONFIG is 'qblock_M17_T16', .*a power of two"),
        ({"CONFIG": "qblock_M16_T16_N4"}, "ATTN_KERNELS_CONFIG is .*has no such parameter"),
        ({"LOG": "yes"}, "ATTN_KERNELS_LOG is 'yes', but 0 or 1 is needed"),
        (
            {"DEVICE": "nvidia", "CONFIG": "qblock_M16_T16"},
            "ATTN_KERNELS_DEVICE is 'nvidia' and ATTN_KERNELS_CONFIG is 'qblock_M16_T16', but only one",
        ),
    ],
)
def test_a_wrong_value_is_an_error_of_every_plan(values, message, monkeypatch):
    for name, value in values.items():
        monkeypatch.setenv(f"ATTN_KERNELS_{name}", value)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"^{message}"):
            batch().plan()


def test_variables_are_read_once_a_process(monkeypatch):
    before = batch().plan().config
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "qblock_M128_T128")
    monkeypatch.setenv("ATTN_KERNELS_LOG", "what?")
    choose_for_device.cache_clear()
    assert batch().plan().config == before


@pytest.mark.parametrize("name", VARIABLES)
def test_an_empty_variable_counts_as_none(name, monkeypatch, gpu):
    gpu(H100)
    monkeypatch.setenv(name, "")
    assert choose_for_device(GPU) is MODULES["nvidia_h100"].choose


def test_choices_are_logged_once_for_each_config_and_layout(gpu, monkeypatch, caplog):
    gpu(H100)
    monkeypatch.setenv("ATTN_KERNELS_LOG", "1")
    sizes = {"num_query_heads": 32, "num_kv_heads": 8, "head_size": 128, "block_size": 16}
    sizes["kv_element_size"] = 2

    def choose_at(num_seqs, length, **changed):
        lengths = {"num_seqs": num_seqs, "num_query_tokens": num_seqs, "max_query_len": 1}
        lengths |= {"num_kv_tokens": num_seqs * length, "max_seq_len": length}
        return choose_for_device(GPU)(**lengths, **(sizes | changed))

    first = choose_at(64, 1024)
    assert first is MODULES["nvidia_h100"].SPLIT_M64_T64_W4_S3  # what is logged is what is returned
    choose_at(65, 1024)
    assert choose_at(1, 65536) is not first
    choose_at(64, 1024, head_size=64)
    records = [record.getMessage() for record in caplog.records if record.name == "attn_kernels"]
    of_decode, of_one, of_small_heads = records
    assert of_decode == (
        "nvidia_h100 chose split_M64_T64_W4_S3 for num_seqs=64 num_query_tokens=64 max_query_len=1 "
        "num_kv_tokens=65536 max_seq_len=1024 num_query_heads=32 num_kv_heads=8 head_size=128 block_size=16 "
        "kv_element_size=2"
    )
    assert of_one.startswith("nvidia_h100 chose segmented_")
    assert of_small_heads.startswith("nvidia_h100 chose ") and "head_size=64" in of_small_heads


def test_the_log_names_the_features(monkeypatch, caplog):
    monkeypatch.setenv("ATTN_KERNELS_LOG", "1")
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "qblock_M16_T16")
    batch().plan()
    batch().plan(device_key="nvidia")
    batch().plan(device_key="nvidia")
    names = [record.getMessage().split(" for ")[0] for record in caplog.records]
    assert names[0] == "ATTN_KERNELS_CONFIG chose qblock_M16_T16_W4_S2"
    assert [name.split(" chose ")[0] for name in names[1:]] == ["nvidia"]


def test_a_key_is_served_itself():
    assert choose_for_key("nvidia") is MODULES["nvidia"].choose


LOGGING = """
import logging, os, sys, torch
if sys.argv[1] == "configured":
    logging.basicConfig(format="mine: %(message)s")
from attn_kernels.testing.poisoned import make_batch

def plan(heads):
    sizes = {"num_query_heads": heads, "num_kv_heads": 1, "head_size": 64, "block_size": 16}
    return make_batch((1,), (5,), **sizes).plan().config

plan(1)
child = os.fork()
plan(2 if child else 4)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("logs, start", [("unconfigured", "attn_kernels: "), ("configured", "mine: ")])
def test_lines_reach_stderr_once_and_after_a_fork(logs, start):
    environment = os.environ | {"ATTN_KERNELS_LOG": "1", "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", LOGGING, logs]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stderr.splitlines())
    assert len(lines) == 3
    for line, heads in zip(lines, (1, 2, 4), strict=True):
        assert line.startswith(f"{start}default chose qblock_M64_T32_W4_S2 for num_seqs=1 ")
        assert f"num_query_heads={heads} " in line
