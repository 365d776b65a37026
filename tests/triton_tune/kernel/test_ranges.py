"""Shapes that are drawn from ranges: where they lie, and which are kept aside."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_tune.core.errors import TuningError
from triton_tune.kernel.ranges import draw

TILES = (16, 64, 128)
MATRICES = [(128 * index, 512 * index) for index in (6, 8, 16, 20, 28, 32, 40, 48, 64)]
SHAPES = {"M": (1, 16384), ("N", "K"): MATRICES}


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 60), st.integers(0, 9), st.integers(1, 4))
def test_values_are_in_range_and_differ(least, more, count, seed, kinds):
    arguments = {"M": (least, least + more), "kind": list(range(kinds))}, count, TILES, seed
    tuned, untuned = draw(*arguments)
    shapes = [*tuned, *untuned]
    assert all(least <= shape["M"] <= least + more and 0 <= shape["kind"] < kinds for shape in shapes)
    assert len({tuple(shape.values()) for shape in shapes}) == len(shapes) <= count
    assert len(shapes) == min(count, (more + 1) * kinds) or more  # small ranges may not be drawn to their end
    assert (tuned, untuned) == draw(*arguments)


def test_sizes_are_even_in_their_logarithms_and_lie_at_below_and_above_multiples_of_tiles():
    sizes = [shape["M"] for shapes in draw(SHAPES, 280, TILES) for shape in shapes]
    octaves = Counter(size.bit_length() for size in sizes if size < 16384)
    assert set(octaves) == set(range(1, 15)) and max(octaves.values()) < 40
    assert min(octaves[bits] for bits in range(5, 15)) > 10
    large = [size for size in sizes if size > 128]
    for edge in (-1, 0, 1):
        assert 0.15 < sum(any((size - edge) % t == 0 for t in TILES) for size in large) / len(large) < 0.6


def test_an_eighth_is_kept_aside_as_a_group_and_more_shapes_are_the_same_and_others():
    tuned, untuned = draw(SHAPES, 120, TILES)
    groups = [{(shape["N"], shape["K"]) for shape in shapes} for shapes in (tuned, untuned)]
    assert len(groups[0]) == 8 and len(groups[1]) == 1 and groups[0] | groups[1] == set(MATRICES)
    assert list(tuned[0]) == ["M", "N", "K"]
    counts = Counter((shape["N"], shape["K"]) for shape in tuned)
    assert max(counts.values()) <= 2 * min(counts.values())
    fewer = draw(SHAPES, 60, TILES)
    assert fewer == (tuned[: len(fewer[0])], untuned[: len(fewer[1])]) != draw(SHAPES, 60, TILES, seed=1)
    _, aside = draw({"M": (1, 16384), "kind": [1, 2]}, 160, TILES)  # of few, an eighth of the shapes
    assert 10 <= len(aside) <= 35 and {shape["kind"] for shape in aside} == {1, 2}


@pytest.mark.parametrize("shapes", [
    {"M": (1, 2, 3)}, {"M": (0, 8)}, {"M": (8, 1)}, {"M": (1.0, 2.0)}, {"M": []}, {"M": 16},
    {("M", "N"): (1, 8)}, {("M", "N"): [(1, 2, 3)]}, {("M", "N"): [1, 2]}, {3: [1]}, {(): [()]},
    {f"M{index}": (1, 8) for index in range(10)},
])  # fmt: skip
def test_what_is_no_range_is_refused(shapes):
    with pytest.raises(TuningError, match="shapes: "):
        draw(shapes, 8, TILES)
