"""The configs that a generated ``choose`` can return where only some of its features are known.

The function is called with symbolic integers, once for each sequence of results that their comparisons can
have. This is symbolic execution by operator overloading, without a solver. Contradictory results are not
recognised, so the search may find a config too many, but never one too few.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

# Features of a batch, which change from step to step; all others belong to a model.
BATCH_FEATURES = ("num_seqs", "num_query_tokens", "num_kv_tokens", "max_query_len", "max_seq_len")

Choice = TypeVar("Choice", bound=Hashable)


class AnyInt:
    """A symbolic integer. Its expressions are symbolic, too; its comparisons return ``next_result()``."""

    def __init__(self, next_result: Callable[[], bool]) -> None:
        self._next_result = next_result

    def _computed(self, *_: Any) -> "AnyInt":
        return self

    def _compared(self, _: Any) -> bool:
        return self._next_result()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _computed
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rlshift__ = _computed
    __neg__ = __pos__ = __abs__ = bit_length = _computed
    __lt__ = __le__ = __gt__ = __ge__ = _compared
    __eq__ = __ne__ = _compared
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self._next_result()


def reachable(
    choose: Callable[..., Choice], unknown: Iterable[str] = BATCH_FEATURES, /, **known: int
) -> list[Choice]:
    """List what ``choose`` can return for batches of a model; ``known`` are the model's features."""
    choices: dict[Choice, None] = {}
    pending: list[tuple[bool, ...]] = [()]
    while pending:
        prefix = pending.pop()
        choice, results = _follow(choose, prefix, tuple(unknown), known)
        choices[choice] = None
        pending += [(*results[:place], False) for place in range(len(prefix), len(results))]
    return list(choices)


def _follow(
    choose: Callable[..., Choice], prefix: tuple[bool, ...], unknown: Iterable[str], known: dict[str, int]
) -> tuple[Choice, list[bool]]:
    """Call ``choose`` with comparisons that give ``prefix``, then True; return the choice and all results."""
    results: list[bool] = []

    def next_result() -> bool:
        place = len(results)
        results.append(prefix[place] if place < len(prefix) else True)
        return results[-1]

    return choose(**dict.fromkeys(unknown, AnyInt(next_result)), **known), results
