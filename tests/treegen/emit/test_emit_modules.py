"""A printed module is its heuristic: the same choice for any integers, as one of its constants."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import as_config, committed, device_and_kernel, run_module
from treegen_strategies import LIMITS, examples, heuristics, kernels, shapes

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, choose, fits
from treegen.core.spec import Config, KernelSpec
from treegen.emit.module import device_module
from treegen.emit.package import kernel_package
from treegen.fit.fit import fit

LARGEST_MODULE = 170  # lines
MOST_CONFIGS = 24


def _printed(kernel: KernelSpec, heuristic: Heuristic) -> ModuleType:
    return run_module(kernel, device_module(kernel, "nvidia_h100", LIMITS, heuristic))


def _compare(module: ModuleType, kernel: KernelSpec, heuristic: Heuristic, point: dict[str, int]) -> None:
    expected = choose(heuristic, kernel, LIMITS, point)
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
    if isinstance(row, module.Config):
        assert row is found
        values = kernel.with_derived({**LIMITS, **point})
        launched = (as_config(config, kernel) for rows in listed for config in rows)
        assert all(config == kernel.fallback or fits(config, kernel, values) for config in launched)
    else:  # a constraint is about steps, so that the row lists all that may be launched
        fallback = getattr(module, kernel.constant_name(kernel.fallback))
        assert found is next((config for config in row if config is found), fallback)


@examples(250, shrink=False)
@given(st.data(), kernels())
def test_the_module_chooses_as_its_heuristic_does(data: st.DataObject, kernel: KernelSpec) -> None:
    heuristic = data.draw(heuristics(kernel))
    module = _printed(kernel, heuristic)
    constants = [as_config(c, kernel) for c in vars(module).values() if isinstance(c, module.Config)]
    assert sorted(constants) == sorted({*heuristic.configs, kernel.fallback})
    for point in data.draw(st.lists(shapes(), min_size=3, max_size=6)):
        _compare(module, kernel, heuristic, point)


@examples(100, shrink=False)
@given(st.data(), kernels())
def test_candidates_are_the_choice_and_other_configs_that_are_valid_for_the_step(
    data: st.DataObject, kernel: KernelSpec
) -> None:
    module = _printed(kernel, data.draw(heuristics(kernel)))
    for point in data.draw(st.lists(shapes(), min_size=2, max_size=3)):
        every = module.candidates(99, **point)
        assert every[0] is module.choose(**point) and len(set(every)) == len(every)
        assert all(module.candidates(k, **point) == every[: max(0, k)] for k in (-1, 0, 1, 2))
        values = kernel.with_derived({**LIMITS, **point})
        for config in (as_config(found, kernel) for found in every):
            assert config == kernel.fallback or fits(config, kernel, values)


def test_the_next_candidate_is_that_of_the_nearest_row(tmp_path: Path) -> None:
    a, b, c = (Config("plain", (("block", block), ("warps", 2))) for block in (1, 2, 4))
    deep = Split("rows", 30, Split("rows", 20, Split("rows", 10, 0, 1), 2), 3)
    rows = tuple(map(Row, (a, b, a, c)))
    module = _printed(_kernel(tmp_path), Heuristic((RegimeRows("steps", deep, rows),)))
    candidates = {n: module.candidates(9, rows=n, columns=1, heads=1) for n in (1, 15, 25, 99)}
    blocks = {n: [config.block for config in found] for n, found in candidates.items()}
    assert blocks == {1: [1, 2, 4, 64], 15: [2, 1, 4, 64], 25: [1, 2, 4, 64], 99: [4, 1, 2, 64]}


def _ifs(node: ast.AST) -> int:
    """How many ifs are nested within each other."""
    own = isinstance(node, ast.If)
    return own + max((_ifs(inner) for inner in ast.iter_child_nodes(node)), default=0)


IMPORTED = {"typing", "collections.abc", "functools"}


@examples(100, shrink=False)
@given(st.data(), kernels())
def test_a_module_is_shallow_and_imports_next_to_nothing(data: st.DataObject, kernel: KernelSpec) -> None:
    heuristic = data.draw(heuristics(kernel))
    text = device_module(kernel, "nvidia_h100", LIMITS, heuristic)
    texts = [text, *kernel_package(kernel, {}).values()]
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        assert not isinstance(node, ast.Import)
        if isinstance(node, ast.ImportFrom) and not node.level:
            assert node.module in IMPORTED
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            rows = f"{function.name.removesuffix('_row')}_row" in [f"{r.name}_row" for r in kernel.regimes]
            assert _ifs(function) <= (4 if rows else 2)


COMMITTED = [("unified_attention", device) for device in ("nvidia_h100", "nvidia_h200", "amd_mi300x")]
COMMITTED += [("mixed_attention", "nvidia_h200")]


@pytest.mark.parametrize(("kernel", "device"), COMMITTED)
def test_the_module_of_a_committed_table_is_short_and_chooses_as_its_heuristic(
    kernel: str, device: str
) -> None:
    made = committed(kernel, device)
    heuristic = fit(made)
    text = device_module(made.kernel, device, made.device.limits, heuristic)
    assert len(text.splitlines()) <= LARGEST_MODULE and len(heuristic.configs) <= MOST_CONFIGS
    assert _ifs(ast.parse(text)) <= 4
    module = run_module(made.kernel, text)
    rng = random.Random(1)
    for _ in range(500):
        numbers = [0, 1, -5, 64, 100, 1 << rng.randrange(20)]
        point = {name: rng.choice(numbers) for name in made.kernel.features}
        expected = choose(heuristic, made.kernel, made.device.limits, point)
        assert as_config(module.choose(**point), made.kernel) == expected.config


def _kernel(folder: Path, **sections: Any) -> KernelSpec:
    return device_and_kernel(folder, **sections)[1]


SMALL = Config("plain", (("block", 16), ("warps", 2)))
LARGE = Config("plain", (("block", 128), ("warps", 8)))


def test_each_feature_of_a_long_chain_is_followed_once(tmp_path: Path) -> None:
    """The last of these features has a million million paths to the first."""
    derived = {"d0": "rows", "d1": "d0 + columns", **{f"d{k}": f"d{k - 1} + d{k - 2}" for k in range(2, 60)}}
    kernel = _kernel(tmp_path, derived=derived)
    heuristic = Heuristic((RegimeRows("steps", Split("d59", 5, 0, 1), (Row(SMALL), Row(LARGE))),))
    assert _printed(kernel, heuristic).choose(rows=-1, columns=0, heads=0).block == 16
