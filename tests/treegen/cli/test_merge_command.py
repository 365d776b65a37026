"""`treegen merge`: one line for each table, and one line for what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from table_builders import VISITS, append, filled, start

from treegen.cli.main import main


def other(folder: Path) -> Path:
    with start(folder, device={"name": "NVIDIA H200"}) as table:
        append(table, VISITS[0])
    return folder


def test_a_merge_prints_one_line_and_refuses_tables_of_another_gpu_in_one(
    tmp_path: Path, refusal: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = filled(tmp_path / "1"), other(tmp_path / "2")
    line = refusal(tmp_path, "merge", one, two, "--out", tmp_path / "all")
    assert line.startswith(f"{two}: ") and "'NVIDIA H200'" in line
    assert main(["merge", str(one), str(one), "--out", str(tmp_path / "all")]) == 0
    assert (
        capsys.readouterr().out == f"{tmp_path / 'all'}: 3 rows added from 2 tables, 3 were there already\n"
    )


def test_wrong_folders(tmp_path: Path, refusal: Callable[..., str]) -> None:
    one = filled(tmp_path / "1")
    assert "/none" in refusal(tmp_path, "merge", tmp_path / "none", "--out", tmp_path / "all")
    refusal(tmp_path, "merge", one, "--out", "/")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter").touch()
    assert "letter" in refusal(tmp_path, "merge", one, "--out", tmp_path / "taken")
