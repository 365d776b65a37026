"""Check a table's decisions again in a minute, as after a new driver, Triton or GPU."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Bench, PlannedVisit, SearchProblem, Times
from triton_tune.run.progress import Progress
from triton_tune.search.loop import COMPILE_SHARE
from triton_tune.search.neighbours import Distances
from tuning_table.table import Cell, Failure, RecordedTable

SCENARIOS, RIVALS, REPEATS = 10, 2, 3  # 30 cells, each timed three times
SECONDS = 60.0
LEAST_MARGIN = 0.05  # a choice is stale if it lost more than this, and more than twice the table's noise
MOST_MARGIN = 0.15  # where noise hides losses as large as this, a check says nothing
DUE = 0.1  # of the time: a full run is due for stale choices that carry more, another look for unsure ones


@dataclass(frozen=True)
class Answer:
    """What the repeats of a scenario say about the choice there."""

    chosen: str
    drift: float  # its time now over that in the table
    lost: tuple[float, ...]  # by repeat: how much further it is behind its best rival than in the table
    why: str  # a line that explains why it is stale, if it is


def recheck(
    recorded: RecordedTable, problem: SearchProblem, bench: Bench, chosen: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Time some choices and their rivals again. Returns a report in lines, and whether to doubt the table.

    Args:
        recorded: the table. Its scenarios that `problem` has count, with the configs that it still has.
        chosen: by scenario, the config that the generated module chooses; empty: the table's fastest.

    Raises TuningError if the table has nothing to ask about or is too noisy, or nothing could be timed.
    """
    noise = float(recorded.header.provenance.get("summary", {}).get("noise_p90", 0.0))
    margin = max(LEAST_MARGIN, 2 * noise)
    if margin > MOST_MARGIN:
        why = f"the noise_p90 of {noise:.0%} in its run.yaml hides differences up to {margin:.0%}"
        raise TuningError(f"nothing can be said about the table: {why}; measure it again")
    times = Times(recorded.visits)
    medians = {
        s: {config: time for config, time in times.medians(s).items() if config in problem.configs}
        for s in problem.scenarios
    }
    rows: dict[str, list[str]] = {}  # of each choice: the scenarios in which it and a rival have times
    for scenario, row in medians.items():
        config = chosen.get(scenario) if chosen else min(row, key=row.__getitem__, default=None)
        if config in row and len(row) > 1:
            rows.setdefault(config, []).append(scenario)
    if not rows:
        raise TuningError("the table has no two configs with times in any of these scenarios")
    carried = {c: sum(medians[s][c] for s in scenarios) for c, scenarios in rows.items()}
    asked = _visits(problem, medians, rows, carried)
    start = bench.clock()
    answers = _ask(bench, asked, medians)
    if not answers:
        raise TuningError(f"nothing could be timed within {SECONDS:.0f} s")
    cells = sum(len(visit.configs) for visit in asked)
    lines = [
        f"timed {cells} cells of {len(asked)} scenarios again, in {bench.clock() - start:.0f} s; "
        f"differences up to {margin:.0%} count as noise"
    ]
    if drifts := [answer.drift for answer in answers if answer.drift < math.inf]:
        lines.append(f"choices take {geometric_mean(drifts):.2f}x the table's times (geometric mean)")
    verdicts, stale = _report(carried, answers, margin)
    return [*lines, *verdicts], stale


def _visits(
    problem: SearchProblem,
    medians: Mapping[str, Mapping[str, float]],
    rows: Mapping[str, list[str]],
    carried: Mapping[str, float],
) -> list[PlannedVisit]:
    """Visits of a choice and its rivals, more for choices that carry more time, near other choices."""
    counts = dict.fromkeys(rows, 0)
    for _ in range(SCENARIOS):
        left = [c for c in rows if counts[c] < len(rows[c])]
        if left:
            counts[max(left, key=lambda c: (counts[c] == 0, carried[c] / (1 + counts[c])))] += 1
    distances = Distances(problem)
    asked = []
    for config, count in counts.items():
        near = rows[config]
        others = [s for other, scenarios in rows.items() if other != config for s in scenarios]
        if others:
            gaps = dict(zip(near, distances.matrix(near, others).min(axis=1), strict=True))
            near = sorted(near, key=gaps.__getitem__)[: max(count, math.ceil(len(near) / 2))]
        for scenario in distances.representatives(near, count):
            rivals = sorted(medians[scenario].keys() - {config}, key=medians[scenario].__getitem__)[:RIVALS]
            asked.append(PlannedVisit(scenario, 1, (config, *rivals)))
    return asked


def _ask(
    bench: Bench, asked: Sequence[PlannedVisit], medians: Mapping[str, Mapping[str, float]]
) -> list[Answer]:
    """Time choices and rivals again. Visits for which there was no time have no answer."""
    start = bench.clock()
    tasks = [replace(visit, repeat=repeat) for repeat in range(1, REPEATS + 1) for visit in asked]
    now: dict[str, list[Mapping[str, Cell]]] = {}
    with Progress(SECONDS, 0.0, lambda: None) as progress:
        progress.begin("compile", 0)
        compiled = bench.compile(tasks, start + COMPILE_SHARE * SECONDS, lambda done, total: None)
        progress.begin("time again", len(compiled))
        for done, visit in enumerate(bench.measure(compiled, start + SECONDS), start=1):
            now.setdefault(visit.scenario, []).append(visit.cells)
            progress.advance(done)
    answers = (_answer(visit, now.get(visit.scenario, []), medians[visit.scenario]) for visit in asked)
    return [answer for answer in answers if answer is not None]


def _answer(
    asked: PlannedVisit, repeats: Sequence[Mapping[str, Cell]], medians: Mapping[str, float]
) -> Answer | None:
    (chosen, *rivals), place = asked.configs, f"in {asked.scenario}"
    lost, drifts = [], []
    ratios: dict[str, list[float]] = {}
    for cells in repeats:
        cell, tried = cells.get(chosen), [config for config in rivals if config in cells]
        if isinstance(cell, Failure):
            return Answer(chosen, math.inf, (math.inf,), f"{place} it fails now: {cell.reason}")
        if cell is None or not tried:  # not compiled in time
            continue
        working = {c: time for c in tried if isinstance(time := cells[c], float)}
        for config, time in working.items():
            ratios.setdefault(config, []).append(cell / time)
        before = max(1.0, medians[chosen] / min(medians[c] for c in tried))
        lost.append(max(1.0, cell / min(working.values(), default=cell)) / before)
        drifts.append(cell / medians[chosen])
    if not lost:
        return None
    best = max(ratios, key=lambda c: median(ratios[c]), default=chosen)
    ratio = median(ratios.get(best, [1.0]))
    why = f"{place} {best} is {ratio:.2f}x as fast now, and was {medians[chosen] / medians[best]:.2f}x"
    return Answer(chosen, median(drifts), tuple(lost), why)


def _report(carried: Mapping[str, float], answers: Sequence[Answer], margin: float) -> tuple[list[str], bool]:
    """What the answers say of each choice, and whether to doubt the table. carried: time of each."""
    of_config: dict[str, list[Answer]] = {}
    for answer in answers:
        of_config.setdefault(answer.chosen, []).append(answer)
    share = {config: time / sum(carried.values()) for config, time in carried.items()}
    lines = []
    shares: dict[str, list[float]] = {"stale": [], "unsure": [], "sure": []}
    for config in sorted(of_config, key=share.__getitem__, reverse=True):
        of_choice = of_config[config]
        whys = [f"       {answer.why}" for answer in of_choice if min(answer.lost) > 1 + margin]
        sure = all(max(answer.lost) <= 1 + margin for answer in of_choice)
        word = "stale" if whys else "sure" if sure else "unsure"
        shares[word].append(share[config])
        lines += [f"{word:7}{config}, {share[config]:.0%} of the time, {len(of_choice)} checked", *whys]
    left = [share[config] for config in share if config not in of_config]
    if left:
        lines.append(f"{len(left)} more configs, {sum(left):.0%} of the time, not checked")
    stale, unsure = shares["stale"], shares["unsure"]
    of_checked = f"of {len(of_config)} checked choices"
    if stale:
        due = "is due" if sum(stale) > DUE else "can wait"
        lines.append(f"stale: {len(stale)} {of_checked}, {sum(stale):.0%} of the time; a full run {due}")
    elif sum(unsure) > DUE:
        carry = f"{sum(unsure):.0%} of the time"
        lines.append(f"unsure: {len(unsure)} {of_checked}, {carry}; check again, or measure")
    else:
        lines.append(f"stale: none {of_checked}; no full run is due")
    return lines, bool(stale) or sum(unsure) > DUE
