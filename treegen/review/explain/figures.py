"""An explanation as JSON. docs/explain.md describes the keys."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from treegen.core.spec import Config, KernelSpec
from treegen.review.eval.figures import rounded
from treegen.review.explain.estimate import Estimate, Figure, RunnerUp
from treegen.review.explain.explanation import Explanation
from treegen.review.explain.neighbours import Neighbour
from treegen.review.explain.outside import Outside
from treegen.review.explain.path import Step

FORMAT = 1


def figures_text(found: Explanation) -> str:
    """The explanation as one JSON object; unknown things are null."""
    return json.dumps(rounded(_content(found)), indent=1, allow_nan=False) + "\n"


def _content(found: Explanation) -> dict[str, Any]:
    subject, shape, kernel = found.subject, found.shape, found.subject.kernel
    table = subject.problem.table
    return {
        "format": FORMAT,
        "kernel": kernel.name,
        "device": subject.problem.device.key,
        "other_devices": subject.others,
        "module": subject.short(subject.module.path),
        "table": {
            "path": subject.short(table.folder),
            "device_name": table.device_name,
            "cells": str(table.cells),
            "scenarios": len(subject.problem.cost),
        },
        "shape": {
            "values": dict(shape.values),
            "given": shape.given,
            "assumed": shape.assumed,
            "assumed_from": shape.source,
            "not_in_table": shape.unheld,
        },
        "outside": [_outside(reason) for reason in found.outside],
        "config": _config(found.path.config, kernel),
        "fallback": found.path.fell,
        "path": [_step(step) for step in found.path.steps],
        "region": {name: list(ends) for name, ends in found.path.region.items()},
        "measured_scenario": found.exact,
        "no_time": found.untimed,
        "time_us": None if found.estimate is None else _figure(found.estimate.time),
        "slowdown": None if found.estimate is None else _figure(found.estimate.slowdown),
        "runners_up": _runners_up(found.estimate, found.top, kernel),
        "not_compared": None if found.estimate is None else found.estimate.sparse,
        "nearest": [_neighbour(neighbour, kernel) for neighbour in found.neighbours],
        "won_nearest": {"won": found.won, "of": found.won_of},
    }


def _config(config: Config, kernel: KernelSpec) -> dict[str, Any]:
    return {
        "name": kernel.constant_name(config),
        "variant": config.variant,
        "parameters": dict(config.parameters),
    }


def _outside(reason: Outside) -> dict[str, Any]:
    return {"kind": type(reason).__name__.lower(), **dataclasses.asdict(reason)}


def _step(step: Step) -> dict[str, Any]:
    return {
        "feature": step.feature,
        "at_most": step.threshold,
        "value": step.value,
        "answer": step.answer,
        "guard": step.guards is not None,
        "guards": step.guards,
        "fell": step.fell,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return dataclasses.asdict(figure)


def _runners_up(estimate: Estimate | None, top: int, kernel: KernelSpec) -> list[dict[str, Any]] | None:
    return None if estimate is None else [_runner_up(one, kernel) for one in estimate.runners_up[:top]]


def _runner_up(runner: RunnerUp, kernel: KernelSpec) -> dict[str, Any]:
    return {
        "config": _config(runner.config, kernel),
        "ratio": _figure(runner.ratio),
        "time_us": runner.time,
        "both_timed_near": {"timed": runner.near, "of": runner.of},
    }


def _neighbour(neighbour: Neighbour, kernel: KernelSpec) -> dict[str, Any]:
    slower = None
    if neighbour.time is not None and neighbour.best_time is not None:
        slower = neighbour.time / neighbour.best_time
    return {
        "scenario": neighbour.scenario,
        "distance": neighbour.distance,
        "differs": dict(neighbour.differs),
        "best": _config(neighbour.best, kernel),
        "best_time_us": neighbour.best_time,
        "wins": neighbour.wins,
        "time_us": neighbour.time,
        "slowdown": slower,
        "failed": neighbour.failed,
    }
