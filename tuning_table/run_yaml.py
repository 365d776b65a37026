"""run.yaml: what was measured, on what, and how. The same checks hold for reading and writing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuning_table.errors import TableError, shown
from tuning_table.names import is_id, is_word, problem_with_name
from tuning_table.strict_yaml import Lines, Place, parse, pyyaml
from tuning_table.table import FORMAT, LARGEST, Cells, TableConfig, TableHeader

_REQUIRED = ("format", "kernel", "device", "cells", "timing", "features", "configs")
_FACTS = ("source_hash", "date")  # required as well, but an imported table has `origin` instead
_COURSE = ("scenario_set", "seed", "strategy", "summary")
_DEVICE = ("name", "arch", "multiprocessors", "memory_bytes", "cache_bytes")
_COUNTS = ("scenarios", "rows", "cells_measured", "cells_failed", "cells_possible")
_SUMMARY = ("seconds", *_COUNTS, "noise_median", "noise_p90", "noise_p99", "finished", "failures")
_KINDS = {str: "text", int: "an integer", float: "a number", list: "a list", dict: "a mapping"}


def read_header(path: Path, text: str) -> TableHeader:
    """Check the text of a run.yaml. Raises TableError with the line."""
    values, lines = parse(path, text)
    if not isinstance(values, dict):
        raise TableError(path, "must hold a mapping of keys to values")
    return check_run(path, values, lines)


def run_text(path: Path, run: Mapping[str, Any]) -> str:
    """The text of a run.yaml. Raises TableError for values that YAML's plain data lacks."""
    yaml = pyyaml(path)
    try:
        return str(yaml.safe_dump(dict(run), sort_keys=False, width=120, default_flow_style=None))
    except yaml.YAMLError as error:
        raise TableError(path, f"cannot be written: {error}") from None


def check_run(path: Path, values: Mapping[str, Any], lines: Lines) -> TableHeader:
    """Check what a run.yaml holds. Raises TableError with the line, where `lines` has it."""
    run = _Section(path, lines, values)
    run.only((*_REQUIRED, "driver", "torch", "triton", *_FACTS, *_COURSE, "origin", "values"))
    if run.get("format", int) != FORMAT:
        raise run.error("format", f"must be {FORMAT}, the only format that there is")
    if run.get("cells", str) not in list(Cells):
        raise run.error("cells", f"must be one of {', '.join(Cells)}, not {shown(values['cells'])}")
    features = tuple(run.words("features"))
    for name in features:
        if problem := problem_with_name(name):
            raise run.error("features", f"{shown(name)} {problem}")
    configs = _configs(run)
    run.get("timing", str, dict)
    _check_course(run)
    device = run.section("device")
    device.only(_DEVICE)
    device.number("cache_bytes", 0, LARGEST)
    words = run.section("values", default={})
    words.only((*features, *configs[0].parameters))
    stand_for = {name: tuple(words.words(name)) for name in words.values}
    for name, listed in stand_for.items():
        for word in listed:
            if not is_word(word):
                what = f"{shown(word)} is no word (letters, digits, spaces and _ . % / + -)"
                raise words.error(name, what)
    cells = Cells(values["cells"])
    return TableHeader(
        run.get("kernel", str), device.get("name", str), cells, features, configs, values, stand_for
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


class _Section:
    """One mapping of run.yaml, which gives checked values. All methods raise TableError."""

    def __init__(self, path: Path, lines: Lines, values: Mapping[str, Any], place: Place = ()) -> None:
        self.path, self.lines, self.values, self.place = path, lines, values, place

    def error(self, key: str | None, what: str) -> TableError:
        """An error about a key, or about the mapping itself."""
        mapping_line = self.lines.get((*self.place, None))
        line = self.lines.get((*self.place, key), mapping_line)
        names = [*self.place, *([] if key is None else [key])]
        where = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
        return TableError(self.path, f"{where[1:]}: {what}" if where else what, line)

    def only(self, known: Sequence[str]) -> None:
        """Refuse keys that are not known."""
        for key in self.values:
            if key not in known:
                raise self.error(key, f"unknown word; known here: {', '.join(known)}")

    def get(self, key: str, *kinds: type, default: Any = ...) -> Any:
        """The value of `key`, of one of the `kinds`."""
        value = self.values.get(key, default)
        if value is ...:
            raise self.error(None, f"lacks '{key}'")
        if key in self.values and (not isinstance(value, kinds) or isinstance(value, bool)):
            names = " or ".join(_KINDS[kind] for kind in kinds)
            raise self.error(key, f"must be {names}, not {shown(value)}")
        return value

    def section(self, key: str, default: Any = ...) -> "_Section":
        return _Section(self.path, self.lines, self.get(key, dict, default=default), (*self.place, key))

    def number(self, key: str, least: float, most: float, *kinds: type) -> None:
        """Check a number that may be missing; an integer if no kinds are given."""
        value = self.get(key, *(kinds or (int,)), default=least)
        if not least <= value <= most:  # NaN is in no range
            raise self.error(key, f"must be from {least:,} to {most:,}, not {shown(value)}")

    def words(self, key: str) -> list[str]:
        """The texts of a list, all different and at least one."""
        words: list[str] = self.get(key, list)
        for word in words:
            if not isinstance(word, str):
                raise self.error(key, f"holds {shown(word)}, which is not a word")
            if words.count(word) > 1:
                raise self.error(key, f"names {shown(word)} twice")
        if not words:
            raise self.error(key, "is empty")
        return words


def _check_course(run: _Section) -> None:
    """Check what run.yaml says of a run's circumstances, or of an imported table's origin instead."""
    run.get("scenario_set", str, default="")
    run.get("strategy", str, default="")
    run.number("seed", -LARGEST, LARGEST)
    summary = run.section("summary", default={})
    summary.only(_SUMMARY)  # nothing depends on what else a summary says
    summary.number("seconds", 0, LARGEST, int, float)
    summary.number("scenarios", 0, LARGEST)
    if "origin" in run.values:
        for key in _COURSE:
            if key in run.values:
                what = "belongs to a run of our own; 'origin' says that the table was imported"
                raise run.error(key, what)
        origin = run.section("origin")
        origin.number("evaluated_configs", 1, 1_000_000)
    elif missing := [key for key in _FACTS if key not in run.values]:
        raise run.error(None, f"lacks {', '.join(missing)} (or 'origin', if the table was imported)")


def _configs(run: _Section) -> tuple[TableConfig, ...]:
    configs: dict[str, TableConfig] = {}
    for position, values in enumerate(run.get("configs", list)):
        if not isinstance(values, dict):
            raise run.error("configs", f"entry {position + 1} is not a mapping")
        entry = _Section(run.path, run.lines, values, ("configs", position))
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


def _config(entry: _Section) -> TableConfig:
    config_id = entry.get("id", str)
    if not is_id(config_id):
        raise entry.error("id", f"{shown(config_id)} may hold letters, digits and _ . = - only")
    parameters = {name: value for name, value in entry.values.items() if name not in ("id", "variant")}
    for name in parameters:
        if problem := problem_with_name(name):
            raise entry.error(None, f"parameter {shown(name)} {problem}")
        entry.number(name, 0, (1 << 31) - 1)
    return TableConfig(config_id, entry.get("variant", str, default=None), parameters)
