"""A printed module is its heuristic: the same choice for any integers, as one of its constants."""

import ast
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, as_config, committed, device_and_kernel
from treegen_strategies import LIMITS, examples, heuristics, kernels, shapes

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, choose, fits
from treegen.core.spec import Config, DeviceSpec
from treegen.emit.module import device_module
from treegen.emit.package import kernel_package
from treegen.fit.fit import fit
from treegen.write.modules import Module, loaded

LARGEST_MODULE = 170  # lines
MOST_CONFIGS = 24
IMPORTED = {"typing", "collections.abc", "functools"}


def _printed(kernel, heuristic, limits):
    """The text of a module, and what it defines."""
    text = device_module(kernel, DEVICE, limits, heuristic)
    device = DeviceSpec(DEVICE, (), None, "nvidia", limits)
    return text, SimpleNamespace(**loaded(Module(kernel, device, Path(f"{DEVICE}.py"), text, heuristic)))


def _compare(module, kernel, heuristic, limits, point):
    expected = choose(heuristic, kernel, limits, point)
    found = module.choose(**point)
    assert as_config(found, kernel) == expected.config
    assert found is getattr(module, kernel.constant_name(expected.config))
    constants = {name: point[name] for name in kernel.constants}
    step = module.for_model(**constants)
    assert step(**{name: point[name] for name in kernel.steps}) is found
    listed = module.configs(**constants)
    assert [len(rows) for rows in listed] == [len(regime.rows) for regime in heuristic.regimes]
    place = heuristic.regimes.index(expected.regime)
    row = listed[place][expected.row]
    values = kernel.with_derived({**limits, **point})
    if isinstance(row, module.Config):
        assert row is found
        launched = (as_config(config, kernel) for rows in listed for config in rows)
        assert all(config == kernel.fallback or fits(config, kernel, values) for config in launched)
    else:  # a constraint is about steps, so that the row lists all that may be launched
        fallback = getattr(module, kernel.constant_name(kernel.fallback))
        assert found is next((config for config in row if config is found), fallback)
    every = module.candidates(99, **point)
    assert every[0] is found and len(set(every)) == len(every)
    assert all(module.candidates(k, **point) == every[: max(0, k)] for k in (-1, 0, 1, 2))
    for config in (as_config(candidate, kernel) for candidate in every):
        assert config == kernel.fallback or fits(config, kernel, values)


def _ifs(node):
    """How many ifs are nested within each other."""
    own = isinstance(node, ast.If)
    return own + max((_ifs(inner) for inner in ast.iter_child_nodes(node)), default=0)


@examples(250, shrink=False)
@given(st.data(), kernels())
def test_the_module_chooses_as_its_heuristic_and_is_shallow(data, kernel):
    heuristic = data.draw(heuristics(kernel))
    text, module = _printed(kernel, heuristic, LIMITS)
    constants = [as_config(c, kernel) for c in vars(module).values() if isinstance(c, module.Config)]
    assert sorted(constants) == sorted({*heuristic.configs, kernel.fallback})
    for point in data.draw(st.lists(shapes(), min_size=3, max_size=6)):
        _compare(module, kernel, heuristic, LIMITS, point)
    for printed in (text, *kernel_package(kernel, {}).values()):
        for node in ast.walk(ast.parse(printed)):
            assert not isinstance(node, ast.Import)
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module in IMPORTED
    rows = {f"{regime.name}_row" for regime in kernel.regimes}
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            assert _ifs(function) <= (4 if function.name in rows else 2)


@pytest.mark.parametrize("kernel", ["unified_attention", "mixed_attention"])
def test_a_committed_module_is_short_and_chooses_as_its_heuristic(kernel):
    made = committed(kernel, "nvidia_h200")
    heuristic, limits = fit(made), made.device.limits
    text, module = _printed(made.kernel, heuristic, limits)
    assert len(text.splitlines()) <= LARGEST_MODULE and len(heuristic.configs) <= MOST_CONFIGS
    assert _ifs(ast.parse(text)) <= 4
    rng = random.Random(1)
    for _ in range(500):
        numbers = [0, 1, -5, 64, 100, 1 << rng.randrange(20)]
        point = {name: rng.choice(numbers) for name in made.kernel.features}
        _compare(module, made.kernel, heuristic, limits, point)


def _module(kernel, tree, *blocks):
    """The module of a tree whose rows launch these blocks."""
    rows = tuple(Row(Config("plain", (("block", block), ("warps", 2)))) for block in blocks)
    heuristic = Heuristic((RegimeRows("steps", tree, rows),))
    return _printed(kernel, heuristic, LIMITS)[1]


def test_the_next_candidate_is_of_the_nearest_row_and_long_chains_are_followed_once(tmp_path):
    deep = Split("rows", 30, Split("rows", 20, Split("rows", 10, 0, 1), 2), 3)
    module = _module(device_and_kernel(tmp_path)[1], deep, 1, 2, 1, 4)
    candidates = {n: module.candidates(9, rows=n, columns=1, heads=1) for n in (1, 15, 25, 99)}
    blocks = {n: [config.block for config in found] for n, found in candidates.items()}
    assert blocks == {1: [1, 2, 4, 64], 15: [2, 1, 4, 64], 25: [1, 2, 4, 64], 99: [4, 1, 2, 64]}
    # The last of these features has a million million paths to the first.
    derived = {"d0": "rows", "d1": "d0 + columns", **{f"d{k}": f"d{k - 1} + d{k - 2}" for k in range(2, 60)}}
    _, kernel = device_and_kernel(tmp_path, derived=derived)
    assert _module(kernel, Split("d59", 5, 0, 1), 16, 128).choose(rows=-1, columns=0, heads=0).block == 16
