"""Python in processes of its own, where this repository and the tests' helpers can be imported."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).resolve().parent
REPOSITORY = HELPERS.parents[1]


@contextlib.contextmanager
def start(
    *arguments: object,
    cwd: Path = REPOSITORY,
    stdin: int | None = None,
    stdout: Any = subprocess.PIPE,
    start_new_session: bool = False,
    **variables: str | None,
) -> Iterator[subprocess.Popen[str]]:
    """Python with these arguments and further environment variables; one that is None is unset.

    At the end, its stdin is closed and it is awaited; after an error, it is killed.
    """
    path = os.pathsep.join(map(str, (cwd, REPOSITORY, HELPERS)))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={name: value for name, value in environment.items() if value is not None},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=start_new_session,
        text=True,
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def until(condition: Callable[[], object]) -> None:
    """Wait at most a minute for this to be true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(pid: str | int) -> bool:
    """Whether a process runs; one that has ended may still be listed."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python to its end; `options` are those of `start`."""
    with start(*arguments, **options) as process:
        out, error = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def printed(*arguments: object, **options: Any) -> str:
    """What Python prints on stdout, which must end without an error."""
    done = python(*arguments, **options)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
