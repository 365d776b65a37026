"""Commands in forks of the tests' process, which has imported torch and Triton already."""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import sklearn.ensemble
import sklearn.model_selection  # noqa: F401


def forked(
    call: Callable[[], Any], folder: Path, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Call this in a fork; returns its exit status, and what it and its own processes print.

    Args:
        call: ends the fork with the integer that it returns, if it returns one.
        folder: the working folder, from which modules are imported first.
        variables: of the environment, beside those of this process.
    """
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            status: Any = 1
            try:
                for descriptor in (1, 2):
                    os.dup2(output.fileno(), descriptor)
                sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
                os.chdir(folder)
                os.environ.update(variables or {})
                sys.path.insert(0, str(Path().resolve()))
                for name in list(sys.modules):  # of another folder that a test has used
                    top = name.partition(".")[0]
                    if Path(top).is_dir() or Path(f"{top}.py").exists():
                        del sys.modules[name]
                sys.argv = [""]
                status = call()
            except SystemExit as ended:
                status = ended.code
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status if isinstance(status, int) else 0 if status is None else 1)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def code(text: str) -> Callable[[], None]:
    """What `python -c` does."""
    return partial(exec, text, {"__name__": "__main__"})
