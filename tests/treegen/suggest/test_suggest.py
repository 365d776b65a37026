"""treegen suggest: it finds the planted feature, and prints it as a spec reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from treegen_builders import DEVICE, Row, problem, spec, write_project, write_table

import treegen.suggest as selection
from treegen.cli.main import main
from treegen.read.spec import read_spec
from treegen.suggest import suggest

Capture = pytest.CaptureFixture[str]
SHAPES: list[Row] = [(1 << a, 1 << b, 2) for a in range(12) for b in range(12)]


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
    assert main(["suggest", "--spec", str(path)]) == 0
    assert "nothing helps" in capsys.readouterr().out


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


def test_the_printed_lines_are_read_in_a_spec(tmp_path: Path, capsys: Capture) -> None:
    path = write_project(tmp_path, _content(), shapes=SHAPES, times=_by_area)
    assert main(["suggest", "--spec", str(path)]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    derived = yaml.safe_load("\n".join(printed))["derived"]
    read = read_spec(write_project(tmp_path, _content(derived=derived))).kernels["scale"]
    assert list(read.derived) == ["rows_x_columns"] and "  # wins " in printed[1]


def test_raw_ignores_what_the_spec_declares(
    tmp_path: Path, capsys: Capture, refusal: Callable[..., str]
) -> None:
    path = write_project(tmp_path, spec(), shapes=SHAPES, times=_by_area)
    assert main(["suggest", "--spec", str(path), "--raw"]) == 0
    assert "rows_x_columns: rows * columns" in capsys.readouterr().out
    assert "must be from 1 to 32" in refusal(tmp_path, "suggest", "--spec", path, "--most", "0")
    assert "has no kernel 'x'" in refusal(tmp_path, "suggest", "--spec", path, "--kernel", "x")
    assert "selects no table" in refusal(tmp_path, "suggest", "--spec", path, "--device", "x")
