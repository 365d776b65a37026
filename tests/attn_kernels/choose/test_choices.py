"""Which module chooses for a device, what it chooses, and what the environment variables change."""

import logging
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
import torch
from kernel_cases import forget_choices

from attn_kernels import AttnKernelsWarning, Config, Lengths, Model, Parts
from attn_kernels.choose import choices
from attn_kernels.choose.choices import Choices, choices_for
from attn_kernels.choose.mixed import SEPARATE, SINGLE, WITHOUT_KERNEL, needs_parts
from attn_kernels.core.config import complete
from attn_kernels.kernels import arguments
from attn_kernels.kernels.registry import check_config
from attn_kernels.testing.poisoned import make_batch
from generated.unified_attention import MODULES

GPU = torch.device("cuda", 0)
H100 = ("NVIDIA H100 80GB HBM3", "sm_90", "nvidia")
H200 = ("NVIDIA H200", "sm_90", "nvidia")
GH200 = ("NVIDIA GH200 480GB", "sm_90", "nvidia")
A100 = ("NVIDIA A100-SXM4-80GB", "sm_80", "nvidia")
MI300X = ("AMD Instinct MI300X", "gfx942", "amd")
MI250 = ("AMD Instinct MI250X", "gfx90a", "amd")
ARC = ("Intel Arc", "xe2", "intel")
CPU = ("cpu", "cpu", "cpu")
MODEL = Model(32, 8, 128, 16, torch.bfloat16)
DECODE = Lengths(64, 64, 1, 1024, 64 * 1024)

pytestmark = pytest.mark.usefixtures("new_process")


@pytest.fixture
def gpu(monkeypatch):
    """A function that puts a GPU in place of every device."""

    def put(described):
        monkeypatch.setattr(choices, "describe_device", lambda device: described)

    return put


def by_module(key, lengths=DECODE, model=MODEL):
    """What a generated module chooses."""
    return complete(MODULES[key].choose(**lengths._asdict(), **model.features))


def batch():
    heads = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 64, "block_size": 16}
    return make_batch((3, 1), (20, 50), **heads)


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [warning for warning in caught if warning.category is AttnKernelsWarning]


@pytest.mark.parametrize(
    "described, key", [(H100, "nvidia_h100"), (H200, "nvidia_h200"), (MI300X, "amd_mi300x"), (CPU, "default")]
)
def test_a_device_with_its_own_table_is_served_without_a_warning(gpu, described, key):
    gpu(described)
    assert not warned(lambda: Choices(MODEL, GPU).config(DECODE))
    assert Choices(MODEL, GPU).config(DECODE) == by_module(key)


@pytest.mark.parametrize(
    "described, key, reason",
    [(GH200, "nvidia_h100", "sm_90"), (A100, "nvidia", ""), (MI250, "amd", ""), (ARC, "default", "")],
)
def test_an_untuned_gpu_is_warned_of_once_at_the_users_call(gpu, described, key, reason):
    gpu(described)
    assert not warned(lambda: batch().plan(config=Config("qblock", 16, 32)))  # asks no module
    (warning,) = warned(lambda: batch().plan())
    text = str(warning.message)
    assert all(word in text for word in (described[0], key, reason, "attn-tune", "treegen build"))
    assert warning.filename == __file__  # however deep the package's own calls are
    assert not warned(lambda: Choices(MODEL, torch.device("cuda", 1)).config(DECODE))
    gpu(("NVIDIA A10", "sm_86", "nvidia"))
    assert warned(lambda: Choices(MODEL, GPU).config(DECODE))


def test_threads_that_choose_first_at_once_warn_once(gpu, monkeypatch):
    barrier, shared, found = threading.Barrier(8), choices_for(MODEL, GPU), []

    def describe(device):
        barrier.wait(10)  # all are inside: nothing is resolved yet
        return A100

    monkeypatch.setattr(choices, "describe_device", describe)

    with ThreadPoolExecutor(8) as threads:
        assert len(warned(lambda: found.extend(threads.map(shared.config, [DECODE] * 8)))) == 1
    assert found == [by_module("nvidia")] * 8


def test_variables_force_a_module_or_a_config_but_arguments_take_precedence(gpu, monkeypatch):
    gpu(A100)
    monkeypatch.setenv("ATTN_KERNELS_DEVICE", "amd_mi300x")
    assert not warned(lambda: Choices(MODEL, GPU).config(DECODE))
    assert Choices(MODEL, GPU).config(DECODE) == by_module("amd_mi300x")
    assert Choices(MODEL, GPU, "default").config(DECODE) == by_module("default")
    monkeypatch.delenv("ATTN_KERNELS_DEVICE")
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "stream_k_M32_T16_W2_S1")
    forget_choices()
    assert batch().plan().config == Config("stream_k", 32, 16, num_warps=2, num_stages=1)
    assert batch().plan(config=Config("qblock", 16, 32)).config == Config("qblock", 16, 32)
    assert batch().plan(device_key="default").config == Config("qblock", 64, 32)


@pytest.mark.parametrize(
    "values, named",
    [
        ({"DEVICE": "h100"}, "DEVICE"),
        ({"CONFIG": "qblock"}, "CONFIG"),
        ({"CONFIG": "qblock_M16_T16_P4"}, "CONFIG"),
        ({"LOG": "yes"}, "LOG"),
        ({"DEVICE": "nvidia", "CONFIG": "qblock_M16_T16"}, "DEVICE"),
    ],
)
def test_a_wrong_value_is_an_error_of_every_plan(values, named, monkeypatch):
    for name, value in values.items():
        monkeypatch.setenv(f"ATTN_KERNELS_{name}", value)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"ATTN_KERNELS_{named} is '{values[named]}'"):
            batch().plan()


def test_variables_are_read_once_a_process_and_empty_ones_count_as_unset(monkeypatch, gpu):
    gpu(H100)
    for name in ("DEVICE", "CONFIG", "LOG"):
        monkeypatch.setenv(f"ATTN_KERNELS_{name}", "")
    assert Choices(MODEL, GPU).config(DECODE) == by_module("nvidia_h100")
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "qblock_M128_T128")
    monkeypatch.setenv("ATTN_KERNELS_LOG", "what?")
    assert Choices(MODEL, GPU).config(DECODE) == by_module("nvidia_h100")


@pytest.mark.filterwarnings("ignore::attn_kernels.AttnKernelsWarning")
def test_a_gpu_without_the_shared_memory_of_a_wide_head_is_refused_by_name(gpu, monkeypatch):
    """Query heads that share no KV head evenly enough leave the fallback, whose queries are 64 rows."""
    gpu(("Small GPU", "sm_89", "nvidia"))
    monkeypatch.setattr(arguments, "describe_device", lambda device: ("Small GPU", "sm_89", "nvidia"))
    monkeypatch.setattr(arguments, "shared_memory", lambda device: 101376)
    wide, half, fp8 = (
        Model(64, 1, head_size, 16, torch.bfloat16, cache_dtype)
        for head_size, cache_dtype in ((512, None), (256, None), (512, torch.float8_e4m3fn))
    )
    with pytest.raises(ValueError, match=r"head_size is 512.*Small GPU"):
        Choices(wide, GPU).possible()
    for model in (half, fp8):
        Choices(model, GPU).possible()
    monkeypatch.setattr(arguments, "shared_memory", lambda device: 166912)
    Choices(wide, GPU).possible()


def test_distinct_choices_are_logged_once(gpu, monkeypatch, caplog, generated_mixed):
    gpu(H200)
    monkeypatch.setenv("ATTN_KERNELS_LOG", "1")
    shared = choices_for(MODEL, GPU)
    shared.possible()  # asks for all, and logs none
    for num_seqs in (64, 65, 1):
        shared.config(DECODE._replace(num_seqs=num_seqs, num_query_tokens=num_seqs))
    choices_for(Model(32, 8, 64, 16, torch.bfloat16), GPU).config(DECODE)
    for parts in (MANY, FEW, MANY, FEW):
        shared.way(parts)
    batch().plan(device_key="nvidia")
    batch().plan(device_key="nvidia")
    lines = [record.getMessage() for record in caplog.records if record.name == "attn_kernels"]
    chosen = [line.split(" for num")[0] for line in lines]
    assert chosen[0] == f"nvidia_h200 chose {by_module('nvidia_h200')}"
    assert "num_seqs=64 " in lines[0] and "head_size=128" in lines[0]
    assert chosen[-3:-1] == [f"nvidia_h200 of mixed_attention chose {way}" for way in (POD, SEPARATE)]
    assert len(lines) == len(set(lines)) >= 5
    assert chosen[-1].startswith("nvidia chose ")


def test_log_lines_reach_stderr_where_the_program_has_no_handler(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("ATTN_KERNELS_LOG", "1")
    batch().plan()
    assert capsys.readouterr().err.startswith("attn_kernels: default chose qblock_M64_T32_W4_S2 for ")


def test_rows_that_depend_on_the_step_may_end_at_the_fallback(monkeypatch):
    """Such a row lists several configs, or none that fits the model."""
    first, second, fallback = (Config("qblock", 16, tile) for tile in (16, 32, 64))
    module, default = ModuleType("only"), ModuleType("default")
    module.configs = lambda **constants: (((first, second), ()),)
    module.for_model = lambda **constants: lambda **lengths: second
    default.FALLBACK = fallback
    package = ModuleType("mine.unified_attention")
    package.MODULES, package.key_for = {"only": module, "default": default}, None
    monkeypatch.setattr(choices, "kernel_package", lambda kernel: package)
    shared = Choices(MODEL, torch.device("cpu"), "only")
    assert shared.possible() == [first, second, fallback]
    assert shared.config(DECODE) == second


# Mixed batches

POD = Config("pod", 128, 64, num_stages=3)
MANY = Parts.of([1] * 200 + [512], [9000] * 200 + [512])
FEW = Parts.of([1, 512], [9000, 512])


@pytest.fixture
def generated_mixed(monkeypatch):
    """A generated package whose module for the H200 takes the one kernel for many decodes."""
    modules = {key: ModuleType(key) for key in ("default", "nvidia_h200")}
    steps = {
        "default": lambda **lengths: SEPARATE,
        "nvidia_h200": lambda **lengths: POD if lengths["num_decodes"] > 100 else SEPARATE,
    }
    for key, module in modules.items():
        module.for_model = lambda step=steps[key], **constants: step
    modules["nvidia_h200"].POD, modules["nvidia_h200"].SEPARATE = POD, SEPARATE
    modules["nvidia_h200"].configs = lambda **constants: (((POD, SEPARATE), (SEPARATE,)),)
    modules["default"].configs = lambda **constants: (((SEPARATE,),),)
    package = ModuleType("generated.mixed_attention")
    package.MODULES = modules
    package.key_for = lambda name, arch, vendor: "nvidia_h200" if arch == "sm_90" else "default"
    monkeypatch.setitem(sys.modules, package.__name__, package)


def test_series_and_whole_are_no_configs_that_can_be_launched_alone():
    configs = (SEPARATE, SINGLE, POD, Config("qblock", 16, 16))
    assert [needs_parts(config) for config in configs] == [True, True, True, False]
    for way in WITHOUT_KERNEL:
        assert Config.parse(str(way)) == way
        with pytest.raises(ValueError, match=r"config\.variant"):
            check_config(way)


@pytest.mark.parametrize(
    "described, device_key, variables, of_many",
    [
        (H200, None, {}, POD),
        (A100, None, {}, SEPARATE),
        (A100, "nvidia", {}, SEPARATE),
        (A100, "nvidia_h200", {}, POD),
        (A100, None, {"DEVICE": "nvidia_h200"}, POD),
        (H200, None, {"DEVICE": "nvidia"}, SEPARATE),
        (A100, None, {"CONFIG": str(POD._replace(num_stages=2))}, POD._replace(num_stages=2)),
        (H200, None, {"CONFIG": "qblock_M16_T32_W4_S2"}, SEPARATE),
    ],
)
@pytest.mark.filterwarnings("ignore::attn_kernels.AttnKernelsWarning")
def test_the_module_of_mixed_batches_chooses_a_way(
    described, device_key, variables, of_many, gpu, monkeypatch, generated_mixed
):
    gpu(described)
    for name, value in variables.items():
        monkeypatch.setenv(f"ATTN_KERNELS_{name}", value)
    shared = choices_for(MODEL, GPU, device_key)
    assert shared.way(MANY) == of_many
    assert shared.way(FEW) == (of_many if "CONFIG" in variables else SEPARATE)
    assert shared.fused() == [way for way in (of_many,) if way not in WITHOUT_KERNEL]
