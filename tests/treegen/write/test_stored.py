"""A heuristic as the lock stores it: the same one when it is read again, and nothing but a heuristic."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples, heuristics, kernels, random_kernel

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.spec import Config, Parameter
from treegen.write.lock import heuristic_of, stored


@examples(150, shrink=False)
@given(st.data(), kernels())
def test_what_is_stored_is_read_again(data, kernel):
    heuristic = data.draw(heuristics(kernel))
    content = json.loads(json.dumps(stored(heuristic, kernel)))
    assert heuristic_of(content, kernel) == heuristic


KERNEL = random_kernel(random.Random(1))
SMALL, LARGE = (Config("plain", (("block", block), ("warps", 2))) for block in (16, 128))
ROWS = (Row(SMALL, {"class0": LARGE}, (LARGE,)), Row(LARGE))
HEURISTIC = Heuristic((RegimeRows("steps", Split("rows", -3, 0, 1), ROWS),))


def test_a_parameter_that_the_spec_gained_has_its_default_and_what_it_lost_is_refused():
    content = stored(HEURISTIC, KERNEL)
    more = replace(KERNEL, parameters={**KERNEL.parameters, "parts": Parameter("P", 1)})
    found = heuristic_of(content, more)
    assert found.configs[0] == Config("plain", (("block", 16), ("warps", 2), ("parts", 1)))
    for other in (
        replace(KERNEL, parameters={**KERNEL.parameters, "parts": Parameter("P")}),
        replace(KERNEL, parameters={"block": Parameter("B")}),
        replace(KERNEL, variants=("split",)),
    ):
        with pytest.raises(ValueError):
            heuristic_of(content, other)


def _of_regime(**changes):
    return lambda content: content["regimes"][0].update(changes)


def _of_row(**changes):
    return lambda content: content["regimes"][0]["rows"][0].update(changes)


TREES = [
    *([], ["rows <= 3", "row 0"], ["row 0", "row 1"], ["row 2"], ["row -1"], ["row ²"], ["row x"], [0]),
    *([question, "row 0", "row 1"] for question in ("rows < 3", "rows <= three", "os.system('id') <= 3")),
    ["rows <= 3"] * 2000,
]
DAMAGE = [
    *(lambda c, key=key: c.pop(key) for key in ("parameters", "regimes")),
    *(lambda c, value=value: c.update(regimes=value) for value in ({}, [5])),
    *(lambda c, value=value: c.update(parameters=value) for value in (["block"], [["block"], 3])),
    *(_of_regime(tree=tree) for tree in TREES),
    *(_of_regime(rows=rows) for rows in ([], [None, None])),
    _of_regime(name=1),
    *(_of_row(config=config) for config in (None, "plain 16", "plain 16 two", "fast 16 2")),
    *(_of_row(then=then) for then in (None, ["plain 16 2 3"])),
    *(_of_row(others=others) for others in ([], {"class0": 7})),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_data_is_refused(damage):
    content = json.loads(json.dumps(stored(HEURISTIC, KERNEL)))
    damage(content)
    for wrong in (content, None, 5, "tree", [], {}, {"parameters": 1, "regimes": 2}):
        with pytest.raises(ValueError):
            heuristic_of(wrong, KERNEL)
