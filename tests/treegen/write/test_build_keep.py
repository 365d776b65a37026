"""A build over previous modules: noise changes nothing, real changes do, and a second build never does."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
import re
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
    problem,
    spec,
    write_spec,
    write_table,
)
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.files import digest
from treegen.update.previous_tree import read_previous_tree
from treegen.write.lock import Lock, read_lock

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


def _origin(folder: Path) -> str:
    lock = json.loads((folder / "generated/treegen.lock").read_text())
    return str(lock["heuristics"]["scale"][DEVICE]["tree"])


def _printed(capsys: Capture) -> tuple[str, list[str]]:
    """The tree's origin in the device's row, and the lines about it, without what keeping costs."""
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if line.startswith(f"{DEVICE} ")]
    notes = [line for line in lines if line.startswith(f"scale on {DEVICE}: ")]
    return row[5], [line for line in notes if "forgoes" not in line]


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
        assert (_printed(capsys), _origin(tmp_path)) == (("kept", []), "kept")
        assert _module(tmp_path) == module and (tmp_path / "generated/treegen.lock").read_bytes() != lock
        assert build(path, "--output", tmp_path / "fresh") == 0
        fresh.add(_module(tmp_path, "fresh"))
        assert build(path, "--fresh", "--output", tmp_path / "fresh") == 0
        fresh.add(_module(tmp_path, "fresh"))
        capsys.readouterr()
    assert fresh - {module}, "the noise is too small to test anything"


# What changed


def test_one_config_that_became_slow_changes_its_leaves_and_no_other(tmp_path: Path, capsys: Capture) -> None:
    """Narrow, which is launched in one leaf, loses 30% everywhere."""

    def slower(shape: Row) -> list[float]:
        narrow, *others = _plain(shape)
        return [narrow * 1.3, *others]

    path = _project(tmp_path, times=_plain)
    build(path)
    before = _module(tmp_path).split("def choose")[1].splitlines()
    _write(tmp_path, 1, slower)
    capsys.readouterr()
    assert build(path) == 0
    assert _printed(capsys) == ("edited", [f"scale on {DEVICE}: edited: 1 leaf."])
    assert _origin(tmp_path) == "edited: 1 leaf"
    after = _module(tmp_path).split("def choose")[1].splitlines()
    (changed,) = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert [line.strip() for line in changed] == ["return PLAIN_B16_W2", "return PLAIN_B64_W4"]


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
def test_a_kernel_that_really_changed_gets_another_tree(
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


@examples(12)
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
        write_spec(folder, spec(constraints=[], tree={"max_depth": budget[0], "max_leaves": budget[1]}))
        _write(folder, rng.randrange(10**6), times, sorted(shapes))
        assert build(path) == 0
        built = _generated(folder)
        assert build(path, "--check") == 0
        assert build(path) == 0
        assert _generated(folder) == built


def test_the_origin_of_a_tree_stays_in_the_lock(tmp_path: Path, capsys: Capture) -> None:
    """A check after a build must find it up to date, though the tree is now as it was."""
    path = _project(tmp_path)
    build(path)
    for _ in range(2):
        assert build(path, "--check") == 0
        capsys.readouterr()
        assert build(path) == 0
        assert (_printed(capsys)[0], _origin(tmp_path)) == ("kept", "fresh")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"heuristics": 3}', '{"heuristics": {"scale": []}}', "[" * 10**5]
)
def test_a_damaged_lock_is_ignored(tmp_path: Path, text: str) -> None:
    path = _project(tmp_path)
    build(path)
    module = _module(tmp_path)
    (tmp_path / "generated/treegen.lock").write_text(text)
    assert read_lock(tmp_path / "generated") == Lock()
    assert build(path) == 0
    assert (_module(tmp_path), _origin(tmp_path)) == (module, "kept")


@pytest.mark.parametrize("value", ["banana", 3, None, "edited: <b>", ["kept"]])
def test_an_origin_that_no_build_writes_is_dropped(tmp_path: Path, value: object) -> None:
    path = _project(tmp_path)
    build(path)
    lock = tmp_path / "generated/treegen.lock"
    content = json.loads(lock.read_text())
    content["heuristics"]["scale"][DEVICE]["tree"] = value
    lock.write_text(json.dumps(content))
    assert build(path) == 0 and _origin(tmp_path) == "kept"


# Not kept


def test_fresh_ignores_the_previous_tree(tmp_path: Path, capsys: Capture) -> None:
    path = _project(tmp_path, times=_plain)
    build(path)
    module = _module(tmp_path)
    useless = module.replace("12:", "13:")
    assert useless != module
    (tmp_path / f"generated/scale/{DEVICE}.py").write_text(useless)
    lock = tmp_path / "generated/treegen.lock"
    lock.write_text(lock.read_text().replace(digest(module), digest(useless)))
    assert build(path, "--check") == 0, "a module that a build wrote and that is as good is kept"
    assert build(path, "--check", "--fresh") == 1
    capsys.readouterr()
    assert build(path, "--fresh") == 0
    assert _printed(capsys) == ("fresh", []) and _module(tmp_path) == module


@pytest.mark.parametrize(
    ("old", "new"), [("def choose(", "LIMIT = 3\n\n\ndef choose("), ("<=", "<= 1 +"), ("<= ", "<= 1")]
)
def test_a_module_that_was_edited_by_hand(tmp_path: Path, capsys: Capture, old: str, new: str) -> None:
    path = _project(tmp_path)
    build(path)
    module, file = _module(tmp_path), tmp_path / f"generated/scale/{DEVICE}.py"
    file.write_text(module.replace(old, new))
    why = f"scale on {DEVICE}: the previous tree is not kept: {file}: is not what the last build wrote."
    assert build(path, "--check") == 1
    assert why in capsys.readouterr().out.splitlines()
    assert build(path) == 0
    assert _printed(capsys) == ("fresh", [why]) and _module(tmp_path) == module


def test_a_module_that_is_no_text(tmp_path: Path, capsys: Capture) -> None:
    path = _project(tmp_path)
    build(path)
    module, file = _module(tmp_path), tmp_path / f"generated/scale/{DEVICE}.py"
    file.write_bytes(module.encode() + b"\xff")
    capsys.readouterr()
    assert build(path) == 0
    word, (why,) = _printed(capsys)
    assert word == "fresh" and f"{file}: 'utf-8' codec can't decode" in why
    assert _module(tmp_path) == module


def test_a_module_of_another_spec(tmp_path: Path, capsys: Capture) -> None:
    path = _project(tmp_path)
    build(path)
    write_spec(tmp_path, spec(constraints=[], derived={"area": "rows * columns + 1"}))
    capsys.readouterr()
    assert build(path) == 0
    word, (why,) = _printed(capsys)
    assert word == "fresh" and "is not what the spec says: 'area = rows * columns + 1'." in why


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tree": {"max_depth": 4, "max_leaves": 2}}, "it has 3 leaves, and the budget is 2"),
        ({"split_on": ["columns"]}, "it splits on rows, which split_on no longer names"),
    ],
)
def test_a_tree_that_the_spec_no_longer_allows(
    tmp_path: Path, capsys: Capture, change: dict[str, Any], says: str
) -> None:
    path = _project(tmp_path, times=_plain)
    build(path)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    capsys.readouterr()
    assert build(path) == 0
    assert _printed(capsys) == ("fresh", [f"scale on {DEVICE}: the previous tree is not kept: {says}."])
    assert build(path, "--check") == 0


def test_a_constraint_that_a_leaf_breaks_now(tmp_path: Path, capsys: Capture) -> None:
    """Blocks of 16 are forbidden: the leaf that launched one gets the best of the others."""
    path = _project(tmp_path, times=_plain)
    build(path)
    assert "PLAIN_B16_W2" in _module(tmp_path)
    write_spec(tmp_path, spec(constraints=["block >= 17"]))
    capsys.readouterr()
    assert build(path) == 0
    assert _printed(capsys) == ("edited", [f"scale on {DEVICE}: edited: 1 leaf."])
    assert _origin(tmp_path) == "edited: 1 leaf", "also for a table that is as it was"
    assert "PLAIN_B16_W2" not in _module(tmp_path)


def test_a_guard_that_the_spec_no_longer_needs_goes(tmp_path: Path) -> None:
    path = _project(tmp_path, times=_plain)
    build(path)
    module = _module(tmp_path)
    write_spec(tmp_path, spec(constraints=["block >= heads"]))
    assert build(path) == 0 and "heads > 16" in _module(tmp_path)
    write_spec(tmp_path, spec(constraints=[]))
    assert build(path) == 0 and _module(tmp_path) == module


def test_scenarios_that_the_previous_table_lacked(tmp_path: Path) -> None:
    """Only then does the lock say that the table holds other ones."""
    path = _project(tmp_path)
    build(path)
    found = read_lock(tmp_path / "generated")
    made = problem(tmp_path, {"constraints": []}, shapes=SHAPES)
    assert not found.has_other_scenarios(made)
    assert not Lock().has_other_scenarios(made)
    assert found.has_other_scenarios(problem(tmp_path, {"constraints": []}, shapes=SHAPES[:-1]))


@pytest.mark.parametrize(
    ("change", "run", "why"),
    [
        ({"tree": {"max_depth": 4, "max_leaves": 9}}, {}, "the budget of the spec"),
        ({"derived": {"area": "rows * columns", "both": "rows + columns"}}, {}, "the features of the spec"),
        ({"split_on": ["rows", "columns", "area"]}, {}, "the features of the spec"),
        ({"objective": {"worst_case": 1}}, {}, "the objective of the spec"),
        ({}, {"driver": "560.1"}, "the driver (550.54 to 560.1)"),
        ({}, {"torch": "9.9", "triton": "8.8"}, "PyTorch (2.11.0 to 9.9) and Triton (3.6.0 to 8.8)"),
        ({}, {"source_hash": "ffff"}, "the kernel's source"),
        ({"words": {"rows": "batch"}}, {"date": "2026-03-01"}, ""),
    ],
)
def test_a_tree_is_fitted_anew_where_its_basis_changed(
    tmp_path: Path, capsys: Capture, change: dict[str, Any], run: dict[str, Any], why: str
) -> None:
    """The previous tree is not the fresh one: noise is redrawn."""
    path = _project(tmp_path)
    build(path)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    _write(tmp_path, 1, **run)
    capsys.readouterr()
    assert build(path) == 0
    origin, lines = _printed(capsys)
    told = f"scale on {DEVICE}: the previous tree is not kept: {why} changed since it was fitted."
    assert (origin, lines) == (("fresh", [told]) if why else ("kept", []))
    assert build(path, "--check") == 0


def test_what_keeping_forgoes_is_printed(tmp_path: Path, capsys: Capture) -> None:
    path = _project(tmp_path)
    build(path)
    _write(tmp_path, 1)
    capsys.readouterr()
    assert build(path) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "forgoes" in line and DEVICE in line]
    found = re.fullmatch(
        rf"scale on {DEVICE}: a fresh tree is at (1\.\d+)x; the tree that is kept forgoes (-?\d\.\d+)% \+- "
        r"(\d\.\d+)% of the time\. `treegen build --fresh` takes the fresh tree\.",
        line,
    )
    assert found is not None and float(found[2]) <= 0.5 + 1.5 * float(found[3])


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_times_in_another_unit_are_refused_unless_they_are_meant(
    tmp_path: Path, refusal: Callable[..., str], factor: float
) -> None:
    path = _project(tmp_path)
    build(path)
    before = contents(tmp_path / "generated")
    _write(tmp_path, 1, lambda shape: [factor * time for time in _times(shape)])
    for options in ((), ("--fresh",), ("--check",)):
        line = refusal(tmp_path, "build", "--spec", path, *options)
        assert "those of the last build; tables hold microseconds" in line and "--expect-jump" in line
    assert contents(tmp_path / "generated") == before
    assert build(path, "--expect-jump") == 0
    assert build(path) == 0


# Where modules are read from


def test_a_missing_module_and_a_folder_in_its_place(tmp_path: Path) -> None:
    made = problem(tmp_path)
    output = tmp_path / "generated"
    assert read_previous_tree(output, made) is None
    output.write_text("a file")
    assert read_previous_tree(output, made) is None
    output.unlink()
    (output / f"scale/{DEVICE}.py").mkdir(parents=True)
    assert read_previous_tree(output, made) == f"{output}/scale/{DEVICE}.py: not a plain file"


def test_another_output_folder_has_no_previous_tree(tmp_path: Path, capsys: Capture) -> None:
    path = _project(tmp_path)
    build(path)
    _write(tmp_path, 5)
    capsys.readouterr()
    assert build(path, "--output", tmp_path / "elsewhere") == 0
    assert _printed(capsys)[0] == "fresh"


# Errors between processes


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_an_error_survives_copying_and_pickling(copied: Callable[[InputError], InputError]) -> None:
    error = InputError(Path("times.csv"), "is\nwrong", line=3)
    again = copied(error)
    assert type(again) is InputError and again.args == error.args == ("times.csv:3: is\\nwrong",)
