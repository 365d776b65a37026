"""The colours of a report: drawn light, and switched by CSS on a dark page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from treegen.core.spec import Config, KernelSpec

INK, MUTED, GRID, PAPER = "#1d2329", "#5e6873", "#dfe3e8", "#fffffe"
OURS, UNSEEN, SINGLE, FIXED = "#3d8fe8", "#0b2a52", "#b56a00", "#8a8f98"

VARIABLES = MappingProxyType(
    {
        "--ink": (INK, "#e8ebee"),
        "--muted": (MUTED, "#9aa4af"),
        "--link": ("#0a5cb8", "#74b3ff"),
        "--grid": (GRID, "#31373e"),
        "--paper": (PAPER, "#15181c"),
        "--ours": (OURS, "#3d8fe9"),
        "--unseen": (UNSEEN, "#e3f0ff"),
        "--single": (SINGLE, "#e8a33d"),
        "--fixed": (FIXED, "#7d848e"),
    }
)
"""CSS variable -> its colour on a light and on a dark page. Pictures are recoloured by the light ones."""

_SHAPES = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"))
_LIGHT, _DARK = (0.50, 0.62, 0.73), (0.64, 0.74, 0.84)  # lightness of neighbours on white and on black
_FIRST_HUE = 250.0  # blue
_ROUNDED = 1e-3  # a channel this far outside rounds to its end


@dataclass(frozen=True)
class ConfigStyle:
    """The style of a config, the same in every picture of a report."""

    light: str  # `#rrggbb` on a light page
    dark: str
    marker: str  # matplotlib's name of the variant's shape
    sign: str  # the same shape as text
    variable: str  # CSS variable that holds the colour


def config_styles(kernel: KernelSpec, configs: Iterable[Config], place: int) -> dict[Config, ConfigStyle]:
    """A style for each config. place: of the kernel in the report.

    Hues go round the circle in the order of variants, so that a variant's configs have neighbouring hues.
    Neighbours differ in lightness, too.
    """
    order = {variant: i for i, variant in enumerate(kernel.variants)}
    ordered = sorted(set(configs), key=lambda config: (order[config.variant], config))
    styles = {}
    for i, config in enumerate(ordered):
        hue = _FIRST_HUE + 360 * i / len(ordered)
        marker, sign = _SHAPES[order[config.variant] % len(_SHAPES)]
        light, dark = (oklch(lightness[i % 3], 0.15, hue) for lightness in (_LIGHT, _DARK))
        styles[config] = ConfigStyle(light, dark, marker, sign, f"--k{place}c{i}")
    return styles


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """`#rrggbb` of a colour by its perceived lightness (0 to 1), chroma and hue in degrees.

    Chroma is lowered where a screen cannot show it. Ottosson, A perceptual color space for image
    processing, 2020.
    """
    while True:
        a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
        long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
        medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
        short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
        linear = (
            4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
        )
        if chroma <= 0 or all(-_ROUNDED <= channel <= 1 + _ROUNDED for channel in linear):
            return "#" + "".join(f"{_byte(channel):02x}" for channel in linear)
        chroma -= 0.005


def _byte(linear: float) -> int:
    """A channel of sRGB (IEC 61966-2-1)."""
    linear = min(1.0, max(0.0, linear))
    return round(255 * (12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055))
