"""What a report looks like: the page, the terminal and the JSON, of a report made by hand."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from treegen.core.table import Cells
from treegen.crossval.heldout import Quality
from treegen.review.eval.compare import FOREST, OURS, SINGLE, Row
from treegen.review.eval.curves import Curve, Point
from treegen.review.eval.figures import figures_text
from treegen.review.eval.noise import Noise
from treegen.review.eval.page import page
from treegen.review.eval.powerlaw import Extrapolation, PowerLaw, Reach
from treegen.review.eval.results import Against, Assessment, Report, Source
from treegen.review.eval.show import show_report
from treegen.review.eval.stability import Bootstrap, Difference, Refit, Refits
from treegen.review.eval.wording import curves_grid

DIGESTS = {"run.yaml": "aa", "scenarios.csv": "bb", "times.csv": "cc"}
TIMES = Source("tables/h100", DIGESTS, Cells.MEASURED, 16, 2, 3)
AGAIN = Source("tables/h100_again", DIGESTS, Cells.MEASURED, 16, 0, 3)
WON = Source("tables/mi300x", DIGESTS, Cells.WINNERS, 9, 0, 6)


def _quality(slowdown: float, unmeasured: int = 0, failed: int = 0) -> Quality:
    return Quality(32, 0.5, slowdown, slowdown - 0.01, 1.5, 2.25, "s|7", unmeasured, failed)


def _share(agreement: float) -> Quality:
    return Quality(18, agreement, None, None, None, None, None, 0, 0)


def _extrapolation(reach: Reach, scenarios: int | None = None) -> Extrapolation:
    return Extrapolation(reach, scenarios, PowerLaw(2.0, 0.25))


MEASURED = Assessment(
    "scale",
    "nvidia_h100",
    TIMES,
    (
        Row(OURS, _quality(1.0625, unmeasured=3, failed=1), 0.875, 7.5, 3.0),
        Row(SINGLE, _quality(1.5), 0.0, 1.0, 1.0),
        Row(FOREST, _quality(1.03125), None, None, 3.0),
    ),
    Noise(16, 1.00234, 0.125),
    (
        Curve(OURS, (Point(6, 1.25, 0.25), Point(12.5, 1.0625, 0.5)), _extrapolation(Reach.NEVER)),
        Curve(FOREST, (Point(6, 1.125, 0.5), Point(12.5, 1.03125, 0.5)), _extrapolation(Reach.MORE, 1234)),
    ),
    Bootstrap(
        (Difference(16, 0.0, 1.0, 1.0), Difference(16, 0.125, 1.001, 1.002)),
        (Difference(16, 0.25, 1.01, 1.02), Difference(16, 0.5, 1.03, 1.04)),
    ),
    (
        Against(
            AGAIN,
            (Row(OURS, _quality(1.04), 0.9, 8.0, 3.0), Row(SINGLE, _quality(1.5), 0.0, 1.0, 1.0)),
            Refits(
                Refit(Difference(16, 0.0625, 1.006, 1.007), Difference(16, 0.0625, 1.008, 1.009)),
                Refit(Difference(16, 0.125, 1.002, 1.003), Difference(16, 0.125, 1.004, 1.005)),
            ),
        ),
    ),
)
WINNERS = Assessment(
    "scale",
    "amd_mi300x",
    WON,
    (Row(OURS, _share(0.9444), None, 4.0, 4.0), Row(SINGLE, _share(0.5), None, 1.0, 1.0)),
    None,
    (),
    Bootstrap((Difference(9, 0.0, None, None),), (Difference(9, 0.125, None, None),)),
    (),
)
REPORT = Report("treegen eval --folds 4 --repeats 2", {"treegen": "0.1.0"}, 4, 2, (MEASURED,))

GOLDEN = """\
# How good the trees are on scenarios they have not seen

Made from measured tables, without a GPU (treegen 0.1.0), by

    treegen eval --folds 4 --repeats 2

## How to read the tables

All ways learn from the same scenarios, ask the same features and are judged on the same folds. \
The peers' trees have as many leaves as treegen's in that fold at most, and its limit of depth; \
Helion's keeps its own defaults.

- A slowdown is the time of the chosen config over the best time measured there; 1 is the oracle.
- **geomean**: geometric mean over all choices. A choice that has no time is charged as twice the best.
- **timed**: geometric mean over the choices that have a time.
- **95%**: 95% of the choices are no slower than this, those without a time charged alike.
- **worst**: the slowest choice that has a time, and its scenario.
- **gap closed**: 1 - log(geomean) / log(geomean of the single best config); 100% is the oracle.
- **unmeasured**: choices that were not measured there.
- **failed**: choices that failed there or break a constraint; they have no time, either.
- **leaves**, **configs**: how many a way's rules have and launch, on average over the folds.

Helion is not installed here, so its tree is left out.

## scale on nvidia_h100

`tables/h100`: 16 scenarios (2 more left out) x 3 configs, measured; 4 folds, 2 shuffles: \
32 held-out choices a row.

| chosen by | geomean | timed | 95% | worst | gap closed | leaves | configs | unmeasured | failed |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| treegen | 1.062 | 1.052 | 1.50 | 2.25 `s\\|7` | 88% | 8 | 3 | 3 | 1 |
| single best config | 1.500 | 1.490 | 1.50 | 2.25 `s\\|7` | 0% | 1 | 1 | 0 | 0 |
| forest (no tree: a ceiling) | 1.031 | 1.021 | 1.50 | 2.25 `s\\|7` | - | - | 3 | 0 | 0 |

Noise floor 1.0023: one repeat's fastest config, judged by the other repeats (16 scenarios); 12% change.

### Learning curves

Held-out geomean by the number of scenarios that were learnt from. \
The last column is an extrapolation of a power law through the points, not a measurement.

| trained on | 6 | 12 | scenarios for 1.015 |
| --- | ---: | ---: | ---: |
| treegen | 1.250 | 1.062 | not by more scenarios alone |
| forest (no tree: a ceiling) | 1.125 | 1.031 | about 1,200 |

### Stability

The tree is built again from other data and set against the tree of the whole table: over it, as \
`treegen build` keeps of yesterday's tree what is as good, and fresh. \
**differ**: the share of scenarios in which the two launch different configs.
**cost**: the time of the tree that was not fitted to the judging table over that of the one that was, \
geometric mean. **apart**: the time of the slower choice over that of the faster.

| refitted to | scenarios | differ | cost | apart |
| --- | ---: | ---: | ---: | ---: |
| 2 bootstrap samples: build (keeps yesterday's tree) | 16 | 6% (0% to 12%) | 1.000 | 1.001 |
| 2 bootstrap samples: fresh | 16 | 38% (25% to 50%) | 1.020 | 1.030 |
| h100_again, judged by this table: build | 16 | 6% | 1.006 | 1.007 |
| h100_again, judged by that table: build | 16 | 6% | 1.008 | 1.009 |
| h100_again, judged by this table: fresh | 16 | 12% | 1.002 | 1.003 |
| h100_again, judged by that table: fresh | 16 | 12% | 1.004 | 1.005 |

### Judged by `tables/h100_again`

All ways learnt from the whole table. 16 scenarios x 3 configs, 16 of them learnt from: \
those are not held out.

| chosen by | geomean | timed | 95% | worst | gap closed | leaves | configs | unmeasured | failed |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| treegen | 1.040 | 1.030 | 1.50 | 2.25 `s\\|7` | 90% | 8 | 3 | 0 | 0 |
| single best config | 1.500 | 1.490 | 1.50 | 2.25 `s\\|7` | 0% | 1 | 1 | 0 | 0 |
"""

GOLDEN_WINNERS = """\
## scale on amd_mi300x

`tables/mi300x`: 9 scenarios x 6 configs, winners only; 4 folds, 1 shuffle: 9 held-out choices a row.

| chosen by | won | leaves | configs |
| --- | ---: | ---: | ---: |
| treegen | 94.4% | 4 | 4 |
| single best config | 50.0% | 1 | 1 |

### Stability

The tree is built again from other data and set against the tree of the whole table: over it, as \
`treegen build` keeps of yesterday's tree what is as good, and fresh. \
**differ**: the share of scenarios in which the two launch different configs.

| refitted to | scenarios | differ |
| --- | ---: | ---: |
| 1 bootstrap samples: build (keeps yesterday's tree) | 9 | 0% (0% to 0%) |
| 1 bootstrap samples: fresh | 9 | 12% (12% to 12%) |
"""

GOLDEN_TERMINAL = """\
scale on nvidia_h100
16 scenarios (2 more left out) x 3 configs, measured; 4 folds, 2 shuffles: 32 held-out choices a row.

chosen by                    geomean  timed   95%  worst  gap closed  leaves  configs  unmeasured  failed
─────────────────────────────────────────────────────────────────────────────────────────────────────────
treegen                        1.062  1.052  1.50   2.25         88%       8        3           3       1
single best config             1.500  1.490  1.50   2.25          0%       1        1           0       0
forest (no tree: a ceiling)    1.031  1.021  1.50   2.25           -       -        3           0       0

treegen's worst: 2.25 in s|7.
Noise floor 1.0023: one repeat's fastest config, judged by the other repeats (16 scenarios); 12% change.

trained on                       6     12          scenarios for 1.015
──────────────────────────────────────────────────────────────────────
treegen                      1.250  1.062  not by more scenarios alone
forest (no tree: a ceiling)  1.125  1.031                  about 1,200

refitted to                                          scenarios            differ   cost  apart
──────────────────────────────────────────────────────────────────────────────────────────────
2 bootstrap samples: build (keeps yesterday's tree)         16    6% (0% to 12%)  1.000  1.001
2 bootstrap samples: fresh                                  16  38% (25% to 50%)  1.020  1.030
h100_again, judged by this table: build                     16                6%  1.006  1.007
h100_again, judged by that table: build                     16                6%  1.008  1.009
h100_again, judged by this table: fresh                     16               12%  1.002  1.003
h100_again, judged by that table: fresh                     16               12%  1.004  1.005

judged by tables/h100_again
16 scenarios x 3 configs, 16 of them learnt from: those are not held out.
"""


def _printed(report: Report) -> str:
    out = io.StringIO()
    show_report(report, Console(file=out, width=110, highlight=False, markup=False, emoji=False))
    return out.getvalue()


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_page() -> None:
    assert page(REPORT) == GOLDEN


def test_the_page_of_a_table_of_winners() -> None:
    text = page(replace(REPORT, repeats=1, assessments=(WINNERS,)))
    assert text.endswith(GOLDEN_WINNERS)
    assert "- **won**" in text and "**geomean**" not in text and "slower" not in text.split("## scale")[1]


def test_several_tables_are_summed_up_first() -> None:
    winners = replace(WINNERS, rows=(*WINNERS.rows, Row(FOREST, _share(1.0), None, None, 4.0)))
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
    printed = _trimmed(_printed(REPORT))
    golden = _trimmed(GOLDEN_TERMINAL)
    assert printed[: len(golden)] == golden
    assert max(map(len, printed)) <= 110
    assert "Helion is not installed: its tree is left out." in printed


def test_the_terminal_on_a_table_of_winners() -> None:
    printed = _printed(replace(REPORT, assessments=(WINNERS,)))
    assert "94.4%" in printed and "won: " in printed
    assert "geomean" not in printed and "cost" not in printed and "extrapolates" not in printed


@pytest.mark.parametrize(
    ("reach", "scenarios", "told"),
    [
        (Reach.THERE, None, "there already"),
        (Reach.UNTIMED_PENALTY, None, "too few points"),
        (Reach.MORE, 9, "about 9"),
        (Reach.MORE, 95, "about 95"),
        (Reach.MORE, 349, "about 350"),
        (Reach.MORE, 99_999, "about 100,000"),
    ],
)
def test_extrapolations(reach: Reach, scenarios: int | None, told: str) -> None:
    curve = Curve(OURS, (Point(6, 1.25, 0.25),), _extrapolation(reach, scenarios))
    assert curves_grid([curve]).rows == (("treegen", "1.250", told),)


def test_json_holds_every_figure() -> None:
    content = json.loads(figures_text(REPORT))
    assert (content["format"], content["folds"], content["repeats"]) == (1, 4, 2)
    (assessment,) = content["assessments"]
    assert assessment["source"]["sha256"] == DIGESTS and assessment["source"]["cells"] == "measured"
    ours = assessment["rows"][0]
    assert (ours["way"], ours["gap_closed"], ours["leaves"]) == ("ours", 0.875, 7.5)
    assert ours["quality"] == {
        "choices": 32,
        "agreement": 0.5,
        "slowdown": 1.0625,
        "timed_slowdown": 1.0525,
        "percentile95": 1.5,
        "worst": 2.25,
        "worst_scenario": "s|7",
        "unmeasured": 3,
        "failed": 1,
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


@pytest.mark.parametrize("report", [REPORT, replace(REPORT, assessments=(MEASURED, WINNERS))])
def test_json_round_trip(report: Report) -> None:
    text = figures_text(report)
    assert json.dumps(json.loads(text), indent=1) + "\n" == text == figures_text(report)


def test_json_does_not_hang_on_the_last_bits_of_a_logarithm() -> None:
    noise = Noise(16, 1.00234, 0.125)
    nearby = Noise(16, 1.00234 + 1e-15, 0.125)
    texts = {
        figures_text(replace(REPORT, assessments=(replace(MEASURED, noise=n),))) for n in (noise, nearby)
    }
    assert len(texts) == 1
