"""The same input gives the same bytes: twice, in another folder, in other processes with other hash seeds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, Row, build, contents, spec, treegen_command, write_project

from treegen import build as compiler
from treegen.crossval import parallel

RNG = random.Random(7)
SHAPES: list[Row] = [
    (RNG.randint(1, 4096), RNG.randint(1, 4096), RNG.choice([1, 2, 8, 40])) for _ in range(11)
]
TIMES = {shape: [round(RNG.uniform(10, 30), 3) for _ in range(3)] for shape in SHAPES}


def _project(folder: Path) -> Path:
    """A table without a pattern, so that ties and narrow decisions have their say."""
    content = spec(
        derived={"area": "rows * columns", "share": "area // max(1, heads)"},
        tables={DEVICE: "tables/h100", "nvidia": "tables/h100"},
        tree={"max_depth": 3, "max_leaves": 5},
    )
    content["devices"]["nvidia"] = {"vendor": "nvidia", "limits": {"shared_memory": 1}}
    return write_project(folder, content, shapes=SHAPES, times=lambda shape: TIMES[shape])


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes | None]:
    folder = tmp_path_factory.mktemp("first")
    assert build(_project(folder)) == 0
    return contents(folder / "generated")


def test_again_from_nothing(tmp_path: Path, expected: dict[str, bytes | None]) -> None:
    path = _project(tmp_path)
    assert build(path, "--output", tmp_path / "one") == build(path, "--output", tmp_path / "two") == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == expected


def test_with_fits_in_two_processes(
    tmp_path: Path, expected: dict[str, bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "SCENARIOS_A_PROCESS", 11)  # of twice 11 scenarios
    started: list[int] = []
    pool = parallel.ProcessPoolExecutor

    def start(jobs: int, **options: Any) -> Any:
        started.append(jobs)
        return pool(jobs, **options)

    monkeypatch.setattr(parallel, "ProcessPoolExecutor", start)
    path = _project(tmp_path)
    assert build(path, "--jobs", "3") == 0
    assert contents(tmp_path / "generated") == expected
    assert build(path, "--jobs", "1", "--check") == 0
    assert started == [2]


def test_in_a_process_of_its_own(tmp_path: Path, expected: dict[str, bytes | None]) -> None:
    folder = tmp_path / "a folder with blanks"
    _project(folder)
    environment = {"PYTHONHASHSEED": "4242", "LC_ALL": "C", "TZ": "Pacific/Apia", "COLUMNS": "40"}
    done = treegen_command("build", cwd=folder, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert {k: v for k, v in contents(folder / "generated").items() if "__pycache__" not in k} == expected


def test_check_agrees_from_anywhere(tmp_path: Path, expected: dict[str, bytes | None]) -> None:
    path = _project(tmp_path)
    for name, text in expected.items():
        target = tmp_path / "generated" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            target.mkdir(exist_ok=True)
        else:
            target.write_bytes(text)
    assert build(path, "--check") == 0
