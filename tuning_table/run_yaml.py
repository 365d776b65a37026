"""run.yaml: what was measured, on what, and how. The same checks hold for reading and writing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuning_table.errors import TableError, shown
from tuning_table.names import is_id, is_word, problem_with_name
from tuning_table.strict_yaml import Lines, Place, parse, pyyaml
from tuning_table.table import FORMAT, Cells, TableConfig, TableHeader

_REQUIRED = ("format", "kernel", "device", "cells", "timing", "features", "configs")
_REQUIRED_FACTS = ("source_hash", "date")
_PROVENANCE = ("driver", "torch", "triton", *_REQUIRED_FACTS)  # an imported table has `origin` instead
_COURSE = ("scenario_set", "seed", "strategy", "summary")
_DEVICE = ("name", "arch", "multiprocessors", "memory_bytes", "cache_bytes")
_COUNTS = ("scenarios", "rows", "cells_measured", "cells_possible", "cells_failed")
_NOISE = ("noise_median", "noise_p90", "noise_p99")
_LARGEST = 1 << 62
_KINDS = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


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
    run.only((*_REQUIRED, *_PROVENANCE, *_COURSE, "origin", "values"))
    if run.get("format", int) != FORMAT:
        raise run.error("format", f"must be {FORMAT}, the only format that there is")
    if run.get("cells", str) not in list(Cells):
        raise run.error("cells", f"must be one of {', '.join(Cells)}, not {shown(values['cells'])}")
    features = _features(run)
    configs = _configs(run)
    run.get("timing", str, dict)
    _check_provenance(run)
    device = run.section("device")
    device.only(_DEVICE)
    device.count("cache_bytes")
    device_name = device.get("name", str)
    words = _words(run, [*features, *configs[0].parameters])
    cells = Cells(values["cells"])
    return TableHeader(run.get("kernel", str), device_name, cells, features, configs, values, words)


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
        if key in self.values and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            names = " or ".join(_KINDS[kind] for kind in kinds)
            raise self.error(key, f"must be {names}, not {shown(value)}")
        return value

    def section(self, key: str, default: Any = ...) -> "_Section":
        return _Section(self.path, self.lines, self.get(key, dict, default=default), (*self.place, key))

    def count(self, key: str) -> None:
        if not 0 <= self.get(key, int, default=0) <= _LARGEST:
            raise self.error(key, f"{shown(self.values[key])} is no count")

    def number(self, key: str, *, zero: bool) -> None:
        value = self.get(key, int, float, default=1)
        if not 0 <= value <= _LARGEST or (value == 0 and not zero):  # NaN is neither
            raise self.error(key, f"must be {'0 or above' if zero else 'above 0'}, not {shown(value)}")


def _features(run: _Section) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for name in run.get("features", list):
        if not isinstance(name, str):
            raise run.error("features", f"holds {shown(name)}, which is not a word")
        if name in names:
            raise run.error("features", f"names {shown(name)} twice")
        if problem := problem_with_name(name):
            raise run.error("features", f"{shown(name)} {problem}")
        names[name] = None
    if not names:
        raise run.error("features", "names no feature")
    return tuple(names)


def _words(run: _Section, known: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What the integers 0, 1, ... of features and parameters stand for."""
    section = run.section("values", default={})
    section.only(known)
    for name in section.values:
        words = section.get(name, list)
        if not words:
            raise section.error(name, "names no word")
        for word in words:
            if not isinstance(word, str) or not is_word(word):
                raise section.error(
                    name, f"{shown(word)} is no word (letters, digits, spaces and _ . % / + -)"
                )
            if words.count(word) > 1:
                raise section.error(name, f"names {shown(word)} twice")
    return {name: tuple(words) for name, words in section.values.items()}


def _check_provenance(run: _Section) -> None:
    """Check what run.yaml says of a run's circumstances, or of an imported table's origin instead."""
    for key in ("scenario_set", "strategy"):
        run.get(key, str, default="")
    if abs(run.get("seed", int, default=0)) > _LARGEST:
        raise run.error("seed", "must be an integer within 62 bits")
    _check_summary(run.section("summary", default={}))
    if "origin" in run.values:
        for key in _COURSE:
            if key in run.values:
                what = "belongs to a run of our own; 'origin' says that the table was imported"
                raise run.error(key, what)
        origin = run.section("origin")
        if not 1 <= origin.get("evaluated_configs", int, default=1) <= 1_000_000:
            raise origin.error("evaluated_configs", "must be between 1 and 1,000,000")
    elif missing := [key for key in _REQUIRED_FACTS if key not in run.values]:
        raise run.error(None, f"lacks {', '.join(missing)} (or 'origin', if the table was imported)")


def _check_summary(summary: _Section) -> None:
    summary.only(("seconds", *_COUNTS, *_NOISE, "finished", "failures"))
    summary.number("seconds", zero=False)
    for key in _COUNTS:
        summary.count(key)
    for key in _NOISE:
        summary.number(key, zero=True)
    summary.get("finished", bool, default=False)
    failures = summary.section("failures", default={})
    for why in failures.values:
        failures.count(why)


def _configs(run: _Section) -> tuple[TableConfig, ...]:
    configs: dict[str, TableConfig] = {}
    first: TableConfig | None = None
    for position, values in enumerate(run.get("configs", list)):
        if not isinstance(values, dict):
            raise run.error("configs", f"entry {position + 1} is not a mapping")
        entry = _Section(run.path, run.lines, values, ("configs", position))
        config = _config(entry)
        first = first or config
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
    parameters = {}
    for name in entry.values:
        if name in ("id", "variant"):
            continue
        if problem := problem_with_name(name):
            raise entry.error(None, f"parameter {shown(name)} {problem}")
        parameters[name] = entry.get(name, int)
        if not 0 <= parameters[name] < 1 << 31:
            raise entry.error(name, f"{shown(parameters[name])} is no launch parameter")
    return TableConfig(config_id, entry.get("variant", str, default=None), parameters)
