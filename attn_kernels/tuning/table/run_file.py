"""run.yaml: a table's header as text and back."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import ConfigEntry, Header
from attn_kernels.tuning.scenarios.scenario import is_id

FORMAT = 1
SUMMARY = (
    "seconds",
    "scenarios",
    "rows",
    "cells_measured",
    "cells_possible",
    "cells_failed",
    "noise_median",
    "noise_p90",
    "noise_p99",
    "finished",
    "failures",
)
_DEVICE = ("name", "arch", "multiprocessors", "memory_bytes", "cache_bytes")
_TEXTS = ("kernel", "timing", "driver", "torch", "triton", "source_hash")
_SET = re.compile(r"(.*) \(digest ([0-9A-Za-z:]+)\)", re.DOTALL)


def check_header(header: Header) -> None:
    """Raise TuningError for a header that no reader of tables would accept."""
    if "name" not in header.device or not set(header.device) <= set(_DEVICE):
        raise TuningError(f"device needs its name and may have {', '.join(_DEVICE[1:])}")
    if not header.features or not header.configs:
        raise TuningError("a table needs at least one feature and one config")
    for names, what in ((header.features, "feature"), ([c.id for c in header.configs], "config")):
        seen = set()
        for name in names:
            if not is_id(name):
                raise TuningError(f"{what} {name!r} may hold letters, digits and _ . = - only")
            if name in seen:
                raise TuningError(f"{what} {name} is there twice")
            seen.add(name)
    parameters = set(header.configs[0].parameters)
    for config in header.configs:
        if set(config.parameters) != parameters:
            raise TuningError(f"config {config.id} has other parameters than {header.configs[0].id}")
        for name, value in config.parameters.items():
            if not 0 <= value < 1 << 31:
                raise TuningError(f"config {config.id}: {name}={value} is no launch parameter")
    if _SET.fullmatch(_named_set(header)) is None:
        raise TuningError(f"scenarios_digest {header.scenarios_digest!r} may hold letters and digits only")


def run_text(header: Header, date: str, summary: Mapping[str, Any] | None = None) -> str:
    """The text of run.yaml. Raises TuningError for a `summary` that the format does not allow."""
    run: dict[str, Any] = {"format": FORMAT, "kernel": header.kernel, "device": dict(header.device)}
    run |= {"cells": "measured", "timing": header.timing, "driver": header.driver, "torch": header.torch}
    run |= {"triton": header.triton, "source_hash": header.source_hash, "date": date}
    run |= {"scenario_set": _named_set(header), "seed": header.seed, "strategy": header.strategy}
    run["features"] = list(header.features)
    run["configs"] = [{"id": c.id, "variant": c.variant, **c.parameters} for c in header.configs]
    if summary is not None:
        run["summary"] = {key: _summarised(key, value) for key, value in summary.items()}
    return str(_yaml().safe_dump(run, sort_keys=False, width=120, default_flow_style=None))


def _summarised(key: str, value: Any) -> Any:
    if key not in SUMMARY:
        raise TuningError(f"run.yaml's summary has no {key!r}; known: {', '.join(SUMMARY)}")
    if key == "failures":
        return {str(reason): int(count) for reason, count in value.items()}
    if not math.isfinite(value) or value < 0 or (key == "seconds" and value == 0):
        raise TuningError(f"run.yaml's summary cannot have {key} {value}: leave it out")
    return value if isinstance(value, bool) else float(value) if isinstance(value, float) else int(value)


def read_run(path: Path, content: bytes) -> tuple[Header, str, float]:
    """Header, date and seconds so far of a run.yaml; `path` is for messages. Raises TuningError."""
    yaml = _yaml()
    try:
        run = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise TuningError(
            f"{place}: not valid YAML: {getattr(error, 'problem', None) or type(error).__name__}"
        ) from None
    if not isinstance(run, dict):
        raise TuningError(f"{path}: must hold a mapping of keys to values")
    for key, wanted in (("format", FORMAT), ("cells", "measured")):
        if run.get(key) != wanted:
            raise TuningError(f"{path}: {key} must be {wanted}: this is no table that attn-tune wrote")
    named_set = _SET.fullmatch(_get(path, run, "scenario_set", str))
    if named_set is None:
        raise TuningError(f"{path}: scenario_set must end in ' (digest ...)'")
    texts = {key: _get(path, run, key, str) for key in _TEXTS}
    configs = [_config(path, entry) for entry in _get(path, run, "configs", list)]
    header = Header(
        **texts,
        device=MappingProxyType(_get(path, run, "device", dict)),
        scenario_set=named_set[1],
        scenarios_digest=named_set[2],
        seed=_get(path, run, "seed", int),
        strategy=_get(path, run, "strategy", str),
        features=tuple(str(name) for name in _get(path, run, "features", list)),
        configs=tuple(configs),
    )
    try:
        check_header(header)
    except TuningError as error:
        raise TuningError(f"{path}: {error}") from None
    summary = _get(path, run, "summary", dict) if "summary" in run else {}
    seconds = summary.get("seconds", 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise TuningError(f"{path}: summary's seconds must be a number from 0 to 1e9, not {seconds!r:.60}")
    return header, _get(path, run, "date", str), float(seconds)


def _config(path: Path, entry: Any) -> ConfigEntry:
    if not isinstance(entry, dict):
        raise TuningError(f"{path}: configs must be mappings")
    parameters = {str(key): _get(path, entry, key, int) for key in entry if key not in ("id", "variant")}
    return ConfigEntry(
        _get(path, entry, "id", str), _get(path, entry, "variant", str), MappingProxyType(parameters)
    )


def _get(path: Path, mapping: dict[str, Any], key: str, kind: type) -> Any:
    value = mapping.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {str: "text (quote it)", int: "an integer", list: "a list", dict: "a mapping"}
        raise TuningError(f"{path}: {key} must be {names[kind]}, not {value!r:.60}")
    return value


def _named_set(header: Header) -> str:
    return f"{header.scenario_set} (digest {header.scenarios_digest})"


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise TuningError("attn-tune needs pyyaml: pip install 'attn-kernels[tune]'") from None
    return yaml
