"""The colours of a report that are no config's: drawn light, and switched by CSS on a dark page."""

from __future__ import annotations

from types import MappingProxyType

INK, MUTED, GRID, PAPER = "#1d2329", "#5e6873", "#dfe3e8", "#fffffe"
OURS, UNSEEN, SINGLE, FIXED, COUNT = "#3d8fe8", "#0b2a52", "#b56a00", "#8a8f98", "#0a63c3"

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
        "--count": (COUNT, "#6cb2fe"),
    }
)
"""CSS variable -> its colour on a light and on a dark page. No two are alike: pictures are told by them."""
