"""Every command of docs/export.md runs in its example and prints what the page shows."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from treegen_builders import REPOSITORY

from treegen.cli.main import main


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(REPOSITORY / "examples/block_fp8", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    page = (REPOSITORY / "docs/export.md").read_text()
    commands = re.findall(r"^    treegen (.*)$", page, re.MULTILINE)
    assert commands and all(main(shlex.split(command)) == 0 for command in commands)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert capsys.readouterr().out == "".join(text for language, text in blocks if not language)
