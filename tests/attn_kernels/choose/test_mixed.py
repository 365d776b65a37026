"""The choice between series and one kernel: the module that serves, overrides, log lines and configs."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from attn_kernels import Config, Model, Parts
from attn_kernels.choose import mixed
from attn_kernels.choose.mixed import (
    SERIES,
    WHOLE,
    WITHOUT_KERNEL,
    choose_mixed,
    configs_for_mixed,
    mixed_features,
    needs_parts,
)
from attn_kernels.kernels.registry import check_config

GPU = torch.device("cuda", 0)
H200 = ("NVIDIA H200", "sm_90", "nvidia")
A100 = ("NVIDIA A100-SXM4-80GB", "sm_80", "nvidia")
MODEL = Model(8, 2, 64, 16, torch.bfloat16)
POD = Config("pod", 128, 64, num_stages=3, decode_tile=128)
MANY = mixed_features(Parts.of([1] * 200 + [512], [9000] * 200 + [512]), MODEL)
FEW = mixed_features(Parts.of([1, 512], [9000, 512]), MODEL)

pytestmark = pytest.mark.usefixtures("new_process")


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """A generated package whose module for the H200 takes the one kernel for many decodes."""
    modules = {key: ModuleType(key) for key in ("default", "nvidia_h200")}
    modules["default"].choose = lambda **features: SERIES
    modules["default"].SERIES = SERIES
    modules["nvidia_h200"].choose = lambda **features: POD if features["num_decodes"] > 100 else SERIES
    modules["nvidia_h200"].POD, modules["nvidia_h200"].SERIES = POD, SERIES
    package = ModuleType("generated.mixed_attention")
    package.MODULES = modules
    package.for_device = lambda name, arch, vendor: (
        modules["nvidia_h200" if arch == "sm_90" else "default"].choose
    )
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return modules


def on(monkeypatch: pytest.MonkeyPatch, described: tuple[str, str, str]) -> None:
    monkeypatch.setattr(mixed, "describe_device", lambda device: described)


def test_features_are_of_both_parts_and_the_model() -> None:
    parts = Parts.of([1, 2, 300, 1], [40, 70, 900, 5])
    assert mixed_features(parts, MODEL) == {
        "num_decodes": 2,
        "num_decode_tokens": 3,
        "num_decode_kv_tokens": 110,
        "max_decode_len": 2,
        "max_decode_seq_len": 70,
        "num_prompts": 2,
        "num_prompt_tokens": 301,
        "num_prompt_kv_tokens": 905,
        "max_prompt_len": 300,
        "max_prompt_seq_len": 900,
        "num_query_heads": 8,
        "num_kv_heads": 2,
        "head_size": 64,
        "block_size": 16,
        "kv_element_size": 2,
    }


def test_series_and_whole_are_no_configs_that_can_be_launched_alone() -> None:
    configs = (SERIES, WHOLE, POD, Config("qblock", 16, 16))
    assert [needs_parts(config) for config in configs] == [True, True, True, False]
    for way in WITHOUT_KERNEL:
        assert Config.parse(str(way)) == way
        with pytest.raises(ValueError, match=rf"config\.variant is '{way.variant}'"):
            check_config(way)


def test_the_devices_module_chooses(
    generated: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, H200)
    choose = choose_mixed(GPU)
    assert choose(**MANY) is POD and choose(**FEW) is SERIES
    assert configs_for_mixed(GPU) == [POD]
    assert choose_mixed(GPU) is choose


def test_other_gpus_and_unknown_keys_launch_in_series(
    generated: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, A100)
    assert choose_mixed(GPU)(**MANY) is SERIES and configs_for_mixed(GPU) == []
    assert choose_mixed(GPU, "nvidia")(**MANY) is SERIES and configs_for_mixed(GPU, "nvidia") == []
    assert choose_mixed(GPU, "nvidia_h200")(**MANY) is POD and configs_for_mixed("cuda", "nvidia_h200") == [
        POD
    ]


def test_without_a_generated_package_the_parts_are_in_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "generated.mixed_attention", None)
    on(monkeypatch, H200)
    assert choose_mixed(GPU)(**MANY) is SERIES and configs_for_mixed(GPU) == []


@pytest.mark.parametrize(
    ("variable", "value", "config"),
    [
        ("DEVICE", "nvidia_h200", POD),
        ("DEVICE", "nvidia", SERIES),
        ("CONFIG", str(POD._replace(tile_size=128)), POD._replace(tile_size=128)),
        ("CONFIG", "qblock_M16_T32_W4_S2", SERIES),
    ],
)
def test_variables_override_the_choice(
    generated: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    config: Config,
) -> None:
    on(monkeypatch, A100)
    monkeypatch.setenv(f"ATTN_KERNELS_{variable}", value)
    assert choose_mixed(GPU)(**MANY) == config
    assert configs_for_mixed(GPU) == [one for one in (config,) if one not in WITHOUT_KERNEL]


def test_distinct_choices_are_logged_once(
    generated: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on(monkeypatch, H200)
    monkeypatch.setenv("ATTN_KERNELS_LOG", "1")
    choose = choose_mixed(GPU)
    for features in (MANY, FEW, MANY, FEW):
        choose(**features)
    lines = [record.getMessage() for record in caplog.records if record.name == "attn_kernels"]
    assert [line.split(" for ")[0] for line in lines] == [
        f"nvidia_h200 of mixed_attention chose {config}" for config in (POD, SERIES)
    ]
    assert "num_decodes=200 " in lines[0] and lines[0].endswith("kv_element_size=2")
