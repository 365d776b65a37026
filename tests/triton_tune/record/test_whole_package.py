"""A package that one does not own: recorded, tuned and served without a line of code for any kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import small_package as small

from tuning_table import read_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which two runs of a program were recorded, all kernels tuned, and a package built."""
    where = tmp_path_factory.mktemp("project")
    small.write(where)
    for sizes in (("40", "100"), ("64", "200", "40")):
        done = small.run(
            where, "-m", "triton_tune", "--record", "seen", "--", small.sys.executable, "program.py", *sizes
        )
        assert done.returncode == 0, done.stderr
    done = small.run(where, "-m", "triton_tune", "seen", "--budget", "50")
    (where / "tuned.txt").write_text(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    tables = sorted(path.relative_to(where) for path in where.glob("tuning_data/*/*"))
    for words in (["init", *tables], ["build"]):
        done = small.run(where, "-m", "treegen", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    return where


def test_a_kernel_whose_configs_disagree_is_left_out_by_name_and_all_others_get_a_table(folder: Path) -> None:
    tables = {path.parent.name: read_run(path) for path in folder.glob("tuning_data/*/*")}
    assert set(tables) == {"scale_in_place", "sum_in_parts", "gather"}
    assert "left out: small:sums_of_blocks: " in (folder / "tuned.txt").read_text()
    for table in tables.values():
        sizes = {values[table.header.features.index("size")] for values in table.scenarios.values()}
        assert sizes == {40, 64, 100, 200}  # equal launches of both runs are one
        assert all(isinstance(cell, float) for visit in table.visits for cell in visit.cells.values())


def test_a_program_launches_what_the_modules_choose(folder: Path) -> None:
    use = ("-m", "triton_tune", "--use", "heuristics", "--", small.sys.executable)
    done = small.run(folder, *use, "program.py", "50", "200", TRITON_TUNE_LOG="1")
    assert "small:sums_of_blocks" in done.stderr  # whose autotuner then fails, as it needs a GPU
    chosen = dict(re.findall(r"triton_tune: (\w+) launches Config\(variant='\w+', (\w+=\d+)", done.stderr))
    assert set(chosen) == {"scale_in_place", "sum_in_parts", "gather"}


def test_kernels_are_served_whatever_was_imported_first_and_others_keep_their_autotuner(folder: Path) -> None:
    code = """
import sys, warnings
import torch
{before}
import triton_tune
triton_tune.install("heuristics")
{after}
import heuristics.gather as module
index = torch.arange(70)
out = torch.zeros(70)
small.gather[small.blocks(70)](torch.arange(70.0), index, out, 70, 70)
assert torch.equal(out, torch.arange(70.0))
wanted = module.MODULES["cpu"].choose(size=70)
assert small.gather.best_config.kwargs == dict(BLOCK=wanted.BLOCK)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        try:
            small.unrecorded[small.blocks(9)](torch.zeros(9), 9)
        except RuntimeError:  # without a GPU no search can be made
            pass
assert ["small:unrecorded" in str(each.message) for each in told].count(True) == 1
"""
    for before, after in (("import small", ""), ("", "import small")):
        done = small.run(folder, "-c", code.format(before=before, after=after))
        assert done.returncode == 0, done.stderr


def test_ranks_whose_clocks_disagree_launch_the_same_configs(folder: Path) -> None:
    code = """
import random, sys, time
import torch, triton_tune
rank, clock = int(sys.argv[1]), time.perf_counter
noise = random.Random(rank)
time.perf_counter = lambda: clock() * (1 + noise.random())
triton_tune.install("heuristics")
import small
for size in range(20, 220, 20):
    small.gather[small.blocks(size)](torch.zeros(size), torch.arange(size), torch.zeros(size), size, size)
    print(small.gather.best_config)
"""
    first, second = (small.run(folder, "-c", code, rank) for rank in (0, 1))
    assert first.returncode == second.returncode == 0, first.stderr
    assert len(first.stdout.splitlines()) == 10 and first.stdout == second.stdout


def test_the_same_command_goes_on_where_it_stopped(folder: Path) -> None:
    before = {path: path.read_text() for path in folder.glob("tuning_data/*/*/times.csv")}
    done = small.run(folder, "-m", "triton_tune", "seen", "--budget", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(path.read_text().startswith(text) for path, text in before.items())


@pytest.mark.parametrize(
    "words",
    [
        ["empty"],
        ["cut"],
        ["--record", "seen"],
        ["--use", "nothing_here", "seen"],
        ["seen", "--recheck"],
        [],
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line(folder: Path, words: list[str]) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "cut").mkdir(exist_ok=True)
    (folder / "cut/0-1.jsonl").write_text('{"format": 1}\n{"launch": 0, "kernel"\n')
    done = small.run(folder, "-m", "triton_tune", *words)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_another_version_of_the_package_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    small.write(tmp_path, small.KERNELS.replace("* factor", "* factor + 0"))
    (tmp_path / "seen").symlink_to(folder / "seen")
    done = small.run(tmp_path, "-m", "triton_tune", "seen", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("left out: ")] == [
        line for line in done.stdout.splitlines() if "small:scale_in_place" in line
    ]
