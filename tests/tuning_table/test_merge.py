"""Merging tables: what becomes one, what is refused, and what of the rows survives."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from table_builders import RUN, VISITS, append, config, contents, filled, read_back, start

import tuning_table
from tuning_table import TableError, read_run
from tuning_table.merge import Merged, merge
from tuning_table.table import Visit

ROW = Visit("decode-0", 1, {"M16": 5.0})


def table(folder: Path, visits: Sequence[Visit], **changes: object) -> Path:
    with start(folder, **changes) as writer:
        for visit in visits:
            append(writer, visit)
    return folder


def merged(out: Path, *folders: Path) -> Merged:
    return merge(folders, out)


def test_rows_repeats_and_reasons_survive(tmp_path: Path) -> None:
    one = table(tmp_path / "1", VISITS[:1])
    two = table(tmp_path / "2", VISITS[1:], date="2026-01-03")
    with start(one) as writer:
        writer.summarise({"seconds": 10.0})
    done = merged(tmp_path / "all", one, two)
    assert (done.rows, done.repeated) == (3, 0)
    found = read_run(tmp_path / "all")
    assert read_back(found.visits) == read_back(read_run(one).visits + read_run(two).visits)
    assert found.header.provenance["date"] == "2026-01-03" and found.header.seconds == 10.0


def test_merging_again_adds_nothing_and_equal_rows_count_once(tmp_path: Path) -> None:
    one = table(tmp_path / "1", VISITS)
    copy = table(tmp_path / "2", VISITS[::-1])
    done = merged(tmp_path / "all", one, copy)
    assert (done.rows, done.repeated) == (3, 3)
    with start(tmp_path / "all") as writer:  # a run that went on in the merged table
        writer.summarise({"seconds": 90.0, "finished": True})
    before = contents(tmp_path / "all")
    again = merged(tmp_path / "all", copy, tmp_path / "all", one)
    assert (again.rows, again.repeated) == (0, 9)
    assert contents(tmp_path / "all") == before


def test_equal_repeats_of_one_table_and_other_rows_of_another_are_repeats(tmp_path: Path) -> None:
    one = table(tmp_path / "1", [ROW, Visit("decode-0", 2, ROW.cells)])
    two = table(tmp_path / "2", [Visit("decode-0", 1, {"M16": 5.1})])
    done = merged(tmp_path / "all", one, two)
    assert (done.rows, done.repeated) == (3, 0)
    cells = [(row.repeat, row.cells["M16"]) for row in read_run(tmp_path / "all").visits]
    assert cells == [(1, 5.0), (2, 5.0), (3, 5.1)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"device": {"name": "NVIDIA H200"}}, "device.name"),
        ({"driver": "560"}, "driver"),
        ({"torch": "3"}, "torch"),
        ({"triton": "4"}, "triton"),
        ({"source_hash": "1"}, "source_hash"),
        ({"timing": "by hand"}, "timing"),
        ({"configs": (config("M16"), config("M32", block_m=64), config("M64"))}, "config M32 with block_m"),
        ({"scenarios": {"decode-0": (1, 2048), "prefill-0": (1, 512)}}, "scenario prefill-0"),
    ],
)
def test_other_tables_are_refused_and_the_difference_named(
    tmp_path: Path, change: dict[str, object], named: str
) -> None:
    one = filled(tmp_path / "1")
    with start(tmp_path / "2", **change) as writer:
        writer.append("decode-0", {"M16": 1.0})
    with pytest.raises(TableError) as caught:
        merged(tmp_path / "all", one, tmp_path / "2")
    assert str(caught.value).startswith(f"{tmp_path / '2'}: ") and f"{one} has {named} " in str(caught.value)
    assert "\n" not in str(caught.value) and not (tmp_path / "all").exists()


def test_other_scenario_sets_of_one_stack_become_one(tmp_path: Path) -> None:
    one = table(tmp_path / "1", VISITS[:1])
    new = {"scenario_set": "mine", "seed": 1, "scenarios": {"new": (3, 4)}}
    two = table(tmp_path / "2", [Visit("new", 1, {"M16": 3.0})], **new)
    assert merged(tmp_path / "all", one, two).rows == 2
    found = read_run(tmp_path / "all")
    assert found.scenarios == {**RUN["scenarios"], "new": (3, 4)}
    assert found.header.provenance["scenario_set"] == "serving (digest 12ab); mine"
    assert "seed" not in found.header.provenance


def test_configs_that_one_table_lacks_are_not_measured_in_its_scenarios(tmp_path: Path) -> None:
    one = table(tmp_path / "1", [Visit("decode-0", 1, {"M16": 1.0, "M32": 2.0})])
    configs = (config("M8", block_m=8), config("M16"))
    two = table(tmp_path / "2", [Visit("decode-0", 1, {"M8": 3.0})], configs=configs)
    assert merged(tmp_path / "all", one, two).rows == 2
    found = read_run(tmp_path / "all")
    assert [config.id for config in found.header.configs] == ["M16", "M32", "M64", "M8"]
    assert [dict(row.cells) for row in found.visits] == [{"M16": 1.0, "M32": 2.0}, {"M8": 3.0}]


def test_every_table_is_compared_with_every_other(tmp_path: Path) -> None:
    one = table(tmp_path / "1", [ROW])
    two, three = (
        table(tmp_path / name, [ROW], configs=(config("M16"), config("M8", block_m=block_m)))
        for name, block_m in (("2", 8), ("3", 9))
    )
    with pytest.raises(TableError, match=f"^{three}: .*{two} has config M8 with block_m 8"):
        merged(tmp_path / "all", one, two, three)
    assert not (tmp_path / "all").exists()


def test_winners_are_refused(tmp_path: Path) -> None:
    with start(tmp_path / "1", cells="winners") as writer:
        writer.append("decode-0", {"M16": 1.0})
    with pytest.raises(TableError, match="winners"):
        merged(tmp_path / "all", tmp_path / "1")


def test_imported_tables_have_no_summary(tmp_path: Path) -> None:
    given = ("kernel", "device", "timing", "features", "configs", "scenarios")
    imported = {**{key: RUN[key] for key in given}, "origin": {"tool": "CSV"}}
    with tuning_table.create(tmp_path / "1", **imported) as writer:
        append(writer, VISITS[0])
    assert merged(tmp_path / "all", tmp_path / "1").rows == 1
    assert read_run(tmp_path / "all").header.provenance["origin"] == {"tool": "CSV"}
