"""The verdict of vllm_tokens, its prompts and its cases."""

from __future__ import annotations

from typing import Any

import pytest

from verification.vllm_tokens import CASES, FP8_MARGIN, LENGTHS, MARGIN, prompts_of, verdict


def found(case: str, *margins: float) -> dict[str, Any]:
    return {"case": case, "margins": [[0.0], list(margins)], "again": 3, "seconds": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("case", "margins", "right"),
    [
        ("llama", [0.0, MARGIN], True),
        ("llama", [0.0, MARGIN + 0.01], False),
        ("llama", [float("nan")], False),
        ("fp8", [FP8_MARGIN], True),
        ("fp8", [FP8_MARGIN + 0.01], False),
    ],
)
def test_verdict(case: str, margins: list[float], right: bool) -> None:
    line, fine = verdict(found(case, *margins))
    assert fine is right
    assert f"{int(not right)} of {1 + len(margins)} tokens wrong" in line


def test_prompts_begin_alike_and_some_repeat_themselves() -> None:
    plain, repetitive = prompts_of(CASES["llama"]), prompts_of(CASES["drafts"])
    assert [len(prompt) for prompt in plain] == [len(prompt) for prompt in repetitive] == LENGTHS
    assert plain == prompts_of(CASES["llama"])
    assert plain[-1][:64] == plain[-2][:64]
    assert repetitive[-1][64:71] == repetitive[-1][71:78] != plain[-1][71:78]
