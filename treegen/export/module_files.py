"""A module's choices as tuned files of other projects."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec, is_model
from treegen.core.table import Table
from treegen.export.tuned_files import BOUNDS, FORMATS, TRITONS_OWN, Entry, Exported, Facts, Format
from treegen.review.explain import parse_features
from treegen.review.printing import counted
from treegen.write.modules import TunedModule, loaded
from tuning_table import __version__
from tuning_table.names import literal

_UNSET = {"maxnreg": 0, "num_ctas": 0}  # values of parameters that a config does not set, as in `@tuned`
_OF_NAMES = ("dtype", "block_shape", "per_channel_quant")  # what may name a file though it is no feature
_FLA_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}  # those of triton.Config
_MOST_SIZES = 1 << 18  # that are compared between the keys of a file


def tuned_files(
    tuned: TunedModule, form: str, words: Sequence[str], along: str | None
) -> dict[str, Exported]:
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
    looked_up = [*table.provenance.get("lookup", {})]
    known = (*looked_up, *kernel.features)
    along = along or next((name for name in (*looked_up, "M") if name in known), kernel.steps[0])
    if along not in known:
        raise InputError("--along", f"{along} is none of {', '.join(kernel.features)}")
    sizes, written = given.pop(along, ()), FORMATS[form]
    if sizes and (written.bounds or min(sizes) < 0):
        what = f"aiter's bounds are {BOUNDS}" if written.bounds else "a key of a file is 0 or above"
        raise InputError(along, f"leave out its sizes, as {what}")
    if not sizes and not written.bounds:
        columns = dict(zip(table.feature_names, table.features.T.tolist(), strict=True))
        columns |= {name: problem.column(name).tolist() for name in problem.names}
        measured = [size for size in columns.get(along, ()) if size > 0]
        written = written._replace(sizes=tuple(sorted({*written.sizes, *measured})))
    choose = loaded(tuned.module)["choose"]
    files: dict[str, Exported] = {}
    gpu, triton, provenance = _device_name(problem), triton_of(table), provenance_of(problem)
    arch, origin = device.arch or "", table.provenance.get("origin", {})
    for shape, identity, unknown in _combinations(problem, given, along):
        values = {**identity, **parts}
        facts = Facts(kernel.name, gpu, device.key, arch, triton, provenance, values, unknown, origin)
        if "/" in "".join([facts.device_name, facts.triton, *facts.values.values()]):
            raise InputError(kernel.name, "has a name with / for a part of a file's name")
        name = written.name(facts)
        if name in files:
            which = ", ".join(other for other in shape if f"{other}=" not in name)
            raise InputError(name, f"would hold several combinations; give one value of {which}")
        files[name] = _file(written, facts, kernel, partial(choose, **shape), along, sizes)
    return files


def _device_name(problem: Problem) -> str:
    """The GPU that a module serves, as its driver reports it, whatever GPU measured the table."""
    measured, names = problem.table.device_name, problem.device.names
    if not names or any(is_model(measured, name) for name in names):
        return measured
    return names[0]


def provenance_of(problem: Problem) -> str:
    """Where a module's files come from, in words."""
    version = f", measured with Triton {triton}" if (triton := triton_of(problem.table)) else ""
    return f"treegen {__version__}: {problem.kernel.name} on {_device_name(problem)}{version}"


def triton_of(table: Table) -> str:
    """The version of Triton that a table was measured with, or for which another project tuned."""
    origin = table.provenance.get("origin", {})
    return str(table.provenance.get("triton", origin.get("triton", "")))


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
) -> list[tuple[dict[str, int], dict[str, str], set[str]]]:
    """Shapes: those of the table for features that are not given, with all those of given ones.

    Beside each are the texts of all that tells it apart: also of the table's columns about which the module
    does not ask, as they are the same everywhere or follow from others; and the columns of which the table
    does not tell it.
    """
    kernel, table = problem.kernel, problem.table
    features = [name for name in kernel.features if name != along]
    measured = [name for name in features if name not in given]
    fixed = table.provenance.get("origin", {}).get("same_in_every_scenario", {})
    rename = kernel.renamed(table.kernel)
    columns = [(rename.get(name, name), table.words.get(name, {})) for name in table.feature_names]
    texts = []
    for row in table.features.tolist():
        cells = zip(columns, row, strict=True)
        texts.append({name: words.get(value, str(value)) for (name, words), value in cells})
    if missing := [name for name in measured if name not in problem.names]:
        raise InputError(table.folder, f"does not hold {missing[0]}; give {missing[0]}=...")
    rows = sorted(set(zip(*(problem.column(name).tolist() for name in measured), strict=True))) or [()]
    found = []
    for row, values in product(rows, product(*given.values())):
        known = dict(zip((*measured, *given), (*row, *values), strict=True))
        shape = {name: known[name] for name in features}
        named = {name: kernel.values.get(name, {}).get(value, str(value)) for name, value in shape.items()}
        alike = [row for row in texts if all(row.get(n, text) == text for n, text in named.items())] or texts
        others = {n: {row[n] for row in alike} for n in texts[0] if n not in (along, *kernel.features)}
        unknown = {name for name, values in others.items() if len(values) > 1}
        same = {name: alike[0][name] for name in others if name not in unknown}
        found.append((shape, {**fixed, **same, **named}, unknown))
    return found


def _file(
    written: Format,
    facts: Facts,
    kernel: KernelSpec,
    choose: Callable[..., Any],
    along: str,
    sizes: Sequence[int],
) -> Exported:
    """A file with entries at `sizes`, or at the format's usual ones and on both sides of each change."""
    keys = sorted(sizes or written.sizes)
    every = range(keys[0], keys[-1] + 1) if keys[-1] - keys[0] <= _MOST_SIZES else keys
    asked = along in kernel.features  # else the table has one size alone
    chosen = {size: choose(**({along: size} if asked else {})) for size in every}
    entry = {config: written.entry(parameters_of(config, kernel)) for config in set(chosen.values())}
    if not written.bounds and not sizes:
        changes = (pair for pair in pairwise(every) if chosen[pair[0]] != chosen[pair[1]])
        keys = sorted({*keys, *(size for pair in changes for size in pair)})
    entries = {written.key(size): entry[chosen[size]] for size in keys}
    text = json.dumps({**written.provenance(facts), **entries}, indent=4) + "\n"
    launched = written.launched(entries, every)
    differing = sum(one is not entry[chosen[size]] for size, one in zip(every, launched, strict=True))
    summary = f"launches what the module does at all {len(chosen):,} sizes"
    if differing:  # between keys
        summary = f"launches something else at {differing:,} of {len(chosen):,}"
    return Exported(text, f"{counted(len(keys), 'key')}; {summary}")


def parameters_of(config: Any, kernel: KernelSpec) -> Entry:
    """The parameters that a module's config sets, with what their integers stand for."""
    values: Entry = {}
    for name in kernel.parameters:
        number = getattr(config, name)
        word = kernel.values.get(name, {}).get(number)
        value = literal(word) if word is not None else ... if _UNSET.get(name) == number else number
        values |= {} if value is ... else {name: value}
    return values


def fla_file(tuned: TunedModule) -> dict[str, Exported]:
    """A module as a cache of flash-linear-attention, by its name: an entry for each scenario of the table.

    Its modes (fla/ops/utils/cache.py): an exact key is found by its MD5; a fuzzy one is the first entry that
    differs in numbers alone; else the default config counts. So the most frequent config of such a group of
    entries comes first.

    Raises InputError: the table does not come from keys of Triton's autotuner, or the kernel has variants.
    """
    problem = tuned.problem
    kernel, table = problem.kernel, problem.table
    origin = table.provenance.get("origin", {})
    if "function" not in origin or len(kernel.variants) > 1:
        what = "is of no use for fla, whose keys come from a table of `treegen import fla` or `triton`"
        raise InputError(table.folder, what)
    if lost := [*origin.get("same_in_every_scenario", {})]:
        raise InputError(table.folder, f"has no column for {lost[0]}, which is part of fla's keys")
    choose = loaded(tuned.module)["choose"]
    rows = table.features[problem.table_rows].tolist()
    found: list[tuple[list[Any], Any]] = []
    for values, row in zip(problem.features.tolist(), rows, strict=True):
        shape = {n: v for n, v in zip(problem.names, values, strict=True) if n in kernel.features}
        key = [_key_value(table, n, value) for n, value in zip(table.feature_names, row, strict=True)]
        found.append((key, choose(**{**dict.fromkeys(kernel.features, 0), **shape})))
    counts = Counter((_group(key), config) for key, config in found)
    found.sort(key=lambda pair: -counts[_group(pair[0]), pair[1]])
    most = Counter(config for _, config in found).most_common(1)[0][0]
    configs = {config: _fla_entry(parameters_of(config, kernel)) for _, config in found}
    content: dict[str, Any] = {
        "kernel_name": origin["function"],
        "triton_version": triton_of(table),
        "default_config": configs[most],
        "autotune_entries": {_hash(key): {"autotune_key": key, "config": configs[c]} for key, c in found},
    }
    text, keys = json.dumps(content, indent=2) + "\n", len(content["autotune_entries"])
    return {f"{origin['function']}.json": Exported(text, f"{keys} keys")}


def _key_value(table: Table, name: str, value: int) -> Any:
    """A value of a key as Triton has it, of which an import took off `torch.`."""
    word = table.words.get(name, {}).get(value)
    if word is None:
        return bool(value) if name in table.provenance["origin"].get("booleans", ()) else value
    of_type = name.endswith("_dtype") or name.startswith("argument_dtype_")
    return None if word == "none" else f"torch.{word}" if of_type else word


def _group(key: list[Any]) -> str:
    return json.dumps([0 if type(value) in (int, float) else value for value in key])


def _hash(key: list[Any]) -> str:
    return hashlib.md5(json.dumps(key, separators=(",", ":"), sort_keys=True).encode()).hexdigest()


def _fla_entry(parameters: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in parameters.items() if name in TRITONS_OWN}
    return {"kwargs": {n: v for n, v in parameters.items() if n not in own}, **_FLA_DEFAULTS, **own}
