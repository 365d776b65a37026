"""The table folder of a tuning run: round trips through treegen's reader, and going on."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tablefolder_builders import DATE, HEADER, SCENARIOS, VISITS, contents, filled, read_back, start

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import Failure, Visit
from attn_kernels.tuning.table.folder import read_folder
from attn_kernels.tuning.table.rows import time_text


def test_treegen_reads_what_is_written(tmp_path: Path) -> None:
    tablefile = pytest.importorskip("treegen.read.table_file")
    folder = filled(tmp_path / "tables" / "h100")
    table = tablefile.read_table(folder)
    assert (table.kernel, table.device_name) == (HEADER.kernel, HEADER.device["name"])
    assert table.feature_names == HEADER.features
    assert [(c.id, c.variant, dict(c.parameters)) for c in table.configs] == [
        (c.id, c.variant, dict(c.parameters)) for c in HEADER.configs
    ]
    assert table.scenarios == ("decode-0", "prefill-0")
    assert table.times.shape == (3, 3)
    assert [str(value) for value in table.times.flatten()] == (
        ["706.34", "inf", "17.8", "5.1234", "nan", "nan", "5.1", "nan", "inf"]
    )
    provenance = table.provenance
    assert (provenance["date"], provenance["torch"], provenance["device"]) == (DATE, "2.11", HEADER.device)
    assert "summary" not in provenance


def test_treegen_reads_the_summary(tmp_path: Path) -> None:
    tablefile = pytest.importorskip("treegen.read.table_file")
    folder = filled(tmp_path / "table")
    summary: Mapping[str, object] = {
        "seconds": 12.5,
        "scenarios": 2,
        "rows": 3,
        "cells_measured": 4,
        "cells_possible": 9,
        "cells_failed": 2,
        "noise_median": 0.006,
        "noise_p90": 0.019,
        "noise_p99": 0.046,
        "finished": False,
        "failures": {'wrong: "nan"\nat [0]': 1, "long: " + 200 * "x": 1, "\udc80 1": 2},
    }
    with start(folder) as table:
        table.summarise({"finished": True})
        table.summarise(summary)
        for key, value in (("mean", 1), ("noise_p90", float("nan")), ("seconds", 0), ("rows", -1)):
            with pytest.raises(TuningError, match=key):
                table.summarise({key: value})
    assert tablefile.read_table(folder).provenance["summary"] == summary
    assert read_folder(folder).header == HEADER
    assert sorted(contents(folder)) == ["failures.csv", "run.yaml", "scenarios.csv", "times.csv"]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = filled(tmp_path / "table", *VISITS[:2])
    with start(folder, date="2027-07-07") as table:
        assert read_back(table.visits) == read_back(VISITS[:2])
        with pytest.raises(TuningError, match="decode-0 repeat 1 is there already"):
            table.append(VISITS[1])
        table.append(VISITS[2])
    recorded = read_folder(folder)
    assert (recorded.header, recorded.date) == (HEADER, DATE)
    assert recorded.scenarios == dict(SCENARIOS)
    reason = 'wrong: "nan" at [0, 1]'
    last = Visit("decode-0", 2, {"M16": 5.1, "M64": Failure(reason)})
    assert read_back(recorded.visits) == read_back((*VISITS[:2], last))


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    assert read_back(read_folder(filled(tmp_path)).visits[:2]) == read_back(VISITS[:2])


def test_visits_without_any_time_have_no_row_but_are_remembered(tmp_path: Path) -> None:
    failed = Visit("mixed-0", 1, {"M16": Failure("a, b"), "M64": Failure("")})
    folder = filled(tmp_path / "table", failed, VISITS[0])
    assert (folder / "times.csv").read_text().count("\n") == 2
    with start(folder) as table:
        assert read_back(table.visits) == read_back((VISITS[0], failed))
        with pytest.raises(TuningError, match="already"):
            table.append(failed)


@given(st.floats(1e-3, 9.9e11))
def test_times_keep_five_digits(microseconds: float) -> None:
    text = time_text(microseconds)
    assert float(text) == pytest.approx(microseconds, rel=5.01e-5)
    assert float(text) == float(f"{microseconds:.4e}")
    assert not set(text) - set("0123456789.")
    assert "." not in text or not text.endswith(("0", "."))


def test_times_read_well() -> None:
    shown = [time_text(t) for t in (706.3391, 17.8123, 5.12341, 0.001, 12.0, 123456.7, 100000.0, 99999.6)]
    assert shown == ["706.34", "17.812", "5.1234", "0.001", "12", "123460", "100000", "100000"]
