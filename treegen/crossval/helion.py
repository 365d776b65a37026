"""Compare with the heuristic builder of Helion (github.com/pytorch/helion), if that is installed.

Written against Helion 1.5.1, `helion.autotuner.heuristic_generator`, with its defaults. It selects a subset
of configs that meets a performance goal, then the features that others do not imply. Then it fits a tree
to the best config of the subset. Helion imports PyTorch, so this module imports Helion only on use.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNTIMED, Problem
from treegen.core.spec import Budget
from treegen.core.table import Cells
from treegen.crossval.choices import Decisions
from treegen.crossval.peers import Rule

_KERNEL = "kernel"


def version() -> str | None:
    """The installed version; None if Helion is not installed or cannot be imported."""
    try:
        _generator()
        return importlib.metadata.version("helion")
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return None


def helion(known: Problem, budget: Budget) -> Rule:
    """The tree that Helion builds with its defaults: depth 6, at most ten configs, any number of leaves."""
    generator, config = _generator(), importlib.import_module("helion").Config
    # Helion's generated function takes positional arguments if features are called key_0, key_1, ...
    names = [f"key_{i}" for i in range(len(known.split_on))]
    data = generator.ShapeConfigData(
        kernel_name=_KERNEL,
        shape_features=[dict(zip(names, row, strict=True)) for row in _values(known, known)],
        timings=_timings(known),
        configs=[config.from_dict({"place": place}) for place in range(len(known.configs))],
        shape_hashes=[str(i) for i in range(len(known.cost))],
        config_hashes=[str(i) for i in range(len(known.configs))],
    )
    target = generator.PerformanceTarget(verbose=False, print_score_matrix=False, skip_write=True)
    selected, _ = generator.select_config_subset(data, target)
    features = generator.select_shape_features(data.shape_features, verbose=False).selected_features
    data.selected_config_indices = selected
    built = generator.get_backend(target.backend).generate_heuristic(
        kernel_name=_KERNEL,
        data=data,
        selected_configs=[data.configs[i] for i in selected],
        feature_names=features,
    )
    choose = _function(built.generated_code)

    def decisions(unseen: Problem) -> Decisions:
        return tuple(known.configs[selected[choose(*row)]] for row in _values(unseen, known))

    return Rule(decisions, _leaves(built.generated_code))


def _generator() -> Any:
    if importlib.util.find_spec("helion") is None:
        raise ModuleNotFoundError("No module named 'helion'", name="helion")
    return importlib.import_module("helion.autotuner.heuristic_generator")


def _values(problem: Problem, known: Problem) -> list[list[int]]:
    rows: list[list[int]] = np.stack([problem.column(name) for name in known.split_on], axis=1).tolist()
    return rows


def _timings(known: Problem) -> npt.NDArray[np.float64]:
    """[scenarios, configs] times relative to the scenario's best; infinite where unknown, as in Helion."""
    unknown = known.cost > 0 if known.table.cells is Cells.WINNERS else known.cost >= UNTIMED
    return np.where(unknown, np.inf, np.exp(np.where(unknown, 0, known.cost) / UNIT))


def _function(code: str) -> Callable[..., int]:
    namespace: dict[str, Any] = {}
    exec(compile(code, "<helion>", "exec"), namespace)
    function: Callable[..., int] = namespace[f"key_{_KERNEL}"]
    return function


def _leaves(code: str) -> int:
    functions = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    (choose,) = [node for node in functions if node.name == f"key_{_KERNEL}"]
    return sum(isinstance(node, ast.Return) for node in ast.walk(choose))
