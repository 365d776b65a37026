"""The sentences of an explanation."""

from __future__ import annotations

from collections.abc import Iterable

from treegen.core.spec import Config, KernelSpec
from treegen.review.explain.estimate import RangedValue, RunnerUp
from treegen.review.explain.explanation import Explanation, Neighbour
from treegen.review.explain.outside import Between, Beyond, Outside
from treegen.review.explain.tree_path import PathStep
from treegen.review.printing import bounds_words, region_words, value_words

_CONSTRAINT = 40  # characters of a constraint that are shown


def source_lines(explanation: Explanation) -> list[str]:
    tuned, table = explanation.tuned, explanation.tuned.problem.table
    scenarios = f"{len(tuned.problem.cost):,} scenarios on {table.device_name}"
    lines = [
        f"{tuned.kernel.name} on {tuned.problem.device.key}",
        f"module {tuned.short(tuned.module.path)}",
        f"table {tuned.short(table.folder)}, {scenarios}",
    ]
    return lines + ([f"other devices: {', '.join(tuned.other_devices)}"] if tuned.other_devices else [])


def shape_lines(explanation: Explanation) -> list[str]:
    kernel, shape, problem = explanation.tuned.kernel, explanation.shape, explanation.tuned.problem
    shown = {*problem.split_on, *(step.feature for step in explanation.path.steps)}
    raw = [name for name in kernel.features if name in shape.values]
    derived = [name for name in kernel.derived if name in shape.values and name in shown]
    lines = [_listed(raw, explanation)] if raw else []
    lines += [f"so {_listed(derived, explanation)}"] if derived else []
    if shape.source is not None:
        lines.append(f"not given, taken from scenario {shape.source}: {_listed(shape.assumed, explanation)}")
    if shape.not_in_table:
        lines.append(f"not in the table: {', '.join(_word(name, kernel) for name in shape.not_in_table)}")
    return lines


def outside_line(reason: Outside, kernel: KernelSpec) -> str:
    if isinstance(reason, Beyond):
        measured = f"the table measured {bounds_words(reason.feature, reason.least, reason.greatest, kernel)}"
        return (
            f"{_word(reason.feature, kernel)} {value_words(reason.feature, reason.value, kernel)}: {measured}"
        )
    if isinstance(reason, Between):
        below, value, above = (
            value_words(reason.feature, number, kernel)
            for number in (reason.below, reason.value, reason.above)
        )
        measured = f"the table measured {below} and {above}, nothing between"
        return f"{_word(reason.feature, kernel)} {value}: {measured}"
    usual = f"99% of the scenarios have another within {reason.usual:.2f}"
    return f"the nearest scenario is {reason.distance:.2f} doublings away; {usual}"


def config_words(config: Config, kernel: KernelSpec) -> str:
    """The parameters that are not at their default."""
    parameters = (_named_value(name, value, kernel) for name, value in kernel.non_defaults(config))
    return f"{config.variant}: {', '.join(parameters)}"


def broken_line(explanation: Explanation) -> str:
    kernel, broken = explanation.tuned.kernel, " and ".join(explanation.broken)
    exempt = "; the fallback is exempt" if explanation.path.config == kernel.fallback else ""
    return f"this shape breaks {broken}{exempt}"


def path_row(step: PathStep, kernel: KernelSpec) -> list[str]:
    """A split, the shape's value, the answer, and the origin of the split."""
    question = f"{_word(step.feature, kernel)} {bounds_words(step.feature, None, step.threshold, kernel)}?"
    value = value_words(step.feature, step.value, kernel)
    return [question, value, "yes" if step.answer else "no", _kind(step)]


def region_line(explanation: Explanation) -> str:
    region = region_words(explanation.path.region, explanation.tuned.kernel)
    if explanation.path.fell:
        return f"so a guard launches this config for {region}"
    return f"so this leaf serves {region}"


def time_lines(explanation: Explanation) -> list[str]:
    if explanation.estimate is None:
        return [f"not known: {explanation.no_time}"]
    time, slowdown = explanation.estimate.time, explanation.estimate.slowdown
    if time.measured:
        repeats = f"{time.of} repeats: {_span(time)}" if time.of > 1 else "once"
        lines = [f"{_digits(time.value)} us, measured in {explanation.measured_scenario} ({repeats})"]
        return [*lines, f"{slowdown.value:.2f}x the best time there"]
    lines = [
        f"{_digits(time.value)} us predicted, 80% range {_span(time)}, from {time.of} scenarios",
        f"{slowdown.value:.2f}x the best config's time, 80% range {slowdown.low:.2f} to {slowdown.high:.2f}",
    ]
    return lines + (
        ["no measurement supports these ranges outside the tuned shapes"] if explanation.outside else []
    )


def runner_up_row(runner: RunnerUp, kernel: KernelSpec) -> list[str]:
    """Config, ratio, its range, time, and in how many scenarios near here both configs were timed."""
    ratio = runner.ratio
    span = "measured" if ratio.measured else f"{ratio.low:.2f} to {ratio.high:.2f}"
    near = "here" if ratio.measured else f"{runner.near} of {runner.of}"
    return [kernel.constant_name(runner.config), f"{ratio.value:.2f}x", span, _digits(runner.time), near]


def neighbour_lines(neighbour: Neighbour, kernel: KernelSpec) -> list[str]:
    lines = [f"{neighbour.scenario}, {neighbour.distance:.2f} doublings away"]
    if neighbour.differs:
        differs = (_named_value(name, value, kernel) for name, value in neighbour.differs)
        lines.append(f"there {', '.join(differs)}")
    return [*lines, _launched_there(neighbour, kernel)]


def _kind(step: PathStep) -> str:
    if not step.guards:
        return "fitted" if step.guards is None else "guard"
    texts = (t if len(t) <= _CONSTRAINT else t[: _CONSTRAINT - 3] + "..." for t in step.guards)
    return f"guard: {' and '.join(texts)}"


def _launched_there(neighbour: Neighbour, kernel: KernelSpec) -> str:
    best = kernel.constant_name(neighbour.best)
    if neighbour.best_time is None:
        return f"won by {'the launched config' if neighbour.wins else best}"
    if neighbour.time is None:
        what = "failed or may not run" if neighbour.failed else "was not timed"
        return f"the launched config {what}; best {_digits(neighbour.best_time)} us with {best}"
    if neighbour.wins:
        return f"{_digits(neighbour.time)} us, the best"
    slowdown = neighbour.time / neighbour.best_time
    return f"{_digits(neighbour.time)} us, {slowdown:.2f}x the {_digits(neighbour.best_time)} us of {best}"


def _span(ranged: RangedValue) -> str:
    return f"{_digits(ranged.low)} to {_digits(ranged.high)}"


def _digits(microseconds: float) -> str:
    """Three significant digits."""
    rounded = float(f"{microseconds:.3g}")
    decimals = next((places for places, least in enumerate((100, 10, 1)) if rounded >= least), 3)
    return f"{rounded:,.{decimals}f}"


def _word(name: str, kernel: KernelSpec) -> str:
    return kernel.words.get(name, name)


def _listed(names: Iterable[str], explanation: Explanation) -> str:
    kernel, values = explanation.tuned.kernel, explanation.shape.values
    return ", ".join(_named_value(name, values[name], kernel) for name in names)


def _named_value(name: str, value: int, kernel: KernelSpec) -> str:
    return f"{_word(name, kernel)} {value_words(name, value, kernel)}"
