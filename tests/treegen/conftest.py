"""Makes the helpers beside the tests importable, which pytest's importlib mode leaves to us."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parents[1])) if path not in sys.path]

from treegen_builders import contents  # noqa: E402

from treegen.cli import main  # noqa: E402


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function (folder, *arguments) -> the one line with which `treegen ARGUMENTS` refuses.

    Fails unless the command ends with status 2, prints exactly one line to stderr and leaves every byte
    below `folder` as it was.
    """

    def refuse(folder: Path, *arguments: object) -> str:
        before = contents(folder)
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("treegen: ")
        assert contents(folder) == before
        return line.removeprefix("treegen: ")

    return refuse
