"""What a reviewer reads, letter by letter, and that text from outside stays text.

After an intended change of the output, write the new files:
    UPDATE_GOLDEN=1 python -m pytest tests/treegen/review/test_diff_markdown.py
Read the difference in git before committing it.
"""

import html
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt  # comes with rich
from treegen_builders import as_h100, golden, planted, spec, time_rows, write_project, write_winners
from treegen_diffs import BEST, MEDIUM, NARROW, Ask, compared, of_device, project, write_modules
from treegen_strategies import examples

from treegen.cli.main import main
from treegen.core.errors import one_line
from treegen.core.table import Cells
from treegen.review.diff.changes import Kind
from treegen.review.diff.markdown import code, markdown, text
from treegen.review.diff.prices import price

GOLDEN = Path(__file__).with_name("golden")
SHAPES = [(rows, columns, 2) for rows in (1, 8, 64, 512) for columns in (1, 8, 64, 512)]
SLOWER = Ask("area", 64, NARROW, MEDIUM)


def _measured(folder, tree, factor, **run):
    """Second repeats take 1% longer; `factor` multiplies the times of WIDE."""
    content = spec(classes={"few": "heads <= 2", "many": "otherwise"})
    rows = time_rows(SHAPES, lambda row: [*planted(row)[:2], planted(row)[2] * factor])
    for row in rows[len(SHAPES) :]:
        row[2:] = [float(cell) * 1.01 for cell in row[2:]]
    return project(folder, tree, content, shapes=SHAPES, rows=rows, **run)


def test_tables_that_contradict_each_other(tmp_path, monkeypatch, capsys):
    """By the old table MEDIUM takes 1.25 of WIDE's time where it replaces it, by the new one 0.83.

    So the change alone is faster by the new table. Under another driver, nobody would be to blame.
    """
    monkeypatch.chdir(tmp_path)
    _measured(Path("main"), BEST, 1.0)
    tree = Ask("area", 64, NARROW, Ask("rows", 63, BEST.high, MEDIUM))
    _measured(Path("retuned"), tree, 1.5, date="2026-02-01")
    assert main(["diff", "main", "retuned", "--format", "markdown"]) == 1
    printed = capsys.readouterr().out
    assert printed == golden(GOLDEN / "diff_markdown.md.txt", printed)
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        assert main(["diff", "main", "retuned"]) == 1
    said = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert "-17%" in said and "**" not in said and "###" not in said
    assert all(character.isprintable() or character == "\n" for character in said)
    for side in ("main", "retuned"):
        path = Path(side, "tables/h100/run.yaml")
        path.write_text(path.read_text().replace("550.54", f"of {side}"))
    assert main(["diff", "main", "retuned", "--format", "json"]) == 0
    (module, _) = json.loads(capsys.readouterr().out)["modules"]
    assert module["overall"]["ratio"] < 1 < module["world"]["alone"]["ratio"]
    assert module["world"]["cause"] == ["the driver: of main -> of retuned"]


def test_every_kind_of_module(tmp_path, monkeypatch):
    """A changed fallback, a new and a removed module, others that cannot be read, and another file."""
    monkeypatch.chdir(tmp_path)
    for folder, keys, edited in (("old", "abce", "b"), ("new", "abcd", "c")):
        block = 64 if folder == "old" else 128
        content = spec(
            tables={f"gpu_{key}": as_h100() for key in keys},
            fallback={"variant": "plain", "block": block, "warps": block // 16},
        )
        content["devices"] = {
            f"gpu_{key}": {"names": [f"GPU {key}"], "arch": "a1", "vendor": "v"} for key in "abcde"
        }
        trees = {("scale", f"gpu_{key}"): BEST for key in keys}
        if folder == "new":
            trees["scale", "gpu_a"] = Ask("area", 64, Ask("rows", 7, NARROW, NARROW), BEST.high)
            trees["scale", "gpu_d"] = SLOWER
        write_modules(write_project(Path(folder), content), trees)
        Path(f"{folder}/generated/scale/gpu_{edited}.py").write_text("edited\n")
    Path("new/generated/scale/extra.py").write_text("")
    diff = compared("old", "new")
    comment = re.sub(r"(?<=\.py:).*", " WHY", markdown(diff))
    comment = comment.replace(f"{tmp_path}/", "")
    assert comment == golden(GOLDEN / "diff_kinds.md.txt", comment)
    same = tuple(replace(of_device(diff, "gpu_a"), kind=Kind.SAME, text=()) for _ in range(40))
    assert "The same before and after: 40 modules." in markdown(replace(diff, modules=same))


def test_a_table_of_winners_gives_no_slowdown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, tree in (("old", BEST), ("new", SLOWER)):
        write_winners(project(Path(folder), tree) / "tables/h100")
    diff = compared("old", "new")
    assert not diff.regresses  # 3 of 9 lost are no proof
    comment = markdown(diff)
    assert comment == golden(GOLDEN / "diff_winners.md.txt", comment)


@examples(200)
@given(st.floats(0.5, 2), st.floats(0.001, 0.1), st.integers(1, 50), st.integers(0, 3), st.floats(1, 1.1))
def test_a_price_regresses_beyond_its_error_and_the_threshold(ratio, noise, timed, missing, threshold):
    old = np.array([10.0] * timed + [np.nan] * missing)
    new = np.array([10.0 * ratio] * timed + [5.0] * missing)
    ids = np.array([f"s{k}" for k in range(len(old))])
    found = price(ids, old, new, threshold, noise, Cells.MEASURED)
    assert found.ratio == pytest.approx(ratio) and (found.timed, found.untimed) == (timed, missing)
    surely = abs(math.log(ratio)) > 2 * noise / math.sqrt(timed)
    assert found.regresses == (surely and found.ratio > threshold)
    failing = price(ids, old, np.where(np.isnan(old), new, np.inf), threshold, noise, Cells.MEASURED)
    assert failing.regresses and failing.failing == timed


# Text from outside is text: no markup, mention, reference or link.

HOSTILE = (
    "<script>alert(1)</script>|@everyone `x` [a](http://e) ![i](//e) www.e.org a@b.org #12 GH-12 o/r#3 "
    "**b** _i_ ~~s~~ $x$ </td> &lt; \\| --> <!-- [^1] http://e.org/_x_"
)
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# GitHub looks for these in the text of the rendered page.
REFERENCES = re.compile(
    r"@[A-Za-z0-9]|#[0-9]|GH-[0-9]|[a-z]+://|www\.[A-Za-z0-9]|[A-Za-z0-9.+_-]+@[A-Za-z0-9]", re.IGNORECASE
)
any_text = st.one_of(
    st.text(st.sampled_from("\\`*_{}[]()<>#+-.!|~@&$:/=;wGHh10 \n\ta"), max_size=30),
    st.text(max_size=20),
    st.sampled_from([HOSTILE, "&#64;x", "a_b_c", "__init__", "2 * 3 * 4", "www.www.", "hthttp://tp://"]),
)


def _kinds(source):
    """The kinds of all tokens of a Markdown text, those within lines included."""
    tokens = PARSER.parse(source)
    return {token.type for token in tokens} | {i.type for token in tokens for i in token.children or ()}


def _seen(source):
    return html.unescape(re.sub(r"<[^>]*>", "", PARSER.render(source)))


@examples(300)
@given(any_text)
def test_text_renders_unchanged_and_a_name_is_one_code_span(plain):
    source = f"said: {text(plain)} end"
    assert _kinds(source) - {"text_special"} == {"paragraph_open", "inline", "text", "paragraph_close"}
    assert _seen(source).replace("\u200b", "").strip() == f"said: {one_line(plain)} end"
    assert not REFERENCES.search(_seen(source))
    (inline,) = (token for token in PARSER.parse(f"of {code(plain)}, so") if token.type == "inline")
    found = [(inner.type, inner.content.strip()) for inner in inline.children or ()]
    assert found[1] == ("code_inline", one_line(plain).replace("`", "'").strip()) and len(found) == 3


def test_a_comment_on_hostile_tables_and_modules_is_only_what_treegen_writes(tmp_path):
    old = project(tmp_path / "old", driver=HOSTILE + "\n# heading\n", timing="\x1b[31mred")
    name = "1. new `x` @all <b> [a](b) #1\n# heading"
    new = project(tmp_path / name, SLOWER, driver="|---|", timing="> quote")
    (new / "generated/scale/a`b@c|<i>.py").write_text("")
    (new / "generated/scale/default.py").write_text("# <script> @all\n")
    comment = markdown(compared(old, new))
    assert not _kinds(comment) & {
        *("link_open", "image", "em_open", "s_open", "blockquote_open", "ordered_list_open"),
        *("fence", "code_block", "html_block", "table_open"),
    }
    page = PARSER.render(comment)
    tags = re.findall("<(?!/?(?:code|h3|h4|p|strong|ul|li)>)[^>]*>", page)
    assert tags == ["<sub>", "</sub>"]
    headings = re.findall("<h[1-6]>(.*?)</h[1-6]>", page)
    starts = [re.sub("<[^>]*>", "", heading).split(" ")[0] for heading in headings]
    assert starts == ["treegen", "scale", "scale"]
    assert not REFERENCES.search(_seen(re.sub("`[^`]*`", "", comment)))
    assert "\x1b" not in comment and "&lt;script" in page
