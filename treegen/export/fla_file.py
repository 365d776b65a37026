"""A module's choices as a cache of flash-linear-attention (fla/ops/utils/cache.py).

Its modes: an exact key is found by its MD5; a fuzzy one is the first entry that differs in numbers alone;
else the default config counts. So the most frequent config of such a group of entries comes first.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from treegen.core.errors import InputError
from treegen.core.table import Table
from treegen.export.module_files import parameters_of, triton_of
from treegen.export.tuned_files import TRITONS_OWN, Exported
from treegen.write.modules import TunedModule, loaded

_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}  # those of triton.Config


def fla_file(tuned: TunedModule) -> dict[str, Exported]:
    """The file by its name, with an entry for each scenario of the table.

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
    configs = {config: _entry(parameters_of(config, kernel)) for _, config in found}
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


def _entry(parameters: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in parameters.items() if name in TRITONS_OWN}
    return {"kwargs": {n: v for n, v in parameters.items() if n not in own}, **_DEFAULTS, **own}
