"""A colour and a shape for each config."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from treegen_builders import device_and_kernel

from treegen.core.spec import Config
from treegen.review.report.colours import VARIABLES, config_styles, oklch


@pytest.mark.parametrize(
    ("lightness", "chroma", "hue", "colour"),
    [
        (0, 0, 0, "#000000"),
        (1, 0, 0, "#ffffff"),
        (0.62796, 0.25768, 29.234, "#ff0000"),
        (0.86644, 0.29483, 142.495, "#00ff00"),
        (0.45201, 0.31321, 264.052, "#0000ff"),
    ],
)
def test_known_colours(lightness: float, chroma: float, hue: float, colour: str) -> None:
    found = oklch(lightness, chroma, hue)
    pairs = [(int(found[i : i + 2], 16), int(colour[i : i + 2], 16)) for i in (1, 3, 5)]
    assert all(abs(one - other) <= 2 for one, other in pairs), found


def _configs(count: int) -> list[Config]:
    return [Config(("plain", "odd")[k % 2], (("block", 1 << k), ("warps", 4))) for k in range(count)]


def test_configs_differ_from_each_other_and_from_all_else_drawn(tmp_path: Path) -> None:
    _, kernel = device_and_kernel(tmp_path)
    kernel = replace(kernel, variants=("plain", "odd"))
    styles = config_styles(kernel, _configs(24), 3)
    for look in ("light", "dark", "variable"):
        assert len({getattr(style, look) for style in styles.values()}) == 24
    assert not {style.light for style in styles.values()} & {light for light, _ in VARIABLES.values()}
    assert all(style.variable.startswith("--k3") for style in styles.values())
    assert styles == config_styles(kernel, [*reversed(_configs(24)), _configs(1)[0]], 3)
    shapes = {(config.variant, style.marker, style.sign) for config, style in styles.items()}
    assert len(shapes) == 2


def test_the_colours_by_which_pictures_are_recoloured_are_all_different() -> None:
    drawn = [light for light, _ in VARIABLES.values()]
    assert len(set(drawn)) == len(drawn)
