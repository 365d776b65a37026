"""The examples of Triton kernels: from tuning to a launch with the generated module, in the interpreter."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from treegen.cli.main import main as treegen
from triton_tune.bench import pool
from triton_tune.cli.main import main as triton_tune

EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = [
    (r"    names: .*\n    arch: .*\n    vendor: nvidia", "    vendor: cpu"),
    (r"(tuning_data/\w+)/nvidia_h200", r"\1/cpu_triton_interpreter"),
]
LISTS = r"\b([A-Z]+_[0-9A-Z_]+) = \[.*"
MATMUL = {
    "tune.py": [
        (r"(?s)MATRICES = \[.*?\n\]", "MATRICES = [(40, 130)]"),
        (r"(?s)ROWS = \[.*?\n\]", "ROWS = [3, 20]"),
        ("STEP = .*", "STEP = 1"),
        ("bfloat16", "float32"),  # which the interpreter multiplies wrongly
    ],
    "untuned.py": [(LISTS, r"\1 = [(24, 70)]"), ("ROWS = .*", "ROWS = [5, 18]")],
    "matmul.py": [
        (r"(?s)TILES = \[.*?\n\]", "TILES = [(16, 32), (32, 32)]"),
        (r"\(64, 128, 256\) if small", "(64,) if small"),
    ],
    "treegen.yaml": [*CPU, ("BLOCK_M: 64, BLOCK_N: 64", "BLOCK_M: 16, BLOCK_N: 32")],
}
BLOCK_FP8 = {
    "tune.py": [
        (LISTS, r"\1 = [(40, 256)]"),
        ("DEEPSEEK_V3_OF_8 .=.*", ""),
        ("ROWS = .*", "ROWS = [3, 20]"),
        (r"in \(\*DEEPSEEK.*\)", "in DEEPSEEK_V3"),
        ("torch.float8_e4m3fn", "torch.float32"),
        (r"\.bfloat16\(\)", ""),
    ],
    "untuned.py": [
        (LISTS, r"\1 = [(200, 128)]"),
        ("ROWS = .*", "ROWS = [5, 18]"),
        (r"in \(\*QWEN.*\)", "in QWEN_3_8B"),
    ],
    "block_fp8.py": [(r"(?s)TILES = \[.*?\n\]", "TILES = [(16, 32, 4, 3, 1), (64, 128, 4, 2, 32)]")],
    "treegen.yaml": CPU,
}
LAUNCH = """
import torch, {name}, untuned
for shape in untuned.UNTUNED.shapes:
    made = untuned.Arguments(untuned.UNTUNED.arguments(**shape))
    found, expected = made.pass_to({name}.{name}), made.pass_to(untuned.UNTUNED.reference)
    error = (found.float() - expected.float()).abs().max() / expected.abs().max()
    assert error < 0.01, error
print({name}.{name}_kernel.chosen(*[None] * {before}, *shape.values()).variant)
"""


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Goes to a copy of an example with tiny shapes and few configs."""

    def copy(name: str, changes: dict[str, list[tuple[str, str]]]) -> None:
        for path in (EXAMPLES / name).glob("*.*"):
            if path.is_file():
                shutil.copy(path, tmp_path)
        for file, replacements in changes.items():
            text = (tmp_path / file).read_text()
            for pattern, new in replacements:
                text, count = re.subn(pattern, new, text)
                assert count, (file, pattern)
            (tmp_path / file).write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(pool, "START_METHOD", "fork")

    modules = set(sys.modules)
    path = sys.path[:]
    yield copy
    for module in set(sys.modules) - modules:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]
    sys.path[:] = path


def measured_and_built() -> None:
    """Do what an example's `measure.sh` does."""
    assert triton_tune(["tune.py", "--gpus", "cpu"]) == 0
    assert treegen(["build"]) == 0
    assert triton_tune(["untuned.py", "--strategy", "full", "--out", "untuned_data", "--gpus", "cpu"]) == 0


def python(code: str, folder: Path = Path()) -> str:
    """Run code in an example's folder."""
    environment = {"PYTHONPATH": f"{EXAMPLES.parent}:.", "TRITON_INTERPRET": "1", "PATH": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def launched(name: str, before: int) -> str:
    """Launch the untuned shapes, compare the results, and return the output."""
    code = LAUNCH.format(name=name, before=before)
    return python("from triton_tune.kernel.batches import Arguments\n" + code.replace("untuned.Arg", "Arg"))


@pytest.mark.parametrize("name", ["matmul", "block_fp8"])
def test_committed_modules_are_what_the_committed_tables_give(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES / name)
    assert treegen(["build", "--check"]) == 0
    assert "heuristics: up to date" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "arguments"), [("matmul", ["--table"]), ("block_fp8", [])])
def test_the_readme_states_what_the_committed_tables_say(name: str, arguments: list[str]) -> None:
    folder = EXAMPLES / name
    lines = python(f"import compare, sys; sys.argv[1:] = {arguments}; compare.main()", folder).splitlines()
    readme = (folder / "README.md").read_text()
    assert len(lines) == 2 and all(line in readme for line in lines), lines


def test_matmul_goes_from_tuning_to_a_launch(example: Callable[..., None]) -> None:
    example("matmul", MATMUL)
    measured_and_built()
    assert launched("matmul", 3) == "matmul\n"
    code = "import compare; from pathlib import Path; compare.KEY = 'nvidia_h200'\n"
    code += "print(compare.slowdowns(Path('untuned_data/matmul/cpu_triton_interpreter')))"
    found, untimed = eval(python(code))
    assert len(found) + len(untimed) == 2 and all(ratio >= 1 for ratio in found.values())


def test_block_fp8_goes_from_tuning_to_vllms_file(example: Callable[..., None]) -> None:
    example("block_fp8", BLOCK_FP8)
    measured_and_built()
    assert launched("block_fp8", 5) == "block_fp8\n"
    named = ["N=32", "K=256", "dtype=fp8_w8a8", "block_shape=128x128"]
    assert treegen(["export", "vllm", "block_fp8", "M=1,64", *named, "--to", "configs"]) == 0
    (path,) = Path("configs").iterdir()
    tuned = json.loads(path.read_text())
    assert list(tuned) == ["1", "64"] and tuned["64"]["BLOCK_SIZE_K"] == 128 and len(tuned["1"]) == 6
    path.rename("configs/N=32,K=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json")
    code = "import compare, sys; from pathlib import Path\n"
    code += "ways = {'rows': compare.by_rows, 'default': lambda shape: compare.DEFAULT,"
    code += " 'file': compare.by_nearest_file(Path('configs'))}\n"
    code += "print(*compare.compare(Path('untuned_data/block_fp8/cpu_triton_interpreter'), ways), sep='\\n')"
    lines = python(code).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["rows", "default", "file"]
    assert "in 2 of 2 shapes; 1.000 times the rows' (1.00 to 1.00)" in lines[0]
