"""The examples of Triton kernels: their tables, modules and pages, and a launch in the interpreter."""

from functools import partial
from pathlib import Path

import pytest
from forked import code, forked

from treegen.cli.main import main as treegen
from treegen.crossval.score import Score
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.write.modules import read_modules

EXAMPLES = Path(__file__).parents[2] / "examples"
LAUNCH = """
from pathlib import Path
import torch, matmul, untuned
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.tuning import load_tunings
from tuning_table import read_run
assert [*load_tunings(Path("tune.py"))] == [*load_tunings(Path("untuned.py"))] == ["matmul"]
measured = read_run("tuning_data/matmul/nvidia_h200").header.configs
assert [*AutotunedKernel(untuned.UNTUNED.kernel).configs] == [config.id for config in measured]
for rows, n, k in ((1, 70, 24), (100, 130, 40), (18, 64, 128)):
    # Not in bfloat16, which the interpreter multiplies wrongly.
    call = [matrix.float() for matrix in untuned.UNTUNED.arguments(rows, n, k)]
    expected = untuned.UNTUNED.reference(*call)
    assert (matmul.matmul(*call) - expected).abs().max() < 0.01 * expected.abs().max()
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


def test_matmul_can_be_tuned_and_launches_what_its_module_says_of_an_unknown_gpu():
    """tests/test_your_kernel.py follows a kernel from tuning to a launch; here, no shape is measured."""
    assert run(code(LAUNCH), EXAMPLES / "matmul") == "64\n"
