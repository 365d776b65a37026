"""treegen suggest: it finds the planted feature, prints it, and writes it into a spec that still reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from treegen_builders import DEVICE, Row, build, problem, spec, write_project, write_table

from treegen.cli.main import main
from treegen.read.spec_file import read_spec
from treegen.suggest import selection
from treegen.suggest.selection import Suggestion, suggest
from treegen.suggest.spec_text import UnknownLayout, with_features

Capture = pytest.CaptureFixture[str]
SHAPES: list[Row] = [(1 << a, 1 << b, 2) for a in range(12) for b in range(12)]
FOUND = (Suggestion("a_x_b", "a * b", 0.012, 0.001), Suggestion("a_per_b", "16 * a // max(1, b)", 0.5, 0.1))


def _by_area(shape: Row) -> list[float]:
    """Narrow is best up to an area of 2^11: no single side tells."""
    return [10.0, 20.0, 15.0] if shape[0] * shape[1] <= 1 << 11 else [15.0, 20.0, 10.0]


def _content(**kernel: object) -> dict[str, object]:
    return spec(**{"constraints": [], "derived": {}, **kernel})


def test_the_product_is_found_and_pays(tmp_path: Path) -> None:
    made = problem(tmp_path, {"constraints": [], "derived": {}}, shapes=SHAPES, times=_by_area)
    found = suggest([made, made], 4)
    assert [(one.name, one.text) for one in found.found] == [("rows_x_columns", "rows * columns")]
    assert found.after < 1.01 < found.before and found.found[0].wins > 0.02
    assert found.features == ("rows", "columns", "heads")


class _TwoFeatures:
    """A search that takes `noisy`, which wins much in one scenario of 50, and `steady`, 0.3% in all."""

    split_on = ("rows",)
    texts: ClassVar = {"noisy": "rows * columns", "steady": "rows + columns"}

    def __init__(self, problems: object) -> None:
        pass

    def step(self, chosen: Sequence[str]) -> str | None:
        return next((name for name in self.texts if name not in chosen), None)

    def held_out(self, chosen: Sequence[str]) -> npt.NDArray[np.float64]:
        lost = np.full(50, 0.0 if "steady" in chosen else 0.003)
        lost[:2] += 0.0 if "noisy" in chosen else [0.5, -0.2]
        return lost


def test_a_feature_must_win_its_error_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_Search", _TwoFeatures)
    found = suggest([problem(tmp_path)], 4).found
    assert [one.name for one in found] == ["steady"] and found[0].wins == pytest.approx(0.003)


def test_nothing_is_suggested_where_nothing_helps(tmp_path: Path, capsys: Capture) -> None:
    path = write_project(tmp_path, spec(), shapes=SHAPES, times=_by_area)
    before = path.read_text()
    assert main(["suggest", "--spec", str(path), "--write"]) == 0
    assert "nothing helps" in capsys.readouterr().out and path.read_text() == before


def test_a_kernel_with_few_scenarios_gets_a_line(tmp_path: Path, capsys: Capture) -> None:
    content = _content()
    kernels: Any = content["kernels"]
    kernels["few"] = {**kernels["scale"], "tables": {DEVICE: "tables/few"}}
    write_table(tmp_path / "tables/few", kernel="few", shapes=SHAPES[:9])
    assert main(["suggest", "--spec", str(write_project(tmp_path, content, shapes=SHAPES))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"scale on {DEVICE}"
    assert lines[-2] == "few: no table of at least 10 different scenarios"
    assert "+- two standard errors" in lines[-1]


@pytest.mark.parametrize("kernel", [{}, {"split_on": ["rows", "columns"]}])
def test_it_is_written_into_the_spec(tmp_path: Path, capsys: Capture, kernel: dict[str, object]) -> None:
    content = _content(**kernel)
    del content["kernels"]["scale"]["derived"]  # type: ignore[index]
    path = write_project(tmp_path, content, shapes=SHAPES, times=_by_area)
    assert main(["suggest", "--spec", str(path)]) == 0
    assert "rows_x_columns: rows * columns  # wins" in capsys.readouterr().out
    assert main(["suggest", "--spec", str(path), "--write"]) == 0
    read = read_spec(path).kernels["scale"]
    assert list(read.derived) == ["rows_x_columns"] and "rows_x_columns" in read.split_on
    assert "  # wins " in path.read_text()
    assert build(path) == 0
    assert "rows_x_columns" in (tmp_path / f"generated/scale/{DEVICE}.py").read_text()


def test_raw_ignores_what_the_spec_declares(
    tmp_path: Path, capsys: Capture, refusal: Callable[..., str]
) -> None:
    path = write_project(tmp_path, spec(), shapes=SHAPES, times=_by_area)
    assert main(["suggest", "--spec", str(path), "--raw"]) == 0
    assert "rows_x_columns: rows * columns" in capsys.readouterr().out
    assert "cannot go with --write" in refusal(tmp_path, "suggest", "--spec", path, "--raw", "--write")
    assert "must be from 1 to 32" in refusal(tmp_path, "suggest", "--spec", path, "--most", "0")
    assert "has no kernel 'x'" in refusal(tmp_path, "suggest", "--spec", path, "--kernel", "x")
    assert "selects no table" in refusal(tmp_path, "suggest", "--spec", path, "--device", "x")


TEXT = """format: 1
kernels:
  other:
    derived:
      z: y
  mine:  # a comment
    features: [a, b]
    # of the programs
    derived:
      area: a * b  # kept

      more: a + b
    # below
    split_on:
    - a
    - area
    config: {}
"""


def test_text_keeps_its_comments_and_its_layout() -> None:
    lines = with_features(TEXT, "mine", FOUND).splitlines()
    assert [line for line in lines if line not in TEXT.splitlines()] == [
        "      a_x_b: a * b  # wins 1.21% +- 0.20%",
        "      a_per_b: 16 * a // max(1, b)  # wins 64.87% +- 20.00%",
        "    - a_x_b",
        "    - a_per_b",
    ]
    assert lines[lines.index("      more: a + b") + 1].startswith("      a_x_b")
    assert [line for line in lines if line in TEXT.splitlines()] == TEXT.splitlines()


def test_lists_in_brackets_and_kernels_without_derived_features() -> None:
    text = "kernels:\n  k:\n    features:\n      - a\n      - b\n    split_on: [a, b]  # both\n    tree: {}\n"
    assert with_features(text, "k", FOUND[:1]).splitlines()[4:8] == [
        "      - b",
        "    derived:",
        "      a_x_b: a * b  # wins 1.21% +- 0.20%",
        "    split_on: [a, b, a_x_b]  # both",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "kernels: {k: {features: [a]}}",
        "kernels:\n  k: {features: [a]}\n",
        "kernels:\n  k:\n    features: [a]\n    derived: {}\n",
    ],
)
def test_other_layouts_are_refused(text: str) -> None:
    with pytest.raises(UnknownLayout):
        with_features(text, "k", FOUND)
