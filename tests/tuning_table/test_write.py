"""Tables that are written can be read back, and a run goes on where it stopped."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_builders import RUN, VISITS, append, contents, filled, read_back, start

import tuning_table
from tuning_table import Failure, TableError, read_run
from tuning_table.table import Visit
from tuning_table.writer import time_text

REPOSITORY = Path(__file__).parents[2]
SUMMARY = {
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


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = tuning_table.read(filled(tmp_path / "tables" / "h100"))
    header = found.header
    assert (header.kernel, header.device_name) == (RUN["kernel"], RUN["device"]["name"])
    assert header.features == RUN["features"]
    assert [{"id": c.id, "variant": c.variant, **c.parameters} for c in header.configs] == [*RUN["configs"]]
    assert dict(found.scenarios) == RUN["scenarios"]
    assert [(row.scenario, row.repeat, [str(time) for time in row.times]) for row in found.rows] == [
        ("prefill-0", 1, ["706.34", "inf", "17.8"]),
        ("decode-0", 1, ["5.1234", "nan", "nan"]),
        ("decode-0", 2, ["5.1", "nan", "inf"]),
    ]
    assert header.seconds == 0.0


def test_the_bytes_of_a_table(tmp_path: Path) -> None:
    """Earlier versions wrote the same, so that their runs can go on."""
    found = contents(filled(tmp_path))
    assert found["run.yaml"].decode() == (
        "format: 1\nkernel: attention\n"
        "device: {name: NVIDIA H100 80GB HBM3, arch: sm_90, multiprocessors: 132, cache_bytes: 52428800}\n"
        "cells: measured\ntiming: 'graph replay, cold L2: median of 3'\ndriver: '550.54'\ntorch: '2.11'\n"
        f"triton: 3.6.0\nsource_hash: '{'0' * 64}'\n"
        "date: '2026-01-02'\nscenario_set: serving (digest 12ab)\nseed: 0\nstrategy: full\n"
        "features: [num_seqs, max_seq_len]\nconfigs:\n"
        "- {id: M16, variant: qblock, block_m: 16, num_warps: 4}\n"
        "- {id: M32, variant: qblock, block_m: 32, num_warps: 4}\n"
        "- {id: M64, variant: qblock, block_m: 64, num_warps: 4}\n"
    )
    assert found["scenarios.csv"] == (
        b"scenario,num_seqs,max_seq_len\ndecode-0,1,2048\nprefill-0,512,512\nmixed-0,7,-1\n"
    )
    assert found["times.csv"] == (
        b"scenario,repeat,M16,M32,M64\nprefill-0,1,706.34,inf,17.8\ndecode-0,1,5.1234,,\ndecode-0,2,5.1,,inf\n"
    )
    assert found["failures.csv"] == (
        b'scenario,repeat,config,reason\nprefill-0,1,M32,"OutOfResources: shared memory, 300000"\n'
        b'decode-0,2,M64,"wrong: ""nan"" at [0, 1]"\n'
    )


def test_the_summary_is_replaced_and_checked(tmp_path: Path) -> None:
    before = read_run(filled(tmp_path))
    with start(tmp_path) as table:
        table.summarise({"finished": True})
        table.summarise(SUMMARY)
        for key, value in (("mean", 1), ("noise_p90", float("nan")), ("seconds", 0), ("rows", -1)):
            with pytest.raises(TableError, match=key):
                table.summarise({key: value})
    after = read_run(tmp_path)
    assert after.header.provenance == {**before.header.provenance, "summary": SUMMARY}
    assert after.header.seconds == 12.5 and after.visits == before.visits
    assert sorted(contents(tmp_path)) == ["failures.csv", "run.yaml", "scenarios.csv", "times.csv"]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = filled(tmp_path / "table", *VISITS[:2])
    header = read_run(folder).header
    with start(folder, date="2027-07-07") as table:
        assert read_back(table.visits) == read_back(VISITS[:2])
        with pytest.raises(TableError, match="decode-0 repeat 1 is there already"):
            append(table, VISITS[1])
        table.append("decode-0", VISITS[2].cells)  # the second repeat, as nothing else is said
    recorded = read_run(folder)
    assert recorded.header == header and header.provenance["date"] == RUN["date"]
    last = Visit("decode-0", 2, {"M16": 5.1, "M64": Failure('wrong: "nan" at [0, 1]')})
    assert read_back(recorded.visits) == read_back((*VISITS[:2], last))


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    assert read_back(read_run(filled(tmp_path)).visits[:2]) == read_back(VISITS[:2])


def test_visits_without_any_time_have_no_row_but_are_remembered(tmp_path: Path) -> None:
    failed = Visit("mixed-0", 1, {"M16": Failure("a, b"), "M64": Failure("")})
    folder = filled(tmp_path / "table", failed, VISITS[0])
    assert (folder / "times.csv").read_text().count("\n") == 2
    with start(folder) as table:
        assert read_back(table.visits) == read_back((VISITS[0], failed))
        with pytest.raises(TableError, match="already"):
            append(table, failed)


def test_a_table_of_winners_takes_one_time_a_row(tmp_path: Path) -> None:
    with start(tmp_path, cells="winners") as table:
        table.append("decode-0", {"M16": 3.0})
        for times in ({"M16": 3.0, "M32": 4.0}, {"M16": Failure("no")}):
            with pytest.raises(TableError, match="decode-0 repeat 2: a table of winners has exactly one"):
                table.append("decode-0", times)
    assert len(tuning_table.read(tmp_path).rows) == 1


@given(st.floats(1e-3, 9.9e11))
def test_times_keep_five_digits(microseconds: float) -> None:
    text = time_text(Path(), microseconds)
    assert float(text) == pytest.approx(microseconds, rel=5.01e-5)
    assert float(text) == float(f"{microseconds:.4e}")
    assert not set(text) - set("0123456789.")
    assert "." not in text or not text.endswith(("0", "."))


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/tables.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/tables.md", "exec"), {})
    (run,) = tmp_path.rglob("run.yaml")
    found = tuning_table.read(run.parent)
    assert run.parent.relative_to(tmp_path).parts[:2] == ("tuning_data", found.header.kernel)
    assert found.rows
