"""Make the arguments of a call, record its launches, and compare its result with the reference's."""

import contextlib
import io
import logging
import math
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_only

from triton_tune.kernel.autotuned import AutotunedKernel, Launch, jitted
from triton_tune.kernel.tuning import Tuning
from triton_tune.launch.choosing import DOES_NOT_FIT
from triton_tune.record.recorder import changed, is_narrow

# The largest error of a result, as a part of the reference's largest magnitude.
TOLERANCES = {
    torch.float64: 1e-6,
    torch.float32: 2e-3,  # products of TF32
    torch.float16: 1e-2,
    torch.bfloat16: 2e-2,
}
NARROW = 0.1  # of floating types with 8 bits or fewer


Call = partial[Any]
"""`Tuning.call` with its arguments."""


def make(tuning: Tuning, shape: Mapping[str, Any], device: torch.device, seed: int = 0) -> Call:
    """The call for a shape. The same seed gives the same arguments if they come from seeded generators."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    with device:
        made = tuning.arguments(**shape)
    if isinstance(made, Mapping):
        return partial(tuning.call, **made)
    return partial(tuning.call, *(made if isinstance(made, list | tuple) else (made,)))


def on_copies(call: Call, function: Callable[..., Any] | None = None) -> Any:
    """What a call, or another function of its arguments, returns for copies of the tensors."""
    args, kwargs = tree_map_only(torch.Tensor, torch.clone, (call.args, call.keywords))
    return (function or call.func)(*args, **kwargs)


@contextlib.contextmanager
def described_alone(kernel: AutotunedKernel) -> Iterator[None]:
    """Let tensors have no memory, so that reading a value or an address fails, and launches do nothing."""
    mode, log = FakeTensorMode(allow_non_fake_inputs=True), logging.getLogger(fake_tensor.__name__)
    mode._allow_unsafe_data_ptr_access = False
    disabled, log.disabled = log.disabled, True  # it would log errors that are raised anyway
    kind: Any = next(each for each in type(jitted(kernel.tuner)).__mro__ if "run" in vars(each))
    run, kind.run = kind.run, lambda *args, **kwargs: None  # of all kernels
    try:
        with mode:
            yield
    finally:
        log.disabled, kind.run = disabled, run


class _Enough(BaseException):
    """Ends a call at its first launch; the user's code cannot catch it with `except Exception`."""


def first_launch(kernel: AutotunedKernel, call: Call) -> Launch | None:
    """The first launch of a call, which ends there; None if the call launches nothing."""
    launches: list[Launch] = []

    def note(launch: Launch) -> None:
        launches.append(launch)
        raise _Enough

    with kernel.launched_by(note), contextlib.suppress(_Enough):
        call()
    return launches[0] if launches else None


class _WithoutMemory(pickle.Pickler):
    """Pickles tensors as meta tensors, unless they are unaligned, for which Triton compiles otherwise."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        if value.data_ptr() % 16:
            raise ValueError("an address that is no multiple of 16")
        sizes = tuple(value.shape), value.stride()
        return partial(torch.empty_strided, dtype=value.dtype, device="meta"), sizes


def without_memory(launch: Launch) -> bytes | None:
    """A pickled launch, without its grid, by which another process can compile the kernel; else None."""
    pickled = io.BytesIO()
    try:
        _WithoutMemory(pickled).dump(replace(launch, grid=None))
    except Exception:  # whatever classes of the user's raise
        return None
    return pickled.getvalue()


def launches_of(kernel: AutotunedKernel, call: Call, config: Any) -> tuple[Launch, ...]:
    """All launches of a call, each of which is made with `config`."""
    launches: list[Launch] = []

    def run(launch: Launch) -> None:
        launches.append(launch)
        kernel.run(launch, config)

    with kernel.launched_by(run):
        call()
    return tuple(launches)


def result_of(kernel: AutotunedKernel, call: Call, config: Any) -> Any:
    """What a call returns with `config`, or if its launches do nothing (None).

    Unwritten memory holds NaN, or the largest integer.
    """
    run = (lambda launch: None) if config is None else (lambda launch: kernel.run(launch, config))
    with kernel.launched_by(run), _poisoned_memory():
        return on_copies(call)


def agreed_result(
    kernel: AutotunedKernel, call: Call, judges: Sequence[str], tolerance: float | None, untouched: Any
) -> Any:
    """The result on which two of these configs agree, or that of the only one that can be launched.

    Raises RuntimeError if no two agree, and the last error if none can be launched.
    """
    results: list[Any] = []
    difference: str | None = ""
    failed: Exception | None = None
    for judge in judges:
        try:
            result = result_of(kernel, call, kernel.configs[judge].config)
        except DOES_NOT_FIT as error:
            failed = error
            continue
        for other in results:
            difference = disagreement(result, other, tolerance, untouched)
            if difference is None:
                return result
        results.append(result)
    if len(results) == 1:
        return results[0]
    if failed and not results:
        raise failed
    raise RuntimeError(f"the results of its configs differ: {difference}")


def disagreement(result: Any, expected: Any, tolerance: float | None, untouched: Any = None) -> str | None:
    """How results differ beyond a tolerance (``Tuning.tolerance``), in words; None if they agree.

    Of several outputs, the first that differs is named as Python would take it from the result. With
    `untouched`, the result before any launch, only elements count that either launch has changed.
    """
    ours, theirs = _tensors(result), _tensors(expected)
    if not ours or len(ours) != len(theirs):
        return f"{len(ours)} tensors instead of {len(theirs)}"
    before = _tensors(untouched) if untouched is not None else [None] * len(ours)
    for (place, one), (_, other), initial in zip(ours, theirs, before, strict=True):
        if initial is not None:
            one, other = _changed(one, other, initial[1])
        difference = _difference(one, other, tolerance)
        if difference is not None:
            return difference if len(ours) == 1 else f"output{place}: {difference}"
    return None


def _changed(
    one: torch.Tensor, other: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of two tensors of which either differs from those before a launch."""
    one, other, before = (t.float() if is_narrow(t.dtype) else t for t in (one, other, before))
    either = changed(one, before) | changed(other, before)
    return one[either], other[either]


def _difference(result: torch.Tensor, expected: torch.Tensor, tolerance: float | None) -> str | None:
    if result.shape != expected.shape:
        return f"shape {list(result.shape)} instead of {list(expected.shape)}"
    if not result.is_floating_point():
        exact = torch.float64 if expected.is_floating_point() else torch.int64
        return None if torch.equal(result.to(exact), expected.to(exact)) else "integers differ"
    allowed = TOLERANCES.get(result.dtype, NARROW) if tolerance is None else tolerance
    if not expected.numel():
        return None
    wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
    ours, theirs = result.to(wide), expected.to(wide)
    both = torch.isfinite(theirs)
    if not torch.allclose(ours[~both], theirs[~both], rtol=0, atol=0, equal_nan=True):
        return "infinities or NaN differ"
    error = float(torch.where(both, ours - theirs, 0).abs().max())
    largest = float(torch.where(both, theirs, 0).abs().max())
    if error <= allowed * largest:  # not so for NaN
        return None
    if math.isnan(error):
        return "NaN where the reference has none; memory that nothing wrote holds NaN"
    part = error / largest if largest else math.inf
    return f"error {part:.0e} of the largest magnitude, allowed {allowed:.0e}"


def _tensors(result: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a result, each with its place, such as `[1]`."""
    leaves, _ = tree_flatten_with_path(result)
    return [(keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Fill what torch.empty returns with NaN or the largest integer, which torch does for determinism."""
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)
