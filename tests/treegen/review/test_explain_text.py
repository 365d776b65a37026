"""What `treegen explain` prints, word for word, for a small project."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest
from rich.console import Console
from treegen_builders import (
    DEVICE,
    KERNEL,
    SIDES,
    Cell,
    Row,
    build,
    planted,
    spec,
    winners,
    write_project,
    write_spec,
    write_winners,
)

from treegen.cli import explain as command
from treegen.cli.parsers import Parser
from treegen.review.explain.explanation import explain
from treegen.review.explain.terminal import show_explanation
from treegen.review.explain.tuned_module import read_tuned_module

SHAPES: list[Row] = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 8)]
SECTIONS = {
    "trusted_as_measured": ["heads"],
    "words": {"rows": "batch", "area": "batch x width", "columns": "width", "warps": "waves"},
    "regimes": {"small": "area <= 128"},
}


def _times(row: Row) -> list[Cell]:
    """Work makes `planted` slower; medium was timed in small shapes only."""
    narrow, medium, wide = (time * (1 + row[0] * row[1] / 1000) for time in planted(row))
    return [round(narrow, 2), round(medium, 2) if row[0] <= 8 else "", round(wide, 2)]


def _explained(path: Path, *words: str) -> str:
    parser = Parser(prog="treegen")
    command.add(parser.add_subparsers())
    out = io.StringIO()
    options: argparse.Namespace = parser.parse_args(
        ["explain", KERNEL, *words, "--spec", str(path), "--top", "2"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", out)
        assert options.run(options) == 0
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_project(tmp_path_factory.mktemp("measured"), spec(**SECTIONS), shapes=SHAPES, times=_times)
    assert build(path) == 0
    return path


EXACT = """
scale on nvidia_h100
  module generated/scale/nvidia_h100.py
  table tables/h100, 32 scenarios on NVIDIA H100 80GB HBM3

shape
  batch 8, width 64, heads 2
  so batch x width 512

launches PLAIN_B128_W8
  plain: block 128, waves 8

time
  30.2 us, measured in s013 (2 repeats: 30.2 to 30.2)
  1.00x the best time there

why
  question                   here   answer   kind
  ──────────────────────────────────────────────────────────────────
  heads up to 1?                2   no       guard: only as measured
  heads up to 8?                2   yes      guard: only as measured
  batch x width up to 128?    512   no       fitted
  so this leaf serves heads 2 to 8, batch x width over 128

runners-up, by their time over the launched config's
  config         ratio   80% range     us   both timed near
  ─────────────────────────────────────────────────────────
  PLAIN_B64_W4   1.25x    measured   37.8              here
  PLAIN_B16_W2   2.00x    measured   60.5              here

nearest measured scenarios
  s013, 0.00 doublings away
    30.2 us, the best
  s014, 2.00 doublings away
    there heads 8
    30.2 us, the best
"""


def test_a_measured_shape_shows_its_measurements(project: Path) -> None:
    assert _explained(project, "rows=8", "columns=64", "heads=2") == EXACT.strip()


OUTSIDE = """
scale on nvidia_h100
  module generated/scale/nvidia_h100.py
  table tables/h100, 32 scenarios on NVIDIA H100 80GB HBM3

OUTSIDE WHAT WAS TUNED
  width 4,096: measured was 1 to 512
  heads 16: measured was 2 to 8
  the nearest scenario is 4.36 doublings away; 99% of the scenarios have another within 2.00

shape
  batch 8, width 4,096, heads 16
  so batch x width 32,768

launches PLAIN_B64_W4
  plain: block 64, waves 4

time
  315 us predicted, 80% range 268 to 371, from 16 scenarios
  1.28x the best config's time, 80% range 1.15 to 1.42
  no measurement vouches for these ranges out here

why
  question         here   answer   kind
  ────────────────────────────────────────────────────────
  heads up to 1?     16   no       guard: only as measured
  heads up to 8?     16   no       guard: only as measured
  so a guard launches the fallback for heads over 8

runners-up, by their time over the launched config's
  config          ratio      80% range    us   both timed near
  ────────────────────────────────────────────────────────────
  PLAIN_B128_W8   0.90x   0.53 to 1.52   284          16 of 16
  PLAIN_B16_W2    1.42x   0.86 to 2.35   449          16 of 16

nearest measured scenarios
  s016, 4.36 doublings away
    there width 512, heads 8
    127 us, 1.25x the 102 us of PLAIN_B128_W8
  s024, 4.36 doublings away
    there batch 64, width 512, heads 8
    the launched config was not timed; best 675 us with PLAIN_B128_W8
"""


def test_a_shape_outside_is_told_loudly(project: Path) -> None:
    assert _explained(project, "rows=8", "columns=4_096", "heads=16") == OUTSIDE.strip()


ASSUMED = """
scale on nvidia_h100
  module generated/scale/nvidia_h100.py
  table tables/h100, 32 scenarios on NVIDIA H100 80GB HBM3

shape
  batch 6, width 8, heads 2
  so batch x width 48
  not given, taken from scenario s011: width 8, heads 2

launches PLAIN_B16_W2
  plain: block 16, waves 2

time
  9.83 us predicted, 80% range 8.82 to 11.0, from 32 scenarios
  1.00x the best config's time, 80% range 1.00 to 1.03

why
  question                   here   answer   kind
  ──────────────────────────────────────────────────────────────────
  heads up to 1?                2   no       guard: only as measured
  heads up to 8?                2   yes      guard: only as measured
  batch x width up to 128?     48   yes      fitted
  so this leaf serves small, heads 2 to 8

runners-up, by their time over the launched config's
  config          ratio      80% range     us   both timed near
  ─────────────────────────────────────────────────────────────
  PLAIN_B64_W4    1.55x   1.42 to 1.70   15.2          16 of 32
  PLAIN_B128_W8   3.27x   2.81 to 3.80   32.1          32 of 32

nearest measured scenarios
  s011, 0.59 doublings away
    there batch 8
    10.6 us, the best
  s012, 2.08 doublings away
    there batch 8, heads 8
    10.6 us, the best
"""


def test_what_was_not_given_comes_from_one_scenario(project: Path) -> None:
    assert _explained(project, "rows=6") == ASSUMED.strip()


WINNERS = """
scale on nvidia_h100
  module generated/scale/nvidia_h100.py
  table tables/h100, 32 scenarios on NVIDIA H100 80GB HBM3

shape
  batch 8, width 32, heads 2
  so batch x width 256

launches PLAIN_B128_W8
  plain: block 128, waves 8

time
  not known: the table holds only the winner of each scenario

why
  question                   here   answer   kind
  ──────────────────────────────────────────────────────────────────
  heads up to 1?                2   no       guard: only as measured
  heads up to 8?                2   yes      guard: only as measured
  batch x width up to 128?    256   no       fitted
  so this leaf serves heads 2 to 8, batch x width over 128

nearest measured scenarios
  s013, 1.41 doublings away
    there width 64
    won by the launched config
  s014, 2.45 doublings away
    there width 64, heads 8
    won by the launched config
  the launched config won 20 of the 32 nearest scenarios
"""


def test_a_table_of_winners_knows_no_times(tmp_path: Path) -> None:
    write_winners(tmp_path / "tables/h100", shapes=SHAPES, times=winners)
    path = write_spec(tmp_path, spec(**SECTIONS))
    assert build(path) == 0
    assert _explained(path, "rows=8", "columns=32", "heads=2") == WINNERS.strip()


def test_colours_are_for_terminals_only(project: Path) -> None:
    found = explain(read_tuned_module(project, KERNEL, DEVICE), {"rows": 4096}, 2)
    for terminal in (False, True):
        out = io.StringIO()
        show_explanation(
            found, Console(file=out, force_terminal=terminal, width=100, markup=False, highlight=False)
        )
        assert ("\x1b[1;31mOUTSIDE" in out.getvalue()) == terminal
