"""The example of a matrix product: from tuning to a launch with the generated module, in the interpreter."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from treegen.cli.main import main as treegen
from triton_tune.bench import pool
from triton_tune.cli.main import main as triton_tune

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul"
TINY = {
    "tune.py": [
        (r"\b(LLAMA_3_8B|LLAMA_3_70B_OF_8|QWEN_2_5_7B) = .*", r"\1 = [(40, 130)]"),
        ("ROWS = .*", "ROWS = [3, 20]"),
        ("bfloat16", "float32"),  # which the interpreter multiplies wrongly
    ],
    "untuned.py": [("QWEN_2_5_14B = .*", "QWEN_2_5_14B = [(24, 70)]"), ("ROWS = .*", "ROWS = [5, 18]")],
    "matmul.py": [
        (r"TILES = \[.*?\n\]", "TILES = [(16, 32), (32, 32)]"),
        (r"\(64, 128, 256\) if small", "(64,) if small"),
    ],
    "treegen.yaml": [
        (r"    names: .*\n    arch: .*\n    vendor: nvidia", "    vendor: cpu"),
        ("BLOCK_M: 64, BLOCK_N: 64", "BLOCK_M: 16, BLOCK_N: 32"),
        (
            "nvidia_h200: tuning_data/matmul/nvidia_h200",
            "nvidia_h200: tuning_data/matmul/cpu_triton_interpreter",
        ),
    ],
}
LAUNCH = """
import torch, matmul, untuned
for shape in untuned.UNTUNED.shapes:
    a, b = (x.float() for x in untuned.UNTUNED.arguments(**shape))
    assert torch.allclose(matmul.matmul(a, b), a @ b, atol=1e-4)
    print(matmul.matmul_kernel.chosen(a, b, a, *shape.values()).BLOCK_M)
"""


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example with tiny shapes and few configs."""
    for path in EXAMPLE.glob("*.*"):
        if path.is_file():
            shutil.copy(path, tmp_path)
    for name, changes in TINY.items():
        text = (tmp_path / name).read_text()
        for pattern, new in changes:
            text, count = re.subn(pattern, new, text, flags=re.DOTALL if "TILES" in pattern else 0)
            assert count, (name, pattern)
        (tmp_path / name).write_text(text.replace("QWEN_2_5_7B) for", "QWEN_2_5_7B)[:1] for"))
    text = (tmp_path / "tune.py").read_text()
    text = text.replace("(*LLAMA_3_8B, *LLAMA_3_70B_OF_8, *QWEN_2_5_7B)", "LLAMA_3_8B")
    (tmp_path / "tune.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    return tmp_path


def test_the_example_goes_from_tuning_to_a_launch(example: Path) -> None:
    forget = [name for name in sys.modules if name in ("matmul", "tune", "untuned")]
    assert not forget
    try:
        assert triton_tune(["tune.py", "--gpus", "cpu"]) == 0
        assert treegen(["build"]) == 0
        arguments = ["untuned.py", "--strategy", "full", "--out", "untuned_data", "--gpus", "cpu"]
        assert triton_tune(arguments) == 0
    finally:
        for name in ("matmul", "tune", "untuned"):
            sys.modules.pop(name, None)
        sys.path[:] = [folder for folder in sys.path if folder != str(example)]
    assert (example / "untuned_data/matmul/cpu_triton_interpreter/times.csv").is_file()
    environment = {"PYTHONPATH": f"{EXAMPLE.parents[1]}:{example}", "TRITON_INTERPRET": "1", "PATH": ""}
    output = subprocess.run(
        [sys.executable, "-c", LAUNCH],
        cwd=example,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(output.stdout.split()) <= {"16", "32"} and output.stderr == ""
