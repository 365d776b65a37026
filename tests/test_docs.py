"""Documentation: links that lead somewhere, commands that exist."""

import importlib.util
import re
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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("..."):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_name_modules_that_exist(page: Path) -> None:
    for module in re.findall(r"python -m ((?:benchmarks|examples)[\w.]*)", page.read_text()):
        assert importlib.util.find_spec(module) is not None, module


def test_the_readme_shows_a_function_as_it_is_generated() -> None:
    (shown,) = re.findall(r"(?ms)^```python\n(def .*?)^```", (ROOT / "README.md").read_text())
    assert shown in (ROOT / "generated/unified_attention/nvidia_h100.py").read_text()
