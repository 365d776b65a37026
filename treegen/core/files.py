"""Files, names and output at the edge of the program: every failure is one InputError."""

from __future__ import annotations

import hashlib
import keyword
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuning_table.files import MAX_BYTES as MAX_BYTES
from tuning_table.files import read_bytes as read_bytes
from tuning_table.files import read_text as read_text
from tuning_table.files import try_path as try_path
from tuning_table.names import IN_KERNEL as IN_KERNEL
from tuning_table.names import device_key as device_key
from tuning_table.names import problem_with_name as problem_with_name


def digest(content: str | bytes) -> str:
    """The SHA-256 of bytes, or of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


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


# What treegen and programs with its modules import. Other libraries differ between machines, so a spec that
# builds on one could not build on another.
_LIBRARIES = {"jinja2", "joblib", "markupsafe", "matplotlib", "numpy", "rich", "scipy", "sklearn", "torch"}
_LIBRARIES |= {"triton", "yaml", "attn_kernels", "treegen", "triton_tune", "tuning_table"}


def problem_with_package_name(name: object, *, capitals: bool = False) -> str | None:
    """Return why `name` cannot be a name in a generated package; None if it can.

    capitals: it names a value, such as a parameter `BLOCK_M`, and neither a file nor a constant.
    """
    problem = problem_with_name(name)
    if problem is None and not re.fullmatch(r"[a-z][a-z0-9_]*", str(name).lower() if capitals else str(name)):
        return f"must begin with a letter{'' if capitals else ' and have no capitals'}"
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
