"""What a tree was fitted by beside its table's times: where that changed, the previous tree is not kept."""

from __future__ import annotations

from collections.abc import Mapping

from treegen.core import expr
from treegen.core.errors import one_line
from treegen.core.files import digest
from treegen.core.problem import UNTIMED_SLOWDOWN, Problem

STACK = ("driver", "torch", "triton", "source_hash")
"""The keys of run.yaml that name the software that ran the kernel."""

_WORDS = {"torch": "PyTorch", "triton": "Triton", "source_hash": "the kernel's source"}
_LONGEST = 100  # characters of a value of run.yaml

FitInputs = Mapping[str, str]
"""Features, budget and objective as the spec has them, and the values of `STACK`, as the lock holds them."""


def fit_inputs_of(problem: Problem) -> dict[str, str]:
    """What a fresh tree is fitted by."""
    kernel, run = problem.kernel, problem.table.provenance
    known = {
        name: expr.to_text(expr.substitute(expression, problem.device.limits))
        for name, expression in kernel.derived.items()
        if name in problem.names
    }
    objective = expr.to_text(kernel.weight), UNTIMED_SLOWDOWN
    return {
        "features": digest(repr((problem.kernel.regimes, problem.kernel.classes, known)))[:16],
        "budget": digest(repr(kernel.budget))[:16],
        "objective": digest(repr(objective))[:16],
        **{key: one_line(str(run[key]))[:_LONGEST] for key in STACK if run.get(key) is not None},
    }


def changed_inputs(before: FitInputs | None, now: FitInputs) -> str | None:
    """What differs between two, in words; None if nothing does, or the one before is unknown."""
    if not before:
        return None
    words = [f"the {key} of the spec" for key in now if key not in STACK and before.get(key) != now[key]]
    return f"{' and '.join(words)} changed since it was fitted" if words else None


def stack_word(key: str) -> str:
    return _WORDS.get(key, f"the {key}")
