"""A mapping of a YAML file. A schema says what may stand in it, and every error names its line."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tuning_table.errors import Mistakes, TableError, shown
from tuning_table.names import is_word
from tuning_table.strict_yaml import Lines, Place
from tuning_table.table import LARGEST

REQUIRED: Any = object()
_KINDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_KINDS |= {list: "a list", dict: "a mapping"}


@dataclass(frozen=True)
class Word:
    """What may stand under a key."""

    kinds: type | tuple[type, ...] = object  # a list holds different texts, unless `items` says otherwise
    default: Any = REQUIRED  # a list of texts may be empty only if this is ()
    meaning: str = ""
    inside: "Mapping[str, Word]" = field(default_factory=dict)  # of a mapping: what stands under these keys
    others: "Word | None" = None  # of a mapping: what stands under all other keys
    items: "Word | None" = None  # of a list
    least: float = -LARGEST  # of numbers
    most: float = LARGEST
    check: Callable[[Any], str | None] = lambda value: None  # says what is wrong with a text or a number


def must(test: Callable[[Any], object], what: str) -> Callable[[Any], str | None]:
    """A check of a `Word`: that its value passes a test. what: as in `must be lower case`."""
    return lambda value: None if test(value) else f"{what}, not {shown(value)}"


def one_of(choices: Collection[object]) -> Callable[[Any], str | None]:
    """A check of a `Word`: that its value is among the choices."""
    return must(
        choices.__contains__, f"must be {'one of ' * (len(choices) > 1)}{', '.join(map(str, choices))}"
    )


def quoting(problem_with: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """A check of a `Word` from a function that says what is wrong with a name."""
    return lambda name: (problem := problem_with(name)) and f"{shown(name)} {problem}"


class Section(Mapping[Any, Any]):
    """One mapping of a YAML file; lists of anything but texts are mappings of their positions.

    A value is checked when it is read: `section[key]` is the value or its default, or raises TableError.
    """

    def __init__(
        self,
        path: Path,
        given: Mapping[Any, Any],
        lines: Lines,
        word: Word,
        mistakes: Mistakes | None = None,
        place: Place = (),
    ) -> None:
        """lines: of all parts of the file; without them, errors name none. place: of this mapping.

        mistakes: collects the unknown keys of this mapping and its parts; without it, they are refused.
        """
        self.path, self.given, self.place = path, given, place
        self._lines, self._word, self._mistakes = lines, word, mistakes
        if word.others is None:
            with mistakes.collect() if mistakes else nullcontext():
                self.refuse_unknown("word", given, word.inside)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def __contains__(self, key: object) -> bool:
        return key in self.given

    def __getitem__(self, key: Any) -> Any:
        word = self._word.inside.get(key, self._word.others)
        if word is None:
            raise KeyError(key)
        if key in self.given:
            return self._checked(key, word)
        if word.default is REQUIRED:
            raise self.error(None, f"lacks '{key}'" + (f": {word.meaning}" if word.meaning else ""))
        return self.part(key, {}, word) if word.default == {} else word.default

    def _checked(self, key: Any, word: Word) -> Any:
        value = self.given[key]
        kinds = word.kinds if isinstance(word.kinds, tuple) else (word.kinds,)
        if object in kinds:
            return value
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(_KINDS[kind] for kind in kinds)
            raise self.error(key, f"must be {expected}, not {shown(value)}")
        if isinstance(value, dict):
            return self.part(key, value, word)
        if isinstance(value, list):
            if word.items is None:
                return self._names(key, word)
            return self.part(key, dict(enumerate(value)), Word(others=word.items))
        if isinstance(value, int | float) and not word.least <= value <= word.most:  # NaN is in no range
            raise self.error(key, f"must be between {word.least} and {word.most}, not {shown(value)}")
        if problem := word.check(value):
            raise self.error(key, problem)
        return float(value) if isinstance(value, int) and float in kinds else value

    def _names(self, key: Any, word: Word) -> tuple[str, ...]:
        names: list[str] = []
        for value in self.given[key]:
            if not isinstance(value, str):
                raise self.error(key, f"holds {shown(value)}, which is not a word")
            if value in names:
                raise self.error(key, f"names {shown(value)} twice")
            if problem := word.check(value):
                raise self.error(key, problem)
            names.append(value)
        if not names and word.default != ():
            raise self.error(key, "is empty")
        return tuple(names)

    def part(self, key: Any, given: Mapping[Any, Any], word: Word) -> Self:
        """A mapping under a key, as a section."""
        return type(self)(self.path, given, self._lines, word, self._mistakes, (*self.place, key))

    def all(self) -> dict[Any, Any]:
        """Every value by its key, defaults included. Raises one error for all that are wrong."""
        values = {}
        mistakes = Mistakes()
        for key in {**self._word.inside, **(self.given if self._word.others else {})}:
            with mistakes.collect():
                values[key] = self[key]
        mistakes.refuse()
        return values

    def line_of(self, *keys: str | int | None) -> int:
        """The line of what the keys lead to, or of the whole mapping if it lacks that; 0 if unknown."""
        places = (*self.place, *keys), (*self.place, None), self.place
        return next((self._lines[place] for place in places if place in self._lines), 0)

    def error(self, key: str | int | None, what: str) -> TableError:
        """An error about `key` of this mapping, or about the whole mapping if `key` is None."""
        names = [*self.place, *([] if key is None else [key])]
        where = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
        text = f"{where[1:]}: {what}" if where else what
        return TableError(self.path, text, line=self.line_of(key) or None)

    def refuse_unknown(
        self, kind: str, names: Iterable[str], known: Collection[str], *, key: str | None = None
    ) -> None:
        """Refuse names that are not in `known`.

        kind: what the names stand for. key: where the names stand; None if they are themselves keys.
        """
        mistakes = Mistakes()
        for name in names:
            if name not in known:
                what = f"unknown {kind} {shown(name)}; known here: {', '.join(known)}"
                with mistakes.collect():
                    raise self.error(key or name, what)
        mistakes.refuse()

    def by_number(self, key: str) -> dict[int, str]:
        """The words of a list by their places from 0, or those of `{word: integer}` by their integers."""
        listed = self[key]
        for word in listed:
            if not is_word(word):
                raise self.error(key, f"{shown(word)} is no word (letters, digits, spaces and _ . % / + -)")
        words = dict(listed) if isinstance(listed, Section) else {word: n for n, word in enumerate(listed)}
        if len(set(words.values())) < len(words) or not words:
            raise self.error(key, "needs words with different integers")
        return {number: word for word, number in words.items()}
