"""matplotlib's SVG as part of a page: the page's fonts and colours, names of its own, nothing said twice."""

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
_PAGE_DECIDES = ("font", "font-family")


def inline(text: str, name: str, colours: Mapping[str, str], titles: Mapping[str, list[str]]) -> Markup:
    """An SVG document of matplotlib as an element for HTML.

    name: begins every id in it, so that pictures on one page do not share any. colours: `#rrggbb` -> CSS
    variable. titles: of a group's id, what each of its points shows when pointed at.
    """
    root = ElementTree.fromstring(text)
    _without(root, ("metadata", "style"))
    for group in root.iter(f"{_SVG}g"):
        for use, title in zip(group.iter(f"{_SVG}use"), titles.get(group.get("id", ""), ()), strict=False):
            ElementTree.SubElement(use, f"{_SVG}title").text = title
    referred = dict.fromkeys(word for element in root.iter() for word in _references(element))
    ids = {word: f"{name}-{number}" for number, word in enumerate(referred)}
    for element in root.iter():
        _adapt(element, ids, colours)
    for group in root.iter(f"{_SVG}g"):
        _say_once(group)
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


def _adapt(element: Element, ids: Mapping[str, str], colours: Mapping[str, str]) -> None:
    attributes = {}
    for key, value in element.attrib.items():
        if key == "id":
            value = ids.get(value, "")
        elif key.endswith("href") or "url(" in value:
            value = _REFERENCE.sub(lambda found: f"#{ids[found.group(1)]}", value)
        elif key == "style":
            value = _styled(value, colours)
        elif key in _GEOMETRY:
            value = " ".join(_NUMBER.sub(_rounded, value).split())
            value = "" if value.startswith("rotate(-0 ") else value
        if value:
            attributes["href" if key == f"{_XLINK}href" else key] = value
    element.attrib.clear()
    element.attrib.update(attributes)


def _styled(style: str, colours: Mapping[str, str]) -> str:
    """Declarations with CSS variables for colours and the page's font."""
    kept = []
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":  # [style] [weight] size family
            size = re.search(r"[\d.]+px", value)
            kept += ["font-weight:600"] if re.match(r"(bold|[6-9]00)\b", value) else []
            kept += [f"font-size:{size.group()}"] if size else []
        if key not in _PAGE_DECIDES:
            kept.append(f"{key}:{_HEX.sub(lambda found: _variable(found.group(), colours), value)}")
    return ";".join(kept)


def _variable(colour: str, colours: Mapping[str, str]) -> str:
    return f"var({colours[colour]})" if colour in colours else colour


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number.group()):.1f}".removesuffix(".0")


def _say_once(group: Element) -> None:
    """What all points of a group share is said by the group."""
    points = group.findall(f"{_SVG}use")
    styles = {point.get("style") for point in points}
    if len(points) == len([child for child in group if child.tag != f"{_SVG}defs"]) and len(styles) == 1:
        (style,) = styles
        if style is not None and "style" not in group.attrib:
            group.set("style", style)
            for point in points:
                del point.attrib["style"]


def _without(root: Element, tags: tuple[str, ...]) -> None:
    for parent in list(root.iter()):
        for tag in tags:
            for child in parent.findall(f"{_SVG}{tag}"):
                parent.remove(child)
