"""Load the user's file and find its `Tuning`."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from triton_tune.core.errors import TuningError
from triton_tune.kernel.tuning import Tuning
from tuning_table.names import kernel_name

MODULE = "__triton_tune_file__"


def load_tunings(path: Path) -> dict[str, Tuning]:
    """Every `Tuning` at the top level of a Python file, by the kernel's name. Raises TuningError.

    The file is run, with its folder first on sys.path, as `python FILE` does.
    """
    from triton_tune.launch.tuned import function_of

    path = path.resolve()
    if not path.is_file() or path.suffix != ".py":
        what = "expected a Python file that defines a Tuning" if path.exists() else "no such file"
        raise TuningError(f"{path}: {what}")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        kind = "" if isinstance(error, TuningError) else f"{type(error).__name__}: "
        raise TuningError(f"{_place(error, path)}: {kind}{_first_line(error)}") from error
    found: dict[str, Tuning] = {}
    for value in vars(module).values():
        if isinstance(value, Tuning):
            function = getattr(function_of(value.kernel), "__name__", "kernel")
            name = value.name or kernel_name(function)
            if found.setdefault(name, value) is not value:
                raise TuningError(f"{path}: two Tunings are called {name}: give one of them another name")
    if not found:
        raise TuningError(f"{path}: defines no Tuning at its top level")
    return found


def named(found: Mapping[str, Tuning], name: str, path: Path) -> Tuning:
    """One of a file's tunings. Raises TuningError."""
    if name not in found:
        raise TuningError(f"{path}: defines no Tuning called {name!r:.60}; it has {', '.join(found)}")
    return found[name]


def _place(error: BaseException, path: Path) -> str:
    """The file, with the line of the error in it where there is one."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return str(path) if line is None else f"{path}:{line}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
