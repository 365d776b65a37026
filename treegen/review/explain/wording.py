"""The sentences of an explanation."""

from __future__ import annotations

from collections.abc import Iterable

from treegen.core.spec import Config, KernelSpec
from treegen.review.explain.estimate import Figure, RunnerUp
from treegen.review.explain.explanation import Explanation
from treegen.review.explain.neighbours import Neighbour
from treegen.review.explain.outside import Between, Beyond, Outside
from treegen.review.explain.path import Step
from treegen.review.words import range_words, region_words

_CONSTRAINT = 40  # so much of a constraint names it


def source_lines(found: Explanation) -> list[str]:
    subject = found.subject
    table = subject.problem.table
    scenarios = f"{len(subject.problem.cost):,} scenarios on {table.device_name}"
    lines = [
        f"{subject.kernel.name} on {subject.problem.device.key}",
        f"module {subject.short(subject.module.path)}",
        f"table {subject.short(table.folder)}, {scenarios}",
    ]
    return lines + ([f"other devices: {', '.join(subject.others)}"] if subject.others else [])


def shape_lines(found: Explanation) -> list[str]:
    kernel, shape, problem = found.subject.kernel, found.shape, found.subject.problem
    asked = {step.feature for step in found.path.steps}
    raw = [name for name in kernel.features if name in shape.values]
    derived = [n for n in kernel.derived if n in shape.values and (n in asked or n in problem.split_on)]
    lines = [_listed(raw, found)] if raw else []
    lines += [f"so {_listed(derived, found)}"] if derived else []
    if shape.source is not None:
        lines.append(f"not given, taken from scenario {shape.source}: {_listed(shape.assumed, found)}")
    if shape.unheld:
        lines.append(f"not in the table: {', '.join(_word(name, kernel) for name in shape.unheld)}")
    return lines


def outside_line(reason: Outside, kernel: KernelSpec) -> str:
    if isinstance(reason, Beyond):
        measured = range_words(reason.least, reason.greatest)
        return f"{_word(reason.feature, kernel)} {reason.value:,}: measured was {measured}"
    if isinstance(reason, Between):
        measured = f"measured were {reason.below:,} and {reason.above:,}, nothing between"
        return f"{_word(reason.feature, kernel)} {reason.value:,}: {measured}"
    usual = f"99% of the scenarios have another within {reason.usual:.2f}"
    return f"the nearest scenario is {reason.distance:.2f} doublings away; {usual}"


def config_words(config: Config, kernel: KernelSpec) -> str:
    """The parameters that are not at their default."""
    parameters = (f"{_word(name, kernel)} {value:,}" for name, value in kernel.non_defaults(config))
    return f"{config.variant}: {', '.join(parameters)}"


def path_rows(found: Explanation) -> list[list[str]]:
    """The questions on the way with this shape's values, the answers, and what stands behind each."""
    kernel = found.subject.kernel
    return [
        [
            f"{_word(step.feature, kernel)} {range_words(None, step.threshold)}?",
            f"{step.value:,}",
            "yes" if step.answer else "no",
            _kind(step),
        ]
        for step in found.path.steps
    ]


def region_line(found: Explanation) -> str:
    serves = region_words(found.path.region, found.subject.kernel)
    if found.path.fell:
        return f"so a guard launches the fallback for {serves}"
    return f"so this leaf serves {serves}"


def time_lines(found: Explanation) -> list[str]:
    if found.estimate is None:
        return [f"not known: {found.untimed}"]
    time, slowdown = found.estimate.time, found.estimate.slowdown
    if time.measured:
        repeats = f"{time.of} repeats: {_span(time)}" if time.of > 1 else "once"
        lines = [f"{_digits(time.value)} us, measured in {found.exact} ({repeats})"]
        return [*lines, f"{slowdown.value:.2f}x the best time there"]
    lines = [
        f"{_digits(time.value)} us predicted, 80% range {_span(time)}, from {time.of} scenarios",
        f"{slowdown.value:.2f}x the best config's time, 80% range {slowdown.low:.2f} to {slowdown.high:.2f}",
    ]
    return lines + (["no measurement vouches for these ranges out here"] if found.outside else [])


def runner_up_rows(found: Explanation) -> list[list[str]]:
    """Config, ratio, its range, time, and in how many scenarios near here both configs were timed."""
    shown = () if found.estimate is None else found.estimate.runners_up[: found.top]
    return [_runner_up(runner, found.subject.kernel) for runner in shown]


def runners_up_note(found: Explanation) -> str | None:
    if found.estimate is None or not found.estimate.sparse:
        return None
    where = "were not timed here" if found.estimate.time.measured else "were timed too rarely near here"
    return f"{found.estimate.sparse} other configs {where} to compare"


def neighbour_lines(neighbour: Neighbour, found: Explanation) -> list[str]:
    kernel = found.subject.kernel
    lines = [f"{neighbour.scenario}, {neighbour.distance:.2f} doublings away"]
    if neighbour.differs:
        differs = (f"{_word(name, kernel)} {value:,}" for name, value in neighbour.differs)
        lines.append(f"there {', '.join(differs)}")
    return [*lines, _outcome(neighbour, kernel)]


def won_line(found: Explanation) -> str | None:
    """How often the launched config wins around here; where times are known, they say more."""
    if found.subject.knows_times:
        return None
    return f"the launched config won {found.won} of the {found.won_of} nearest scenarios"


def _runner_up(runner: RunnerUp, kernel: KernelSpec) -> list[str]:
    ratio = runner.ratio
    span = "measured" if ratio.measured else f"{ratio.low:.2f} to {ratio.high:.2f}"
    near = "here" if ratio.measured else f"{runner.near} of {runner.of}"
    return [kernel.constant_name(runner.config), f"{ratio.value:.2f}x", span, _digits(runner.time), near]


def _kind(step: Step) -> str:
    if step.guards is None:
        return "fitted"
    return f"guard: {' and '.join(_short(text) for text in step.guards)}" if step.guards else "guard"


def _outcome(neighbour: Neighbour, kernel: KernelSpec) -> str:
    best = kernel.constant_name(neighbour.best)
    if neighbour.best_time is None:
        return f"won by {'the launched config' if neighbour.wins else best}"
    if neighbour.time is None:
        what = "failed or may not run" if neighbour.failed else "was not timed"
        return f"the launched config {what}; best {_digits(neighbour.best_time)} us with {best}"
    if neighbour.wins:
        return f"{_digits(neighbour.time)} us, the best"
    slower = neighbour.time / neighbour.best_time
    return f"{_digits(neighbour.time)} us, {slower:.2f}x the {_digits(neighbour.best_time)} us of {best}"


def _span(figure: Figure) -> str:
    return f"{_digits(figure.low)} to {_digits(figure.high)}"


def _digits(microseconds: float) -> str:
    """Three significant digits."""
    rounded = float(f"{microseconds:.3g}")
    decimals = next((places for places, from_ in enumerate((100, 10, 1)) if rounded >= from_), 3)
    return f"{rounded:,.{decimals}f}"


def _word(name: str, kernel: KernelSpec) -> str:
    return kernel.words.get(name, name)


def _short(text: str) -> str:
    return text if len(text) <= _CONSTRAINT else text[: _CONSTRAINT - 3] + "..."


def _listed(names: Iterable[str], found: Explanation) -> str:
    values = found.shape.values
    return ", ".join(f"{_word(name, found.subject.kernel)} {values[name]:,}" for name in names)
