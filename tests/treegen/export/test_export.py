"""`treegen export` writes files that launch what the module does, by their projects' rules."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from table_builders import start
from tuned_files import BOUNDS, launched_by

from treegen.cli.main import main

Refusal = Callable[..., str]
SHAPE = {"dtype": "fp8_w8a8", "block_shape": "128x128"}
PARAMETERS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "num_warps", "maxnreg", "modifier")
SIZES = [1, 2, 8, 16, 64, 100, 256, 777, 1024, 4096]


def project(folder: Path, kernel: str, sizes: tuple[str, str], **table: Any) -> None:
    """A module whose config depends on M and on the first of the other sizes; two models of each."""
    values = [(16, 32, 4, 0, 0), (64, 64, 4, 128, 1), (128, 64, 8, 0, 0)]
    configs = [{"id": f"c{n}", **dict(zip(PARAMETERS, own, strict=True))} for n, own in enumerate(values)]
    models = ((512, 64), (4096, 128))
    scenarios = {f"m{m}-{model[0]}": (m, *model) for m in SIZES for model in models}
    with start(
        folder / "tables/gpu",
        kernel=kernel,
        features=("M", *sizes),
        values={"modifier": ["none", "cg"]},
        configs=configs,
        scenarios=scenarios,
        **{"device": {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90"}, **table},
    ) as writer:
        for name, (m, size, _) in scenarios.items():
            work = m * size // 512
            best = 0 if work <= 20 else 1 if work <= 700 else 2
            writer.append(name, {f"c{config}": 1 + abs(config - best) for config in range(3)})
    assert main(["init", "tables/gpu"]) == 0
    text = Path("treegen.yaml").read_text().replace("# constants: [...]", f"constants: [{', '.join(sizes)}]")
    Path("treegen.yaml").write_text(text)
    assert main(["build"]) == 0


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "heuristics"]:
        monkeypatch.delitem(sys.modules, name)


def launched(kernel: str, **shape: int) -> dict[str, Any]:
    """What the module launches, as the files spell it."""
    choose = importlib.import_module(f"heuristics.{kernel}").MODULES["nvidia_h100"].choose
    config = choose(**shape)._asdict()
    words = {0: None, 1: "cg"}
    kept = {name: config[name] for name in PARAMETERS if name != "maxnreg" or config[name]}
    return {**kept, "modifier": words[config["modifier"]]}


def exported(*arguments: str) -> dict[str, Any]:
    assert main(["export", *arguments]) == 0
    paths = Path("exported").rglob("*.json")
    return {path.relative_to("exported").as_posix(): json.loads(path.read_text()) for path in paths}


def test_a_file_of_vllms_gemm_launches_what_the_module_does_at_every_size(tmp_path: Path) -> None:
    project(tmp_path, "gemm", ("N", "K"))
    files = exported("vllm", "gemm", *(f"{name}={value}" for name, value in SHAPE.items()))
    assert sorted(files) == [
        f"N={n},K={k},device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json"
        for n, k in ((4096, 128), (512, 64))
    ]
    for name, content in files.items():
        shape = {part.split("=")[0]: int(part.split("=")[1]) for part in name.split(",")[:2]}
        for size in range(1, 4097):
            assert launched_by(content, size) == launched("gemm", M=size, **shape)


def test_fused_moe_of_vllm_and_sglang(tmp_path: Path) -> None:
    project(tmp_path, "fused_moe_down", ("E", "N"))
    name = "E=512,N=64,device_name=NVIDIA_H100_80GB_HBM3"
    given = ("fused_moe_down", "E=512", "N=64", "block_shape=64x32")
    (vllm,) = exported("vllm", *given).items()
    assert vllm[0] == f"{name},block_shape=[64,32].json" and vllm[1].pop("triton_version") == "3.6.0"
    files = exported("sglang", *given)
    sglang = files.pop(f"triton_3_6_0/{name},block_shape=[64, 32]_down.json")
    assert list(files) == [vllm[0]] and sglang == vllm[1] and all(map(str.isdecimal, sglang))


def test_aiters_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, "gemm_a8w8", ("N", "K"))
    capsys.readouterr()
    ((name, content),) = exported("aiter", "gemm_a8w8", "N=512", "K=64").items()
    assert name == "sm_90-GEMM-A8W8-N=512-K=64.json"
    assert content.pop("provenance") in capsys.readouterr().out
    assert list(content) == [*(f"M_LEQ_{bound}" for bound in BOUNDS), "any"]
    for size in (*BOUNDS, 10_000):
        assert launched_by(content, size) == launched("gemm_a8w8", M=size, N=512, K=64)


def test_arguments_may_stand_in_any_order(tmp_path: Path) -> None:
    project(tmp_path, "gemm", ("N", "K"))
    given = exported("triton", "gemm", "M=1,64", "N=512", "K=64", "--along", "N")
    assert len(given) == 2
    for order in ("--along N triton gemm M=1,64 N=512 K=64", "triton gemm M=1,64 --along N N=512 K=64"):
        assert exported(*order.split()) == given


def test_arguments_of_triton_config_at_given_sizes(tmp_path: Path) -> None:
    project(tmp_path, "gemm", ("N", "K"))
    files = exported("triton", "gemm", "M=1,64,5000", "N=512,8192", "K=7")
    assert sorted(files) == [f"gemm,nvidia_h100,N={n},K=7.json" for n in (512, 8192)]
    content = files["gemm,nvidia_h100,N=8192,K=7.json"]
    assert list(content) == ["provenance", "1", "64", "5000"]
    expected = launched("gemm", M=64, N=8192, K=7)
    own = {name: expected.pop(name) for name in ("num_warps", "maxnreg") if name in expected}
    assert content["64"] == {"kwargs": expected, **own}


def test_what_export_refuses(tmp_path: Path, refusal: Refusal) -> None:
    project(tmp_path, "gemm", ("N", "K"), device={"name": "NVIDIA X1"})
    gemm = ("export", "vllm", "gemm")
    assert "dtype" in refusal(tmp_path, *gemm)
    assert "Q=1" in refusal(tmp_path, *gemm, "Q=1")
    assert "N=x" in refusal(tmp_path, *gemm, "N=x")
    assert "'gem'" in refusal(tmp_path, "export", "vllm", "gem")
    assert "nvidia" in refusal(tmp_path, *gemm, "--device", "nvidia")
    assert "--along" in refusal(tmp_path, *gemm, "--along", "Q")
    assert "arch" in refusal(tmp_path, "export", "aiter", "gemm")
    assert "M" in refusal(tmp_path, "export", "aiter", "gemm", "M=3,5")
    assert "M" in refusal(tmp_path, "export", "triton", "gemm", "M=-1,5")
    assert "/" in refusal(tmp_path, *gemm, "dtype=../../a", "block_shape=1x1")
    module = tmp_path / "heuristics/gemm/nvidia_x1.py"
    module.write_text(module.read_text() + "\n")
    assert "nvidia_x1.py" in refusal(tmp_path, "export", "triton", "gemm")
