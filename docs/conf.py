"""The site of these pages, which `make docs` builds into build/docs."""

import argparse
import os
import re

from sphinx.application import Sphinx

from attn_kernels.tuning.cli import parser as attn_tune
from treegen.cli.main import _COMMANDS
from triton_tune.cli.main import parser as triton_tune
from tuning_table.command_line import CommandParser

project = html_title = "attn-kernels and treegen"
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]  # index.md begins with it
html_theme = "furo"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
highlight_language = "text"  # what commands print
myst_heading_anchors = 3
smartquotes = False  # would print `--check` with a dash
default_role = "code"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

# GitHub Actions names the repository, so links to its files lead there; elsewhere only their text is shown.
URL = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/blob/{GITHUB_SHA}"
LINK = rf"[\1]({URL.format_map(os.environ)}/\2)" if "GITHUB_SHA" in os.environ else r"\1"


def commands() -> list[argparse.ArgumentParser]:
    """The parsers of all commands."""
    treegen = CommandParser(prog="treegen").add_subparsers()
    for add in _COMMANDS:
        add(treegen)
    return [*treegen.choices.values(), triton_tune(), attn_tune()]


def complete_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Add what the site alone needs to a page that is also read on GitHub."""
    if name == "index":
        readme = (app.srcdir / "README.md").read_text()
        for group, pages in re.findall(r"(?m)^\*\*(.+)\*\*\n\n((?:[\d ].*\n)+)", readme):
            names = "\n".join(re.findall(r"\]\((\w+)\.md\)", pages))
            readme += f"\n```{{toctree}}\n:hidden:\n:caption: {group}\n\n{names}\n```\n"
        source[0] = f"{readme}\n{source[0]}"
    elif name == "api/commands":
        for parser in commands():
            source[0] += f"\n## {parser.prog}\n\n```text\n{parser.format_help()}```\n"
    elif name.startswith("examples/"):  # comments, which begin with a small heading
        source[0] = "---\norphan: true\n---\n" + re.sub(r"(?m)^##(?=##? )", "", source[0])
    if "/" not in name:
        source[0] = re.sub(r"\[([^\]]+)\]\(\.\./([^)]+)\)", LINK, source[0])


def link_pages(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make links of the pages that a docstring names."""
    lines[:] = [re.sub(r"docs/(\w+)\.md", r":doc:`/\1`", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.connect("source-read", complete_page)
    app.connect("autodoc-process-docstring", link_pages)
