"""A study as the page's template shows it: texts, and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED
from treegen.core.spec import Config
from treegen.crossval.heldout import geomean
from treegen.review.report import colours, wording
from treegen.review.report.charts import (
    LISTED,
    SLOW,
    curves,
    draw_curves,
    draw_map,
    point_groups,
)
from treegen.review.report.colours import ConfigStyle
from treegen.review.report.drawn_tree import DrawnLeaf
from treegen.review.report.figures import picture
from treegen.review.report.planes import FeaturePlane
from treegen.review.report.study import ModuleStudy

_WORST = 10  # slowest choices that are shown

Styles = Mapping[Config, ConfigStyle]


@dataclass(frozen=True)
class ConfigChip:
    """A config in a line of text: its shape and colour, its constant's name, and its parameters in words."""

    sign: str
    variable: str
    name: str
    words: str


@dataclass(frozen=True)
class LeafRow:
    """A config, how many scenarios launch it, and how good it is there."""

    chip: ConfigChip
    scenarios: int
    quality: str
    slow: bool


@dataclass(frozen=True)
class ComparisonRow:
    """A row of the table beside the curves."""

    variable: str
    name: str
    what: str
    figures: tuple[str, ...]


@dataclass(frozen=True)
class WorstChoice:
    """A scenario in which the module is slow."""

    scenario: str
    words: str
    launched: ConfigChip
    time: str
    best: ConfigChip
    best_time: str
    slowdown: str


@dataclass(frozen=True)
class PageSection:
    """Everything that the template shows of one kernel on one device."""

    anchor: str
    study: ModuleStudy  # for figures that are shown as they are
    leaf_row: Callable[[DrawnLeaf], LeafRow]
    largest_leaf: int  # scenarios
    launched: tuple[LeafRow, ...]
    comparisons: tuple[ComparisonRow, ...]
    curves: Markup | None
    maps: Mapping[str, Markup]  # by what they show
    worst: tuple[WorstChoice, ...]
    untimed: tuple[str, ...]


def section(study: ModuleStudy, styles: Styles, place: int) -> PageSection:
    """Make the section of a study. place: of the section on the page; ids in its pictures begin with it."""
    problem, cost = study.problem, study.ours.cost
    variables = {light: variable for variable, (light, _) in colours.VARIABLES.items()}
    variables |= {style.light: style.variable for style in styles.values()}
    curve_picture = None
    if study.knows_times:
        curve_picture = picture(lambda axes: draw_curves(axes, curves(study)), f"s{place}curves", variables)
    untimed = study.knows_times & (cost >= UNTIMED) & (cost < FORBIDDEN)
    return PageSection(
        anchor=f"{problem.kernel.name}-{problem.device.key}",
        study=study,
        leaf_row=lambda leaf: _leaf_row(leaf, study, styles),
        largest_leaf=max(len(leaf.cost) for leaf in study.tree.all_leaves()),
        launched=_launched(study, styles),
        comparisons=_comparisons(study),
        curves=curve_picture,
        maps={
            plane.title: _map(study, plane, styles, f"s{place}p{number}map", variables)
            for number, plane in enumerate(study.planes)
        },
        worst=_worst(study, styles),
        untimed=tuple(problem.scenarios[row] for row in np.flatnonzero(untimed)),
    )


def _chip(config: Config, study: ModuleStudy, styles: Styles) -> ConfigChip:
    kernel = study.problem.kernel
    sign, variable = (styles[config].sign, styles[config].variable) if config in styles else ("○", "--muted")
    return ConfigChip(sign, variable, kernel.constant_name(config), wording.config_words(config, kernel))


def _leaf_row(leaf: DrawnLeaf, study: ModuleStudy, styles: Styles) -> LeafRow:
    timed = leaf.cost[leaf.cost < UNTIMED]
    slow = False
    if not len(leaf.cost):
        quality = "not measured"
    elif not study.knows_times:
        quality = f"{wording.percent(float(np.mean(leaf.cost == 0)))} won"
    elif not len(timed):
        quality = "not timed"
    else:
        quality = wording.ratio(geomean(timed))
        slow = geomean(timed) >= SLOW
    return LeafRow(_chip(leaf.config, study, styles), len(leaf.cost), quality, slow)


def _launched(study: ModuleStudy, styles: Styles) -> tuple[LeafRow, ...]:
    """A row for each config, the most often launched first."""
    rows = []
    for config in sorted({leaf.config for leaf in study.tree.all_leaves()}):
        launched = np.array([launched_config == config for launched_config in study.launched])
        rows.append(_leaf_row(DrawnLeaf(config, study.ours.cost[launched]), study, styles))
    return tuple(sorted(rows, key=lambda row: -row.scenarios))


def _comparisons(study: ModuleStudy) -> tuple[ComparisonRow, ...]:
    kernel = study.problem.kernel
    single, fixed = (kernel.constant_name(config) for config in (study.single_config, kernel.fallback))
    ways = (
        ("--ours", "this module", "scored by the table it is built from: fitted, not held out", study.ours),
        (
            "--unseen",
            "this fit, held out",
            "five trees, each scored in the fifth of the scenarios it was not fitted to",
            study.unseen,
        ),
        ("--single", "single best config", f"{single} everywhere", study.single),
        ("--fixed", "fallback everywhere", f"{fixed}, the spec's fixed choice", study.fixed),
    )
    rows = []
    for variable, name, what, way in ways:
        if way is None:
            continue
        quality = way.quality
        if not study.knows_times:
            if quality.unmeasured < quality.choices:  # otherwise it wins nowhere and has no figures
                rows.append(ComparisonRow(variable, name, what, (wording.percent(quality.agreement, 1),)))
            continue
        missing = wording.without_time(quality)
        figures = (
            wording.ratio(quality.slowdown),
            wording.ratio(quality.percentile95, 2),
            wording.ratio(quality.worst, 2),
            wording.percent(quality.agreement),
        )
        rows.append(ComparisonRow(variable, name, f"{what}; {missing}" if missing else what, figures))
    return tuple(rows)


def _map(
    study: ModuleStudy, plane: FeaturePlane, styles: Styles, name: str, variables: Mapping[str, str]
) -> Markup:
    titles = {
        group.name: [_point_title(study, row) for row in group.rows]
        for group in point_groups(study, plane, styles)
        if group.kind in LISTED
    }
    return picture(lambda axes: draw_map(axes, study, plane, styles), name, variables, titles)


def _point_title(study: ModuleStudy, row: int) -> str:
    config, cost = study.problem.kernel.constant_name(study.launched[row]), int(study.ours.cost[row])
    how = "not timed" if cost >= UNTIMED else _slowdown(cost)
    return f"{study.problem.scenarios[row]}: {config}, {how if study.knows_times else 'another config won'}"


def _slowdown(cost: int) -> str:
    return wording.ratio(math.exp(cost / UNIT), 2)


def _worst(study: ModuleStudy, styles: Styles) -> tuple[WorstChoice, ...]:
    """Failed choices first, then the slowest; of a table of winners, scenarios that another config won."""
    problem, cost = study.problem, study.ours.cost
    shown = cost > 0
    if study.knows_times:
        shown &= (cost < UNTIMED) | (cost >= FORBIDDEN)
    rows = sorted(np.flatnonzero(shown).tolist(), key=lambda row: (-int(cost[row]), problem.scenarios[row]))
    worst = []
    for row in rows[:_WORST]:
        launched, best = study.launched[row], int(problem.cost[row].argmin())
        time, slowdown = wording.NOTHING, wording.NOTHING
        if study.knows_times and cost[row] >= FORBIDDEN:
            time = "failed"
        elif study.knows_times:
            time = wording.microseconds(float(study.times[row, problem.configs.index(launched)]))
            slowdown = _slowdown(int(cost[row]))
        worst.append(
            WorstChoice(
                problem.scenarios[row],
                wording.scenario_words(problem, row),
                _chip(launched, study, styles),
                time,
                _chip(problem.configs[best], study, styles),
                wording.microseconds(float(study.times[row, best])),
                slowdown,
            )
        )
    return tuple(worst)
