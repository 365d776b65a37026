"""What `treegen build` prints of few kernels and of many."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import DEVICE, KERNEL, build, spec, write_spec, write_table

from treegen.review.build_summary import MOST_KERNELS


def printed(folder: Path, kernels: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What a build prints, in which the last kernel has one row, that is far slower than the best."""
    content = spec()
    for number in range(kernels):
        name, table = f"kernel{number}", f"tables/{number}"
        tree = {"max_depth": 4, "max_rows": 1 if number == kernels - 1 else 8}
        content["kernels"][name] = spec(tree=tree, tables={DEVICE: table})["kernels"][KERNEL]
        write_table(folder / table, kernel=name, summary={"finished": False})
    del content["kernels"][KERNEL]
    assert build(write_spec(folder, content)) == 0
    return capsys.readouterr().out


def shown(text: str) -> list[str]:
    """The kernels whose tables are printed."""
    return [line for line in text.splitlines() if line.startswith("kernel") and " " not in line]


def test_few_kernels_are_all_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(tmp_path, MOST_KERNELS, capsys)
    assert shown(text) == [f"kernel{number}" for number in range(MOST_KERNELS)]


def test_of_many_kernels_those_that_are_slow_are_shown_and_a_line_tells_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = 3 * MOST_KERNELS
    text = printed(tmp_path, number, capsys)
    assert shown(text) == [f"kernel{number - 1}"]
    assert f"{number} modules, {9 * number} scenarios, {2 * number - 1} rows" in text
    assert len(text.splitlines()) < 15
