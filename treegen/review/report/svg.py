"""matplotlib's SVG as part of a page: in the page's fonts and colours, with ids of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from markupsafe import Markup

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"#([\w-]+)")
_HEX = re.compile(r"#[0-9a-f]{6}")
_GEOMETRY = ("d", "x", "y", "width", "height", "transform", "viewBox")


def inline(text: str, name: str, variables: Mapping[str, str], titles: Mapping[str, list[str]]) -> Markup:
    """An SVG document of matplotlib as an element for HTML.

    name: begins every id, so that pictures on one page share none. variables: `#rrggbb` -> CSS variable.
    titles: of a group's id, the tooltip of each of its points.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for group in root.iter(f"{_SVG}g"):
        for use, title in zip(group.iter(f"{_SVG}use"), titles.get(group.get("id", ""), ()), strict=False):
            ElementTree.SubElement(use, f"{_SVG}title").text = title
    referred = dict.fromkeys(word for element in root.iter() for word in _references(element))
    ids = {word: f"{name}-{number}" for number, word in enumerate(referred)}
    for element in root.iter():
        _adapt(element, ids, variables)
    for group in root.iter(f"{_SVG}g"):
        _share_style(group)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)  # HTML knows the namespace by itself
        element.tail = None
        if not (element.text or "").strip():
            element.text = None
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # it has escaped all text


def _references(element: Element) -> Iterator[str]:
    for key, value in element.attrib.items():
        if key.endswith("href") or "url(" in value:
            yield from _REFERENCE.findall(value)


def _adapt(element: Element, ids: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """Rename ids, round numbers, and leave fonts and known colours to the page."""
    attributes = {}
    for key, value in element.attrib.items():
        if key == "id":
            value = ids.get(value, "")
        elif key.endswith("href") or "url(" in value:
            value = _REFERENCE.sub(lambda found: f"#{ids[found.group(1)]}", value)
        elif key == "style":
            value = _style(value, variables)
        elif key in _GEOMETRY:
            value = _NUMBER.sub(lambda found: f"{float(found.group()):.1f}".removesuffix(".0"), value)
            value = " ".join(value.split())
            value = "" if value.startswith("rotate(-0 ") else value
        if value:
            attributes["href" if key == f"{_XLINK}href" else key] = value
    element.attrib.clear()
    element.attrib.update(attributes)


def _style(style: str, variables: Mapping[str, str]) -> str:
    """CSS declarations with variables for colours and the page's font."""

    def variable(match: re.Match[str]) -> str:
        return f"var({variables[match.group()]})" if match.group() in variables else match.group()

    kept = []
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":  # [style] [weight] size family
            size = re.search(r"[\d.]+px", value)
            kept += ["font-weight:600"] if re.match(r"(bold|[6-9]00)\b", value) else []
            kept += [f"font-size:{size.group()}"] if size else []
        elif key != "font-family":
            kept.append(f"{key}:{_HEX.sub(variable, value)}")
    return ";".join(kept)


def _share_style(group: Element) -> None:
    """Move a style that all points of a group have to the group."""
    points = group.findall(f"{_SVG}use")
    styles = {point.get("style") for point in points}
    if len(points) == len([child for child in group if child.tag != f"{_SVG}defs"]) and len(styles) == 1:
        (style,) = styles
        if style is not None and "style" not in group.attrib:
            group.set("style", style)
            for point in points:
                del point.attrib["style"]
