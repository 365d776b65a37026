"""A study as the page's template shows it: texts, and pictures that are drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from treegen.core.problem import FORBIDDEN, UNIT, UNMEASURED
from treegen.core.spec import Config
from treegen.core.table import Cells
from treegen.crossval.heldout import geomean
from treegen.review.report import theme, wording
from treegen.review.report.charts import SLOW, curves, draw_counts, draw_curves, draw_map, points
from treegen.review.report.drawntree import Branch, Launch
from treegen.review.report.figures import picture
from treegen.review.report.palette import Ink
from treegen.review.report.planes import Plane
from treegen.review.report.study import Study

_WORST = 10
_LISTED = 8
"""A feature with no more values than this shows them all."""


@dataclass(frozen=True)
class Chip:
    """A config as it stands in a line: its shape and colour, its name, and what it is in words."""

    sign: str
    variable: str
    name: str
    words: str


@dataclass(frozen=True)
class Leaf:
    """scenarios: how many reach it; quality: how good it is there, in words."""

    chip: Chip
    scenarios: int
    quality: str
    slow: bool


@dataclass(frozen=True)
class Node:
    """An answer and what follows: a leaf, or the two answers of the next question."""

    words: str
    guards: tuple[str, ...]
    leaf: Leaf | None
    answers: tuple[Node, ...]


@dataclass(frozen=True)
class Comparison:
    """A row of the table beside the curves."""

    variable: str
    name: str
    what: str
    figures: tuple[str, ...]


@dataclass(frozen=True)
class Worst:
    scenario: str
    words: str
    launched: Chip
    time: str
    best: Chip
    best_time: str
    slowdown: str


@dataclass(frozen=True)
class Range:
    """The measured range of a feature. raw: its name in the code; derived: whether it follows from others."""

    word: str
    raw: str
    derived: bool
    least: str
    greatest: str
    distinct: int
    values: str


@dataclass(frozen=True)
class Map:
    title: str
    picture: Markup
    counts: Markup


@dataclass(frozen=True)
class Section:
    """study: for figures that need no words of their own."""

    anchor: str
    study: Study
    timed: bool
    headline: str
    fallback: Chip
    tree: Node
    largest_leaf: int
    launched: tuple[Leaf, ...]
    comparisons: tuple[Comparison, ...]
    curves: Markup | None
    maps: tuple[Map, ...]
    worst: tuple[Worst, ...]
    untimed: tuple[str, ...]
    ranges: tuple[Range, ...]


def section(study: Study, inks: Mapping[Config, Ink], place: int) -> Section:
    """place: of the section on the page; ids in its pictures begin with it."""
    colours = {light: variable for variable, (light, _) in theme.VARIABLES.items()}
    colours |= {ink.light: ink.variable for ink in inks.values()}
    timed = study.problem.table.cells is Cells.MEASURED
    drawn_curves = None
    if timed:
        drawn_curves = picture(lambda axes: draw_curves(axes, curves(study)), f"s{place}curves", colours)
    unknown = np.flatnonzero((study.ours.cost >= UNMEASURED) & (study.ours.cost < FORBIDDEN)) if timed else ()
    return Section(
        anchor=f"{study.problem.kernel.name}-{study.problem.device.key}",
        study=study,
        timed=timed,
        headline=wording.headline(study),
        fallback=_chip(study.problem.kernel.fallback, study, inks),
        tree=_node(study.tree.root, study, inks),
        largest_leaf=max(len(launch.cost) for launch in study.tree.launches()),
        launched=_launched(study, inks),
        comparisons=_comparisons(study, inks),
        curves=drawn_curves,
        maps=tuple(
            _map(study, plane, inks, f"s{place}p{number}", colours)
            for number, plane in enumerate(study.planes)
        ),
        worst=_worst(study, inks),
        untimed=tuple(study.problem.scenarios[row] for row in unknown),
        ranges=_ranges(study),
    )


def _chip(config: Config, study: Study, inks: Mapping[Config, Ink]) -> Chip:
    kernel = study.problem.kernel
    sign, variable = (inks[config].sign, inks[config].variable) if config in inks else ("○", "--muted")
    return Chip(sign, variable, kernel.constant_name(config), wording.config_words(config, kernel))


def _node(branch: Branch, study: Study, inks: Mapping[Config, Ink]) -> Node:
    if isinstance(branch.then, Launch):
        return Node(branch.words, branch.guards, _leaf(branch.then, study, inks), ())
    answers = tuple(_node(side, study, inks) for side in (branch.then.low, branch.then.high))
    return Node(branch.words, branch.guards, None, answers)


def _leaf(launch: Launch, study: Study, inks: Mapping[Config, Ink]) -> Leaf:
    count, timed = len(launch.cost), launch.timed
    slow = False
    if not count:
        quality = "not measured"
    elif study.problem.table.cells is Cells.WINNERS:
        quality = f"{wording.percent(float(np.mean(launch.cost == 0)))} won"
    elif not len(timed):
        quality = "not timed"
    else:
        quality = wording.ratio(geomean(timed))
        slow = geomean(timed) >= SLOW
    chip = _chip(launch.config, study, inks)
    return Leaf(chip, count, quality, slow)


def _launched(study: Study, inks: Mapping[Config, Ink]) -> tuple[Leaf, ...]:
    """One for each config, launched most often first."""
    found = []
    for config in sorted({launch.config for launch in study.tree.launches()}):
        own = np.array([launched == config for launched in study.launched])
        found.append(_leaf(Launch(config, study.ours.cost[own]), study, inks))
    return tuple(sorted(found, key=lambda leaf: -leaf.scenarios))


def _comparisons(study: Study, inks: Mapping[Config, Ink]) -> tuple[Comparison, ...]:
    kernel = study.problem.kernel
    ways = [
        ("--ours", "this module", "judged by the table it is built from: fitted, not held out", study.ours)
    ]
    if study.unseen is not None:
        what = "five trees, each judged in the fifth of the scenarios it was not fitted to"
        ways.append(("--unseen", "this fit, held out", what, study.unseen))
    single, fixed = (kernel.constant_name(config) for config in (study.single_config, kernel.fallback))
    ways.append(("--single", "single best config", f"{single} everywhere", study.single))
    ways.append(("--fixed", "fallback everywhere", f"{fixed}, the spec's fixed choice", study.fixed))
    rows = []
    for variable, name, what, way in ways:
        found = way.quality
        if study.problem.table.cells is Cells.WINNERS:
            if found.unmeasured == found.choices:
                continue  # no winner anywhere: nothing is known of it
            rows.append(Comparison(variable, name, what, (wording.percent(found.agreement, 1),)))
            continue
        missing = wording.without_time(found)
        figures = (
            wording.ratio(found.slowdown),
            wording.ratio(found.percentile95, 2),
            wording.ratio(found.worst, 2),
            wording.percent(found.agreement),
        )
        rows.append(Comparison(variable, name, f"{what}; {missing}" if missing else what, figures))
    return tuple(rows)


def _map(
    study: Study, plane: Plane, inks: Mapping[Config, Ink], name: str, colours: Mapping[str, str]
) -> Map:
    titles = {
        group.name: [_point(study, row) for row in group.rows]
        for group in points(study, plane, inks)
        if not group.name.startswith("good") and not group.name.startswith("won")
    }
    return Map(
        plane.title,
        picture(lambda axes: draw_map(axes, study, plane, inks), f"{name}map", colours, titles),
        picture(lambda axes: draw_counts(axes, study, plane), f"{name}count", colours),
    )


def _point(study: Study, row: int) -> str:
    config = study.problem.kernel.constant_name(study.launched[row])
    cost = int(study.ours.cost[row])
    if study.problem.table.cells is Cells.WINNERS:
        how = "another config won"
    else:
        how = "not timed" if cost >= UNMEASURED else wording.ratio(float(np.exp(cost / UNIT)), 2)
    return f"{study.problem.scenarios[row]}: {config}, {how}"


def _worst(study: Study, inks: Mapping[Config, Ink]) -> tuple[Worst, ...]:
    """What failed first, then the slowest; of a table of winners, scenarios that another config won."""
    problem, cost = study.problem, study.ours.cost
    winners = problem.table.cells is Cells.WINNERS
    told = cost > 0 if winners else (cost > 0) & ((cost < UNMEASURED) | (cost >= FORBIDDEN))
    rows = sorted(np.flatnonzero(told).tolist(), key=lambda row: (-int(cost[row]), problem.scenarios[row]))
    column = {config: i for i, config in enumerate(problem.configs)}
    found = []
    for row in rows[:_WORST]:
        launched, best = study.launched[row], int(problem.cost[row].argmin())
        failed = not winners and int(cost[row]) >= FORBIDDEN
        own = float("nan") if winners or failed else float(study.times[row, column[launched]])
        found.append(
            Worst(
                problem.scenarios[row],
                wording.scenario_words(problem, row),
                _chip(launched, study, inks),
                "failed" if failed else wording.NOTHING if np.isnan(own) else wording.microseconds(own),
                _chip(problem.configs[best], study, inks),
                wording.microseconds(float(study.times[row, best])),
                wording.NOTHING if winners or failed else wording.ratio(float(np.exp(cost[row] / UNIT)), 2),
            )
        )
    return tuple(found)


def _ranges(study: Study) -> tuple[Range, ...]:
    problem = study.problem
    found = []
    for name in problem.names:
        values = np.unique(problem.column(name)).tolist()
        listed = ", ".join(f"{value:,}" for value in values) if len(values) <= _LISTED else ""
        word = problem.kernel.words.get(name, name)
        derived = name not in problem.kernel.features
        found.append(Range(word, name, derived, f"{values[0]:,}", f"{values[-1]:,}", len(values), listed))
    return tuple(found)
