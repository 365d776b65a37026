"""Files, names and output at the edge of the program: every failure is one InputError."""

from __future__ import annotations

import hashlib
import keyword
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from treegen.core.errors import InputError, table_errors_as_input_errors
from tuning_table import files
from tuning_table.names import device_key as device_key
from tuning_table.names import problem_with_name as problem_with_name

MAX_BYTES = 64 << 20  # of an input file
T = TypeVar("T")


def try_path(path: Path, look: Callable[[Path], T]) -> T:
    """`look(path)`, with InputError for names that no file can have: too long, with NUL, a loop of links."""
    with table_errors_as_input_errors():
        return files.try_path(path, look)


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a plain file of at most `most` bytes; never waits for a pipe. Raises InputError."""
    with table_errors_as_input_errors():
        return files.read_bytes(path, most)


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file of at most `most` bytes. Raises InputError."""
    content = read_bytes(path, most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(path, f"not UTF-8 text (byte {error.start})") from None


def digest(text: str) -> str:
    """The SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def short(path: Path) -> Path:
    """The path relative to this folder if it lies below it; else the path as it is."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """Print until the reader closes the pipe, and drop the rest: the command has files to write."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:  # rich turns the first into the second
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


IN_KERNEL = "in_kernel"
"""The folder in a kernel's package that holds device functions for its Triton code."""

_TAKEN = {"choose", "config", "default", "for_device", IN_KERNEL, "variant", "count", "index"}

# What treegen and programs with its modules import. Other libraries differ between machines, so a spec that
# builds on one could not build on another.
_LIBRARIES = {"jinja2", "joblib", "markupsafe", "matplotlib", "numpy", "rich", "scipy", "sklearn", "torch"}
_LIBRARIES |= {"triton", "yaml", "attn_kernels", "treegen", "triton_tune", "tuning_table"}

_TAKEN_CAPITALS = re.compile("Config|VALUES|MODULES|BLANK[0-9]+_")


def problem_with_package_name(name: object, *, capitals: bool = False) -> str | None:
    """Return why `name` cannot be a name in a generated package; None if it can.

    capitals: it names a value, such as a parameter `BLOCK_M`, and neither a file nor a constant.
    """
    problem = problem_with_name(name)
    if problem is None and not re.fullmatch(r"[a-z][a-z0-9_]*", str(name).lower() if capitals else str(name)):
        return f"must begin with a letter{'' if capitals else ' and have no capitals'}"
    if problem is None and _TAKEN_CAPITALS.fullmatch(str(name)):
        return "is a name that the generated package uses itself"
    if problem is None and name in _TAKEN:
        return "is a name that the generated package uses itself"
    return problem


def problem_with_output(folder: Path) -> str | None:
    """Return why generated packages may not lie in `folder`; None if they may."""
    if ".git" in folder.parts:
        return "lies in git's own folder"
    if not folder.name.isidentifier() or keyword.iskeyword(folder.name):
        return "must end in a name that Python can import, such as generated"
    if folder.name in sys.stdlib_module_names | _LIBRARIES:
        return f"would hide the library {folder.name} from programs that run beside it"
    return None
