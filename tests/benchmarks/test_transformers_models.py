"""The check of transformers' models tells right from wrong; tiny models, in the interpreter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", minversion="5.17")

from attn_kernels.engines import transformers as engine
from attn_kernels.engines import transformers_paged as paged
from benchmarks.engines import transformers_models


def test_a_tiny_model_is_right_and_timed(tmp_path: Path) -> None:
    assert (
        transformers_models.main(["--tiny", "--models", "llama", "--layers", "1", "--out", str(tmp_path)])
        == 0
    )
    rows = json.loads((tmp_path / "transformers_models.json").read_text())["rows"]
    assert [row["wrong"] for row in rows if "tokens" in row] == [0] * 3
    assert sum("ms a token" in row["what"] for row in rows) == 2


def test_dropped_keys_are_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The layer misses the older half of its keys."""
    for module in (engine, paged):

        def without_old_keys(plan: Any, *args: Any, run: Any = module.run, **options: Any) -> Any:
            return run(plan, *args, **{**options, "sliding_window": max(1, plan.max_seq_len // 2)})

        monkeypatch.setattr(module, "run", without_old_keys)
    assert transformers_models.main(["--tiny", "--models", "llama", "--layers", "1", "--no-times"]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
    assert all(any(what in line for line in wrong) for what in ("logits", "continuous batching"))
