"""Documentation: short sentences, links that lead somewhere, commands that exist."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
MOST_WORDS = 25


def paragraphs(text: str) -> Iterator[str]:
    """The text without code blocks, tables, headings and HTML; each list item by itself."""
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    text = re.sub(r"(?m)^> ?", "", text)  # a quotation, which may be of a table
    text = re.sub(r"(?m)^(\||#|<|!\[).*$", "", text)
    text = re.sub(r"(?m)(?<=\n\n)(?: {4}\S.*\n?)+", "", text)  # code follows an empty line
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        yield " ".join(block.split())


def sentences(text: str) -> Iterator[str]:
    for paragraph in paragraphs(text):
        plain = re.sub(r"`[^`]*`", "CODE", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))
        yield from re.split(r"(?<=[.!?:;])\s+", plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_are_short(page: Path) -> None:
    long = [s for s in sentences(page.read_text()) if len(re.findall(r"\w[\w'.,^-]*", s)) > MOST_WORDS]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("..."):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_name_modules_that_exist(page: Path) -> None:
    for module in re.findall(r"python -m ((?:benchmarks|verification|examples)[\w.]*)", page.read_text()):
        assert importlib.util.find_spec(module) is not None, module
