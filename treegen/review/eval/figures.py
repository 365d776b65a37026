"""eval.json: all figures of a report."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from treegen.review.eval.results import Report

FORMAT = 1
_DIGITS = 6


def figures_text(report: Report) -> str:
    """The report as JSON: the names of its dataclasses' fields, ratios and shares to six digits."""
    content = {"format": FORMAT, **dataclasses.asdict(report)}
    return json.dumps(rounded(content), indent=1, allow_nan=False) + "\n"


def rounded(value: Any) -> Any:
    """Libraries differ in the last bits of a logarithm: they are cut off."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value
