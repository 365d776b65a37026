"""The heuristic builder of Helion (github.com/pytorch/helion), if that is installed.

Written against Helion 1.5.1, `helion.autotuner.heuristic_generator`, with its defaults: depth 6, at most ten
configs, any number of leaves. Helion imports PyTorch, so it is imported only on use.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
from typing import Any

import numpy as np

from treegen.core.problem import UNIT, UNTIMED, Problem
from treegen.core.table import Cells
from treegen.crossval.choices import Decisions, Rule, asked, features_of


def version() -> str | None:
    """The installed version; None if Helion is not installed or cannot be imported."""
    try:
        _generator()
        return importlib.metadata.version("helion")
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return None


def helion(known: Problem, leaves: int) -> Rule:
    """The tree that Helion builds, within its own limits."""
    generator, config = _generator(), importlib.import_module("helion").Config
    # Helion's generated function takes positional arguments if features are called key_0, key_1, ...
    names = [f"key_{i}" for i in range(len(asked(known)))]
    # Times relative to the scenario's best; infinite where unknown.
    unknown = known.cost > 0 if known.table.cells is Cells.WINNERS else known.cost >= UNTIMED
    timings = np.where(unknown, np.inf, np.exp(np.where(unknown, 0, known.cost) / UNIT))
    data = generator.ShapeConfigData(
        kernel_name="kernel",
        shape_features=[dict(zip(names, row, strict=True)) for row in features_of(known, known).tolist()],
        timings=timings,
        configs=[config.from_dict({"place": place}) for place in range(len(known.configs))],
        shape_hashes=[str(i) for i in range(len(known.cost))],
        config_hashes=[str(i) for i in range(len(known.configs))],
    )
    target = generator.PerformanceTarget(verbose=False, print_score_matrix=False, skip_write=True)
    selected, _ = generator.select_config_subset(data, target)
    features = generator.select_shape_features(data.shape_features, verbose=False).selected_features
    data.selected_config_indices = selected
    code: str = (
        generator.get_backend(target.backend)
        .generate_heuristic(
            kernel_name="kernel",
            data=data,
            selected_configs=[data.configs[i] for i in selected],
            feature_names=features,
        )
        .generated_code
    )
    namespace: dict[str, Any] = {}
    exec(compile(code, "<helion>", "exec"), namespace)
    choose = namespace["key_kernel"]

    def decisions(unseen: Problem) -> Decisions:
        return tuple(known.configs[selected[choose(*row)]] for row in features_of(unseen, known).tolist())

    (function,) = re.findall(r"^def key_kernel\(.*?(?=^def |\Z)", code, flags=re.MULTILINE | re.DOTALL)
    return Rule(decisions, len(re.findall(r"\breturn\b", function)))


def _generator() -> Any:
    if importlib.util.find_spec("helion") is None:
        raise ModuleNotFoundError("No module named 'helion'", name="helion")
    return importlib.import_module("helion.autotuner.heuristic_generator")
