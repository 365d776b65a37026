"""An explanation as JSON. docs/explain.md describes the keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from treegen.core.spec import Config, KernelSpec
from treegen.review.explain.explanation import Explanation, Neighbour
from treegen.review.printing import json_text

FORMAT = 1


def figures_text(explanation: Explanation) -> str:
    """The explanation as one JSON object; unknown values are null."""
    tuned, shape, kernel, time = (
        explanation.tuned,
        explanation.shape,
        explanation.tuned.kernel,
        explanation.estimate,
    )
    table = tuned.problem.table
    content = {
        "format": FORMAT,
        "kernel": kernel.name,
        "device": tuned.problem.device.key,
        "other_devices": tuned.other_devices,
        "module": tuned.short(tuned.module.path),
        "table": {
            "path": tuned.short(table.folder),
            "device_name": table.device_name,
            "cells": str(table.cells),
            "scenarios": len(tuned.problem.cost),
        },
        "shape": {
            "values": dict(shape.values),
            "given": shape.given,
            "assumed": shape.assumed,
            "assumed_from": shape.source,
            "not_in_table": shape.not_in_table,
        },
        "outside": [{"kind": type(one).__name__.lower(), **asdict(one)} for one in explanation.outside],
        "config": _config(explanation.path.config, kernel),
        "broken": explanation.broken,
        "fallback": explanation.path.fell,
        "path": [
            {
                "feature": step.feature,
                "at_most": step.threshold,
                "value": step.value,
                "answer": step.answer,
                "guard": step.guards is not None,
                "guards": step.guards,
                "fell": step.fell,
            }
            for step in explanation.path.steps
        ],
        "region": {name: list(ends) for name, ends in explanation.path.region.items()},
        "measured_scenario": explanation.measured_scenario,
        "no_time": explanation.no_time,
        "time_us": time and asdict(time.time),
        "slowdown": time and asdict(time.slowdown),
        "runners_up": time
        and [
            {
                "config": _config(one.config, kernel),
                "ratio": asdict(one.ratio),
                "time_us": one.time,
                "both_timed_near": {"timed": one.near, "of": one.of},
            }
            for one in time.runners_up[: explanation.top]
        ],
        "not_compared": time and time.not_compared,
        "nearest": [_neighbour(neighbour, kernel) for neighbour in explanation.neighbours],
        "won_nearest": {"won": explanation.won, "of": explanation.won_of},
    }
    return json_text(content)


def _config(config: Config, kernel: KernelSpec) -> dict[str, Any]:
    name = kernel.constant_name(config)
    return {"name": name, "variant": config.variant, "parameters": dict(config.parameters)}


def _neighbour(neighbour: Neighbour, kernel: KernelSpec) -> dict[str, Any]:
    time, best_time = neighbour.time, neighbour.best_time
    return {
        "scenario": neighbour.scenario,
        "distance": neighbour.distance,
        "differs": dict(neighbour.differs),
        "best": _config(neighbour.best, kernel),
        "best_time_us": best_time,
        "wins": neighbour.wins,
        "time_us": time,
        "slowdown": time / best_time if time is not None and best_time is not None else None,
        "failed": neighbour.failed,
    }
