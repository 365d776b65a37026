"""`treegen export` writes files that launch what the module does, by their projects' rules."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from table_builders import start
from tuned_files import launched_by

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


def test_arguments_of_triton_config_at_given_sizes(tmp_path: Path) -> None:
    project(tmp_path, "gemm", ("N", "K"))
    files = exported("triton", "gemm", "M=1,64,5000", "N=512,8192", "K=7")
    assert sorted(files) == [f"gemm,nvidia_h100,N={n},K=7.json" for n in (512, 8192)]
    content = files["gemm,nvidia_h100,N=8192,K=7.json"]
    assert list(content) == ["provenance", "1", "64", "5000"]
    expected = launched("gemm", M=64, N=8192, K=7)
    own = {name: expected.pop(name) for name in ("num_warps", "maxnreg") if name in expected}
    assert content["64"] == {"kwargs": expected, **own}
    given = exported("triton", "gemm", "M=1,64", "N=512", "K=64", "--along", "N")
    for order in ("--along N triton gemm M=1,64 N=512 K=64", "triton gemm M=1,64 --along N N=512 K=64"):
        assert exported(*order.split()) == given


def test_what_export_refuses(tmp_path: Path, refusal: Refusal) -> None:
    project(tmp_path, "gemm", ("N", "K"), device={"name": "NVIDIA X1"})
    for words, named in (
        ("vllm gemm", "dtype"),
        ("vllm gemm Q=1", "Q=1"),
        ("vllm gemm N=x", "N=x"),
        ("vllm gem", "'gem'"),
        ("vllm gemm --device nvidia", "nvidia"),
        ("vllm gemm --along Q", "--along"),
        ("aiter gemm", "arch"),
        ("aiter gemm M=3,5", "M"),
        ("triton gemm M=-1,5", "M"),
        ("vllm gemm dtype=../../a block_shape=1x1", "/"),
    ):
        assert named in refusal(tmp_path, "export", *words.split())
    module = tmp_path / "heuristics/gemm/nvidia_x1.py"
    module.write_text(module.read_text() + "\n")
    assert "nvidia_x1.py" in refusal(tmp_path, "export", "triton", "gemm")
