"""A module's choices as tuned files of other projects, one for each combination of its other features."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from treegen.core.errors import InputError
from treegen.core.heuristic import choose
from treegen.core.problem import Problem
from treegen.core.spec import Config, KernelSpec, Spec
from treegen.export.tuned_files import BOUNDS, FORMATS, Entry, Facts, Format, entries_of, key_of
from treegen.read.problem import read_table, spec_problem
from treegen.review.check.proof import config_of, loaded
from treegen.review.modules import Module, parse_features, read_modules

_UNSET = {"maxnreg": 0, "num_ctas": 0}  # values of parameters that a config does not set, as in `@tuned`
_OF_NAMES = ("dtype", "block_shape")  # what may name a file though it is no feature
_MOST_SIZES = 1 << 14  # that are compared between the keys of a file
Shape = dict[str, int]


class TunedFile(NamedTuple):
    text: str
    keys: int
    provenance: str
    sizes: int  # from the first key to the last
    differing: int  # of these, between keys: where the file launches something else than the module


def tuned_files(
    spec: Spec, form: str, kernel_name: str, device: str | None, words: Sequence[str], along: str | None
) -> dict[str, TunedFile]:
    """The files of a module by name, each checked at its keys against what the printed module launches.

    words: `NAME=VALUE,VALUE`: sizes of `along`, the feature that runs along a file; values of other features,
    of which all combinations get a file (default: those of the table); or parts of a file's name.
    device: the module's key; None for the kernel's first.

    Raises InputError: there is no such kernel, module or feature; a format cannot name a combination or hold
    the kernel's variants; or the module does not launch what its rows say.
    """
    (kernel,), modules = spec.selected(kernel_name), read_modules(spec)
    keys = [key for key in kernel.tables if (kernel_name, key) in modules and device in (None, key)]
    if not keys:
        what = f"there is no module of {kernel_name} for {device or 'any device'}; run `treegen build`"
        raise InputError(spec.path, what)
    if len(kernel.variants) > 1:
        raise InputError(kernel_name, f"has variants, for which files of {form} have no place")
    module = modules[kernel_name, keys[0]]
    table = read_table(kernel.tables[keys[0]])
    problem = spec_problem(kernel, module.device, table)
    given, parts = _given(words, kernel)
    along = along or next((name for name in ("M", *kernel.steps) if name in kernel.features), kernel.steps[0])
    if along not in kernel.features:
        raise InputError("--along", f"{along} is none of {', '.join(kernel.features)}")
    sizes, written = given.pop(along, ()), FORMATS[form]
    if sizes and (written.bounds or min(sizes) < 0):
        what = f"aiter's bounds are {BOUNDS}" if written.bounds else "a key of a file is 0 or above"
        raise InputError(along, f"leave out its sizes, as {what}")
    triton = str(table.provenance.get("triton", ""))
    files: dict[str, TunedFile] = {}
    for shape in _combinations(problem, given, along):
        values = {name: kernel.values.get(name, {}).get(value, str(value)) for name, value in shape.items()}
        named, arch = {**values, **parts}, module.device.arch or ""
        facts = Facts(kernel_name, table.device_name, module.device.key, arch, triton, named)
        if "/" in "".join([table.device_name, triton, *named.values()]):
            raise InputError(kernel_name, "has a name with / for a part of a file's name")
        name = written.name(facts)
        if name in files:
            which = ", ".join(other for other in shape if f"{other}=" not in name)
            raise InputError(name, f"would hold several combinations; give one value of {which}")
        files[name] = _file(written, facts, module, shape, along, sizes)
    return files


def _given(words: Sequence[str], kernel: KernelSpec) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """The values that arguments give to features, and the texts that they give to parts of names."""
    given: dict[str, tuple[int, ...]] = {}
    parts: dict[str, str] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name in _OF_NAMES and name not in kernel.features and text:
            parts[name] = text
            continue
        found = [parse_features([f"{name}={one}"], kernel.values) for one in text.split(",")] if text else []
        if name not in kernel.features or not found:
            what = f"must be FEATURE=VALUE,VALUE with one of {', '.join(kernel.features)}"
            raise InputError(word or "''", what)
        given[name] = tuple(dict.fromkeys(one[name] for one in found))
    return given, parts


def _combinations(problem: Problem, given: Mapping[str, Sequence[int]], along: str) -> Iterator[Shape]:
    """Those of the table for features that are not given, with all those of given ones."""
    measured = [name for name in problem.kernel.features if name != along and name not in given]
    if missing := [name for name in measured if name not in problem.names]:
        raise InputError(problem.table.folder, f"does not hold {missing[0]}; give {missing[0]}=...")
    columns = [problem.column(name) for name in measured] or [np.zeros(1, np.int64)]
    for row in np.unique(np.stack(columns, axis=1), axis=0).tolist():
        for values in product(*given.values()):
            found = {**dict(zip(measured, row, strict=False)), **dict(zip(given, values, strict=True))}
            yield {name: found[name] for name in problem.kernel.features if name != along}


def _file(
    written: Format, facts: Facts, module: Module, shape: Shape, along: str, given_sizes: Sequence[int]
) -> TunedFile:
    kernel, limits, launch = module.kernel, module.device.limits, loaded(module)["choose"]
    keys = sorted(given_sizes or written.sizes)
    every = range(keys[0], keys[-1] + 1) if keys[-1] - keys[0] <= _MOST_SIZES else keys
    launched = {size: config_of(launch(**shape, **{along: size}), kernel) for size in every}
    if not written.bounds and not given_sizes:  # both sizes at each change: the nearest key is the right one
        changes = (pair for pair in pairwise(every) if launched[pair[0]] != launched[pair[1]])
        keys = sorted({*keys, *(size for pair in changes for size in pair)})
    rows = {size: choose(module.heuristic, kernel, limits, {**shape, along: size}).config for size in keys}
    entries = {written.key(size): written.entry(_parameters(config, kernel)) for size, config in rows.items()}
    text = json.dumps({**written.provenance(facts), **entries}, indent=4) + "\n"
    read = entries_of(json.loads(text))
    wanted = {config: written.entry(_parameters(config, kernel)) for config in launched.values()}
    wrong = [size for size, config in launched.items() if read[key_of(read, size)] != wanted[config]]
    for size in wrong:
        if size in keys:
            what = f"does not launch what its rows say at {along}={size}; run `treegen check`"
            raise InputError(module.path, what)
    return TunedFile(text, len(keys), facts.provenance, len(launched), len(wrong))


def _parameters(config: Config, kernel: KernelSpec) -> Entry:
    """A config's parameters, with words for integers that stand for some; `none` is null."""
    words = {name: kernel.values.get(name, {}).get(value, value) for name, value in config.parameters}
    unset = [name for name, value in config.parameters if _UNSET.get(name) == value]
    return {name: None if word == "none" else word for name, word in words.items() if name not in unset}
