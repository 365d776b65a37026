"""Which configs a generated ``choose`` can return where only some of its features are known.

The function is called with values that stand for any integer, once for each sequence of answers that their
comparisons can have: symbolic execution by operator overloading, without a solver. Answers that contradict
each other are not told from others, so a config too many may be found, but never one too few.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

# Features of a batch, which change from step to step; all others belong to a model.
BATCH_FEATURES = ("num_seqs", "num_query_tokens", "num_kv_tokens", "max_query_len", "max_seq_len")

Choice = TypeVar("Choice", bound=Hashable)


class AnyInt:
    """An integer that may be any, and so may all that is computed from it: ``decide`` answers comparisons."""

    def __init__(self, decide: Callable[[], bool]) -> None:
        self._decide = decide

    def _computed(self, *_: Any) -> "AnyInt":
        return self

    def _compared(self, _: Any) -> bool:
        return self._decide()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _computed
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __lshift__ = __rlshift__ = _computed
    __neg__ = __pos__ = __abs__ = bit_length = _computed
    __lt__ = __le__ = __gt__ = __ge__ = _compared
    __eq__ = __ne__ = _compared
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self._decide()


def reachable(choose: Callable[..., Choice], **known: int) -> list[Choice]:
    """What ``choose`` may return for batches of a model; ``known``: the features that are not a batch's."""
    found: dict[Choice, None] = {}
    pending: list[tuple[bool, ...]] = [()]
    while pending:
        given = pending.pop()
        choice, answers = _follow(choose, given, known)
        found[choice] = None
        pending += [(*answers[:place], False) for place in range(len(given), len(answers))]
    return list(found)


def _follow(
    choose: Callable[..., Choice], given: tuple[bool, ...], known: dict[str, int]
) -> tuple[Choice, list[bool]]:
    """What ``choose`` returns if its comparisons have the answers ``given``, then True; and all answers."""
    answers: list[bool] = []

    def decide() -> bool:
        place = len(answers)
        answers.append(given[place] if place < len(given) else True)
        return answers[-1]

    return choose(**dict.fromkeys(BATCH_FEATURES, AnyInt(decide)), **known), answers
