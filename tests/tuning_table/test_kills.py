"""What kills, full disks and second runs leave of a table's folder."""

import contextlib
import errno
import os
import signal

import programs
import pytest
from table_builders import RUN, VISITS, append, contents, filled, start

from tuning_table import TableError, files, read_run


def test_failures_of_a_row_that_was_never_written_do_not_count(tmp_path):
    folder = filled(tmp_path, VISITS[0])
    with (folder / "failures.csv").open("a") as out:
        out.write("decode-0,1,M16,flaky\nprefill-0,1,M16,flaky\nprefill-0,1,,no row\n")
    with start(folder) as table:
        assert table.visits == VISITS[:1]
        append(table, VISITS[1])
    assert read_run(folder).visits == VISITS[:2]


@pytest.mark.parametrize("stop", ["times.csv", "scenarios.csv", "run.yaml"])
@pytest.mark.parametrize("torn", [False, True])
def test_a_creation_that_was_killed_is_begun_again(tmp_path, stop, torn):
    whole = contents(filled(tmp_path / "whole", VISITS[1]))
    folder = tmp_path / "killed"
    folder.mkdir()
    head = whole["times.csv"].splitlines(keepends=True)[0]
    for name, content in {**whole, "times.csv": head}.items():
        if name == "times.csv" or (stop != "times.csv" and name != "run.yaml"):
            (folder / name).write_bytes(content)
    if torn and stop == "times.csv":
        (folder / stop).write_bytes(head[:9])
    elif torn:
        (folder / f".tuning-table-{stop}").write_bytes(whole[stop][:9])
    filled(folder, VISITS[1])
    assert contents(folder) == whole


def test_a_killed_change_is_finished_or_undone(tmp_path, monkeypatch):
    """A kill before times.csv is in its place leaves the table as it was; the next run ends what is left."""
    fewer = RUN["configs"][:2]
    steps = []
    for killed in range(100):
        folder = filled(tmp_path / str(killed))
        before = contents(folder)
        with monkeypatch.context() as patch:
            for name in ("append_whole", "replace_file"):
                do = getattr(files, name)

                def step(*arguments, name=name, do=do, most=killed):
                    steps.append(name)
                    if len(steps) > most:
                        raise SystemExit
                    return do(*arguments)

                patch.setattr(files, name, step)
            steps.clear()
            with contextlib.suppress(SystemExit):
                start(folder, configs=fewer).close()
                break
        changed = b"M64" not in (folder / "times.csv").read_bytes()
        if not changed:
            assert {**contents(folder), **before} == contents(folder)
        with start(folder, configs=fewer if changed else RUN["configs"]) as table:
            assert [known.id for known in table.header.configs] == ["M16", "M32", "M64"][: 3 - changed]
            assert len(table.visits) == len(VISITS)
        assert not list(folder.glob(".tuning-table-*"))
    assert killed > 5 and steps.count("replace_file") > 2


@pytest.mark.parametrize("written", [0, 4])
def test_a_full_disk_leaves_whole_rows(tmp_path, monkeypatch, written):
    write = os.write

    def full(descriptor, data):
        if not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:written])

    with start(tmp_path) as table:
        append(table, VISITS[0])
        before = contents(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            for action in (lambda: append(table, VISITS[2]), lambda: table.summarise({"rows": 1})):
                with pytest.raises(TableError, match="No space left on device"):
                    action()
                assert contents(tmp_path) == before
        append(table, VISITS[1])
    assert read_run(tmp_path).visits == VISITS[:2]


WRITER = """
import os, signal, sys
from pathlib import Path
from table_builders import VISITS, append, start

table = start(Path(sys.argv[1]))
append(table, VISITS[1])
if not os.fork():
    print(os.getpid(), flush=True)
signal.pause()
"""


def test_a_killed_run_frees_its_lock_also_where_a_forked_worker_lives_on(tmp_path):
    with programs.start("-c", WRITER, tmp_path) as process:
        child = int(process.stdout.readline())
        try:
            with pytest.raises(TableError, match="another run is writing here"):
                start(tmp_path)
            process.kill()
            process.wait()
            with start(tmp_path) as table:
                assert table.visits == VISITS[1:2]
        finally:
            os.kill(child, signal.SIGKILL)
