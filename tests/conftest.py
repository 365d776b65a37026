"""What all tests share: the helpers become importable, and kernels run in Triton's interpreter.

pytest's importlib mode puts no folder on ``sys.path``. Triton reads TRITON_INTERPRET when it is imported.
"""

import contextlib
import os
import sys
from pathlib import Path

import pytest

if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("triton was imported before tests/conftest.py could set TRITON_INTERPRET=1")
os.environ["TRITON_INTERPRET"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # tests fork, and a fork has none of its parent's threads

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE / "helpers"), str(HERE.parent)) if path not in sys.path]

with contextlib.suppress(ModuleNotFoundError):  # tests on a GPU need no Hypothesis
    from hypothesis import settings

    # The same examples on every machine.
    settings.register_profile("tests", deadline=None, derandomize=True, database=None)
    settings.load_profile("tests")


@pytest.fixture(autouse=True, scope="session")
def quick_interpreter():
    """Interpret kernels without the checks and look-ups of each operation that change no result."""
    with pytest.MonkeyPatch.context() as patch:
        if "triton.runtime.interpreter" in sys.modules:
            from quick_interpreter import quicken

            quicken(patch)
        yield


@pytest.fixture
def refusal(capsys):
    """A function (folder, *arguments) that returns the one line with which `treegen ARGUMENTS` refuses.

    Fails unless the command exits with status 2, prints exactly one line to stderr and leaves every byte
    below `folder` as it was.
    """
    from treegen_builders import contents  # tests on a GPU need no treegen

    def refuse(folder, *arguments):
        from treegen.cli.main import main  # the tests of the core need no command

        before = contents(folder)
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("treegen: ")
        assert contents(folder) == before
        return line.removeprefix("treegen: ")

    return refuse
