"""A heuristic as the lock stores it: the same one when it is read again, and nothing but a heuristic."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples, heuristics, kernels, random_kernel

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.spec import Config, Parameter
from treegen.write.stored import heuristic_of, stored


@examples(150, shrink=False)
@given(st.data(), kernels())
def test_what_is_stored_is_read_again(data: st.DataObject, kernel: Any) -> None:
    heuristic = data.draw(heuristics(kernel))
    content = json.loads(json.dumps(stored(heuristic, kernel)))
    assert heuristic_of(content, kernel) == heuristic


def test_the_fallbacks_heuristic_is_stored_too() -> None:
    assert heuristic_of(stored(Heuristic(()), KERNEL), KERNEL) == Heuristic(())


KERNEL = random_kernel(random.Random(1))
SMALL, LARGE = (Config("plain", (("block", block), ("warps", 2))) for block in (16, 128))
ROWS = (Row(SMALL, {"class0": LARGE}, (LARGE,)), Row(LARGE))
HEURISTIC = Heuristic((RegimeRows("steps", Split("rows", -3, 0, 1), ROWS),))


def test_a_parameter_that_the_spec_gained_has_its_default() -> None:
    content = stored(HEURISTIC, KERNEL)
    more = replace(KERNEL, parameters={**KERNEL.parameters, "parts": Parameter("P", 1)})
    found = heuristic_of(content, more)
    assert found.configs[0] == Config("plain", (("block", 16), ("warps", 2), ("parts", 1)))
    without = replace(KERNEL, parameters={**KERNEL.parameters, "parts": Parameter("P")})
    with pytest.raises(ValueError):
        heuristic_of(content, without)


def test_a_parameter_or_variant_that_the_spec_lost_is_refused() -> None:
    content = stored(HEURISTIC, KERNEL)
    for fewer in (
        replace(KERNEL, parameters={"block": Parameter("B")}),
        replace(KERNEL, variants=("split",)),
    ):
        with pytest.raises(ValueError):
            heuristic_of(content, fewer)


def _regime(content: Any) -> Any:
    return content["regimes"][0]


DAMAGE: list[Callable[[Any], object]] = [
    lambda c: c.pop("parameters"),
    lambda c: c.pop("regimes"),
    lambda c: c.update(regimes={}),
    lambda c: c.update(regimes=[5]),
    lambda c: c.update(parameters=["block"]),
    lambda c: c.update(parameters=[["block"], 3]),
    lambda c: _regime(c).pop("name"),
    lambda c: _regime(c).update(name=1),
    lambda c: _regime(c).update(rows=[]),
    lambda c: _regime(c).update(rows=[None, None]),
    lambda c: _regime(c).update(tree=[]),
    lambda c: _regime(c).update(tree=["rows <= 3", "row 0"]),
    lambda c: _regime(c).update(tree=["row 0", "row 1"]),
    lambda c: _regime(c).update(tree=["row 2"]),
    lambda c: _regime(c).update(tree=["row -1"]),
    lambda c: _regime(c).update(tree=["row ²"]),
    lambda c: _regime(c).update(tree=["row x"]),
    lambda c: _regime(c).update(tree=[0]),
    lambda c: _regime(c).update(tree=["rows < 3", "row 0", "row 1"]),
    lambda c: _regime(c).update(tree=["rows <= three", "row 0", "row 1"]),
    lambda c: _regime(c).update(tree=["os.system('id') <= 3", "row 0", "row 1"]),
    lambda c: _regime(c).update(tree=["rows <= 3"] * 2000),
    lambda c: _regime(c)["rows"][0].pop("then"),
    lambda c: _regime(c)["rows"][0].update(others=[]),
    lambda c: _regime(c)["rows"][0].update(config=None),
    lambda c: _regime(c)["rows"][0].update(config="plain 16"),
    lambda c: _regime(c)["rows"][0].update(config="plain 16 two"),
    lambda c: _regime(c)["rows"][0].update(config="fast 16 2"),
    lambda c: _regime(c)["rows"][0].update(then=["plain 16 2 3"]),
    lambda c: _regime(c)["rows"][0].update(others={"class0": 7}),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_data_is_refused(damage: Callable[[Any], object]) -> None:
    content = json.loads(json.dumps(stored(HEURISTIC, KERNEL)))
    damage(content)
    with pytest.raises(ValueError):
        heuristic_of(content, KERNEL)


@pytest.mark.parametrize("content", [None, 5, "tree", [], {}, {"parameters": 1, "regimes": 2}])
def test_what_is_no_heuristic_is_refused(content: Any) -> None:
    with pytest.raises(ValueError):
        heuristic_of(content, KERNEL)
