"""A pull-request comment in which text from outside is text: no markup, mention, reference or link."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt  # comes with rich
from treegen_diffs import BEST, MEDIUM, compared, project
from treegen_strategies import examples

from treegen.core.errors import one_line
from treegen.core.tree import Split
from treegen.review.diff.markdown import code, markdown, text

HOSTILE = (
    "<script>alert(1)</script>|@everyone `x` [a](http://e) ![i](//e) www.e.org a@b.org #12 GH-12 o/r#3 "
    "**b** _i_ ~~s~~ $x$ </td> &lt; \\| --> <!-- [^1] http://e.org/_x_"
)
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# GitHub looks for these in the text of the rendered page.
REFERENCES = re.compile(
    r"@[A-Za-z0-9]|#[0-9]|GH-[0-9]|[a-z]+://|www\.[A-Za-z0-9]|[A-Za-z0-9.+_-]+@[A-Za-z0-9]", re.IGNORECASE
)
INVISIBLE = "\u200b"


def _kinds(source: str) -> set[str]:
    """The kinds of all tokens of a Markdown text, those within lines included."""
    found = set()
    for token in PARSER.parse(source):
        found |= {token.type, *(inner.type for inner in token.children or ())}
    return found


def _plain(source: str) -> str:
    """What a reader sees."""
    rendered = PARSER.render(source)
    return html.unescape(re.sub(r"<[^>]*>", "", rendered))


any_text = st.one_of(
    st.text(st.sampled_from("\\`*_{}[]()<>#+-.!|~@&$:/=;wGHh10 \n\ta"), max_size=30),
    st.text(max_size=20),
    st.sampled_from([HOSTILE, "&#64;x", "a_b_c", "__init__", "2 * 3 * 4", "www.www.", "hthttp://tp://"]),
)


@examples(400)
@given(any_text)
def test_text_renders_unchanged(plain: str) -> None:
    source = f"said: {text(plain)} end"
    assert _kinds(source) == {"paragraph_open", "inline", "text", "paragraph_close"} | (
        {"text_special"} & _kinds(source)
    )
    seen = _plain(source)
    expected = " ".join(f"said: {one_line(plain)} end".split(" "))
    assert seen.replace(INVISIBLE, "").strip() == expected
    assert not REFERENCES.search(seen)


@examples(200)
@given(any_text, any_text)
def test_text_stays_in_its_cell(one: str, other: str) -> None:
    source = f"| a | b |\n| --- | --- |\n| {text(one)} | {text(other)} |\n"
    rows = [token for token in PARSER.parse(source) if token.type == "tr_open"]
    cells = [token for token in PARSER.parse(source) if token.type == "inline"]
    assert (len(rows), len(cells)) == (2, 4)
    for cell, plain in zip(cells[2:], (one, other), strict=True):
        assert {inner.type for inner in cell.children or ()} <= {"text", "text_special"}
        seen = "".join(inner.content for inner in cell.children or ())
        assert seen.replace(INVISIBLE, "") == one_line(plain).strip()


@examples(200)
@given(any_text)
def test_a_name_is_one_code_span(name: str) -> None:
    source = f"of {code(name)}, so"
    (inline,) = (token for token in PARSER.parse(source) if token.type == "inline")
    assert [inner.type for inner in inline.children or ()] == ["text", "code_inline", "text"]
    assert (inline.children or ())[1].content.strip() == one_line(name).replace("`", "'").strip()


def test_plain_words_stay_readable() -> None:
    words = (
        "segmented -> split, 1,024 to 2,048; +2.4% +- 0.3% (14 of 84 timed) in decode-18_h8.1=p16: up to 3"
    )
    assert text(words) == words


@pytest.fixture
def comment(tmp_path: Path) -> str:
    """A comment with hostile text wherever tables and names of folders may hold it."""
    old = project(
        tmp_path / "old", driver=HOSTILE + "\n# heading\n", timing="\x1b[31mred", scenario_set="- a\n- b"
    )
    name = "new `x` @all <b> [a](b) #1\n# heading"
    new = project(tmp_path / name, Split("area", 64, MEDIUM, BEST.high), driver="|---|", timing="> quote")
    (new / "generated/scale/a`b@c|<i>.py").write_text("")
    return markdown(compared(old, new))


def test_a_comment_of_hostile_tables_is_only_what_treegen_writes(comment: str) -> None:
    assert not _kinds(comment) & {
        "link_open",
        "image",
        "em_open",
        "s_open",
        "blockquote_open",
        "fence",
        "code_block",
    }
    tags = re.findall(
        "<(?!/?(?:code|h3|h4|p|strong|ul|li|table|thead|tbody|tr|th|td)>)[^>]*>", PARSER.render(comment)
    )
    assert tags == ["<sub>", "</sub>"]
    headings = re.findall("<h[1-6]>.*?</h[1-6]>", PARSER.render(comment))
    assert [re.sub("<[^>]*>", "", heading).split(" ")[0] for heading in headings] == ["treegen", "scale"]
    outside = re.sub("<code>.*?</code>", "", PARSER.render(comment))
    assert not REFERENCES.search(html.unescape(re.sub("<[^>]*>", "", outside)))
    assert "\x1b" not in comment and "&lt;script" in PARSER.render(comment)


def test_the_error_of_an_unreadable_module_is_text(tmp_path: Path) -> None:
    old, new = project(tmp_path / "old"), project(tmp_path / "1. <b> @all > x")
    (new / "generated/scale/nvidia_h100.py").write_text("# <script> @all\n")
    comment = markdown(compared(old, new))
    assert "Note: the new module cannot be read: " in comment
    assert not _kinds(comment) & {"html_inline", "html_block", "ordered_list_open", "blockquote_open"}
    outside = re.sub("<code>.*?</code>", "", PARSER.render(comment))
    assert not REFERENCES.search(html.unescape(re.sub("<[^>]*>", "", outside)))
