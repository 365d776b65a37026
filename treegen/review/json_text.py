"""Figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_DIGITS = 6


def json_text(content: Mapping[str, Any]) -> str:
    """The content as indented JSON; floats get six decimals, as a logarithm's last bits differ by library."""
    return json.dumps(_rounded(content), indent=1, allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
