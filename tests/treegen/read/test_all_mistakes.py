"""A spec with several mistakes: all of them are told at once, each in a line of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of

from treegen.cli.main import main
from treegen.read.spec_file import read_spec

SPEC = """
format: 2
output: class
surprise: 1
devices:
  gpu:
    vendor: [1]
    limits: {memory: big}
    arhc: sm_90
kernels: {}
"""
KERNEL = """
format: 1
output: made
devices:
  gpu: {vendor: nvidia, limits: {memory: 8}}
kernels:
  mine:
    features: [M, N]
    derived:
      tiles: M * Q
      double: 2 * tiles
      shares: M // N
    config:
      parameters: {BLOCK: MMMMM, WARPS: W, STAGES: W}
    fallback: {BLOCK: 1}
    tree: {max_depth: 0, max_leaves: many}
    tables: {gpu: tables/gpu, other: tables/other}
"""
LATER = KERNEL.replace("M * Q", "M * N").replace("M // N", "M // 2").replace("MMMMM", "B")
LATER = LATER.replace("STAGES: W", "STAGES: S").replace(
    "max_depth: 0, max_leaves: many", "max_depth: 1, max_leaves: 2"
)
LATER = LATER.replace(", other: tables/other", "")
LATER += """
    constraints: [BLOCK, BLOCK <= memory * P, BLOCK <= M]
    words: {Z: "a phrase"}
    objective: {untimed: 1}
"""


def mistakes(folder: Path, text: str) -> list[str]:
    """What is said of a spec, by line number and text."""
    path = folder / "treegen.yaml"
    path.write_text(text)
    lines = error_of(read_spec, path).split("\n")
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:").partition(";")[0] for line in lines]


def test_sections_that_do_not_depend_on_each_other(tmp_path: Path) -> None:
    assert mistakes(tmp_path, SPEC) == [
        "4: unknown word 'surprise'",
        "2: format: must be 1, the format that this treegen reads",
        "3: output: 'class' must end in a name that Python can import, such as generated",
        "9: devices.gpu: unknown word 'arhc'",
        "8: devices.gpu.limits.memory: must be an integer, not 'big'",
        "7: devices.gpu.vendor: must be text, not [1]",
        "10: kernels: names no kernel",
    ]


def test_a_kernel_is_judged_as_far_as_its_names_are_known(tmp_path: Path) -> None:
    assert mistakes(tmp_path, KERNEL) == [
        "16: kernels.mine.tree.max_depth: must be between 1 and 32, not 0",
        "16: kernels.mine.tree.max_leaves: must be an integer, not 'many'",
        "17: kernels.mine.tables: unknown device 'other'",
        "10: kernels.mine.derived.tiles: uses the unknown name 'Q'",
        "12: kernels.mine.derived.shares: divides by something that may be 0: write // max(1, ...)",
        "14: kernels.mine.config.parameters.BLOCK: needs one to four capital letters for names, not 'MMMMM'",
        "14: kernels.mine.config.parameters.STAGES: the letters W are taken by another parameter",
    ]
    assert mistakes(tmp_path, LATER) == [
        "19: constraint 'BLOCK' must be one comparison with <=, >=, < or >",
        "19: constraint 'BLOCK <= memory * P' uses the unknown name 'P'",
        "15: kernels.mine.fallback: lacks 'WARPS'",
        "15: kernels.mine.fallback: lacks 'STAGES'",
        "21: kernels.mine.objective.untimed: must be above 1",
        "20: kernels.mine.words: unknown feature or parameter 'Z'",
    ]


def test_the_command_prints_a_line_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "treegen.yaml").write_text(LATER)
    assert main(["build"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6 and all(line.startswith("treegen: treegen.yaml:") for line in lines)
