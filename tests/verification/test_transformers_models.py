"""The check of transformers' models tells right from wrong; tiny models, in the interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", minversion="5.17")

from attn_kernels.engines import transformers as engine
from attn_kernels.engines import transformers_paged as paged
from verification import transformers_models


def outcome(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["transformers_models", "--tiny", *arguments])
    return transformers_models.main()


def test_tiny_models_are_right(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, "--models", "gemma2,llama", "--no-times", "--out", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert printed.count(" ok ") == 8 and "WRONG" not in printed and printed.endswith("all fine\n")
    rows = json.loads((tmp_path / "transformers_models.json").read_text())["rows"]
    assert [row["wrong"] for row in rows if "tokens" in row] == [0] * 6


@pytest.mark.parametrize("module", [engine, paged], ids=["generate", "continuous batching"])
def test_dropped_keys_are_found(module: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer misses the older half of its keys."""
    run = module.run

    def without_old_keys(plan: Any, *args: Any, **options: Any) -> Any:
        window = max(1, plan.max_seq_len // 2)
        return run(plan, *args, **{**options, "sliding_window": window})

    monkeypatch.setattr(module, "run", without_old_keys)
    assert outcome(monkeypatch, "--models", "llama", "--no-times") == 1
    printed = capsys.readouterr().out
    assert "WRONG" in printed and printed.endswith("SOMETHING IS WRONG\n")


def test_times_are_printed(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, "--models", "gpt_oss", "--seconds-budget", "1e9") == 0
    printed = capsys.readouterr().out
    for what in ("ms a token, 1 x 16, dynamic", "ms a token, 1 x 16, static", "s of all, 1 x 16, batching"):
        assert what in printed
    assert outcome(monkeypatch, "--models", "llama", "--seconds-budget", "-1") == 0
    assert "left out, the time is up" in capsys.readouterr().out


def test_an_unknown_model_is_one_line(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as stopped:
        outcome(monkeypatch, "--models", "bert")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "--models 'bert': not one of llama, qwen3, gemma2, gpt_oss\n"
