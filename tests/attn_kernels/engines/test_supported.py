"""The page of what is supported holds what the checks answer."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from attn_kernels.engines import supported, vllm_supported
from attn_kernels.engines.supported import main, markdown, with_block

PAGE = Path(__file__).parents[3] / "docs" / "supported.md"


def test_the_page_is_what_the_command_prints() -> None:
    page = PAGE.read_text()
    assert with_block(page) == page, "python -m attn_kernels.engines.supported --write docs/supported.md"


def test_a_check_that_changes_changes_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    before = markdown()
    monkeypatch.setattr(vllm_supported, "head_size_fits", lambda size: size in (64, 128))
    monkeypatch.setattr(vllm_supported, "check_parallel", lambda parallel: None)
    after = markdown()
    assert "multiples of 64 up to 128" in after and "multiples of 64 up to 128" not in before
    assert "prefill_context_parallel_size" in before and "prefill_context_parallel_size" not in after


def test_what_a_backend_answers_is_read_from_its_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def supports_mm_prefix():\n    return True\ndef supports_sink():\n    return False"
    monkeypatch.setattr(supported, "_source", lambda name: ast.parse(text))
    refused = dict(supported.refused_by_vllm())
    assert "sink setting" in refused and "partial multimodal token full attention" not in refused


def test_a_page_without_marks_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (page := tmp_path / "page.md").write_text("# A page\n")
    assert main(["--write", str(page)]) == main(["--write", str(tmp_path / "none.md")]) == 2
    assert page.read_text() == "# A page\n"
    first, second = capsys.readouterr().err.splitlines()
    assert "page.md" in first and "none.md" in second
