"""What a report looks like: the page, the terminal and the JSON, of a report made by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from treegen.core.table import Cells
from treegen.crossval.heldout import Quality
from treegen.review.eval.assess import Assessment, EvalReport, OtherTable
from treegen.review.eval.command import figures_text
from treegen.review.eval.curves import CurvePoint, Extrapolation, LearningCurve, PowerLaw, TargetStatus
from treegen.review.eval.page import page
from treegen.review.eval.stability import (
    BootstrapDifferences,
    ChoiceDifference,
    RefitDifference,
    RefitDifferences,
)
from treegen.review.eval.terminal import show_report
from treegen.review.eval.ways import FOREST, OURS, SINGLE, WayScore
from treegen.review.eval.wording import curves_grid
from treegen.review.tables import NoiseFloor, TableSource

DIGESTS = {"run.yaml": "aa", "scenarios.csv": "bb", "times.csv": "cc"}
TIMES = TableSource("tables/h100", DIGESTS, Cells.MEASURED, 16, 2, 3, "in 2 constraints forbid every config")
AGAIN = TableSource("tables/h100_again", DIGESTS, Cells.MEASURED, 16, 0, 3)
WON = TableSource("tables/mi300x", DIGESTS, Cells.WINNERS, 9, 0, 6)


def _quality(slowdown: float, unmeasured: int = 0, failed: int = 0) -> Quality:
    return Quality(32, 0.5, slowdown, slowdown - 0.01, 1.5, 2.25, "s|7", unmeasured, failed)


def _share(agreement: float) -> Quality:
    return Quality(18, agreement, None, None, None, None, None, 0, 0)


def _extrapolation(reach: TargetStatus, scenarios: int | None = None) -> Extrapolation:
    return Extrapolation(reach, scenarios, PowerLaw(2.0, 0.25))


def _curve(way: str, first: float, last: float, extrapolation: Extrapolation) -> LearningCurve:
    return LearningCurve(way, (CurvePoint(6, first, 0.25), CurvePoint(12.5, last, 0.5)), extrapolation)


def _differ(changed: float, slower: float) -> ChoiceDifference:
    return ChoiceDifference(16, changed, slower, slower + 0.001)


MEASURED = Assessment(
    "scale",
    "nvidia_h100",
    TIMES,
    (
        WayScore(OURS, _quality(1.0625, unmeasured=3, failed=1), 0.875, 7.5, 3.0),
        WayScore(SINGLE, _quality(1.5), 0.0, 1.0, 1.0),
        WayScore(FOREST, _quality(1.03125), None, None, 3.0),
    ),
    NoiseFloor(16, 1.00234, 0.125),
    (
        _curve(OURS, 1.25, 1.0625, _extrapolation(TargetStatus.NEVER)),
        _curve(FOREST, 1.125, 1.03125, _extrapolation(TargetStatus.MORE, 1234)),
    ),
    BootstrapDifferences(
        (ChoiceDifference(16, 0.0, 1.0, 1.0), ChoiceDifference(16, 0.125, 1.001, 1.002)),
        (ChoiceDifference(16, 0.25, 1.01, 1.02), ChoiceDifference(16, 0.5, 1.03, 1.04)),
    ),
    (
        OtherTable(
            AGAIN,
            (WayScore(OURS, _quality(1.04), 0.9, 8.0, 3.0), WayScore(SINGLE, _quality(1.5), 0.0, 1.0, 1.0)),
            RefitDifferences(
                RefitDifference(_differ(0.0625, 1.006), _differ(0.0625, 1.008)),
                RefitDifference(_differ(0.125, 1.002), _differ(0.125, 1.004)),
            ),
        ),
    ),
)
WINNERS = Assessment(
    "scale",
    "amd_mi300x",
    WON,
    (WayScore(OURS, _share(0.9444), None, 4.0, 4.0), WayScore(SINGLE, _share(0.5), None, 1.0, 1.0)),
    None,
    (),
    BootstrapDifferences((ChoiceDifference(9, 0.0, None, None),), (ChoiceDifference(9, 0.125, None, None),)),
    (),
)
REPORT = EvalReport("treegen eval --folds 4 --repeats 2", {"treegen": "0.1.0"}, 4, 2, (MEASURED,))

GOLDEN = Path(__file__).parent / "golden"


def _printed(report: EvalReport) -> str:
    out = io.StringIO()
    show_report(report, Console(file=out, width=110, highlight=False, markup=False, emoji=False))
    return out.getvalue()


def test_the_page() -> None:
    assert page(REPORT) == (GOLDEN / "eval_page.md.txt").read_text()


def test_the_page_of_a_table_of_winners() -> None:
    text = page(replace(REPORT, repeats=1, assessments=(WINNERS,)))
    assert text == (GOLDEN / "eval_winners.md.txt").read_text()


def test_several_tables_are_summed_up_first() -> None:
    winners = replace(WINNERS, rows=(*WINNERS.rows, WayScore(FOREST, _share(1.0), None, None, 4.0)))
    lines = page(replace(REPORT, assessments=(MEASURED, winners))).splitlines()
    first = lines.index("|  | scenarios | treegen | single best config | forest (no tree: a ceiling) |")
    assert lines[first + 2 : first + 4] == [
        "| scale on nvidia_h100 | 16 | 1.062 | 1.500 | 1.031 |",
        "| scale on amd_mi300x | 9 | 94.4% won | 50.0% won | 100.0% won |",
    ]
    assert first < lines.index("## How to read the tables")


def test_helion_is_named_where_it_is_installed() -> None:
    text = page(replace(REPORT, versions={"treegen": "0.1.0", "helion": "1.5.1"}))
    assert "(treegen 0.1.0, helion 1.5.1)" in text and "not installed" not in text


def test_every_table_of_the_page_is_whole() -> None:
    """GitHub shows a row with another number of cells as text."""
    rows = [line.replace("\\|", "") for line in page(REPORT).splitlines() if line.startswith("|")]
    widths = [row.count("|") for row in rows]
    starts = [i for i, row in enumerate(rows) if row.startswith("| --- ")]
    assert len(starts) == 4
    for i, start in enumerate(starts):
        end = starts[i + 1] - 1 if i + 1 < len(starts) else len(rows)
        assert len(set(widths[start - 1 : end])) == 1


def test_the_terminal() -> None:
    printed = "".join(f"{line.rstrip()}\n" for line in _printed(REPORT).splitlines())
    assert printed == (GOLDEN / "eval_terminal.txt").read_text()
    assert max(map(len, printed.splitlines())) <= 110


def test_the_terminal_on_a_table_of_winners() -> None:
    printed = _printed(replace(REPORT, assessments=(WINNERS,)))
    assert "94.4%" in printed and "won: " in printed
    assert "geomean" not in printed and "cost" not in printed


@pytest.mark.parametrize(
    ("reach", "scenarios", "shown"),
    [
        (TargetStatus.THERE, None, "there already"),
        (TargetStatus.TOO_FEW, None, "too few points"),
        (TargetStatus.MORE, 9, "about 9"),
        (TargetStatus.MORE, 95, "about 95"),
        (TargetStatus.MORE, 349, "about 350"),
        (TargetStatus.MORE, 99_999, "about 100,000"),
    ],
)
def test_extrapolations(reach: TargetStatus, scenarios: int | None, shown: str) -> None:
    curve = LearningCurve(OURS, (CurvePoint(6, 1.25, 0.25),), _extrapolation(reach, scenarios))
    assert curves_grid([curve]).rows == (("treegen", "1.250", shown),)


def test_json_holds_every_figure() -> None:
    content = json.loads(figures_text(REPORT))
    assert (content["format"], content["folds"], content["repeats"]) == (1, 4, 2)
    (assessment,) = content["assessments"]
    assert assessment["source"]["sha256"] == DIGESTS and assessment["source"]["cells"] == "measured"
    ours = assessment["rows"][0]
    assert (ours["way"], ours["gap_closed"], ours["leaves"]) == ("ours", 0.875, 7.5)
    assert ours["quality"] == {
        **{"choices": 32, "agreement": 0.5, "slowdown": 1.0625, "timed_slowdown": 1.0525},
        **{"percentile95": 1.5, "worst": 2.25, "worst_scenario": "s|7", "unmeasured": 3, "failed": 1},
    }
    assert assessment["noise"] == {"scenarios": 16, "slowdown": 1.00234, "changed": 0.125}
    forest = assessment["curves"][1]
    assert forest["points"][1] == {"scenarios": 12.5, "slowdown": 1.03125, "agreement": 0.5}
    assert forest["extrapolation"] == {
        "reach": "more scenarios",
        "scenarios": 1234,
        "law": {"scale": 2.0, "exponent": 0.25},
    }
    assert [sample["changed"] for sample in assessment["bootstrap"]["build"]] == [0.0, 0.125]
    assert [sample["changed"] for sample in assessment["bootstrap"]["fresh"]] == [0.25, 0.5]
    assert assessment["against"][0]["refits"]["fresh"]["there"]["slower"] == 1.004


def test_json_does_not_depend_on_the_last_bits_of_a_logarithm() -> None:
    floors = NoiseFloor(16, 1.00234, 0.125), NoiseFloor(16, 1.00234 + 1e-15, 0.125)
    one, other = (figures_text(replace(REPORT, assessments=(replace(MEASURED, noise=f),))) for f in floors)
    assert one == other
