"""A user's `Tuning` as a workload: its shapes are the scenarios, and their features come from a launch."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from triton_tune.bench.pool import Workload
from triton_tune.core.errors import TuningError, in_one_line
from triton_tune.core.problem import Likeness, SearchProblem
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import described_alone, first_launch, make, without_memory
from triton_tune.kernel.measuring import TIMING, CompileJob, KernelFile, Shape, loaded, prepare
from triton_tune.kernel.recorded import RecordedTuning, tunings_in
from triton_tune.kernel.tuning import Tuning
from triton_tune.launch.choosing import OWN
from triton_tune.launch.features import DTYPES, OF_DTYPE, NotAFeature, integer_of, plain, value_of, word_of

META = torch.device("meta")
_WORD_WEIGHT = 4.0  # the distance between scenarios that differ in a word
_MOST_CHARACTERS = 100  # of a scenario's id
_BARS = " ▁▂▃▄▅▆▇█"


def file_of(path: Path, name: str | None = None, *, untuned: bool = False) -> KernelFile:
    """Import a file that defines a `Tuning`.

    name: of the Tuning, if the file defines several. untuned: of the shapes, those kept aside. Raises
    TuningError.
    """
    tunings = tunings_in(path.resolve())
    if name is None and len(tunings) > 1:
        raise TuningError(f"{path}: defines several: choose one with --kernel: {', '.join(tunings)}")
    file = KernelFile(path.resolve(), name or next(iter(tunings)), untuned)
    loaded(file)
    return file


def workload_on(
    file: KernelFile, device: torch.device, *, ask_module: bool = False, without_tensors: bool = False
) -> Workload:
    """The workload of a file's `Tuning`, from a first launch of each shape on the device.

    ask_module: also find what `@tuned` chooses for them. without_tensors: allocate no tensors and measure
    nothing; only code that reads values of tensors gets real ones. Raises TuningError.
    """
    tuning, kernel, source = loaded(file)
    shapes = _look_at_shapes(file, device, ask_module=ask_module, without_tensors=without_tensors)
    values = _without_constant_types({shape.id: shape.values for shape in shapes})
    names = tuple(next(iter(values.values())))
    words = {n: listed for n in names if (listed := _words([row[n] for row in values.values()]))}
    integers = {n: {word: place for place, word in enumerate(words.get(n, ()))} for n in names}
    problem = SearchProblem(
        features={s: {n: integer_of(v, integers[n]) for n, v in row.items()} for s, row in values.items()},
        candidates={s.id: (*s.kept, *filter(s.excluded.__contains__, kernel.configs)) for s in shapes},
        variants=dict.fromkeys(kernel.configs, ""),
        likeness=Likeness(
            tuple(words), tuple(words), {n: _WORD_WEIGHT if n in words else 1.0 for n in names}
        ),
    )
    excluded = sum(len(shape.excluded) for shape in shapes)
    sizes = [n for n in names if n not in words]
    features = sizes + [f"{n} ({', '.join(words[n])})" for n in words]
    further = {
        "function": getattr(tuning, "function", None),
        "values": {n: list(listed) for n, listed in words.items()},
        "constants": _constants(tuning, values),
    }
    return Workload(
        kernel=file.name,
        features=names,
        scenarios={shape.id: shape for shape in shapes},
        configs={config: config for config in kernel.configs},
        prepare=prepare,
        job_for=CompileJob,
        launches=lambda shape: shape.judges[:2],  # unless they disagree
        problem=problem,
        rows=[{"id": c.id, **c.parameters} for c in kernel.configs.values() if c.id in problem.configs],
        lines=[
            f"{file.name}: {len(shapes)} shapes, {len(problem.configs)} configs, {problem.possible} cells; "
            f"early_config_prune leaves out {excluded}",
            f"features: {', '.join(features)}",
            *_picture(problem, sizes),
            *([] if file.untuned else _warnings(problem, sizes, tuning)),
        ],
        source_hash=source,
        timing=TIMING,
        scenario_set=f"{file.path.name}, kept aside" if file.untuned else file.path.name,
        provenance={key: value for key, value in further.items() if value},
        chosen=lambda: {shape.id: shape.chosen for shape in shapes if shape.chosen is not None},
    )


def _look_at_shapes(
    file: KernelFile, device: torch.device, *, ask_module: bool, without_tensors: bool
) -> list[Shape]:
    """Look at each shape's first launch. Raises TuningError with the shape for whatever functions raise."""
    tuning, kernel, _ = loaded(file)
    looks: dict[str, Shape] = {}
    for position, shape in enumerate(tuning.shapes):
        id = _scenario_id(tuning, position)
        if id in looks:
            raise TuningError(f"the shape {dict(shape)} is listed twice")
        try:
            if without_tensors:
                with contextlib.suppress(Exception), described_alone(kernel):
                    looks[id] = _look_at(file, id, position, device, ask_module=ask_module, compiles=False)
            if id not in looks:
                compiles = not without_tensors
                looks[id] = _look_at(file, id, position, device, ask_module=ask_module, compiles=compiles)
        except (Exception, SystemExit) as error:
            kind = "" if isinstance(error, TuningError) else f"{type(error).__name__}: "
            raise TuningError(f"shape {dict(shape)!s:.200}: {kind}{in_one_line(error)}") from error
    if device.type == "cuda":
        torch.cuda.empty_cache()  # for the processes that measure
    return list(looks.values())


def _look_at(
    file: KernelFile, id: str, position: int, device: torch.device, *, ask_module: bool, compiles: bool
) -> Shape:
    tuning, kernel, _ = loaded(file)
    recorded = isinstance(tuning, RecordedTuning)  # of whose tensors nothing is read
    with file.located(kernel):
        launch = first_launch(kernel, make(tuning, tuning.shapes[position], META if recorded else device))
    if launch is None:
        raise TuningError(f"its call did not launch {kernel.name}")
    kept, excluded = kernel.pruned(launch)
    return Shape(
        id,
        file,
        position,
        values=_values(kernel, tuning, kernel.arguments(launch), recorded=recorded),
        kept=kept,
        excluded=excluded,
        judges=() if tuning.reference else _judges(kernel, kept),
        chosen=kernel.chosen(launch) if ask_module else None,
        key=kernel.specialisation(launch) if compiles else None,
        launch=without_memory(launch) if compiles else None,
    )


def _judges(kernel: AutotunedKernel, kept: Sequence[str]) -> tuple[str, ...]:
    """Up to three configs, which differ in more than warps and stages if any do."""
    kinds: dict[tuple[int, ...], str] = {}
    for config in kept:
        parameters = kernel.configs[config].parameters.items()
        kinds.setdefault(tuple(value for name, value in parameters if name not in OWN), config)
    among = [*kinds.values()] if len(kinds) > 1 else kept
    return tuple(dict.fromkeys(among[place] for place in (0, len(among) // 2, -1)))


def _picture(problem: SearchProblem, names: Sequence[str]) -> list[str]:
    """How the values of features lie between the least and the greatest, by powers of two."""
    lines = []
    for name in names:
        values = [row[name] for row in problem.features.values()]
        counts = Counter(max(1, value).bit_length() for value in values)
        bars = (counts[bits] for bits in range(min(counts), max(counts) + 1))
        drawn = "".join(_BARS[math.ceil(count / max(counts.values()) * (len(_BARS) - 1))] for count in bars)
        share = sum(value % 16 == 0 for value in values) / len(values)
        different = f"{len(set(values))} different, {share:.0%} multiples of 16"
        lines.append(f"  {name}: {min(values)} [{drawn}] {max(values)}, {different}")
    return lines


def _constants(tuning: Tuning, values: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The features that are fixed for a running program, derived from ``Tuning.constants``.

    A feature that equals an argument of the shapes, by name or by values, is constant if that argument is.
    Any other feature is constant if shapes with equal constants always agree on it, and some do have equal
    constants.
    """
    fixed, shapes = tuple(tuning.constants or ()), tuning.shapes
    arguments = {name: repr([shape.get(name) for shape in shapes]) for shape in shapes for name in shape}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for shape, row in zip(shapes, values.values(), strict=True):
        groups.setdefault(repr([shape.get(name) for name in fixed]), []).append(row)
    repeated = [rows for rows in groups.values() if len(rows) > 1]

    def follows(name: str) -> bool:
        column = repr([row[name] for row in values.values()])
        same = {name} & arguments.keys() or {a for a, listed in arguments.items() if listed == column}
        alike = bool(repeated) and all(len({row[name] for row in rows}) == 1 for rows in repeated)
        return bool(same & set(fixed)) if same else alike

    return [name for name in next(iter(values.values())) if fixed and follows(name)]


def _warnings(problem: SearchProblem, names: Sequence[str], tuning: Tuning) -> list[str]:
    """What trees would learn wrongly or not at all. names: of features that are integers."""
    shapes = tuning.shapes
    groups: dict[tuple[int, ...], list[str]] = {}
    for scenario, features in problem.features.items():
        groups.setdefault(tuple(features.values()), []).append(scenario)
    lines = [
        f"warning: {', '.join(alike)} have the same features: a tree cannot tell them apart; add a feature"
        for alike in groups.values()
        if len(alike) > 1
    ]
    columns = {name: {row[name] for row in problem.features.values()} for name in names}
    # Of the shapes, as a feature may be constant through no choice of the user's.
    fields = {name: {repr(shape.get(name)) for shape in shapes} for shape in shapes for name in shape}
    lines += [
        f"warning: {name} is {min(values)} in every shape, so a tree learns nothing about other values"
        for name, values in fields.items()
        if len(values) == 1 < len(shapes)
    ]
    if not tuning.constants and sum(len(column) > 1 for column in columns.values()) > 1:
        why = "nothing says which sizes are a layer's or a model's, so no figure will say what a new one gets"
        lines.append(f"warning: {why}: name them in Tuning(constants=[...])")
    sizes = {value for column in columns.values() if len(column) > 1 for value in column if value >= 16}
    if len(sizes) > 1 and all(size % 16 == 0 for size in sizes):
        why = "all sizes from 16 on are multiples of 16, so a tree learns round sizes"
        lines.append(f"warning: {why}: add others, or draw shapes from ranges")
    return lines


def _values(
    kernel: AutotunedKernel, tuning: Tuning, arguments: Mapping[str, Any], *, recorded: bool
) -> dict[str, Any]:
    """A launch's features. recorded: nobody can mend the key, so that its floats are left out."""
    keys = [name for name in kernel.tuner.keys if name in arguments]
    if recorded:
        keys = [name for name in keys if not isinstance(arguments[name], float)]
    values = {name: arguments[name] for name in keys}
    features = kernel.tuned_features if tuning.features is None else tuning.features
    values.update({name: value_of(feature, arguments) for name, feature in features.items()})
    for name, argument in arguments.items():
        if isinstance(argument, torch.Tensor):
            values.setdefault(f"{name}{OF_DTYPE}", argument.dtype)
    values = {name: plain(value) for name, value in values.items()}
    for name, value in values.items():
        try:
            word_of(value)
        except NotAFeature as error:
            raise TuningError(f"feature {name}: {error}") from None
    # Other processes may not find the class of an enum.
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def _without_constant_types(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out element types that are the same in every scenario, or as those of an earlier argument."""
    rows = list(values.values())
    names = list(dict.fromkeys(name for row in rows for name in row))
    kept, columns = [], []
    for name in names:
        column = [row.get(name) for row in rows]
        if name.endswith(OF_DTYPE) and (column in columns or len(set(column)) == 1):
            continue
        kept.append(name)
        columns.append(column)
    if not kept:
        raise TuningError("the kernel has no features: @triton.autotune needs a key")
    return {scenario: {name: row.get(name) for name in kept} for scenario, row in values.items()}


def _words(column: list[Any]) -> tuple[str, ...]:
    """A feature's words, in the order of their integers; none where all values are integers."""
    words = sorted({word for word in map(word_of, column) if word is not None})
    if not words:
        return ("false", "true") if all(isinstance(value, bool) for value in column) else ()
    if any(isinstance(value, int) for value in column):
        raise TuningError(f"a feature has both integers and words, such as {words[0]!r}")
    if all(word in DTYPES for word in words):
        return tuple(sorted(words, key=DTYPES.index))
    return tuple(words)


def _scenario_id(tuning: Tuning, position: int) -> str:
    """An id such as `M16_N32` from the shape's values, or `s<number>` if these are long or no features.

    That of a record's kernel has a name of its own among those of all kernels.
    """
    kernel = f"{tuning.name}." if isinstance(tuning, RecordedTuning) else ""
    try:
        parts = [f"{name}{word_of(value) or int(value)}" for name, value in tuning.shapes[position].items()]
    except NotAFeature:
        return f"{kernel}s{position}"
    text = kernel + re.sub(r"[^A-Za-z0-9_.=-]", "-", "_".join(parts))
    return text if text[:1].isalnum() and len(text) <= _MOST_CHARACTERS else f"{kernel}s{position}"
