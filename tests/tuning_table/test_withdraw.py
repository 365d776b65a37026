"""Rows that are withdrawn are gone for every reader, can be appended again, and the lock stays."""

import errno
import os
from pathlib import Path

import pytest
from table_builders import VISITS, append, contents, filled, read_back, refusal, start

from tuning_table import TableError, read_run


def test_withdrawn_rows_can_be_measured_again(tmp_path: Path) -> None:
    with start(tmp_path) as table:
        table.append_all(VISITS)
        table.withdraw([("decode-0", 1), ("mixed-0", 7)])
        assert "another run is writing here" in refusal(tmp_path)
        kept = read_back(read_run(tmp_path).visits)
        assert [row[:2] for row in kept] == [("prefill-0", 1), ("decode-0", 2)]
        append(table, VISITS[1])
        with pytest.raises(TableError, match="is there already"):
            append(table, VISITS[0])
    assert sorted(map(repr, read_back(read_run(tmp_path).visits))) == sorted(
        map(repr, [*kept, ("decode-0", 1, {"M16": 5.1234})])
    )
    gone = (tmp_path / "withdrawn.csv").read_text().splitlines()
    assert gone == ["scenario,repeat,M16,M32,M64", "decode-0,1,5.1234,,"]
    start(tmp_path).close()


def test_a_full_disk_withdraws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    with start(tmp_path) as table:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(TableError, match="No space left on device"):
                table.withdraw([("decode-0", 1)])
        assert {name: text for name, text in contents(tmp_path).items() if text} == before
        assert "another run is writing here" in refusal(tmp_path)


def test_rows_written_together_are_refused_together(tmp_path: Path) -> None:
    with start(tmp_path) as table:
        before = contents(tmp_path)
        with pytest.raises(TableError, match="scenario decode-0 repeat 1 is there already"):
            table.append_all([VISITS[1], VISITS[0], VISITS[1]])
        assert contents(tmp_path) == before
        table.append_all(VISITS)
    assert contents(tmp_path)["times.csv"] == contents(filled(tmp_path / "one"))["times.csv"]
