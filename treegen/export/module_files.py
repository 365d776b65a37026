"""A module's choices as tuned files of other projects, one for each combination of its other features."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec
from treegen.export.tuned_files import BOUNDS, FORMATS, Entry, Facts, Format
from treegen.review.modules import TunedModule, loaded, parse_features

_UNSET = {"maxnreg": 0, "num_ctas": 0}  # values of parameters that a config does not set, as in `@tuned`
_OF_NAMES = ("dtype", "block_shape")  # what may name a file though it is no feature
_MOST_SIZES = 1 << 14  # that are compared between the keys of a file


class TunedFile(NamedTuple):
    text: str
    keys: int
    provenance: str
    sizes: int  # from the first key to the last
    differing: int  # of these, between keys: where the file launches something else than the module


def tuned_files(
    tuned: TunedModule, form: str, words: Sequence[str], along: str | None
) -> dict[str, TunedFile]:
    """The files of a module by name, with what the printed module launches at their keys.

    words: `NAME=VALUE,VALUE`: sizes of `along`, the feature that runs along a file; values of other features,
    of which all combinations get a file (default: those of the table); or parts of a file's name.

    Raises InputError: there is no such feature, or a format cannot name a combination or hold the kernel's
    variants.
    """
    problem = tuned.problem
    kernel, table, device = problem.kernel, problem.table, problem.device
    if len(kernel.variants) > 1:
        raise InputError(kernel.name, f"has variants, for which files of {form} have no place")
    given, parts = _given(words, kernel)
    along = along or next((name for name in ("M", *kernel.steps) if name in kernel.features), kernel.steps[0])
    if along not in kernel.features:
        raise InputError("--along", f"{along} is none of {', '.join(kernel.features)}")
    sizes, written = given.pop(along, ()), FORMATS[form]
    if sizes and (written.bounds or min(sizes) < 0):
        what = f"aiter's bounds are {BOUNDS}" if written.bounds else "a key of a file is 0 or above"
        raise InputError(along, f"leave out its sizes, as {what}")
    triton, choose = str(table.provenance.get("triton", "")), loaded(tuned.module)["choose"]
    files: dict[str, TunedFile] = {}
    for shape in _combinations(problem, given, along):
        named = {name: str(kernel.values.get(name, {}).get(value, value)) for name, value in shape.items()}
        facts = Facts(kernel.name, table.device_name, device.key, device.arch or "", triton, named | parts)
        if "/" in "".join([table.device_name, triton, *facts.values.values()]):
            raise InputError(kernel.name, "has a name with / for a part of a file's name")
        name = written.name(facts)
        if name in files:
            which = ", ".join(other for other in shape if f"{other}=" not in name)
            raise InputError(name, f"would hold several combinations; give one value of {which}")
        files[name] = _file(written, facts, kernel, partial(choose, **shape), along, sizes)
    return files


def _given(words: Sequence[str], kernel: KernelSpec) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """The values that arguments give to features, and the texts that they give to parts of names."""
    given: dict[str, tuple[int, ...]] = {}
    parts: dict[str, str] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name in kernel.features and text:
            found = (parse_features([f"{name}={one}"], kernel.values)[name] for one in text.split(","))
            given[name] = tuple(dict.fromkeys(found))
        elif name in _OF_NAMES and text:
            parts[name] = text
        else:
            what = f"must be FEATURE=VALUE,VALUE with one of {', '.join(kernel.features)}"
            raise InputError(word or "''", what)
    return given, parts


def _combinations(
    problem: Problem, given: Mapping[str, Sequence[int]], along: str
) -> list[Mapping[str, int]]:
    """Those of the table for features that are not given, with all those of given ones."""
    features = [name for name in problem.kernel.features if name != along]
    measured = [name for name in features if name not in given]
    if missing := [name for name in measured if name not in problem.names]:
        raise InputError(problem.table.folder, f"does not hold {missing[0]}; give {missing[0]}=...")
    rows = sorted(set(zip(*(problem.column(name).tolist() for name in measured), strict=True))) or [()]
    found = (
        dict(zip((*measured, *given), (*row, *values), strict=True))
        for row, values in product(rows, product(*given.values()))
    )
    return [{name: shape[name] for name in features} for shape in found]


def _file(
    written: Format,
    facts: Facts,
    kernel: KernelSpec,
    choose: Callable[..., Any],
    along: str,
    sizes: Sequence[int],
) -> TunedFile:
    """A file with entries at `sizes`, or at the format's usual ones and on both sides of each change."""
    keys = sorted(sizes or written.sizes)
    every = range(keys[0], keys[-1] + 1) if keys[-1] - keys[0] <= _MOST_SIZES else keys
    wanted = {size: written.entry(_parameters(choose(**{along: size}), kernel)) for size in every}
    if not written.bounds and not sizes:
        changes = (pair for pair in pairwise(every) if wanted[pair[0]] != wanted[pair[1]])
        keys = sorted({*keys, *(size for pair in changes for size in pair)})
    entries = {written.key(size): wanted[size] for size in keys}
    text = json.dumps({**written.provenance(facts), **entries}, indent=4) + "\n"
    differing = sum(written.launched(entries, size) != entry for size, entry in wanted.items())
    return TunedFile(text, len(keys), facts.provenance, len(wanted), differing)


def _parameters(config: Any, kernel: KernelSpec) -> Entry:
    """The parameters of a module's config, with words for integers that stand for some; `none` is null."""
    set_values = {n: v for n in kernel.parameters if (v := getattr(config, n)) != _UNSET.get(n)}
    words = {name: kernel.values.get(name, {}).get(value, value) for name, value in set_values.items()}
    return {name: None if word == "none" else word for name, word in words.items()}
