"""Triton's interpreter with less bookkeeping for each operation; what it computes stays the same."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter


def quicken(patch: pytest.MonkeyPatch) -> None:
    """Skip the slowest parts of the interpreter.

    It replaces triton.language's functions at every call of a device function, checks all sums and products
    of integers (see ``overflow_checks``), and finds types and shapes anew for every operation.
    """
    replace_functions, builder = interpreter._patch_lang, interpreter.interpreter_builder

    @functools.cache
    def modules(function: Any) -> list[Any]:
        return [value for value in function.__globals__.values() if value is tl or value is core]

    def replace_once(function: Any) -> Any:
        if any(core.is_builtin(module.load) for module in modules(function)):
            return replace_functions(function)
        return interpreter._LangPatchScope()

    if hasattr(interpreter, "_LangPatchScope"):  # older versions of Triton replace them in another way
        patch.setattr(interpreter, "_patch_lang", replace_once)
    patch.setattr(builder, "options", dataclasses.replace(builder.options, sanitize_overflow=False))
    keep_types(patch)


def keep_types(patch: pytest.MonkeyPatch) -> None:
    """Keep what follows from a shape or a type, and skip promotion and broadcasting of equal types."""
    semantic = type(interpreter.interpreter_semantic)
    init_block, equal, promote = (
        core.block_type.__init__,
        core.dtype.__eq__,
        semantic.binary_op_type_checking_impl,
    )
    find_dtype = interpreter._get_np_dtype
    shapes: dict[tuple[int, ...], tuple[Any, ...]] = {}
    dtypes: dict[str, Any] = {}
    no_shape, one = core.tuple([]), core.constexpr(1)

    def make_block(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple([n.value if isinstance(n, core.constexpr) else n for n in shape])
        if key not in shapes:
            init_block(self, element_ty, shape)
            of_tensor = core.tuple([core.constexpr(n) for n in key]), core.constexpr(self.numel)
            shapes[key] = self.shape, self.numel, of_tensor, str(self.shape)
        self.element_ty = element_ty
        self.shape, self.numel, self.of_tensor, text = shapes[key]
        self.name = f"<{text}, {element_ty}>"

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = type.of_tensor if type.is_block() else (no_shape, one)

    def np_dtype(type: Any) -> Any:
        scalar = type.scalar
        if isinstance(scalar, core.pointer_type):
            return find_dtype(scalar)
        if scalar.name not in dtypes:
            dtypes[scalar.name] = find_dtype(scalar)
        return dtypes[scalar.name]

    def operands(self: Any, lhs: Any, rhs: Any, *options: Any, **named: Any) -> Any:
        if isinstance(lhs, core.tensor) and (lhs.dtype is core.int32 or lhs.dtype is core.float32):
            if isinstance(rhs, core.tensor) and lhs.dtype is rhs.dtype and lhs.shape is rhs.shape:
                return lhs, rhs
            if type(rhs) is int and lhs.dtype is core.int32 and abs(rhs) < 2**31:
                data = np.full(lhs.handle.data.shape, rhs, np.int32)
                return lhs, core.tensor(interpreter.TensorHandle(data, core.int32), lhs.type)
        return promote(self, lhs, rhs, *options, **named)

    patch.setattr(core.block_type, "__init__", make_block)
    patch.setattr(core.tensor, "__init__", make_tensor)
    patch.setattr(core.dtype, "__eq__", lambda self, other: self is other or equal(self, other))
    patch.setattr(interpreter, "_get_np_dtype", np_dtype)
    patch.setattr(semantic, "binary_op_type_checking_impl", operands)
