"""A package that one does not own: recorded, tuned and served without a line of code for any kernel."""

import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import small_package as small
from programs import HELPERS, REPOSITORY, printed, python, start

from treegen.cli.main import main as treegen
from tuning_table import read_run


class Project(NamedTuple):
    folder: Path
    printed: str  # by the tuning run
    killed: dict[Path, str]  # the rows of the tables when an earlier one was killed


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project in which two runs of a program were recorded, all kernels tuned, and a package built."""
    where = tmp_path_factory.mktemp("project")
    small.write(where)
    for sizes in (("40", "100"), ("64", "40")):
        record = ("-m", "triton_tune", "--record", "seen", "--", sys.executable)
        printed(*record, "program.py", *sizes, cwd=where)
    tune = ("-m", "triton_tune", "seen", "--budget", "30", "--compile-workers", "0")
    with start(*tune, cwd=where) as process:  # killed as soon as a table has a row
        while not any(text.count("\n") > 1 for text in rows(where).values()):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    killed = rows(where)
    told = printed(*tune, cwd=where)
    tables = sorted(path.relative_to(where) for path in where.glob("tuning_data/*/*"))
    with contextlib.chdir(where):
        assert treegen(["init", *map(str, tables)]) == treegen(["build"]) == 0
    return Project(where, told, killed)


def rows(folder):
    return {path: path.read_text() for path in folder.glob("tuning_data/*/*/times.csv")}


def test_all_kernels_get_a_table_but_those_that_disagree_or_overrun(project):
    tables = {path.parent.name: read_run(path) for path in project.folder.glob("tuning_data/*/*")}
    assert set(tables) == {"scale_in_place", "sum_in_parts", "gather"}
    for name in ("sums_of_blocks", "overruns"):
        assert f"left out: small:{name}: " in project.printed
    for table in tables.values():
        sizes = {values[table.header.features.index("size")] for values in table.scenarios.values()}
        assert sizes == {40, 64, 100}  # equal launches of both runs are one
        assert all(isinstance(cell, float) for visit in table.visits for cell in visit.cells.values())


def test_a_program_launches_what_the_modules_choose(project):
    use = ("-m", "triton_tune", "--use", "heuristics", "--", sys.executable)
    done = python(*use, "program.py", "50", "90", cwd=project.folder, TRITON_TUNE_LOG="1")
    assert "small:sums_of_blocks" in done.stderr  # whose autotuner then fails, as it needs a GPU
    chosen = dict(re.findall(r"triton_tune: (\w+) launches Config\(variant='\w+', (\w+=\d+)", done.stderr))
    assert set(chosen) == {"scale_in_place", "sum_in_parts", "gather"}


COMMAND = (
    "import sys; from triton_tune.cli.main import main; sys.path.remove(''); sys.exit(main())"  # as installed
)


def test_modules_beside_a_recorded_script_are_found(tmp_path):
    small.write(tmp_path)
    elsewhere = {"PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, HELPERS)))}
    for words in (
        ("--record", "seen", "--", sys.executable, "program.py", "40", "100"),
        ("seen", "--dry-run"),
    ):
        told = printed("-c", COMMAND, *words, cwd=tmp_path, **elsewhere)
    assert "left out" not in told and "gather: 2 shapes" in told


SERVER = """
import signal, sys, time
def end(number, frame):
    time.sleep(1)  # longer than subprocess.run would wait
    print("ended", flush=True)
    sys.exit(7)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("serving", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("by_terminal", [True, False])
def test_an_interrupted_program_ends_in_its_own_way(tmp_path, by_terminal):
    record = ("-m", "triton_tune", "--record", "seen", "--", sys.executable)
    with start(*record, "-c", SERVER, cwd=tmp_path, start_new_session=True) as process:
        assert process.stdout.readline() == "serving\n"
        if by_terminal:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.terminate()
        out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("ended\n", 7) and err.startswith("seen: ")


def test_a_package_that_cannot_be_used_ends_a_program_that_could_do_without_triton(tmp_path):
    program = "try:\n    import triton\nexcept ImportError:\n    pass"
    use = ("-m", "triton_tune", "--use", "nothing_here", "--", sys.executable)
    done = python(*use, "-c", program, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "triton-tune: --use nothing_here: No module named 'nothing_here'\n"


RANK = """
import random, sys, time, warnings
import torch
rank, clock = int(sys.argv[1]), time.perf_counter
noise = random.Random(rank)
time.perf_counter = lambda: clock() * (1 + noise.random())
if rank:
    import small
import triton_tune
triton_tune.install("heuristics")
import small
import heuristics.gather as module
for size in range(20, 120, 20):
    x, out = torch.arange(float(size)), torch.zeros(size)
    small.gather[small.blocks(size)](x, torch.arange(size), out, size, size)
    assert torch.equal(out, x)
    wanted = module.MODULES["cpu"].choose(size=size)
    assert small.gather.best_config.kwargs == dict(BLOCK=wanted.BLOCK)
    print(small.gather.best_config)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        try:
            small.unrecorded[small.blocks(9)](torch.zeros(9), 9)
        except RuntimeError:  # without a GPU no search can be made
            pass
assert ["small:unrecorded" in str(each.message) for each in told].count(True) == 1
"""


def test_ranks_launch_alike_whatever_clocks_say_and_imports_were_first(project):
    first, second = (printed("-c", RANK, rank, cwd=project.folder) for rank in (0, 1))
    assert len(first.splitlines()) == 5 and first == second


def test_the_same_command_goes_on_after_a_kill(project):
    after = rows(project.folder)
    for path, text in project.killed.items():
        whole = text[: text.rfind("\n") + 1]  # a row may be cut
        left_out = path.parent.parent.name in ("sums_of_blocks", "overruns")
        assert left_out or after[path].startswith(whole)
    assert any(text.count("\n") > 1 for text in project.killed.values())
