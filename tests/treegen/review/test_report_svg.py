"""Pictures inside a page: nothing in them is markup, and they share no ids."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes

from treegen.review.report import colours
from treegen.review.report.figures import picture

HOSTILE = """<script>alert("1")</script>&amp;'$\\frac{1}{2}$ ]]>"""
COLOURS = {light: variable for variable, (light, _) in colours.VARIABLES.items()}


def _hostile(axes: Axes) -> None:
    axes.set_title(HOSTILE)
    axes.scatter([1, 2, 3], [1, 2, 3], c=colours.OURS, gid="group")
    axes.plot([1, 3], [1, 2], color=colours.SINGLE)


def test_text_is_text() -> None:
    svg = picture(_hostile, "one", COLOURS, {"group": [HOSTILE, "second", "third"]})
    root = ElementTree.fromstring(svg)
    assert [element.text for element in root.iter("text") if "alert" in (element.text or "")] == [HOSTILE]
    assert [element.text for element in root.iter("title")] == [HOSTILE, "second", "third"]
    tags = {element.tag for element in root.iter()}
    assert tags <= {"svg", "defs", "g", "path", "use", "text", "title", "clipPath", "rect"}
    assert "http" not in svg and "<!" not in svg and "font-family" not in svg


def test_each_point_of_a_group_keeps_its_title() -> None:
    svg = picture(_hostile, "one", COLOURS, {"group": ["a", "b", "c"]})
    uses = [use for use in ElementTree.fromstring(svg).iter("use") if use.find("title") is not None]
    assert [use.find("title").text for use in uses] == ["a", "b", "c"]  # type: ignore[union-attr]
    places = [float(use.get("x", "")) for use in uses]
    assert places == sorted(places) and len(set(places)) == 3


def test_known_colours_become_variables() -> None:
    svg = picture(_hostile, "one", COLOURS)
    assert {"var(--ours)", "var(--single)", "var(--ink)", "var(--muted)"} <= set(
        re.findall(r"var\([^)]*\)", svg)
    )
    assert not set(re.findall(r"#[0-9a-f]{6}\b", svg)) & set(COLOURS)


def test_ids_are_referred_to_and_shared_by_no_two_pictures() -> None:
    found = []
    for name in ("one", "two"):
        svg = picture(_hostile, name, COLOURS)
        ids = re.findall(r' id="([^"]*)"', svg)
        referred = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg))
        assert set(ids) == {word for pair in referred for word in pair if word}
        assert len(set(ids)) == len(ids) > 1
        found.append(set(ids))
    assert not found[0] & found[1]
