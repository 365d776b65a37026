"""`treegen merge`: one line for each table, and one line for what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from table_builders import VISITS, append, filled, start

from treegen.cli.main import main
from tuning_table import read


def other(folder: Path) -> Path:
    with start(folder, device={"name": "NVIDIA H200"}) as table:
        append(table, VISITS[0])
    return folder


def test_other_tables_are_refused_unless_separate(
    tmp_path: Path, refusal: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = filled(tmp_path / "1"), other(tmp_path / "2")
    line = refusal(tmp_path, "merge", one, two, "--out", tmp_path / "all")
    assert line.startswith(f"{two}: ") and "'NVIDIA H200'" in line
    assert main(["merge", str(one), str(two), "--out", str(tmp_path / "all"), "--separate"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'all' / 'nvidia_h100'}: 3 rows added from 1 table",
        f"{tmp_path / 'all' / 'nvidia_h200'}: 1 row added from 1 table",
    ]
    assert len(read(tmp_path / "all" / "nvidia_h200").rows) == 1


def test_wrong_folders(tmp_path: Path, refusal: Callable[..., str]) -> None:
    one = filled(tmp_path / "1")
    assert "/none" in refusal(tmp_path, "merge", tmp_path / "none", "--out", tmp_path / "all")
    refusal(tmp_path, "merge", one, "--out", "/")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter").touch()
    assert "letter" in refusal(tmp_path, "merge", one, "--out", tmp_path / "taken")
