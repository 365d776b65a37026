"""Read and check one kernel of the spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import fields
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

from treegen.core import expr
from treegen.core.errors import Mistakes, reason, shown
from treegen.core.files import problem_with_package_name
from treegen.core.spec import (
    Budget,
    Config,
    Constraint,
    KernelSpec,
    ModelClass,
    Parameter,
    Regime,
    Translation,
    fixed_features,
)
from tuning_table.section import REQUIRED, Section, Word, one_of
from tuning_table.table import LARGEST_PARAMETER

OTHERWISE = "otherwise"
_MOST_FEATURES = 256
_DEEPEST = 32
_TRITON = ("triton", "tl")
# What functions of the printed module use beside a step's features, and beside those of a model.
_PRINTED_BY_STEP = {"at_most", "config", "for_model", "passed_over", "ranked"}
_PRINTED_BY_MODEL = {"bound", "launched", "step"}
Parsed = TypeVar("Parsed", expr.Expression, expr.Call)


class KernelReader:
    """Reads each part of a `KernelSpec` when it is first asked for, from the kernel's words and other parts.

    A property is the part of that name, or raises InputError. What is wrong with a part is an error of all
    that depend on it, and `Mistakes` tells it once.
    """

    def __init__(
        self, kernels: Section, name: str, limits_of: Mapping[str, Collection[str]], folder: Path
    ) -> None:
        """limits_of: the names of each device's limits. folder: of the spec."""
        self._kernels, self._name, self._limits_of, self._folder = kernels, name, limits_of, folder
        self._words: Section = kernels[name]
        self._any_limit = dict.fromkeys(limit for limits in limits_of.values() for limit in limits)

    def read(self) -> KernelSpec:
        """The whole kernel. Raises InputError with all mistakes that can be judged."""
        parts: dict[str, Any] = {}
        mistakes = Mistakes()
        for field in fields(KernelSpec):
            with mistakes.collect():
                is_word = not hasattr(type(self), field.name)  # `hook` is what the spec says
                parts[field.name] = self._words[field.name] if is_word else getattr(self, field.name)
        with mistakes.collect():
            self._refuse_printed()
        mistakes.refuse()
        return KernelSpec(**parts)

    @property
    def name(self) -> str:
        check_names(self._kernels, [self._name])
        return self._name

    # Names

    @cached_property
    def features(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self._words["features"]
        check_names(self._words, names, self._any_limit, key="features", capitals=True)
        return names

    @property
    def _limits(self) -> dict[str, bool]:
        """The limits that every device of this kernel states; none of them is a condition."""
        stated = [self._limits_of[key] for key in self._words["tables"] if key in self._limits_of]
        return {limit: False for limit in self._any_limit if all(limit in limits for limits in stated)}

    @cached_property
    def _formulas(self) -> tuple[dict[str, expr.Expression], dict[str, bool], Mistakes]:
        """The derived features that can be read, all features, and what is wrong with the others.

        With each feature stands whether it may be joined by and, or, not; one that cannot be read may.
        """
        section, mistakes = self._words["derived"], Mistakes()
        with mistakes.collect():
            check_names(section, section, {*self.features, *self._any_limit}, capitals=True)
        formulas: dict[str, expr.Expression] = {}
        degrees: dict[str, int] = {}
        known = dict.fromkeys(self.features, False)
        for name in section:
            may_be_condition = True
            with mistakes.collect():
                formula = _parsed(expr.parse, section, name, known | self._limits)
                degrees[name] = expr.degree(formula, degrees)
                if degrees[name] > expr.MAX_DEGREE:  # numbers would grow so long that `choose` takes years
                    what = f"multiplies {degrees[name]} numbers; {expr.MAX_DEGREE} are the most"
                    raise section.error(name, what)
                formulas[name], may_be_condition = formula, expr.is_condition(formula)
            known[name] = may_be_condition
        return formulas, known, mistakes

    @cached_property
    def derived(self) -> dict[str, expr.Expression]:
        formulas, known, mistakes = self._formulas
        mistakes.refuse()
        if len(known) > _MOST_FEATURES:
            what = f"has {len(known)} features with derived ones; {_MOST_FEATURES} are the most"
            raise self._words.error(None, what)
        return formulas

    @property
    def _known(self) -> dict[str, bool]:
        """All features, with whether each is a condition."""
        return self._formulas[1]

    @cached_property
    def constants(self) -> tuple[str, ...]:
        names = self._listed("constants", "raw feature", self.features)
        if len(names) == len(self.features):
            raise self._words.error("constants", "leaves no feature that changes from step to step")
        return names

    @cached_property
    def _fixed(self) -> dict[str, bool]:
        fixed = fixed_features(self.features, self.constants, self.derived)
        return {name: self._known[name] for name in fixed}

    @cached_property
    def _steps(self) -> dict[str, bool]:
        return {name: condition for name, condition in self._known.items() if name not in self._fixed}

    @property
    def hold_out_by(self) -> tuple[str, ...]:
        return self._listed("hold_out_by", "feature", self._known) or self.constants

    # Configs

    @cached_property
    def variants(self) -> tuple[str, ...]:
        return self._words["config"]["variants"] or (self._name,)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        config = self._words["config"]
        entries = config["parameters"]
        if not entries and len(self.variants) == 1:
            raise config.error(None, "needs a parameter or at least two variants, to have a choice")
        check_names(entries, entries, {*self._known, *self._any_limit}, capitals=True)
        parameters: dict[str, Parameter] = {}
        mistakes = Mistakes()
        for name in entries:
            with mistakes.collect():
                entry = entries[name]
                parameter = Parameter(*([entry] if isinstance(entry, str) else entry.all().values()))
                if parameter.letters in [other.letters for other in parameters.values()]:
                    what = f"the letters {parameter.letters} are taken by another parameter"
                    raise entries.error(name, what)
                parameters[name] = parameter
        mistakes.refuse()
        return parameters

    def _refuse_printed(self) -> None:
        """Refuse names that the printed module uses itself, and those that configs' constants would share."""
        letters = "|".join(parameter.letters for parameter in self.parameters.values())
        values = f"(_({letters})[0-9]+)*" if letters else ""
        # Constants leave out defaults, so those of a variant `split_m64` and of `split` could be the same.
        if any(parameter.default is not None for parameter in self.parameters.values()):
            for variant, short in permutations(self.variants, 2):
                if re.fullmatch(short + values, variant, flags=re.IGNORECASE):
                    what = f"{shown(variant)} reads like {short} with a parameter, so constants would clash"
                    raise self._words["config"].error("variants", what)
        constant = re.compile(f"({'|'.join(map(str.upper, self.variants))}){values}")
        of_regimes = [name for regime in self.regimes for name in (regime.name, regime.name.upper())]
        of_model = {*self._fixed, *of_regimes}
        for name in (*self._known, *self._any_limit, *self.parameters, *of_regimes):
            printed = _PRINTED_BY_STEP | (_PRINTED_BY_MODEL if name in of_model else set())
            if name in printed and name not in self.parameters:
                what = f"the name {shown(name)} is one that the printed module uses itself"
                raise self._words.error(None, what)
            if constant.fullmatch(name):
                what = f"the name {shown(name)} could be that of a config's constant"
                raise self._words.error(None, what)

    @property
    def fallback(self) -> Config:
        numbers = {
            name: Word(int, REQUIRED if p.default is None else p.default, least=0, most=LARGEST_PARAMETER)
            for name, p in self.parameters.items()
        }
        given = self._words["fallback"].given
        words = self._words.part("fallback", given, Word(inside={"variant": self._variant, **numbers})).all()
        return Config(words.pop("variant"), tuple(words.items()))

    @property
    def _variant(self) -> Word:
        """The word for a variant; it may be left out where there is only one."""
        default = self.variants[0] if len(self.variants) == 1 else REQUIRED
        return Word(str, default, check=one_of(self.variants))

    # Conditions

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        names = self._known | self._limits | dict.fromkeys(self.parameters, False)
        return self._constraints("constraints", names)

    @property
    def invariants(self) -> tuple[Constraint, ...]:
        return self._constraints("invariants", self._known | self._limits)

    def _constraints(self, key: str, known: Mapping[str, bool]) -> tuple[Constraint, ...]:
        entries = self._words[key]
        constraints: list[Constraint] = []
        mistakes = Mistakes()
        for place in range(len(entries)):
            with mistakes.collect():
                section, at = _where(entries, place, "holds")
                test = _parsed(expr.parse_condition, section, at, known)
                text, variants = section[at], None
                if section is not entries:
                    variants = section["variants"]
                    section.refuse_unknown("variant", variants, self.variants, key="variants")
                if text in [other.text for other in constraints]:
                    raise entries.error(place, f"names {shown(text)} twice")
                constraints.append(Constraint(text, test, entries.line_of(place), variants))
        mistakes.refuse()
        return tuple(constraints)

    @property
    def in_kernel(self) -> bool:
        """Whether Triton kernels find the row of a step themselves."""
        if not self._words["in_kernel"]:
            return False
        for name in _TRITON:
            if name in self._known:
                what = f"{shown(name)} is the name of a module that functions for Triton use; rename it"
                raise self._words.error("in_kernel", what)
        for rule in self.constraints:
            if rule.names & self._steps.keys():
                what = f"the constraint {shown(rule.text)} is about steps; a row says nothing of these"
                raise self._words.error("in_kernel", what)
        if self._invariant_to:
            what = "is proved of Python modules alone, so in_kernel must be false"
            raise self._words.error("invariant_to", what)
        return True

    @cached_property
    def regimes(self) -> tuple[Regime, ...]:
        deciding = tuple(name for name in self._steps if not self._undecided(name))
        split_on = self._listed("split_on", "feature of steps", self._steps) or deciding
        entries = self._words["regimes"]
        check_names(entries, entries)
        regimes = []
        for name in entries:
            section, key = _where(entries, name, "when")
            when = self._when(section, key, self._steps, last=name == [*entries][-1])
            if section is entries:
                regimes.append(Regime(name, when, split_on))
            else:
                own = self._listed("split_on", "feature of steps", self._steps, section)
                regimes.append(Regime(name, when, own or split_on, section["max_rows"]))
        regimes = regimes or [Regime("steps", None, split_on)]
        for regime in regimes:
            if not {regime.name, regime.name.upper(), f"{regime.name}_row"}.isdisjoint(self._known):
                what = f"the regime {shown(regime.name)} and a feature would share a name"
                raise self._words.error("regimes" if entries else None, what)
        return tuple(regimes)

    @property
    def classes(self) -> tuple[ModelClass, ...]:
        entries = self._words["classes"]
        check_names(entries, entries)
        whens = {n: self._when(entries, n, self._fixed, last=n == [*entries][-1]) for n in entries}
        return tuple(ModelClass(n, when) for n, when in whens.items()) or (ModelClass("all", None),)

    def _when(self, section: Section, key: str, known: Mapping[str, bool], *, last: bool) -> expr.Call | None:
        """A condition; None for `otherwise`, which the last entry of a section, and no other, must be."""
        if (section[key] == OTHERWISE) != last:
            what = "the last one must be" if last else "only the last one may be"
            raise section.error(key, f"{what} {OTHERWISE!r}, so that each has exactly one")
        return None if last else _parsed(expr.parse_condition, section, key, known)

    @property
    def invariant_to(self) -> tuple[str, ...]:
        asking = {f"constraint {shown(rule.text)}": {*rule.names} for rule in self.constraints}
        for regime in self.regimes:
            asked = expr.names(regime.when) if regime.when else ()
            asking[f"regime {shown(regime.name)}"] = {*regime.split_on, *asked}
        for what, names in asking.items():
            for name in self._steps:
                if name in names and (source := self._undecided(name)):
                    because = "" if source == name else f", which depends on {shown(source)}"
                    problem = f"the {what} asks about {shown(name)}{because}"
                    raise self._words.error("invariant_to", problem)
        return self._invariant_to

    @cached_property
    def _invariant_to(self) -> tuple[str, ...]:
        steps = [name for name in self.features if name in self._steps]
        return self._listed("invariant_to", "raw feature of steps", steps)

    def _undecided(self, name: str) -> str | None:
        """The feature of `invariant_to` that a name is or depends on, if there is one."""
        parts = expr.with_parts([name], self.derived)
        return next((feature for feature in self._invariant_to if feature in parts), None)

    # The rest

    @property
    def budget(self) -> Budget:
        return Budget(**self._words["tree"].all())

    @property
    def weight(self) -> expr.Expression:
        section = self._words["objective"]
        if isinstance(number := section["weight"], int):
            return expr.Number(number)
        return _parsed(expr.parse, section, "weight", self._known | self._limits)

    @property
    def values(self) -> dict[str, dict[int, str]]:
        section = self._words["values"]
        section.refuse_unknown("feature or parameter", section, [*self._known, *self.parameters])
        return {name: section.by_number(name) for name in section}

    @property
    def translations(self) -> dict[str, Translation]:
        names = one_of([*self._known, *self.parameters])
        words = {
            "variant": self._variant,
            "rename": Word(dict, others=Word(str, check=names)),
            "constants": Word(dict, {}, others=Word(int)),
        }
        entries = self._words["translate"]
        translations = {}
        for kernel in entries:
            entry = entries.part(kernel, entries[kernel].given, Word(inside=words))
            columns, constants = entry["rename"], entry["constants"]
            constants.refuse_unknown("feature", constants, self.features)
            translations[kernel] = Translation(entry["variant"], columns.all(), constants.all())
        return translations

    @property
    def tables(self) -> dict[str, Path]:
        entries = self._words["tables"]
        entries.refuse_unknown("device", entries, self._limits_of)
        return {key: folder_below(*_where(entries, key, "folder"), self._folder) for key in entries}

    @property
    def measured_on(self) -> dict[str, str]:
        """The GPU of each table that another GPU measured, by device."""
        entries = self._words["tables"].items()
        return {key: entry["measured_on"] for key, entry in entries if isinstance(entry, Section)}

    def _listed(
        self, key: str, kind: str, known: Collection[str], section: Section | None = None
    ) -> tuple[str, ...]:
        """The names in the list under `key`, all of them known."""
        section = self._words if section is None else section
        names: tuple[str, ...] = section[key]
        section.refuse_unknown(kind, names, known, key=key)
        return names


def _where(entries: Section, key: Any, word: str) -> tuple[Section, Any]:
    """Where an entry says what `word` means: in itself, or under that word of a mapping."""
    entry = entries[key]
    return (entry, word) if isinstance(entry, Section) else (entries, key)


def _parsed(
    parse: Callable[[str, Mapping[str, bool]], Parsed], section: Section, key: Any, known: Mapping[str, bool]
) -> Parsed:
    """The expression or condition under `key`. known: the names that it may hold (see `expr.parse`)."""
    try:
        return parse(section[key], known)
    except expr.ExpressionError as error:
        raise section.error(key, str(error)) from None


def folder_below(section: Section, key: str, folder: Path) -> Path:
    """The folder below `folder` that the value of `key` names."""
    text: str = section[key]
    try:
        path: Path = (folder / text).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise section.error(key, f"{shown(text)} cannot be a folder: {reason(error)}") from None
    if path == folder or not path.is_relative_to(folder):
        raise section.error(key, f"{shown(text)} must be a folder below the one that holds the spec")
    if len(path.relative_to(folder).parts) > _DEEPEST:
        raise section.error(key, f"{shown(text)} is more than {_DEEPEST} folders deep")
    return path


def check_names(
    section: Section,
    names: Iterable[str],
    taken: Container[str] = (),
    *,
    key: str | None = None,
    capitals: bool = False,
) -> None:
    """Refuse names that a generated package cannot have or that are taken.

    key: the key whose value holds the names; None if the names are keys of the section themselves.
    capitals: whether names may have some; files and folders may not.
    """
    mistakes = Mistakes()
    for name in names:
        problem = problem_with_package_name(name, capitals=capitals)
        if problem is None and name in taken:
            problem = "is the name of something else already"
        with mistakes.collect():
            if problem is not None:
                raise section.error(key or name, f"{shown(name)} {problem}")
    mistakes.refuse()
