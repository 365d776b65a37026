"""A comparison for machines."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from treegen.review.diff.results import Diff

FORMAT = 1


def figures_text(diff: Diff) -> str:
    """JSON with the names of the dataclasses, and `regresses` for the whole and for each comparison."""
    content = {"format": FORMAT, "regresses": diff.regresses, **_plain(asdict(diff))}
    for entry, comparison in zip(content["comparisons"], diff.comparisons, strict=True):
        entry["regresses"] = comparison.regresses
    return json.dumps(content, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Floats with six digits; what is no number is null."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
