"""What an installed package offers: its commands, their version, and their completion in a shell."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attn_kernels
import treegen

SCRIPTS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("command", SCRIPTS)
def test_every_command_tells_the_one_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, name = SCRIPTS[command].partition(":")
    with pytest.raises(SystemExit) as end:
        getattr(importlib.import_module(module), name)(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"{command} {treegen.__version__}\n")
    assert attn_kernels.__version__ == treegen.__version__


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("treegen expl", ["explain"]),
        ("treegen build --che", ["--check"]),
        ("triton-tune kernel.py --strategy ", ["race", "full"]),
        ("attn-tune --kernel mixed", ["mixed_attention"]),
    ],
)
def test_a_shell_can_complete_a_command(line: str, offered: list[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    module, _, name = SCRIPTS[line.split()[0]].partition(":")
    code = f"import sys; sys.modules.update(torch=None, sklearn=None)\nfrom {module} import {name}; {name}()"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE": "1"}
    asked |= {"_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "offered")}
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, check=True)
    assert [word.strip() for word in (tmp_path / "offered").read_text().split("\n")] == offered
