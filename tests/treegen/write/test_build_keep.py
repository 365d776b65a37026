"""A build over previous modules: noise changes nothing, real changes do, and a second build never does."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import (
    CONFIGS,
    DEVICE,
    Cell,
    Row,
    build,
    contents,
    imported,
    spec,
    write_spec,
    write_table,
)
from treegen_strategies import examples

Capture = pytest.CaptureFixture[str]
Times = Callable[[Row], Sequence[float]]
POWERS = tuple(1 << k for k in range(8))
SHAPES: list[Row] = [(rows, columns, 2) for rows in POWERS for columns in POWERS]
MUCH, LITTLE = 0.03, 0.01


def _times(shape: Row) -> list[float]:
    """Narrow for small areas, wide for large ones, and between them a wide stretch of nearly equal times."""
    rows, columns, _ = shape
    grain = [(5 * rows + 3 * columns + 7 * config) % 11 / 100 for config in range(3)]
    away = [abs(math.log2(rows * columns) - middle) / 20 for middle in (2, 7, 12)]
    return [10 * (1 + far + more) for far, more in zip(away, grain, strict=True)]


def _plain(shape: Row) -> list[float]:
    """Narrow for few rows and few columns, wide elsewhere."""
    rows, columns, _ = shape
    return [10.0, 10.5, 20.0] if rows <= 8 and columns <= 8 else [14.0, 13.0, 10.0]


def _write(
    folder: Path,
    seed: int,
    times: Times = _times,
    shapes: list[Row] = SHAPES,
    noise: float = MUCH,
    **run: Any,
) -> None:
    rng = random.Random(seed)
    rows: list[list[Cell]] = [
        [f"s{i + 1:03}", repeat, *(round(time * math.exp(rng.gauss(0, noise)), 9) for time in times(shape))]
        for repeat in (1, 2, 3)
        for i, shape in enumerate(shapes)
    ]
    write_table(folder / "tables/h100", shapes=shapes, rows=rows, **run)


def _project(folder: Path, times: Times = _times, noise: float = MUCH) -> Path:
    _write(folder, 0, times, noise=noise)
    return write_spec(folder, spec(constraints=[]))


def _module(folder: Path, output: str = "generated") -> str:
    return (folder / output / f"scale/{DEVICE}.py").read_text()


def _rows(folder: Path) -> str:
    lock = json.loads((folder / "generated/treegen.lock").read_text())
    return str(lock["rows"]["scale"][DEVICE])


def _origin(folder: Path) -> str:
    lock = json.loads((folder / "generated/treegen.lock").read_text())
    return str(lock["heuristics"]["scale"][DEVICE]["origin"])


def _printed(capsys: Capture) -> tuple[str, list[str]]:
    """The origin in the device's row, and the lines about it."""
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if line.startswith(f"{DEVICE} ")]
    return row[4], [line for line in lines if line.startswith(f"scale on {DEVICE}: ")]


# Noise


def test_redrawn_noise_keeps_every_byte_of_the_module(tmp_path: Path, capsys: Capture) -> None:
    path = _project(tmp_path)
    assert build(path) == 0
    assert (_printed(capsys), _origin(tmp_path)) == (("fresh", []), "fresh")
    module, lock = _module(tmp_path), (tmp_path / "generated/treegen.lock").read_bytes()
    fresh = set()
    for seed in (1, 2, 3):
        _write(tmp_path, seed)
        assert build(path) == 0
        assert (_printed(capsys)[0], _origin(tmp_path)) == ("kept", "kept")
        assert _module(tmp_path) == module and (tmp_path / "generated/treegen.lock").read_bytes() != lock
        assert build(path, "--output", tmp_path / "fresh") == 0
        fresh.add(_module(tmp_path, "fresh"))
        assert build(path, "--fresh", "--output", tmp_path / "fresh") == 0
        fresh.add(_module(tmp_path, "fresh"))
        capsys.readouterr()
    assert fresh - {module}, "the noise is too small to test anything"


def test_rows_keep_their_figures_until_a_fresh_build(tmp_path: Path) -> None:
    """A second table has a third of the noise. The comments tell of the first until a fresh build."""
    path = _project(tmp_path, times=_plain)
    build(path)
    module = _module(tmp_path)
    assert "noise 3." in module
    _write(tmp_path, 1, _plain, noise=MUCH / 3)
    for options, noise in (((), "noise 3."), (("--fresh",), "noise 1."), ((), "noise 1.")):
        assert build(path, *options) == 0
        assert noise in _module(tmp_path)
        assert build(path, "--check") == 0


# What changed


def test_one_config_that_became_slow_changes_its_cells_and_no_other(tmp_path: Path, capsys: Capture) -> None:
    """Narrow, which is launched in one row, loses 30% everywhere."""

    def slower(shape: Row) -> list[float]:
        narrow, *others = _plain(shape)
        return [narrow * 1.3, *others]

    path = _project(tmp_path, times=_plain)
    build(path)
    before = _module(tmp_path)[_module(tmp_path).index("STEPS") :].splitlines()
    _write(tmp_path, 1, slower)
    capsys.readouterr()
    assert build(path) == 0
    assert (_printed(capsys)[0], _origin(tmp_path)) == ("edited", "edited: 1 cell")
    after = _module(tmp_path)[_module(tmp_path).index("STEPS") :].splitlines()
    (changed,) = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert ["PLAIN_B16_W2" in line for line in changed] == [True, False]


def _slowdown(folder: Path, times: Times) -> float:
    """Geometric mean, over all shapes, of what the module launches over the best."""
    with imported(folder) as generated:
        choose = generated.scale.for_device("NVIDIA H100", "sm_90", "nvidia")
        chosen = [choose(rows=r, columns=c, heads=h).block for r, c, h in SHAPES]
    blocks = [config["block"] for config in CONFIGS]
    found = [times(s)[blocks.index(b)] / min(times(s)) for s, b in zip(SHAPES, chosen, strict=True)]
    return math.exp(math.fsum(map(math.log, found)) / len(found))


@pytest.mark.parametrize(
    ("slow", "factor"), [(lambda shape: True, 1.5), (lambda shape: 2 * shape[0] > shape[1], 3.0)]
)
def test_a_kernel_that_really_changed_gets_other_rows(
    tmp_path: Path, slow: Callable[[Row], bool], factor: float
) -> None:
    """Make narrow and wide, which were chosen for most shapes, slower.

    They are slower for all shapes, or for those with over half as many rows as columns. The previous splits
    do not distinguish these.
    """

    def changed(shape: Row) -> list[float]:
        narrow, medium, wide = _times(shape)
        return [narrow * factor, medium, wide * factor] if slow(shape) else [narrow, medium, wide]

    path = _project(tmp_path, noise=LITTLE)
    build(path)
    module = _module(tmp_path)
    _write(tmp_path, 1, changed, noise=LITTLE)
    lost = _slowdown(tmp_path, changed) - 1
    assert lost > 0.05 and build(path) == 0
    assert _module(tmp_path) != module and _slowdown(tmp_path, changed) - 1 < lost / 2
    assert build(path, "--fresh", "--output", tmp_path / "fresh/generated") == 0
    assert _slowdown(tmp_path, changed) < _slowdown(tmp_path / "fresh", changed) + 0.01


# Twice


def _generated(folder: Path) -> dict[str, bytes | None]:
    return contents(folder / "generated")


@examples(4)
@given(st.data())
def test_a_build_after_a_build_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever was decided: after a first build, noise, a slower config, other scenarios, another budget."""
    folder = tmp_path_factory.mktemp("project")
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    shapes = rng.sample(SHAPES, data.draw(st.sampled_from([5, 12, 30, 60])))
    path = _project(folder)
    for _ in range(3):
        factors = [data.draw(st.sampled_from([0.7, 0.95, 1.0, 1.0, 1.3])) for _ in range(3)]
        part = rng.choice([1, 4, 8, 200])

        def times(shape: Row, factors: list[float] = factors, part: int = part) -> list[float]:
            return [
                time * (factor if shape[0] <= part else 1)
                for time, factor in zip(_times(shape), factors, strict=True)
            ]

        if data.draw(st.booleans()):
            shapes = rng.sample(SHAPES, len(shapes))
        budget = data.draw(st.sampled_from([(4, 8), (4, 8), (2, 3)]))
        write_spec(folder, spec(constraints=[], tree={"max_depth": budget[0], "max_rows": budget[1]}))
        _write(folder, rng.randrange(10**6), times, sorted(shapes))
        assert build(path) == 0
        built = _generated(folder)
        assert build(path, "--check") == 0
        assert build(path) == 0
        assert _generated(folder) == built


def _edit_lock(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "generated/treegen.lock"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# Not kept


def test_fresh_ignores_the_previous_rows(tmp_path: Path, capsys: Capture) -> None:
    """The previous threshold lies between the same scenarios as the fresh one, so it is as good."""

    def move(lock: dict[str, Any]) -> None:
        (regime,) = lock["rows"]["scale"][DEVICE]["regimes"]
        regime["tree"] = [line.replace("<= 24", "<= 25") for line in regime["tree"]]

    path = _project(tmp_path, times=_plain)
    build(path)
    module = _module(tmp_path)
    assert "<= 24:" in module
    _edit_lock(tmp_path, move)
    assert build(path) == 0 and _module(tmp_path) == module.replace("<= 24:", "<= 25:")
    capsys.readouterr()
    assert build(path, "--fresh") == 0
    assert _printed(capsys) == ("fresh", []) and _module(tmp_path) == module


def _edit_module(old: str, new: str) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / f"generated/scale/{DEVICE}.py"
        path.write_text(path.read_text().replace(old, new, 1))

    return edit


def _write_lock(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "generated/treegen.lock").write_text(text)


NO_ROWS: list[tuple[Callable[[Path], object], str]] = [
    *((_edit_module("<=", "<= 1 +"), f"{DEVICE}.py"), (_edit_module("choose", "choose_"), f"{DEVICE}.py")),
    (_edit_module("<=", "<= \u00e9"), f"{DEVICE}.py"),
    (lambda folder: _edit_lock(folder, lambda lock: lock.pop("rows")), "treegen.lock"),
    *(
        (_write_lock(text), "treegen.lock")
        for text in ("", "{", "[]", '{"rows": 3}', '{"trees": {}}', "[" * 10**5)
    ),
]


@pytest.mark.parametrize(("edit", "file"), NO_ROWS)
def test_an_edited_module_or_a_lock_without_its_rows_is_built_anew_and_named(
    tmp_path: Path, capsys: Capture, edit: Callable[[Path], object], file: str
) -> None:
    path = _project(tmp_path)
    build(path)
    built = contents(tmp_path / "generated")
    edit(tmp_path)
    assert build(path, "--check") == 1
    capsys.readouterr()
    assert build(path) == 0
    origin, (line,) = _printed(capsys)
    assert origin == "fresh" and file in line
    assert contents(tmp_path / "generated") == built


@pytest.mark.parametrize("change", [{"values": {"heads": {"one": 1}}}, {"in_kernel": True}])
def test_a_spec_that_changes_the_text_around_rows_keeps_them(
    tmp_path: Path, capsys: Capture, change: dict[str, Any]
) -> None:
    path = _project(tmp_path)
    build(path)
    body = _rows(tmp_path)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    _write(tmp_path, 1)
    capsys.readouterr()
    assert build(path) == 0
    assert _printed(capsys)[0] == "kept" and _rows(tmp_path) == body


@pytest.mark.parametrize(
    ("change", "named"),
    [({"tree": {"max_depth": 4, "max_rows": 1}}, "rows"), ({"split_on": ["columns"]}, "rows")],
)
def test_rows_that_the_spec_no_longer_allows(
    tmp_path: Path, capsys: Capture, change: dict[str, Any], named: str
) -> None:
    path = _project(tmp_path, times=_plain)
    build(path)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    capsys.readouterr()
    assert build(path) == 0
    origin, (line,) = _printed(capsys)
    assert origin == "fresh" and named in line
    assert build(path, "--check") == 0


def test_a_constraint_that_a_config_breaks_now(tmp_path: Path) -> None:
    """Blocks of 16 are forbidden: the row that launched one launches another."""
    path = _project(tmp_path, times=_plain)
    build(path)
    assert "PLAIN_B16_W2" in _module(tmp_path)
    write_spec(tmp_path, spec(constraints=["block >= 17"]))
    assert build(path) == 0
    with imported(tmp_path) as generated:
        choose = generated.scale.for_device("NVIDIA H100", "sm_90", "nvidia")
        assert min(choose(rows=r, columns=c, heads=h).block for r, c, h in SHAPES) > 16
    assert build(path, "--check") == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tree": {"max_depth": 4, "max_rows": 9}}, ["budget"]),
        ({"derived": {"area": "rows * columns", "both": "rows + columns"}}, ["features"]),
        ({"derived": {"area": "rows * columns + 1"}}, ["features"]),
        ({"split_on": ["area", "rows", "columns"]}, ["features"]),
        ({"objective": {"weight": 3}}, ["objective"]),
    ],
)
def test_rows_are_fitted_anew_where_their_inputs_changed(
    tmp_path: Path, capsys: Capture, change: dict[str, Any], named: list[str]
) -> None:
    """The previous rows are not the fresh ones: other configs are fast now."""
    path = _project(tmp_path)
    build(path)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    _write(tmp_path, 1, _plain)
    capsys.readouterr()
    assert build(path) == 0
    origin, (line,) = _printed(capsys)
    assert origin == "fresh" and all(word in line for word in named)
    assert build(path, "--check") == 0


def test_another_driver_alone_changes_nothing(tmp_path: Path) -> None:
    path = _project(tmp_path)
    build(path)
    module = _module(tmp_path)
    _write(tmp_path, 1, driver="560.1", torch="9.9", triton="8.8", source_hash="ffff")
    assert build(path) == 0
    assert _module(tmp_path) == module


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_times_in_another_unit_are_refused_unless_they_are_meant(
    tmp_path: Path, refusal: Callable[..., str], factor: float
) -> None:
    path = _project(tmp_path)
    build(path)
    before = contents(tmp_path / "generated")
    _write(tmp_path, 1, lambda shape: [factor * time for time in _times(shape)])
    for options in ((), ("--fresh",), ("--check",)):
        assert "--expect-jump" in refusal(tmp_path, "build", "--spec", path, *options)
    assert contents(tmp_path / "generated") == before
    assert build(path, "--expect-jump") == 0
    assert build(path) == 0
