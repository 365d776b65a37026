"""run.yaml: what was measured, on what, and how. The same checks hold for reading and writing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuning_table.errors import TableError, shown
from tuning_table.names import is_id, problem_with_name
from tuning_table.section import Section, Word, must, one_of, quoting
from tuning_table.strict_yaml import Lines, parse, pyyaml
from tuning_table.table import FORMAT, LARGEST_PARAMETER, LOOKUPS, Cells, TableConfig, TableHeader

_FACTS = ("source_hash", "date")  # required, but an imported table has `origin` instead
_COURSE = ("scenario_set", "seed", "strategy", "summary")


_ANY = Word(default=None)  # nothing depends on it
_COUNT = Word(int, 0, least=0)
_SECONDS = Word((int, float), 0.0, least=0)
_DEVICE = {
    "name": Word(str),
    "key": Word(str, None, check=quoting(problem_with_name)),
    "cache_bytes": _COUNT,
    **dict.fromkeys(("arch", "multiprocessors", "memory_bytes"), _ANY),
}
_SUMMARY = {
    "seconds": _SECONDS,
    "noise_p90": _SECONDS,
    "scenarios": _COUNT,
    **dict.fromkeys(("rows", "cells_measured", "cells_failed", "cells_possible"), _ANY),
    **dict.fromkeys(("noise_median", "noise_p99", "finished", "failures"), _ANY),
}
_ORIGIN = {"evaluated_configs": Word(int, 1, least=1, most=1_000_000)}
_CONFIG = {
    "id": Word(str, check=must(is_id, "may hold letters, digits and _ . = - only")),
    "variant": Word(str, None),
}
_PARAMETER = Word(int, least=0, most=LARGEST_PARAMETER)
_RUN = {
    "format": Word(int, check=one_of([FORMAT])),
    "kernel": Word(str),
    "device": Word(dict, inside=_DEVICE),
    "cells": Word(str, check=one_of(list(Cells))),
    "timing": Word((str, dict), others=_ANY),
    "features": Word(list, check=quoting(problem_with_name)),
    "configs": Word(list, items=Word(dict, inside=_CONFIG, others=_PARAMETER)),
    "constants": Word(list, ()),
    "function": Word(str, None),
    "values": Word(dict, {}, others=Word((list, dict), others=Word(int))),
    "lookup": Word(dict, {}, others=Word(str, check=one_of(LOOKUPS))),
    "scenario_set": Word(str, None),
    "strategy": Word(str, None),
    "seed": Word(int, 0),
    "summary": Word(dict, {}, inside=_SUMMARY),
    "origin": Word(dict, None, inside=_ORIGIN, others=_ANY),
    **dict.fromkeys(("driver", "torch", "triton", *_FACTS), _ANY),
}


def read_header(path: Path, text: str) -> TableHeader:
    """Check the text of a run.yaml. Raises TableError with the line."""
    return check_run(path, *parse(path, text))


def run_text(path: Path, run: Mapping[str, Any]) -> str:
    """The text of a run.yaml. Raises TableError for values that YAML's plain data lacks."""
    yaml = pyyaml(path)
    try:
        return str(yaml.safe_dump(dict(run), sort_keys=False, width=120, default_flow_style=None))
    except yaml.YAMLError as error:
        raise TableError(path, f"cannot be written: {error}") from None


def check_run(path: Path, values: Mapping[str, Any], lines: Lines) -> TableHeader:
    """Check what a run.yaml holds. Raises TableError with the line, where `lines` has it."""
    run = Section(path, values, lines, Word(inside=_RUN))
    for key in _RUN:
        if isinstance(value := run[key], Section):
            dict(value)  # checks its values
    features = run["features"]
    run.refuse_unknown("feature", run["constants"], features, key="constants")
    configs = _configs(run["configs"])
    run["values"].refuse_unknown("feature or parameter", run["values"], [*features, *configs[0].parameters])
    run["lookup"].refuse_unknown("feature", run["lookup"], features)
    if run["origin"] is not None:
        for key in _COURSE:
            if key in run:
                what = "belongs to a run of our own; 'origin' says that the table was imported"
                raise run.error(key, what)
    elif missing := [key for key in _FACTS if key not in run]:
        raise run.error(None, f"lacks {', '.join(missing)} (or 'origin', if the table was imported)")
    return TableHeader(
        kernel=run["kernel"],
        device_name=run["device"]["name"],
        cells=Cells(run["cells"]),
        features=features,
        configs=configs,
        provenance=values,
        words={name: run["values"].by_number(name) for name in run["values"]},
        constants=run["constants"],
    )


def difference(
    have: Mapping[str, Any], need: Mapping[str, Any], but: Sequence[str]
) -> tuple[str, str, str] | None:
    """The first place where two run.yaml files differ, with both values; None if only in the keys `but`."""
    theirs, ours = (dict(_flat({k: v for k, v in run.items() if k not in but})) for run in (have, need))
    for place in {**ours, **theirs}:
        if theirs.get(place) != ours.get(place):
            return place[1:], shown(theirs.get(place)), shown(ours.get(place))
    return None


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar of a run.yaml, with its place such as `.configs[0].id`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{place}.{key}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _flat(item, f"{place}[{position}]")
    else:
        yield place, value


def _configs(entries: Section) -> tuple[TableConfig, ...]:
    configs: dict[str, TableConfig] = {}
    for position in entries:
        entry = entries[position]
        parameters = {name: value for name, value in entry.items() if name not in _CONFIG}
        config = TableConfig(entry["id"], entry["variant"], parameters)
        for name in parameters:
            if problem := problem_with_name(name):
                raise entry.error(None, f"parameter {shown(name)} {problem}")
        first = next(iter(configs.values()), config)
        if config.id in configs:
            raise entry.error("id", f"{shown(config.id)} names two configs")
        if set(config.parameters) != set(first.parameters):
            raise entry.error(None, f"has other parameters than {first.id}")
        if (config.variant is None) != (first.variant is None):
            raise entry.error(None, "all configs or none must name their variant")
        configs[config.id] = config
    if not configs:
        raise entries.error(None, "names no config")
    return tuple(configs.values())
