"""What a user says about a kernel to tune, and how it is found in the user's file."""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from triton_tune.core.errors import TuningError, in_one_line, place_of
from tuning_table.names import kernel_name, problem_with_name

MODULE = "__triton_tune_file__"
_NAME = re.compile("[a-z][a-z0-9_]*")


@dataclass(frozen=True, eq=False)
class Tuning:
    """A kernel with `@triton.autotune`, the shapes to tune it for, and a reference to check it against.

    Configs, `key`, `prune_configs_by`, `reset_to_zero`, `restore_value` and hooks are the decorator's. Only
    `kernel` is timed, with the arguments that `call` launches it with.

    Args:
        kernel: what `@triton.autotune` decorates, with all decorators that stand above it, such as `@tuned`
            or `@triton.heuristics`. It may be another package's.
        call: launches the kernel as the program does, and returns its result: a tensor, or several in a
            tuple, list or dict. It may be a function of the kernel's package.
        shapes: a list of keyword arguments for `arguments`, one mapping per shape:
            `[dict(M=16, N=4096), ...]`. Or a single mapping to ranges and lists, from which `num_shapes`
            shapes are drawn (docs/shapes.md):
            `{"M": (1, 16384), ("N", "K"): [(4096, 1024), ...]}`.
        arguments: makes the arguments of `call` for a shape: one tensor, a tuple or list of positional
            arguments, or a dict of keyword arguments. Tensors are created on the measured device by default.
        reference: from the same arguments to what `call` must return. Several tensors are compared in order;
            they may have other element types than the results. None: what most configs agree on is right.
        name: of the table and the generated package: small letters, digits and underscores, and no word or
            builtin of Python. None: the kernel function's, without capitals and outer underscores.
        tolerance: the largest error of a result, as a part of the reference's largest magnitude, from 0 to
            below 1. None: by the result's element type; 2e-3 for float32, 1e-2 float16, 2e-2 bfloat16.
        features: what a tree may ask about besides the arguments in `key` and tensors' element types. By
            name, an expression in the kernel's arguments such as `"x_ptr.shape[0]"`, or a function from the
            arguments by name; to an integer, boolean, element type or word. None: those of `@tuned`.
        num_shapes: how many shapes to draw from ranges, including those kept aside for judging.
        constants: the arguments in `shapes` that are fixed for a running program, such as a layer's sizes.
            `treegen init` holds out groups of equal constants, so that figures say what a new model gets.
            None: the arguments with lists, if `shapes` has ranges and lists.

    Raises:
        TuningError: a field has no valid value.
    """

    kernel: Any
    call: Callable[..., Any]
    shapes: Sequence[Mapping[str, Any]] | Mapping[Any, Any]
    arguments: Callable[..., Any]
    reference: Callable[..., Any] | None
    name: str | None = None
    tolerance: float | None = None
    features: Mapping[str, Callable[[Mapping[str, Any]], Any] | str] | None = None
    num_shapes: int = 128
    constants: Sequence[str] | None = None

    def __post_init__(self) -> None:
        name, number, tolerance = self.name, self.num_shapes, self.tolerance
        shapes = [self.shapes] if isinstance(self.shapes, Mapping) else self.shapes
        features = {} if self.features is None else self.features
        read = features.values() if isinstance(features, Mapping) else [None]

        def check(fine: object, field: str, expected: str) -> None:
            if not fine:
                raise TuningError(f"Tuning: {field} must be {expected}, not {getattr(self, field)!r:.60}")

        for function in ("call", "arguments", "reference"):
            given = getattr(self, function)
            check(callable(given) or (function == "reference" and given is None), function, "a function")
        listed = isinstance(shapes, Sequence) and all(isinstance(shape, Mapping) for shape in shapes)
        check(listed and self.shapes, "shapes", "mappings such as [dict(M=16)], or one mapping to ranges")
        fine = name is None or (_NAME.fullmatch(str(name)) and not problem_with_name(name))
        check(fine, "name", "small letters, digits and underscores, and no word or builtin of Python")
        fine = tolerance is None or (isinstance(tolerance, int | float) and 0 <= tolerance < 1)
        check(fine, "tolerance", "a number from 0 to below 1")
        fine = all(isinstance(each, str) or callable(each) for each in read)
        check(fine, "features", "expressions or functions by name")
        check(type(number) is int and 1 <= number <= 100_000, "num_shapes", "an integer from 1 to 100000")
        names = {name for shape in shapes for key in shape for name in (key if type(key) is tuple else [key])}
        stated = () if self.constants is None else self.constants
        fine = isinstance(stated, list | tuple) and names.issuperset(map(str, stated))
        check(fine, "constants", f"some of {', '.join(map(str, names))}")


def table_name(function: str) -> str:
    """The name of a kernel's table, from that of its function; never a word that no module can have."""
    name = kernel_name(re.sub(r"\W", "_", function, flags=re.ASCII).lstrip("_0123456789"))
    return f"{name}_kernel" if problem_with_name(name) else name


@cache
def load_tunings(path: Path) -> dict[str, Tuning]:
    """Every `Tuning` at the top level of a Python file, by the kernel's name. Raises TuningError.

    The file is run once per process, with its folder first on sys.path, as `python FILE` does.
    """
    from triton_tune.launch.every_autotuner import function_of

    path = path.resolve()
    if not path.is_file() or path.suffix != ".py":
        problem = "expected a Python file that defines a Tuning" if path.exists() else "no such file"
        raise TuningError(f"{path}: {problem}")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as end:
        problem = f"ends by itself, with exit code {end.code}, before its Tunings can be read"
        raise TuningError(f"{path}: {problem}") from None
    except Exception as error:
        kind = "" if isinstance(error, TuningError) else f"{type(error).__name__}: "
        raise TuningError(f"{place_of(error, {str(path)}) or path}: {kind}{in_one_line(error)}") from error
    tunings: dict[str, Tuning] = {}
    for value in vars(module).values():
        if isinstance(value, Tuning):
            function = getattr(function_of(value.kernel), "__name__", "kernel")
            name = value.name or table_name(function)
            if tunings.setdefault(name, value) is not value:
                raise TuningError(f"{path}: two Tunings are called {name}: give one of them another name")
    if not tunings:
        raise TuningError(f"{path}: defines no Tuning at its top level")
    return tunings
