"""Hypothesis strategies: integers as an attacker passes them, expressions, kernels and their heuristics."""

import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from treegen.core.expr import Call, Expression, Name, Number
from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree
from treegen.core.spec import (
    Budget,
    Config,
    Constraint,
    KernelSpec,
    ModelClass,
    Parameter,
    Regime,
    fixed_features,
)

FEATURES = ("rows", "columns", "heads")
LIMITS = {"shared_memory": 200}


def examples(count: int, *, shrink: bool = True) -> settings:
    """Settings for `count` examples, whose fixtures may be slow; raise `count` to explore."""
    return settings(
        phases=(Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ())),
        max_examples=count,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


any_integer = st.one_of(
    st.integers(-20, 200),
    st.integers(-(10**6), 10**6),
    st.sampled_from([10**18, -(10**18), 2**62, -(2**62), 2**63, -(2**63) - 1, 10**30]),
    st.integers(),
)

points = st.fixed_dictionaries(dict.fromkeys(FEATURES, any_integer))


_SIGNS = ("<=", ">=", "<", ">", "==", "!=")
_NUMBERS = (-7, -1, 0, 1, 2, 3, 5, 16, 33, 64, 1000, 10**6)
_POINTS = (-(2**63), -(10**18), -1000, -2, -1, 0, 1, 2, 3, 4, 8, 15, 16, 33, 64, 100, 4096, 10**6, 2**62)
_POINTS += (10**30,)


def _expression(
    rng: random.Random, known: Sequence[str], size: int = 3, *, truths: bool = False
) -> Expression:
    kind = rng.randrange(9 if truths else 8)
    if not size or kind == 0:
        return Name(rng.choice(known)) if known and rng.random() < 0.7 else Number(rng.choice(_NUMBERS))
    if kind == 8:
        return _condition(rng, known, size - 1)
    one, other, third = (_expression(rng, known, size - 1, truths=truths) for _ in range(3))
    if kind <= 3:
        return Call("+-*"[kind - 1], (one, other))
    if kind == 4:
        least = Number(rng.randint(1, 9))
        return Call(rng.choice(["//", "%"]), (one, rng.choice([least, Call("max", (least, other))])))
    if kind <= 6:
        return Call(rng.choice(["min", "max"]), (one, other, third)[: rng.choice([2, 2, 3])])
    return Call("next_power_of_2", (one,))


def _condition(rng: random.Random, known: Sequence[str], size: int = 2) -> Call:
    """One that often holds for some small integers and not for others."""
    kind = rng.randrange(6)
    if size and kind == 0:
        return Call("not", (_condition(rng, known, size - 1),))
    if size and kind == 1:
        function = rng.choice(["and", "or"])
        drawn = [_condition(rng, known, size - 1) for _ in range(rng.randint(2, 3))]
        # A part that is joined in the same way is no part of its own, as in `parse`.
        parts = [one for part in drawn for one in (part.arguments if part.function == function else (part,))]
        return Call(function, tuple(parts))
    one = _expression(rng, known, rng.choice([0, 0, 1, 3]))
    other = rng.choice([Number(rng.randint(0, 70)), _expression(rng, known, 1)])
    return Call(rng.choice(_SIGNS), (one, other))


_seeds = st.integers(0, 1 << 40)


def expressions(*, truths: bool = False) -> st.SearchStrategy[Expression]:
    """Expressions over FEATURES, as `parse` can return them; `truths`: with conditions as parts."""
    return _seeds.map(lambda seed: _expression(random.Random(seed), FEATURES, truths=truths))


def conditions() -> st.SearchStrategy[Expression]:
    """Conditions over FEATURES."""
    return _seeds.map(lambda seed: _condition(random.Random(seed), FEATURES))


def kernels() -> st.SearchStrategy[KernelSpec]:
    """Kernels over FEATURES with regimes, classes and constraints, some of them about steps."""
    return _seeds.map(lambda seed: random_kernel(random.Random(seed)))


def random_kernel(rng: random.Random) -> KernelSpec:
    constants = rng.choice([(), ("heads",), ("heads",), ("columns", "heads")])
    derived: dict[str, Expression] = {}
    for name in ("one", "two", "three")[: rng.randint(0, 3)]:
        known = [*rng.choice([FEATURES, constants]), *LIMITS]
        known += [before for before in derived if known[0] == "rows"]
        condition = rng.random() < 0.5
        derived[name] = _condition(rng, known) if condition else _expression(rng, known, truths=True)
    fixed = fixed_features(FEATURES, constants, derived)
    steps = [name for name in (*FEATURES, *derived) if name not in fixed]
    known = [*steps, *fixed, "block", "block", "warps", *LIMITS]
    rules = [_condition(rng, known) for _ in range(rng.randint(0, 2))]
    bound = [rng.choice([None, None, ("plain",), ("split",), ("plain", "split")]) for _ in rules]
    regimes = [*(_condition(rng, steps) for _ in range(rng.randint(0, 2))), None]
    classes = [*(_condition(rng, fixed) for _ in range(rng.randint(0, 2) if fixed else 0)), None]
    return KernelSpec(
        name="scale",
        features=FEATURES,
        derived=derived,
        constants=constants,
        regimes=tuple(Regime(f"regime{k}", when, tuple(steps)) for k, when in enumerate(regimes)),
        classes=tuple(ModelClass(f"class{k}", when) for k, when in enumerate(classes)),
        hold_out_by=constants,
        variants=("plain", "split"),
        parameters={"block": Parameter("B"), "warps": Parameter("W", 4)},
        constraints=tuple(Constraint(f"rule{k}", test, variants=bound[k]) for k, test in enumerate(rules)),
        fallback=Config("plain", (("block", 64), ("warps", 4))),
        budget=Budget(max_depth=4, max_rows=12),
        translations={},
        tables={"nvidia_h100": Path("tables/h100")},
    )


def heuristics(kernel: KernelSpec) -> st.SearchStrategy[Heuristic]:
    """Any heuristics of a kernel; thresholds may contradict each other."""
    return _seeds.map(lambda seed: random_heuristic(random.Random(seed), kernel))


def random_heuristic(rng: random.Random, kernel: KernelSpec) -> Heuristic:
    few = []
    for _ in range(rng.randint(1, 6)):
        variant, block, warps = rng.choice(kernel.variants), 16 << rng.randrange(4), 2 << rng.randrange(3)
        few.append(Config(variant, (("block", block), ("warps", warps))))
    regimes = []
    for regime in kernel.regimes:
        tree, count = _tree(rng, regime.split_on, 0, rng.randint(0, 4))
        rows = []
        for _ in range(count):
            others = {c.name: rng.choice(few) for c in kernel.classes if rng.random() < 0.4}
            then = tuple(rng.choice(few) for _ in range(rng.randrange(4)))
            comment = rng.choice(["", "0 scenarios", "3 scenarios, 1.05x the best"])
            rows.append(Row(rng.choice(few), others, then, comment))
        regimes.append(RegimeRows(regime.name, tree, tuple(rows)))
    return Heuristic(tuple(regimes))


def _tree(rng: random.Random, features: Sequence[str], first: int, deepest: int) -> tuple[StepTree, int]:
    """A tree whose rows are numbered from `first`, and the number that follows."""
    if not deepest or rng.random() < 0.15:
        return first, first + 1
    low, middle = _tree(rng, features, first, deepest - 1)
    high, end = _tree(rng, features, middle, deepest - 1)
    return Split(rng.choice(features), rng.choice(_POINTS), low, high), end


def shapes() -> st.SearchStrategy[dict[str, int]]:
    """Points of FEATURES: small, extreme, and beside the thresholds of `heuristics`."""
    near = st.builds(lambda value, more: value + more, st.sampled_from(_POINTS), st.integers(-1, 1))
    return st.fixed_dictionaries(dict.fromkeys(FEATURES, st.one_of(st.integers(-2, 70), near, any_integer)))
