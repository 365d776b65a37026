"""What an installed package offers: its commands, and their version."""

import importlib
import tomllib
from pathlib import Path

import pytest

import attn_kernels
import tuning_table

SCRIPTS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("command", SCRIPTS)
def test_every_command_tells_the_one_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, name = SCRIPTS[command].partition(":")
    with pytest.raises(SystemExit) as end:
        getattr(importlib.import_module(module), name)(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"{command} {tuning_table.__version__}\n")
    assert attn_kernels.__version__ == tuning_table.__version__
