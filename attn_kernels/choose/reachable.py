"""The configs that a generated ``choose`` can return where only the model is known.

The function is called with symbolic lengths, once for each sequence of results that their comparisons can
have. This is symbolic execution by operator overloading, without a solver. Contradictory results are not
recognised, so the search may find a config too many, but never one too few.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from attn_kernels.core.lengths import Lengths

Choice = TypeVar("Choice", bound=Hashable)


class AnyInt:
    """A symbolic integer. Its expressions are symbolic, too; its comparisons return ``next_result()``."""

    def __init__(self, next_result: Callable[[], bool]) -> None:
        self._next_result = next_result

    def _computed(self, *_: Any) -> "AnyInt":
        return self

    def _compared(self, *_: Any) -> bool:
        return self._next_result()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _computed
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rlshift__ = _computed
    __neg__ = __pos__ = __abs__ = bit_length = _computed
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = _compared
    __hash__ = None  # type: ignore[assignment]


def reachable(choose: Callable[..., Choice], lengths: Iterable[str] = Lengths._fields) -> list[Choice]:
    """List what ``choose`` can return, whatever integers these keyword arguments are."""
    names = tuple(lengths)
    choices: dict[Choice, None] = {}
    pending: list[tuple[bool, ...]] = [()]  # results of the first comparisons; the others are True
    while pending:
        prefix = pending.pop()
        results: list[bool] = []

        def next_result(prefix: tuple[bool, ...] = prefix, results: list[bool] = results) -> bool:
            results.append(prefix[len(results)] if len(results) < len(prefix) else True)
            return results[-1]

        choices[choose(**dict.fromkeys(names, AnyInt(next_result)))] = None
        pending += [(*results[:place], False) for place in range(len(prefix), len(results))]
    return list(choices)
