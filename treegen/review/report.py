"""`treegen report`: one HTML page about what the committed modules launch."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from treegen.build import SCENARIOS_A_PROCESS
from treegen.core.errors import InputError
from treegen.core.launches import ABSENT, UNKNOWN
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells
from treegen.crossval.folds import Evaluation, cross_validate
from treegen.crossval.parallel import processes
from treegen.crossval.peers import single_best
from treegen.crossval.score import Quality, Score, costs_of, quality
from treegen.fit.costs import table_noise
from treegen.fit.fit import fit
from treegen.read.spec import find_spec, read_spec
from treegen.review.build_summary import held_out_words
from treegen.review.printing import condition, counted, left_out_words, microseconds, value_words
from treegen.write.files import check_replaceable, check_writable, write_files
from treegen.write.modules import Module, missing_module, read_modules, read_tables
from tuning_table import __version__

MARK = "Made by <code>treegen report</code>"  # in every page, which may be replaced by it
SLOW = 1.2  # the slowdown from which a cell is deep red
_WORST = 10  # slowest choices that are shown


def run(spec_path: Path | None, kernel: str | None, device: str | None, out: Path) -> None:
    """Write the page about the selected tables. Raises InputError before anything is written."""
    check_writable(out.parent, [out.name])
    check_replaceable(out, "treegen report", MARK.encode())
    spec = read_spec(find_spec(spec_path))
    modules = read_modules(spec)
    problems = read_tables(spec, kernel, device)
    keys = [(problem.kernel.name, problem.device.key) for problem in problems]
    if missing := [key for key in keys if key not in modules]:
        raise missing_module(spec, missing[0])
    worth = sum(len(problem.cost) for problem in problems) // SCENARIOS_A_PROCESS
    jobs = min(os.cpu_count() or 1, len(problems), max(1, worth))
    with processes(jobs) as parallel_map:
        unseen = parallel_map("cross-validating", partial(cross_validate, fit=fit), problems)
    parts = zip(problems, keys, unseen, strict=True)
    sections = [section(problem, modules[key], figures) for problem, key, figures in parts]
    text = page(sections)
    write_files(out.parent, {out.name: text})
    print(f"{out}: {counted(len(sections), 'section')}, {len(text.encode()):,} bytes")


def page(sections: Sequence[Mapping[str, Any]]) -> str:
    """One self-contained HTML page. Everything is escaped, and nothing is loaded."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("treegen.review", ""),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": figure, "held_out": held_out_words, "left_out": left_out_words}
    environment.filters |= {"config": config_words, "condition": condition}
    template = environment.get_template("report.html.j2")
    return template.render(sections=sections, mark=MARK, version=__version__, slow=SLOW)


def section(problem: Problem, module: Module, unseen: Evaluation | None) -> dict[str, Any]:
    """What the template shows of a committed module, scored by its table.

    Raises InputError where the table lacks a feature of the module.
    """
    kernel, heuristic, score = problem.kernel, module.heuristic, Score.of(problem, module.heuristic)
    if UNKNOWN in score.launches.config:
        what = f"asks about a feature that {problem.table.folder} does not hold; run `treegen build`"
        raise InputError(module.path, what)
    ways = {"this module": score.quality}
    single = problem.configs[int(single_best(problem, 1).columns(problem)[0])]
    for what, config in (("one config everywhere", single), ("fallback", kernel.fallback)):
        columns = np.full(len(score.cost), score.column_of(config))
        found = quality(costs_of(columns, problem), problem.scenarios, problem.table.cells)
        ways[f"{what}, {kernel.constant_name(config)}"] = found
    reached, whens = score.scenarios_of(3), {entry.name: entry.when for entry in kernel.regimes}

    def cell(regime: int, row: int, kind: int) -> dict[str, Any]:
        here = reached.get((regime, row, kind), np.zeros(0, dtype=np.int64))
        of = heuristic.regimes[regime].rows[row]
        config = of.others.get(kernel.classes[kind].name, of.config)
        found, lost = score.of_rows(here) if len(here) else None, 0.0
        if found is not None:
            lost = 1 - found.agreement if found.slowdown is None else (found.slowdown - 1) / (SLOW - 1)
        spare = int((score.columns[here] != score.column_of(config)).sum())
        what = {"config": config, "differs": config != of.config, "spare": spare}
        return {**what, "quality": found, "heat": min(1.0, max(0.0, lost))}

    regimes = []
    for number, regime in enumerate(heuristic.regimes):
        kinds = range(len(kernel.classes))
        cells = [[cell(number, place, kind) for kind in kinds] for place in range(len(regime.rows))]
        printed = re.search(rf"^def {regime.name}_row\(.*?(?=\n\n\n)", module.text, re.MULTILINE | re.DOTALL)
        function = printed[0] if printed else "row 0 for all steps"
        named = {"name": regime.name, "when": whens[regime.name], "function": function}
        regimes.append({**named, "rows": [*zip(regime.rows, cells, strict=True)]})
    return {
        "kernel": kernel,
        "device": problem.device.key,
        "problem": problem,
        "timed": np.isfinite(problem.times()).sum() / problem.cost.size,
        "noise": table_noise(problem.table) / UNIT,
        "rows": sum(len(regime.rows) for regime in heuristic.regimes),
        "configs": len(heuristic.configs),
        "ways": ways,
        "held_out": unseen,
        "regimes": regimes,
        "slowest": list(_slowest(score, module)),
    }


def figure(found: Quality) -> str:
    """`1.022x`, or for a table of winners `94.4% won`."""
    return f"{found.agreement:.1%} won" if found.slowdown is None else f"{found.slowdown:.3f}x"


def config_words(config: Config, kernel: KernelSpec) -> str:
    """`qblock: block_m 64, tile_size 32, num_warps 4`: what is not at its default."""
    named = (f"{n} {value_words(n, v, kernel)}" for n, v in kernel.non_defaults(config))
    return f"{config.variant}: {', '.join(named)}"


def _slowest(score: Score, module: Module) -> Iterator[dict[str, Any]]:
    """Failed choices first, then the slowest; of a table of winners, scenarios that another config won."""
    problem, cost, columns = score.problem, score.cost, score.columns
    times, knows_times = problem.times(), problem.table.cells is Cells.MEASURED
    held = (name for name in problem.kernel.features if name in problem.names)
    vary = [name for name in held if np.ptp(problem.column(name))]
    shown = (cost > 0) & ((cost < UNTIMED) | (cost >= FORBIDDEN) | (not knows_times))
    rows = sorted(np.flatnonzero(shown).tolist(), key=lambda row: (-int(cost[row]), problem.scenarios[row]))
    for row in rows[:_WORST]:
        best, failed = int(problem.cost[row].argmin()), cost[row] >= FORBIDDEN
        values = ((name, int(problem.column(name)[row])) for name in vary)
        timed = knows_times and not failed
        yield {
            "scenario": problem.scenarios[row],
            "words": ", ".join(f"{n} {value_words(n, value, problem.kernel)}" for n, value in values),
            "cell": score.launches.place(problem.kernel, module.heuristic, row),
            "launched": None if columns[row] == ABSENT else problem.configs[columns[row]],
            "time": "failed" if failed else microseconds(times[row, columns[row]]) if timed else "-",
            "best": problem.configs[best],
            "best_time": microseconds(times[row, best]),
            "slowdown": f"{math.exp(cost[row] / UNIT):.2f}x" if timed else "-",
        }
