"""The verdict of vllm_faults, and the planted fault where vLLM can be imported."""

from __future__ import annotations

from typing import Any

import pytest

from verification.vllm_faults import LEAK, MARGIN, verdict

SERVED: dict[str, Any] = {
    "ended": [[[1], [2, 3]]],
    "aborted": 1,
    "preempted": 2,
    "seconds": 3.0,
    "bytes": [1000, 1000],
}


@pytest.mark.parametrize(
    ("changes", "margins", "right"),
    [
        ({}, [0.0, MARGIN], True),
        ({}, [0.0, MARGIN + 0.01], False),
        ({}, [], False),
        ({"preempted": 0}, [0.0], False),
        ({"bytes": [1000, 1000 + LEAK + 1]}, [0.0], False),
        ({"bytes": [1000, 1000 + LEAK]}, [0.0], True),
    ],
)
def test_verdict(changes: dict[str, Any], margins: list[float], right: bool) -> None:
    lines, found = verdict(SERVED | changes, margins)
    assert found is right
    assert "2 preemptions" in lines[0] or changes
    assert f"{len(margins)} tokens scored" in lines[1]
