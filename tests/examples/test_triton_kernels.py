"""The examples of Triton kernels: from tuning to a launch with the generated module, in the interpreter."""

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forked import code, forked

from treegen.cli.main import main as treegen
from treegen.crossval.score import Score
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.write.modules import read_modules
from triton_tune.bench import pool
from triton_tune.cli.main import main as triton_tune

EXAMPLES = Path(__file__).parents[2] / "examples"
MATMUL = {
    "tune.py": [
        (r"(?s)MATRICES = \[.*?\n\]", "MATRICES = [(40, 130)]"),
        (r"(?s)ROWS = \[.*?\n\]", "ROWS = [3, 20]"),
        ("STEP = .*", "STEP = 1"),
        ("bfloat16", "float32"),  # which the interpreter multiplies wrongly
    ],
    "untuned.py": [(r"\b([A-Z]+_[0-9A-Z_]+) = \[.*", r"\1 = [(24, 70)]"), ("ROWS = .*", "ROWS = [5, 18]")],
    "matmul.py": [
        (r"(?s)TILES = \[.*?\n\]", "TILES = [(16, 32), (32, 32)]"),
        (r"\(64, 128, 256\) if small", "(64,) if small"),
    ],
    "treegen.yaml": [
        (r"    names: .*\n    arch: .*\n    vendor: nvidia", "    vendor: cpu"),
        (r"(tuning_data/\w+)/nvidia_h200", r"\1/cpu_triton_interpreter"),
        ("BLOCK_M: 64, BLOCK_N: 64", "BLOCK_M: 16, BLOCK_N: 32"),
    ],
}
LAUNCH = """
import torch, matmul, untuned
from triton_tune.kernel.batches import make, on_copies
for shape in untuned.UNTUNED.shapes:
    call = make(untuned.UNTUNED, shape, torch.device("cpu"))
    found, expected = on_copies(call, matmul.matmul), on_copies(call, untuned.UNTUNED.reference)
    assert (found - expected).abs().max() < 0.01 * expected.abs().max()
print(matmul.matmul_kernel.chosen(None, None, None, *shape.values()).variant)
"""


def run(call: Callable[[], Any], folder: Path) -> str:
    """Call this in an example's folder, whose modules are forgotten afterwards."""
    status, output = forked(call, folder)
    assert status == 0, output
    return output


def tune_and_build(name: str, folder: Path, changes: dict[str, list[tuple[str, str]]], before: int) -> None:
    """Do what `measure.sh` does with tiny shapes and few configs, and launch the untuned shapes."""
    for path in (EXAMPLES / name).glob("*.*"):
        if path.is_file():
            shutil.copy(path, folder)
    for file, replacements in changes.items():
        text = (folder / file).read_text()
        for pattern, new in replacements:
            text, count = re.subn(pattern, new, text)
            assert count, (file, pattern)
        (folder / file).write_text(text)
    untuned = ["untuned.py", "--strategy", "full", "--out", "untuned_data"]
    run(partial(triton_tune, ["tune.py", "--gpus", "cpu"]), folder)
    run(partial(treegen, ["build"]), folder)
    run(partial(triton_tune, [*untuned, "--gpus", "cpu"]), folder)
    assert run(code(LAUNCH.format(name=name, before=before)), folder) == f"{name}\n"


@pytest.fixture(autouse=True)
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "START_METHOD", "fork")


@pytest.mark.parametrize("name", ["matmul", "block_fp8"])
def test_committed_modules_and_the_readme_are_what_the_committed_tables_say(name: str) -> None:
    folder = EXAMPLES / name
    assert "heuristics: up to date" in run(partial(treegen, ["build", "--check"]), folder)
    readme = (folder / "README.md").read_text()
    if name == "block_fp8":
        lines = run(code("import compare, sys; sys.argv[1:] = []; compare.main()"), folder).splitlines()
        assert len(lines) == 2 and all(line in readme for line in lines), lines
    else:
        spec = read_spec(folder / "treegen.yaml")
        untuned = read_table(folder / "untuned_data/matmul/nvidia_h200")
        problem = build_problem(spec.kernels[name], spec.devices["nvidia_h200"], untuned)
        found = Score.of(problem, read_modules(spec)[name, "nvidia_h200"].heuristic).quality
        assert f"not tuned | {found.slowdown:.3f} | {found.worst:.2f} |" in readme


def test_matmul_goes_from_tuning_to_a_launch(tmp_path: Path) -> None:
    measured_and_built("matmul", tmp_path, MATMUL, 3)


def test_block_fp8_goes_from_tuning_to_vllms_file(tmp_path: Path) -> None:
    tune_and_build("block_fp8", tmp_path, BLOCK_FP8, 5)
    named = ["N=32", "K=256", "dtype=fp8_w8a8", "block_shape=128x128"]
    run(partial(treegen, ["export", "vllm", "block_fp8", "M=1,64", *named, "--to", "configs"]), tmp_path)
    (path,) = (tmp_path / "configs").iterdir()
    tuned = json.loads(path.read_text())
    assert list(tuned) == ["1", "64"] and tuned["64"]["BLOCK_SIZE_K"] == 128 and len(tuned["1"]) == 6
    path.rename(
        path.with_name("N=32,K=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json")
    )
    text = "import compare; from pathlib import Path\n"
    text += "ways = {'rows': compare.by_rows, 'default': lambda shape: compare.DEFAULT,"
    text += " 'file': compare.by_nearest_file(Path('configs'))}\n"
    text += "print(*compare.compare(Path('untuned_data/block_fp8/cpu_triton_interpreter'), ways), sep='\\n')"
    lines = run(code(text), tmp_path).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["rows", "default", "file"]
    assert "in 2 of 2 shapes; 1.000 times the rows' (1.00 to 1.00)" in lines[0]
