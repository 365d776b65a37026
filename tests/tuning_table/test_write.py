"""Tables that are written can be read back, a run goes on where it stopped, and tables become one."""

import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_builders import RUN, VISITS, append, config, contents, filled, refusal, start
from treegen_strategies import examples

import tuning_table
from tuning_table import Failure, TableError, read_run
from tuning_table.merge import merge
from tuning_table.table import Visit
from tuning_table.writer import time_text

REPOSITORY = Path(__file__).parents[2]
M16, M32, M64 = RUN["configs"]
ROW = Visit("decode-0", 1, {"M16": 5.0})
SUMMARY = {
    "seconds": 12.5,
    "rows": 3,
    "noise_p99": 0.046,
    "finished": False,
    "failures": {'wrong: "nan"\nat [0]': 1, "long: " + 200 * "x": 1, "\udc80 1": 2},
}


def test_the_bytes_of_a_table(tmp_path):
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


def test_the_summary_is_replaced_and_nothing_else(tmp_path):
    before = read_run(filled(tmp_path))
    with start(tmp_path) as table:
        table.summarise({"finished": True})
        table.summarise(SUMMARY)
        for key, value in (("mean", 1), ("seconds", float("nan"))):
            with pytest.raises(TableError, match=key):
                table.summarise({key: value})
    after = read_run(tmp_path)
    assert after.header.provenance == {**before.header.provenance, "summary": SUMMARY}
    assert after.header.seconds == 12.5 and after.visits == before.visits
    assert sorted(contents(tmp_path)) == ["failures.csv", "run.yaml", "scenarios.csv", "times.csv"]


def test_a_table_of_failures_alone_is_begun_again_by_any_run(tmp_path):
    other = {"source_hash": "1" * 64, "configs": (config("M8"),), "features": ("num_seqs",)}
    scenarios = {"decode-1": (1,)}
    filled(tmp_path / "table", Visit("mixed-0", 1, {"M16": Failure("wrong")}))
    for folder in (tmp_path / "table", tmp_path / "fresh"):
        with start(folder, **other, scenarios=scenarios) as table:
            assert table.visits == ()
    assert contents(tmp_path / "table") == contents(tmp_path / "fresh")
    failed = Visit("mixed-0", 1, {"M16": Failure("a, b"), "M64": Failure("")})
    folder = filled(tmp_path / "failed", failed, VISITS[0])
    assert (folder / "times.csv").read_text().count("\n") == 2
    with start(folder) as table:
        assert table.visits == (VISITS[0], failed)  # they are remembered
        with pytest.raises(TableError, match="mixed-0"):
            append(table, failed)


def test_winners_have_one_time_a_row(tmp_path, monkeypatch):
    with start(tmp_path, cells="winners") as table:
        table.append("decode-0", {"M16": 3.0})
        for times in ({"M16": 3.0, "M32": 4.0}, {"M16": Failure("no")}):
            with pytest.raises(TableError, match="decode-0 repeat 2"):
                table.append("decode-0", times)
    assert len(tuning_table.read(tmp_path).visits) == 1
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "pyyaml" in refusal(tmp_path / "table")
    assert not (tmp_path / "table").exists()


@given(st.floats(1e-3, 9.9e11))
def test_times_keep_five_digits(microseconds):
    text = time_text(Path(), microseconds)
    assert float(text) == pytest.approx(microseconds, rel=5.01e-5)
    assert float(text) == float(f"{microseconds:.4e}")
    assert not set(text) - set("0123456789.")
    assert "." not in text or not text.endswith(("0", "."))


def test_the_example_of_the_docs(tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/tables.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/tables.md", "exec"), {})
    (run,) = tmp_path.rglob("run.yaml")
    found = tuning_table.read(run.parent)
    assert run.parent.relative_to(tmp_path).parts[:2] == ("tuning_data", found.header.kernel)
    assert found.visits


@pytest.mark.parametrize(("visit", "named"), [
    (Visit("other", 1, {"M16": 1.0}), "other"),
    (Visit("decode-0", 0, {"M16": 1.0}), "repeat 0"),
    (Visit("decode-0", 1_000_000, {"M16": 1.0}), "repeat 1000000"),
    (Visit("decode-0", 1, {"M128": 1.0}), "M128"),
    (Visit("decode-0", 1, {}), "decode-0"),
    *((Visit("decode-0", 1, {"M16": t, "M32": Failure("x")}), f"{t} us") for t in (0.0, 9e-4, 1e12)),
    *((Visit("decode-0", 1, {"M16": float(t)}), f"{float(t)} us") for t in ("inf", "nan", "-1")),
])  # fmt: skip
def test_rows_that_no_reader_would_take_are_not_written(tmp_path, visit, named):
    with start(tmp_path) as table:
        before = contents(tmp_path)
        with pytest.raises(TableError, match=re.escape(named)):
            append(table, visit)
        assert contents(tmp_path) == before


@pytest.mark.parametrize(("change", "named"), [
    ({"device": {**RUN["device"], "name": "x"}}, "device.name"),
    ({"device": {"name": RUN["device"]["name"]}}, "device.arch"),
    ({"kernel": "other"}, "kernel"),
    ({"timing": "events"}, "timing"),
    ({"seed": 1}, "seed"),
    ({"scenario_set": "serving (digest ff)"}, "scenario_set"),
    ({"features": ("num_seqs", "x")}, "features[1]"),
    ({"configs": (M16, M32, config("M128", block_m=128))}, "M64"),
    ({"configs": (config("M16", num_warps=8), M32, M64)}, "num_warps"),
    ({"configs": tuple({**known, "num_stages": 2} for known in (M16, M32, M64))}, "num_stages"),
])  # fmt: skip
def test_another_run_is_refused_by_its_difference(tmp_path, change, named):
    filled(tmp_path)
    with (tmp_path / "times.csv").open("a") as out:
        out.write("prefi")  # a row that was cut off stays, too
    line = refusal(tmp_path, **change)
    assert line.startswith(f"{tmp_path}: ") and f" {named} " in line


def test_an_imported_table_which_has_no_date_gets_more_configs(tmp_path):
    run = {key: RUN[key] for key in ("kernel", "device", "timing", "features", "scenarios")}
    for count in (1, 2, 2):
        configs = RUN["configs"][:count]
        with tuning_table.create(tmp_path, **run, configs=configs, origin={"tool": "another"}) as table:
            append(table, Visit("decode-0", 1 + len(table.visits), {configs[-1]["id"]: 5.0}))
    assert known_of(read_run(tmp_path).visits) == {
        ("decode-0", repeat): {name: 5.0} for repeat, name in enumerate(("M16", "M32", "M32"), start=1)
    }


CONFIGS = {name: config(name, block_m=int(name[1:])) for name in ("M16", "M32", "M64", "M128")}
SCENARIOS = {"decode-0": (1, 2048), "prefill-0": (512, 512), "mixed-0": (7, -1), "new-0": (3, 4)}
CELLS = st.sampled_from([0.5, 5.1234, 706.34, 1e6]) | st.sampled_from(["no", 'a, "b"', ""]).map(Failure)


def known_of(visits):
    return {(visit.scenario, visit.repeat): dict(visit.cells) for visit in visits}


@st.composite
def new_visits(draw, known, configs, scenarios):
    """One that the table lacks; of its cells, that of M16 is a time."""
    scenario = draw(st.sampled_from(scenarios))
    repeat = 1 + max((repeat for s, repeat in known if s == scenario), default=0)
    cells = draw(st.dictionaries(st.sampled_from(configs), CELLS))
    return Visit(scenario, repeat, {name: cells[name] for name in configs if name in cells} | {"M16": 2.5})


@examples(30, shrink=False)
@given(st.data())
def test_a_table_holds_what_runs_wrote(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("table")
    configs, scenarios, repeated = ["M16"], ["decode-0"], st.lists(st.just(None), max_size=3)
    with start(folder, configs=[CONFIGS["M16"]], scenarios={"decode-0": SCENARIOS["decode-0"]}) as table:
        append(table, ROW)
        table.summarise({"seconds": 60.0})
    known = known_of([ROW])
    for _ in range(data.draw(st.integers(1, 4))):
        previous, before = configs, {*configs}
        more = data.draw(st.sets(st.sampled_from([*CONFIGS])), "configs that come or go")
        kept = before | more if data.draw(st.booleans(), "they come") else {"M16", *before} - (more - {"M16"})
        configs = data.draw(st.permutations(sorted(kept)))
        scenarios = [*scenarios, *[*SCENARIOS][len(scenarios) :][: data.draw(st.integers(0, 1))]]
        run = {
            "configs": [CONFIGS[name] for name in configs],
            "scenarios": {name: SCENARIOS[name] for name in scenarios[::-1]},
        }
        known = {row: {c: cell for c, cell in cells.items() if c in kept} for row, cells in known.items()}
        with start(folder, **run, date="2027") as table:
            assert refusal(folder, **run).startswith(f"{folder}: ")  # two write at a time
            assert known_of(table.visits) == known
            assert [one.id for one in table.header.configs] == configs
            assert table.header.seconds == (60.0 if configs == previous else 0.0)
            for _ in data.draw(repeated):
                visit = data.draw(new_visits(known, configs, scenarios))
                append(table, visit)
                old, another = contents(folder), data.draw(new_visits(known, configs, scenarios))
                known[visit.scenario, visit.repeat] = dict(visit.cells)
                for rows, there in (([visit], visit), ([another, visit], visit), ([another] * 2, another)):
                    with pytest.raises(TableError, match=f"{there.scenario} repeat {there.repeat} "):
                        table.append_all(rows)
                    assert contents(folder) == old
                with pytest.raises(TableError, match=f"{visit.scenario} repeat {visit.repeat} "):
                    append(table, visit)
            table.summarise({"seconds": 60.0})
        found = read_run(folder)
        assert known_of(found.visits) == known and found.header.provenance["date"] == RUN["date"]
        if data.draw(st.booleans(), "killed"):
            old, visit = contents(folder), data.draw(new_visits(known, configs, scenarios))
            with start(folder, **run) as table:
                append(table, visit)
            new, cut = contents(folder), data.draw(st.integers(0, 200), "bytes that were written")
            for name in sorted({"failures.csv", "times.csv"} & new.keys()):  # reasons are written first
                size = len(old.get(name) or b"")
                added = len(new[name] or b"") - size - (name == "times.csv")
                os.truncate(folder / name, size + min(cut, added))
                cut = max(0, cut - added)
            assert known_of(read_run(folder).visits) == known
            with start(folder, **run) as table:
                assert known_of(table.visits) == known
                append(table, visit)
            assert contents(folder)["times.csv"] == new["times.csv"]
            assert read_run(folder).header == found.header
            known[visit.scenario, visit.repeat] = dict(visit.cells)


def test_a_run_goes_on_where_it_knows_other_constants(tmp_path):
    with start(filled(tmp_path)) as table:
        table.summarise({"seconds": 60.0})
    with start(tmp_path, constants=["max_seq_len"]) as table:
        assert table.header.constants == ("max_seq_len",) and table.header.seconds == 60.0
        assert len(table.visits) == len(VISITS)
    assert "constants" in refusal(tmp_path, constants=["seq_len"])
    line = refusal(tmp_path, scenarios={**RUN["scenarios"], "mixed-0": (8, -1)})
    assert line.startswith(f"{tmp_path}/scenarios.csv:4: ")


@pytest.mark.parametrize(("name", "old", "new", "named"), [
    ("failures.csv", "M32,", "", "failures.csv:2: "),
    ("failures.csv", "decode-0,2", "decode-0,02", "failures.csv:3: "),
    ("run.yaml", "torch: '2.11'", "torch: 2.11", " torch "),
])  # fmt: skip
def test_damage_is_refused(tmp_path, name, old, new, named):
    path = filled(tmp_path) / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert named in refusal(tmp_path)


@pytest.mark.parametrize("missing", ["times.csv", "scenarios.csv", "run.yaml"])
def test_rows_without_a_file_and_other_files_are_not_overwritten(tmp_path, missing):
    (filled(tmp_path / "table", VISITS[1]) / missing).unlink()
    assert missing in refusal(tmp_path / "table")
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "notes.txt", tmp_path / "notes.txt" / "table"):
        with pytest.raises(TableError, match=r"notes\.txt|table"):
            start(folder)


@pytest.mark.parametrize(("change", "named"), [
    ({"features": ()}, "run.yaml: features: "),
    ({"configs": (config("M 16"),)}, "run.yaml: configs[0].id: "),
    ({"colour": "red"}, "run.yaml: colour: "),
    ({"timing": {"unit": object()}}, "run.yaml: "),
    ({"scenarios": {}}, "scenarios.csv: "),
    ({"scenarios": {"a b": (1, 1)}}, "scenarios.csv:2: "),
    ({"scenarios": {"a": (1, 1 << 63)}}, "scenarios.csv:2: max_seq_len "),
    ({"scenarios": {"a": (1, 1.5)}}, "scenarios.csv:2: max_seq_len "),
    ({"scenarios": {"a": (1, "bf16")}}, "max_seq_len "),
    ({"source_hash": "", "date": ...}, "date"),
])  # fmt: skip
def test_unreadable_tables_are_not_created(tmp_path, change, named):
    arguments = {key: value for key, value in {**RUN, **change}.items() if value is not ...}
    with pytest.raises(TableError) as caught:
        tuning_table.create(tmp_path / "table", **arguments)
    assert named in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "table").exists()


# Merging


def test_rows_repeats_and_reasons_survive_and_the_origin_of_imported_tables(tmp_path):
    one = filled(tmp_path / "1", VISITS[0])
    two = filled(tmp_path / "2", *VISITS[1:], date="2026-01-03")
    with start(one) as writer:
        writer.summarise({"seconds": 10.0})
    done = merge([one, two], tmp_path / "all")
    assert (done.rows, done.repeated) == (3, 0)
    found = read_run(tmp_path / "all")
    assert found.visits == read_run(one).visits + read_run(two).visits
    assert found.header.provenance["date"] == "2026-01-03" and found.header.seconds == 10.0
    given = ("kernel", "device", "timing", "features", "configs", "scenarios")
    imported = {**{key: RUN[key] for key in given}, "origin": {"tool": "CSV"}}  # without a summary
    with tuning_table.create(tmp_path / "3", **imported) as writer:
        append(writer, VISITS[0])
    assert merge([tmp_path / "3"], tmp_path / "csv").rows == 1
    assert read_run(tmp_path / "csv").header.provenance["origin"] == {"tool": "CSV"}


def test_merging_again_adds_nothing_and_equal_rows_of_two_tables_count_once(tmp_path):
    one = filled(tmp_path / "1")
    copy = filled(tmp_path / "2", *VISITS[::-1])
    done = merge([one, copy], tmp_path / "all")
    assert (done.rows, done.repeated) == (3, 3)
    with start(tmp_path / "all") as writer:  # a run that went on in the merged table
        writer.summarise({"seconds": 90.0, "finished": True})
    before = contents(tmp_path / "all")
    again = merge([copy, tmp_path / "all", one], tmp_path / "all")
    assert (again.rows, again.repeated) == (0, 9)
    assert contents(tmp_path / "all") == before
    one = filled(tmp_path / "3", ROW, Visit("decode-0", 2, ROW.cells))  # equal repeats of one table
    done = merge([one, filled(tmp_path / "4", Visit("decode-0", 1, {"M16": 5.1}))], tmp_path / "repeats")
    assert (done.rows, done.repeated) == (3, 0)
    cells = [(row.repeat, row.cells["M16"]) for row in read_run(tmp_path / "repeats").visits]
    assert cells == [(1, 5.0), (2, 5.0), (3, 5.1)]


@pytest.mark.parametrize(("change", "named"), [
    ({"device": {"name": "NVIDIA H200"}}, "device.name"),
    ({"driver": "560"}, "driver"),
    ({"torch": "3"}, "torch"),
    ({"triton": "4"}, "triton"),
    ({"source_hash": "1"}, "source_hash"),
    ({"timing": "by hand"}, "timing"),
    ({"configs": (config("M16"), config("M32", block_m=64), config("M64"))}, "config M32 with block_m"),
    ({"scenarios": {"decode-0": (1, 2048), "prefill-0": (1, 512)}}, "scenario prefill-0"),
])  # fmt: skip
def test_other_tables_are_refused(tmp_path, change, named):
    one = filled(tmp_path / "1")
    with start(tmp_path / "2", **change) as writer:
        writer.append("decode-0", {"M16": 1.0})
    with pytest.raises(TableError) as caught:
        merge([one, tmp_path / "2"], tmp_path / "all")
    assert str(caught.value).startswith(f"{tmp_path / '2'}: ") and f"{one} has {named} " in str(caught.value)
    assert "\n" not in str(caught.value) and not (tmp_path / "all").exists()


def test_other_scenarios_and_configs_of_one_stack_become_one_table(tmp_path):
    """A config that a table lacks is not measured in its rows."""
    one = filled(tmp_path / "1", Visit("decode-0", 1, {"M16": 1.0, "M32": 2.0}))
    new = {"scenario_set": "mine", "seed": 1, "scenarios": {"decode-0": (1, 2048), "new": (3, 4)}}
    new["configs"] = (config("M8", block_m=8), config("M16"))
    two = filled(tmp_path / "2", Visit("decode-0", 1, {"M8": 3.0}), **new)
    assert merge([one, two], tmp_path / "all").rows == 2
    found = read_run(tmp_path / "all")
    assert found.scenarios == {**RUN["scenarios"], "new": (3, 4)}
    assert found.header.provenance["scenario_set"] == "serving (digest 12ab); mine"
    assert "seed" not in found.header.provenance
    assert [config.id for config in found.header.configs] == ["M16", "M32", "M64", "M8"]
    assert [dict(row.cells) for row in found.visits] == [{"M16": 1.0, "M32": 2.0}, {"M8": 3.0}]


def test_every_table_is_compared_with_every_other_and_winners_are_refused(tmp_path):
    one = filled(tmp_path / "1", ROW)
    two, three = (
        filled(tmp_path / name, ROW, configs=(config("M16"), config("M8", block_m=block_m)))
        for name, block_m in (("2", 8), ("3", 9))
    )
    winners = filled(tmp_path / "winners", ROW, cells="winners")
    for folders, match in (
        ([one, two, three], f"^{three}: .*{two} has config M8 with block_m 8"),
        ([winners], "winners"),
    ):
        with pytest.raises(TableError, match=match):
            merge(folders, tmp_path / "all")
        assert not (tmp_path / "all").exists()
