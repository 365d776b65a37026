"""The examples of Triton kernels: from tuning to a launch with the generated module, in the interpreter."""

import re
import shutil
from functools import partial
from pathlib import Path

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
print(matmul.matmul_kernel.best_config.kwargs["BLOCK_M"])
"""


def run(call, folder):
    """Call this in an example's folder, whose modules are forgotten afterwards."""
    status, output = forked(call, folder)
    assert status == 0, output
    return output


@pytest.mark.parametrize("name", ["matmul", "block_fp8"])
def test_committed_modules_and_the_readme_fit_the_committed_tables(name):
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


def test_matmul_goes_from_tuning_to_a_launch(tmp_path, monkeypatch):
    """What `measure.sh` does, with tiny shapes and few configs; then the untuned shapes are launched."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    for path in (EXAMPLES / "matmul").glob("*.*"):
        if path.is_file():
            shutil.copy(path, tmp_path)
    for file, replacements in MATMUL.items():
        text = (tmp_path / file).read_text()
        for pattern, new in replacements:
            text, count = re.subn(pattern, new, text)
            assert count, (file, pattern)
        (tmp_path / file).write_text(text)
    untuned = ["untuned.py", "--strategy", "full", "--out", "untuned_data"]
    run(partial(triton_tune, ["tune.py", "--gpus", "cpu"]), tmp_path)
    run(partial(treegen, ["build"]), tmp_path)
    run(partial(triton_tune, [*untuned, "--gpus", "cpu"]), tmp_path)
    assert run(code(LAUNCH), tmp_path) in ("16\n", "32\n")
