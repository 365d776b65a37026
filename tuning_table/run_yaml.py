"""run.yaml: what was measured, on what, and how. The same checks hold for reading and writing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuning_table.errors import TableError, shown
from tuning_table.names import is_id, problem_with_name
from tuning_table.section import Section
from tuning_table.strict_yaml import Lines, parse, pyyaml
from tuning_table.table import FORMAT, LARGEST, LOOKUPS, Cells, TableConfig, TableHeader

_REQUIRED = ("format", "kernel", "device", "cells", "timing", "features", "configs")
_FACTS = ("source_hash", "date")  # required as well, but an imported table has `origin` instead
_COURSE = ("scenario_set", "seed", "strategy", "summary")
_DEVICE = ("name", "key", "arch", "multiprocessors", "memory_bytes", "cache_bytes")
_COUNTS = ("scenarios", "rows", "cells_measured", "cells_failed", "cells_possible")
_SUMMARY = ("seconds", *_COUNTS, "noise_median", "noise_p90", "noise_p99", "finished", "failures")


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
    run = Section(path, values, lines)
    run.only(
        (
            *_REQUIRED,
            "driver",
            "torch",
            "triton",
            *_FACTS,
            *_COURSE,
            "origin",
            "values",
            "constants",
            "lookup",
            "function",
        )
    )
    if run.get_as("format", int) != FORMAT:
        raise run.error("format", f"must be {FORMAT}, the only format that there is")
    if run.get_as("cells", str) not in list(Cells):
        raise run.error("cells", f"must be one of {', '.join(Cells)}, not {shown(values['cells'])}")
    features = tuple(run.names("features"))
    for name in features:
        if problem := problem_with_name(name):
            raise run.error("features", f"{shown(name)} {problem}")
    constants = run.names("constants", optional=True)
    for name in constants:
        if name not in features:
            raise run.error("constants", f"{shown(name)} is no feature; they are {', '.join(features)}")
    configs = _configs(run)
    run.get_as("timing", (str, dict))
    run.get_as("function", str, "")
    _check_course(run)
    device = run.section("device")
    device.only(_DEVICE)
    device.number("cache_bytes", int, 0, LARGEST, 0)
    if problem := problem_with_name(device.get_as("key", str, "key")):
        raise device.error("key", f"{shown(device['key'])} {problem}")
    words = run.section("values", optional=True)
    words.only((*features, *configs[0].parameters))
    stand_for = {name: words.by_number(name) for name in words}
    lookup = run.section("lookup", optional=True)
    lookup.only(features)
    for name, rule in lookup.items():
        if rule not in LOOKUPS:
            raise lookup.error(name, f"must be {' or '.join(LOOKUPS)}, not {shown(rule)}")
    cells = Cells(values["cells"])
    return TableHeader(
        kernel=run.get_as("kernel", str),
        device_name=device.get_as("name", str),
        cells=cells,
        features=features,
        configs=configs,
        provenance=values,
        words=stand_for,
        constants=tuple(constants),
    )


def difference(
    have: Mapping[str, Any], need: Mapping[str, Any], but: Sequence[str]
) -> tuple[str, str, str] | None:
    """The first place in which two run.yaml files differ, with both values; None if they agree.

    but: keys that may differ.
    """
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


def _check_course(run: Section) -> None:
    """Check what run.yaml says of a run's circumstances, or of an imported table's origin instead."""
    run.get_as("scenario_set", str, "")
    run.get_as("strategy", str, "")
    run.number("seed", int, -LARGEST, LARGEST, 0)
    summary = run.section("summary", optional=True)
    summary.only(_SUMMARY)  # nothing depends on what else a summary says
    for name in ("seconds", "noise_p90"):
        summary.number(name, float, 0, LARGEST, 0.0)
    summary.number("scenarios", int, 0, LARGEST, 0)
    if "origin" in run:
        for key in _COURSE:
            if key in run:
                what = "belongs to a run of our own; 'origin' says that the table was imported"
                raise run.error(key, what)
        origin = run.section("origin")
        origin.number("evaluated_configs", int, 1, 1_000_000, 1)
    elif missing := [key for key in _FACTS if key not in run]:
        raise run.error(None, f"lacks {', '.join(missing)} (or 'origin', if the table was imported)")


def _configs(run: Section) -> tuple[TableConfig, ...]:
    configs: dict[str, TableConfig] = {}
    for position, entry in enumerate(run.get_as("configs", list), start=1):
        if not isinstance(entry, Section):
            raise run.error("configs", f"entry {position} is not a mapping")
        config = _config(entry)
        first = next(iter(configs.values()), config)
        if config.id in configs:
            raise entry.error("id", f"{shown(config.id)} names two configs")
        if set(config.parameters) != set(first.parameters):
            raise entry.error(None, f"has other parameters than {first.id}")
        if (config.variant is None) != (first.variant is None):
            raise entry.error(None, "all configs or none must name their variant")
        configs[config.id] = config
    if not configs:
        raise run.error("configs", "names no config")
    return tuple(configs.values())


def _config(entry: Section) -> TableConfig:
    config_id = entry.get_as("id", str)
    if not is_id(config_id):
        raise entry.error("id", f"{shown(config_id)} may hold letters, digits and _ . = - only")
    parameters = {name: value for name, value in entry.items() if name not in ("id", "variant")}
    for name in parameters:
        if problem := problem_with_name(name):
            raise entry.error(None, f"parameter {shown(name)} {problem}")
        entry.number(name, int, 0, (1 << 31) - 1)
    return TableConfig(config_id, entry.get_as("variant", str, None), parameters)
