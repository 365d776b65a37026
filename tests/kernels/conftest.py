"""These tests run the kernels in Triton's interpreter, which must be asked for before triton is imported."""

import dataclasses
import functools
import logging
import os
import sys
from pathlib import Path

import pytest

if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("triton was imported before tests/kernels/conftest.py could set TRITON_INTERPRET=1")
os.environ["TRITON_INTERPRET"] = "1"

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:  # pytest's importlib mode leaves helpers beside the tests to us
    sys.path.insert(0, HERE)

import triton.language as tl  # noqa: E402
from triton.language.core import is_builtin  # noqa: E402
from triton.runtime import interpreter  # noqa: E402


@pytest.fixture(autouse=True, scope="session")
def quick_interpreter():
    """Without what takes most of the interpreter's time: it replaces triton.language's functions again at
    every call of a device function, and examines all sums and products of integers (see ``overflow_checks``).
    """
    replace_functions, builder = interpreter._patch_lang, interpreter.interpreter_builder
    options = builder.options

    @functools.cache
    def modules(function):
        return [value for value in function.__globals__.values() if value is tl or value is tl.core]

    def replace_once(function):
        if any(is_builtin(module.load) for module in modules(function)):
            return replace_functions(function)
        return interpreter._LangPatchScope()

    if hasattr(interpreter, "_LangPatchScope"):  # older versions of Triton replace them in another way
        interpreter._patch_lang = replace_once
    builder.options = dataclasses.replace(options, sanitize_overflow=False)
    yield
    interpreter._patch_lang = replace_functions
    builder.options = options


@pytest.fixture
def overflow_checks(monkeypatch):
    """A sum or product of int32 that overflows in a kernel is an error."""
    builder = interpreter.interpreter_builder
    monkeypatch.setattr(
        builder, "options", dataclasses.replace(builder.options, sanitize_overflow=True, debug=True)
    )


@pytest.fixture
def new_process(monkeypatch):
    """As if nothing had been chosen yet in this process, nor said, and no variable were set."""
    from kernel_cases import forget_choices

    from attn_kernels import choicelog, untuned

    for name in ("DEVICE", "CONFIG", "LOG"):
        monkeypatch.delenv(f"ATTN_KERNELS_{name}", raising=False)
    monkeypatch.setattr(untuned, "_told", {})
    monkeypatch.setattr(choicelog, "_seen", {})
    logger = logging.getLogger("attn_kernels")
    level, handlers = logger.level, logger.handlers[:]
    forget_choices()
    yield
    forget_choices()
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(params=["flat", "nested"])
def recorder(request, monkeypatch):
    """What would have been launched, as Triton 3.6 and as 3.9 launch."""
    from launch_recorder import Recorder, recording

    with recording(monkeypatch, Recorder(request.param == "nested")) as found:
        yield found
