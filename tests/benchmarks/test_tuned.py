"""What `benchmarks.trees.tuned` computes from times, and that the pages state what it prints."""

import re
from pathlib import Path

import numpy as np
import pytest

from attn_kernels.tuning.scenarios.serving import SETS
from benchmarks.trees import tuned

REPOSITORY = Path(__file__).parents[2]
NAN = np.nan
SPARSE = np.array([[10.0, 20.0, NAN], [NAN, 11.0, 10.0], [NAN, 11.0, 10.0]])


def test_figures_count_untimed_choices_and_leave_them_out() -> None:
    assert tuned.cells(np.array([1.0, NAN, 4.0])).split() == ["2.000", "3.850", "4.00", "1"]
    assert tuned.cells(np.array([NAN])).split() == ["-", "-", "-", "1"]


def test_a_config_timed_only_where_it_suits_is_not_the_single_best() -> None:
    assert tuned.single_best(SPARSE) == 1  # 2 * 1.1 * 1.1 = 2.42; the others 16 and 4


def test_two_tables_are_compared_by_the_cells_of_both() -> None:
    first = np.array([[10.0, 11.0, 5.0], [10.0, 40.0, NAN], [NAN, 11.0, 10.0]])
    second = np.array([[12.0, 11.0, NAN], [10.5, 30.0, NAN], [1.0, NAN, NAN]])
    on_second, on_first, differ, scenarios = tuned.best_of_each(first, second)
    assert (differ, scenarios) == (1, 2)  # the third config has no time in the second table
    assert on_second == pytest.approx([12 / 11, 1]) and on_first == pytest.approx([11 / 10, 1])


def test_the_pages_state_the_figures_of_the_committed_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(REPOSITORY)
    assert tuned.main(["--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"tuned_nvidia_h100.png", "tuned_nvidia_h200.png"}
    lines = [line for line in printed.splitlines() if line.startswith("all ")]
    found = [[float(line.split()[place]) for place in (3, 4, 5, 8, 9, 10)] for line in lines]
    for page, rows in (("README.md", found[1::2]), ("docs/tuning.md", found)):  # those of other models, all
        stated = re.findall(
            r"^\| \**H[12]00.* \| \**(.*?, .*?, .*?) \| (.*?, .*?, .*?) \|$",
            (REPOSITORY / page).read_text(),
            re.M,
        )
        figures = [[*map(float, ", ".join(row).replace("*", "").split(", "))] for row in stated]
        assert figures[: len(rows)] == [pytest.approx(row, abs=0.006) for row in rows]
    best_on_other = re.findall(r"^best of .* on \S+ +(\S+)", printed, re.M)[2:]  # of other models
    stated = re.search(
        r"best configs take (\S+) of the best.*\n.*take (\S+) on", (REPOSITORY / page).read_text()
    )
    assert stated and best_on_other == [*stated.groups()]
    ids = (scenario.name for name in SETS for scenario in SETS[name](0))
    assert {id.split("-")[1].split("_")[0] for id in ids} == set(tuned.KINDS)
