"""`treegen report`: one HTML page about what the committed modules launch."""

from __future__ import annotations

import base64
import io
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations, cycle
from pathlib import Path

import jinja2
import numpy as np
import numpy.typing as npt
from sklearn.neighbors import NearestNeighbors

from treegen import __version__
from treegen.build import SCENARIOS_A_PROCESS, fit_tree
from treegen.core.errors import InputError
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells
from treegen.core.tree import Leaf, Split, Tree, depth, halves, leaves, size, within
from treegen.crossval.choices import Choices, Decisions, Quality, decisions_of, quality, score_decisions
from treegen.crossval.folds import cross_validate, held_out_quality
from treegen.crossval.parallel import processes
from treegen.crossval.peers import single_best
from treegen.read.spec import find_spec, read_spec
from treegen.review.modules import Module, read_modules
from treegen.review.printing import EVERYTHING, counted, left_out_words, progress, region_words, value_words
from treegen.review.shapes import doublings
from treegen.review.tables import noise_floor, read_tables
from treegen.write.files import check_replaceable, check_writable, write_files

Ints = npt.NDArray[np.int64]

MARK = "Made by <code>treegen report</code>"
"""A text of every page, by which one may be replaced."""

SLOW = 1.2  # slowdown from which a choice is marked
_WORST = 10  # slowest choices that are shown
_MARKERS = "os^Dv<>P*X"  # by variant
_AREA = 8  # values: a feature with fewer makes stripes, no area


@dataclass(frozen=True)
class TreeLine:
    """A line of the tree: one side of a split, and the config where that is a leaf."""

    indent: int
    words: str
    guards: Sequence[str]  # what is launched beyond bounds that no scenario crosses
    scenarios: int
    config: Config | None
    quality: Quality | None  # of the leaf's choices; None without a scenario


@dataclass(frozen=True)
class SlowChoice:
    """A scenario in which the module is slow. Times are microseconds, as text."""

    scenario: str
    words: str
    launched: Config
    time: str
    best: Config
    best_time: str
    slowdown: str


@dataclass(frozen=True)
class Section:
    """What the page shows of one kernel on one device."""

    kernel: KernelSpec
    device: str
    sentence: str  # how large the tree is, and what it was measured by
    ways: Mapping[str, Quality | None]  # by what is launched; the module first, then its held-out figures
    colours: Mapping[Config, str]
    launched: Mapping[Config, int]  # the scenarios of each config, most first
    tree: Sequence[TreeLine]
    map: str | None  # a PNG as a data URI
    slowest: Sequence[SlowChoice]


def run(spec_path: Path | None, kernel: str | None, device: str | None, out: Path) -> None:
    """Write the page about the selected tables. Raises InputError before anything is written."""
    import_module("matplotlib")  # a missing package is reported before the work begins
    check_writable(out.parent, [out.name])
    check_replaceable(out, "treegen report", MARK.encode())
    spec = read_spec(find_spec(spec_path))
    modules = read_modules(spec)
    problems = [table.problem for table in read_tables(spec, kernel, device)]
    for problem in problems:
        if (problem.kernel.name, problem.device.key) not in modules:
            missing = spec.output / problem.kernel.name / f"{problem.device.key}.py"
            raise InputError(missing, "no such module; run `treegen build`")
    worth = sum(len(problem.cost) for problem in problems) // SCENARIOS_A_PROCESS
    jobs = min(os.cpu_count() or 1, len(problems), max(1, worth))
    with progress() as tell, processes(jobs, tell) as spread:
        held_out = spread("cross-validating", _held_out, problems)
    text = page(
        [
            section(problem, modules[problem.kernel.name, problem.device.key], unseen)
            for problem, unseen in zip(problems, held_out, strict=True)
        ]
    )
    write_files(out.parent, {out.name: text})
    print(f"{out}: {counted(len(problems), 'section')}, {len(text.encode()):,} bytes")


def page(sections: Sequence[Section]) -> str:
    """One self-contained HTML page. Everything is escaped, and nothing is loaded."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("treegen.review", ""),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = figure
    environment.filters["config"] = config_words
    template = environment.get_template("report.html.j2")
    return template.render(sections=sections, mark=MARK, version=__version__, slow=SLOW)


def _held_out(problem: Problem) -> Quality | None:
    return held_out_quality(problem, cross_validate(problem, fit_tree))


def section(problem: Problem, module: Module, held_out: Quality | None) -> Section:
    """Score a committed module by its table. Raises InputError where that lacks a feature of the tree."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    kernel, cells = problem.kernel, problem.table.cells
    try:
        launched = decisions_of(module.tree, problem)
    except KeyError as error:
        what = f"splits on {error.args[0]}, which {problem.table.folder} does not hold; run `treegen build`"
        raise InputError(module.path, what) from None
    single = single_best(problem, kernel.budget).choose(problem)
    cost = score_decisions(launched, problem).cost
    fallback = (kernel.fallback,) * len(launched)
    ways: dict[str, Quality | None] = {"this module": quality(Choices(cost, problem.scenarios), cells)}
    ways["the same fit, held out"] = held_out
    for what, configs in (("single best config", single), ("fallback", fallback)):
        name = f"{what}, {kernel.constant_name(configs[0])}"
        ways[name] = quality(score_decisions(configs, problem), cells)
    palette = cycle(to_hex(colormaps["tab20"](place)) for place in range(20))
    colours = dict(zip(sorted({leaf.config for leaf, _ in leaves(module.tree)}), palette, strict=False))
    return Section(
        kernel=kernel,
        device=problem.device.key,
        sentence=_sentence(problem, module.tree, len(set(launched))),
        ways=ways,
        colours=colours,
        launched=dict(Counter(launched).most_common()),
        tree=list(tree_lines(module.tree, EVERYTHING, 0, problem, np.arange(len(cost)), cost)),
        map=_map(problem, launched, cost, colours),
        slowest=list(_slowest(problem, launched, cost)),
    )


def figure(found: Quality | None) -> str:
    """`1.022x`, or for a table of winners `94.4% won`."""
    if found is None:
        return "too few scenarios"
    return f"{found.agreement:.1%} won" if found.slowdown is None else f"{found.slowdown:.3f}x"


def config_words(config: Config, kernel: KernelSpec) -> str:
    """`qblock: rows 64, keys a step 32, warps 4`: what is not at its default."""
    named = (f"{kernel.words.get(n, n)} {value_words(n, v, kernel)}" for n, v in kernel.non_defaults(config))
    return f"{config.variant}: {', '.join(named)}"


def _sentence(problem: Problem, tree: Tree, launched: int) -> str:
    cells, timed = problem.cost.size, int(np.isfinite(problem.times()).sum())
    left_out = f" ({left_out_words(problem)}: {problem.left_out:,} left out)" if problem.left_out else ""
    floor = noise_floor(problem.table)
    noise = "" if floor is None else f" Choosing by one repeat loses {floor.slowdown - 1:.2%} in the others."
    return (
        f"The tree has {counted(size(tree), 'leaf', 'leaves')} and is {depth(tree)} splits deep with guards. "
        f"It launches {counted(launched, 'config')}. The table was measured on {problem.table.device_name}: "
        f"{len(problem.cost):,} scenarios{left_out} by {len(problem.configs):,} configs; {timed / cells:.1%} "
        f"of the cells hold a time.{noise}"
    )


def tree_lines(
    tree: Tree, words: str, indent: int, problem: Problem, rows: Ints, cost: Ints
) -> Iterator[TreeLine]:
    """The lines of a tree, low sides first. rows: the scenarios that reach it; cost: [scenarios]."""
    kernel, guards = problem.kernel, []
    while isinstance(tree, Split):
        column = problem.column(tree.feature)[rows] if tree.feature in problem.names else rows[:0]
        texts = (region_words(region, kernel) for region in halves(tree, {}))
        is_low = column <= tree.threshold
        sides = list(zip((tree.low, tree.high), texts, (rows[is_low], rows[~is_low]), strict=True))
        beyond = [
            (place, side.config)
            for place, (side, _, at) in enumerate(sides)
            if isinstance(side, Leaf) and not len(at)
        ]
        if not beyond or not len(rows):
            break
        place, config = beyond[0]
        guards.append(f"{sides[place][1]}: {kernel.constant_name(config)}")
        tree, _, rows = sides[1 - place]
    if isinstance(tree, Leaf):
        choices = Choices(cost[rows], tuple(problem.scenarios[row] for row in rows))
        found = quality(choices, problem.table.cells) if len(rows) else None
        yield TreeLine(indent, words, guards, len(rows), tree.config, found)
        return
    yield TreeLine(indent, words, guards, len(rows), None, None)
    for side, text, at in sides:
        yield from tree_lines(side, text, indent + 1, problem, at, cost)


def _slowest(problem: Problem, launched: Decisions, cost: Ints) -> Iterator[SlowChoice]:
    """Failed choices first, then the slowest; of a table of winners, scenarios that another config won."""
    times, knows_times = problem.times(), problem.table.cells is Cells.MEASURED
    shown = (cost > 0) & ((cost < UNTIMED) | (cost >= FORBIDDEN) | (not knows_times))
    rows = sorted(np.flatnonzero(shown).tolist(), key=lambda row: (-int(cost[row]), problem.scenarios[row]))
    for row in rows[:_WORST]:
        best, time, slowdown = int(problem.cost[row].argmin()), "-", "-"
        if cost[row] >= FORBIDDEN:
            time = "failed"
        elif knows_times:
            time = _us(times[row, problem.configs.index(launched[row])])
            slowdown = f"{math.exp(cost[row] / UNIT):.2f}x"
        best_time = _us(times[row, best])
        words = _scenario_words(problem, row)
        config = problem.configs[best]
        yield SlowChoice(problem.scenarios[row], words, launched[row], time, config, best_time, slowdown)


def _us(time: float) -> str:
    return f"{time:,.0f}" if time >= 100 else f"{time:.3g}"


def _scenario_words(problem: Problem, row: int) -> str:
    """The regimes that a scenario is in, then its raw features, without those that never vary."""
    kernel, values = problem.kernel, dict(zip(problem.names, problem.features[row].tolist(), strict=True))
    regimes = ((name, r) for name, r in kernel.regimes.items() if r.feature in values)
    parts = [name for name, r in regimes if within(values[r.feature], r.least, r.greatest)]
    for name in kernel.features:
        if name in values and np.ptp(problem.column(name)):
            parts.append(f"{kernel.words.get(name, name)} {value_words(name, values[name], kernel)}")
    return ", ".join(parts)


def _map(problem: Problem, launched: Decisions, cost: Ints, colours: Mapping[Config, str]) -> str | None:
    """What is launched where: a PNG as a data URI, or None where fewer than two features vary.

    A point is a scenario in the colour of its config, with its variant's marker.
    """
    import matplotlib
    from matplotlib.figure import Figure

    kernel, planes = problem.kernel, regime_planes(problem, launched)
    if not planes:
        return None
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 9}):  # words may come from tables
        drawn = Figure(figsize=(5 * len(planes), 4.2), dpi=150, layout="constrained")
        for place, (title, rows, (x, y)) in enumerate(planes, 1):
            axes = drawn.add_subplot(1, len(planes), place, title=title)
            slow = cost[rows] >= math.log(SLOW) * UNIT  # untimed and failed choices, too
            for config in dict.fromkeys(launched[row] for row in rows):
                mine = np.array([launched[row] == config for row in rows])
                for bad, look in ((False, {"s": 14}), (True, {"s": 60, "edgecolors": "black", "zorder": 3})):
                    at = rows[mine & (slow == bad)]
                    marker = _MARKERS[kernel.variants.index(config.variant) % len(_MARKERS)]
                    xs, ys = problem.column(x)[at], problem.column(y)[at]
                    axes.scatter(xs, ys, color=colours[config], marker=marker, **look)
            for axis, name, scale in ((axes.xaxis, x, axes.set_xscale), (axes.yaxis, y, axes.set_yscale)):
                scale("symlog", base=4, linthresh=1)
                axis.set_major_formatter("{x:,.0f}")
                axis.set_label_text(kernel.words.get(name, name))
        out = io.BytesIO()
        drawn.savefig(out, format="png", metadata={"Software": None})
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def regime_planes(problem: Problem, launched: Decisions) -> list[tuple[str, Ints, tuple[str, str]]]:
    """The pictures of a map: title, scenarios and the two features of the axes.

    There is one for each regime of the first feature that has some, and one for the other scenarios.
    """
    regimes = {name: one for name, one in problem.kernel.regimes.items() if one.feature in problem.names}
    first = next((one.feature for one in regimes.values()), None)
    rest = np.ones(len(problem.cost), dtype=bool)
    parts = []
    for name, one in regimes.items():
        if one.feature == first:
            values = problem.column(one.feature).tolist()
            inside = np.array([within(value, one.least, one.greatest) for value in values])
            rest &= ~inside
            parts.append((name, np.flatnonzero(inside)))
    parts.append((EVERYTHING if rest.all() else "other shapes", np.flatnonzero(rest)))
    return [(title, rows, axes) for title, rows in parts if (axes := _axes(problem, launched, rows))]


def _axes(problem: Problem, launched: Decisions, rows: Ints) -> tuple[str, str] | None:
    """The pair of raw features in which nearest neighbours most often launch the same config."""
    columns = {n: problem.column(n)[rows] for n in problem.kernel.features if n in problem.names}
    names = (
        n for n, values in columns.items() if len(set(values)) >= _AREA and n not in problem.kernel.values
    )
    configs = [launched[row] for row in rows]

    def agreement(pair: tuple[str, str]) -> int:
        points = np.stack([doublings(columns[name]) for name in pair], axis=1)
        neighbours = NearestNeighbors(n_neighbors=1).fit(points).kneighbors(return_distance=False)[:, 0]
        return sum(configs[near] == config for near, config in zip(neighbours, configs, strict=True))

    return max(combinations(names, 2), key=agreement, default=None)
