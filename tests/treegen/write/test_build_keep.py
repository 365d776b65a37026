"""A build over previous modules: noise changes nothing, real changes do, and a second build never does."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, build, contents, imported, spec, write_spec, write_table
from treegen_strategies import examples

from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec

POWERS = tuple(1 << k for k in range(8))
SHAPES = [(rows, columns, 2) for rows in POWERS for columns in POWERS]
MUCH, LITTLE = 0.03, 0.01
MODULE, LOCK = f"generated/scale/{DEVICE}.py", "generated/treegen.lock"


@pytest.fixture(autouse=True)
def _without_held_out_figures(monkeypatch):
    """Fit no folds: they give figures to print, and change no row."""
    monkeypatch.setattr("treegen.crossval.folds.folds_of", lambda problem: ())


def _times(shape):
    """Narrow for small areas, wide for large ones, and between them a wide stretch of nearly equal times."""
    rows, columns, _ = shape
    grain = [(5 * rows + 3 * columns + 7 * config) % 11 / 100 for config in range(3)]
    away = [abs(math.log2(rows * columns) - middle) / 20 for middle in (2, 7, 12)]
    return [10 * (1 + far + more) for far, more in zip(away, grain, strict=True)]


def _plain(shape):
    """Narrow for few rows and few columns, wide elsewhere."""
    rows, columns, _ = shape
    return [10.0, 10.5, 20.0] if rows <= 8 and columns <= 8 else [14.0, 13.0, 10.0]


def _write(folder, seed, times=_times, shapes=SHAPES, noise=MUCH, **run):
    rng = random.Random(seed)
    rows = [
        [f"s{i + 1:03}", repeat, *(round(time * math.exp(rng.gauss(0, noise)), 9) for time in times(shape))]
        for repeat in (1, 2, 3)
        for i, shape in enumerate(shapes)
    ]
    write_table(folder / "tables/h100", shapes=shapes, rows=rows, **run)


def _project(folder, times=_times, noise=MUCH):
    _write(folder, 0, times, noise=noise)
    return write_spec(folder, spec(constraints=[]))


def _built(folder, times=_times, noise=MUCH):
    path = _project(folder, times, noise)
    assert build(path) == 0
    return path


def _module(folder):
    return (folder / MODULE).read_text()


def _lock(folder, output="generated"):
    return json.loads((folder / output / "treegen.lock").read_text())


def _rows(folder, output="generated"):
    """What is launched, as the lock stores it."""
    return json.dumps(_lock(folder, output)["rows"]["scale"][DEVICE]["regimes"], indent=1)


def _origin(folder):
    return str(_lock(folder)["heuristics"]["scale"][DEVICE]["origin"])


def _printed(capsys):
    """The origin in the device's row, and the lines about it."""
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if line.startswith(f"{DEVICE} ")]
    return row[4], [line for line in lines if line.startswith(f"scale on {DEVICE}: ")]


def test_redrawn_noise_keeps_every_row(tmp_path, capsys):
    path = _built(tmp_path)
    assert (_printed(capsys), _origin(tmp_path)) == (("fresh", []), "fresh")
    rows, fresh = _rows(tmp_path), set()
    for seed in (1, 2, 3):
        _write(tmp_path, seed, driver=f"560.{seed}", torch="9.9", source_hash=f"{seed:08}")
        assert build(path) == 0
        assert (_printed(capsys)[0], _origin(tmp_path)) == ("kept", "kept")
        assert _rows(tmp_path) == rows
        assert build(path, "--fresh", "--output", tmp_path / "fresh") == 0
        fresh.add(_rows(tmp_path, "fresh"))
        capsys.readouterr()
    assert fresh - {rows}, "the noise is too small to test anything"


def test_one_config_that_became_slow_changes_its_cells_and_no_other(tmp_path, capsys):
    """Narrow, which is launched in one row, loses 30% everywhere."""

    def times(shape, slower=1.0):
        return [10.0 * slower, 10.5, 20.0] if shape[0] <= 8 else [14.0 * slower, 13.0, 10.0]

    path = _built(tmp_path, times=times)
    before = _rows(tmp_path).splitlines()
    _write(tmp_path, 1, lambda shape: times(shape, 1.3))
    capsys.readouterr()
    assert build(path) == 0
    assert (_printed(capsys)[0], _origin(tmp_path)) == ("edited", "edited")
    after = _rows(tmp_path).splitlines()
    (changed,) = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert ["plain 16 2" in line for line in changed] == [True, False]


@examples(4)
@given(st.data())
def test_a_second_build_is_the_same(tmp_path_factory, data):
    """Whatever was decided: after a first build, noise, a slower config, other scenarios, another budget."""
    folder = tmp_path_factory.mktemp("project")
    rng = random.Random(data.draw(st.integers(0, 10**6)))
    shapes = rng.sample(SHAPES, data.draw(st.sampled_from([5, 12, 30, 60])))
    path = _project(folder)
    for _ in range(3):
        factors = [data.draw(st.sampled_from([0.7, 0.95, 1.0, 1.0, 1.3])) for _ in range(3)]
        part = rng.choice([1, 4, 8, 200])

        def times(shape, factors=factors, part=part):
            now = factors if shape[0] <= part else [1.0] * 3
            return [time * factor for time, factor in zip(_times(shape), now, strict=True)]

        if data.draw(st.booleans()):
            shapes = rng.sample(SHAPES, len(shapes))
        budget = data.draw(st.sampled_from([(4, 8), (4, 8), (2, 3)]))
        write_spec(folder, spec(constraints=[], tree={"max_depth": budget[0], "max_rows": budget[1]}))
        _write(folder, rng.randrange(10**6), times, sorted(shapes))
        assert build(path) == 0
        built = contents(folder / "generated")
        assert build(path, "--check") == 0
        assert build(path) == 0
        assert contents(folder / "generated") == built


def _edit(path, change):
    path.write_text(change(path.read_text()))


def test_fresh_ignores_the_previous_rows(tmp_path, capsys):
    """The previous threshold lies between the same scenarios as the fresh one, so it is as good."""
    path = _built(tmp_path, times=_plain)
    module = _module(tmp_path)
    assert "<= 24:" in module
    _edit(tmp_path / LOCK, lambda text: text.replace("<= 24", "<= 25"))
    assert build(path) == 0 and _module(tmp_path) == module.replace("<= 24:", "<= 25:")
    capsys.readouterr()
    assert build(path, "--fresh") == 0
    assert _printed(capsys) == ("fresh", []) and _module(tmp_path) == module


def _replaced(old, new):
    return lambda text: text.replace(old, new, 1)


EDITS = [
    (MODULE, _replaced(*edit)) for edit in (("<=", "<= 1 +"), ("choose", "choose_"), ("<=", "<= \u00e9"))
]
EDITS += [(LOCK, lambda _, new=new: new) for new in ("[]", '{"rows": 3}', '{"trees": {}}')]
EDITS += [(LOCK, _replaced('"rows": {', '"others": {'))]


@pytest.mark.parametrize(("file", "change"), EDITS)
def test_edits_are_built_anew(tmp_path, capsys, file, change):
    path = _built(tmp_path)
    built = contents(tmp_path / "generated")
    _edit(tmp_path / file, change)
    assert build(path, "--check") == 1
    capsys.readouterr()
    assert build(path) == 0
    origin, (line,) = _printed(capsys)
    assert origin == "fresh" and Path(file).name in line
    assert contents(tmp_path / "generated") == built


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "<<<<<<< main\n{}\n=======\n{}\n>>>>>>> other\n"])
def test_a_lock_that_is_no_json_is_refused(tmp_path, refusal, text):
    """As after a merge with conflicts; built anew, all rows would be fitted without those before."""
    path = _built(tmp_path)
    (tmp_path / LOCK).write_text(text)
    assert "treegen.lock" in refusal(tmp_path, "build", "--spec", path)


@pytest.mark.parametrize("change", [{"values": {"heads": {"one": 1}}}, {"in_kernel": True}])
def test_a_spec_of_other_text_keeps_rows(tmp_path, capsys, change):
    path = _built(tmp_path)
    body = _rows(tmp_path)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    _write(tmp_path, 1)
    capsys.readouterr()
    assert build(path) == 0
    assert _printed(capsys)[0] == "kept" and _rows(tmp_path) == body


CHANGES = [
    {},
    *({"tree": {"max_depth": deep, "max_rows": rows}} for deep, rows in ((4, 9), (4, 1), (1, 4))),
    {"tree": {"max_configs": 1}},
    {"derived": {"area": "rows * columns + 1"}},
    {"split_on": ["columns"]},
    {"objective": {"weight": 3}},
    {"regimes": {"few": "rows <= 4", "steps": "otherwise"}},
    {"classes": {"few": "heads <= 1", "many": "otherwise"}},
    *({"constraints": [rule]} for rule in ("block >= 17", "block * rows <= 1024")),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("times", [_times, _plain])
def test_any_build_is_as_good_as_a_fresh_one(tmp_path, change, times):
    """The spec and the times change together; all is asked of the written modules, by the new table."""
    path = _built(tmp_path, _plain, noise=LITTLE)
    write_spec(tmp_path, spec(**{"constraints": [], **change}))
    _write(tmp_path, 1, times, noise=LITTLE)
    assert build(path) == 0 and build(path, "--check") == 0
    _assert_as_good_as_fresh(tmp_path)


def _assert_as_good_as_fresh(folder):
    assert build(folder / "treegen.yaml", "--fresh", "--output", folder / "fresh/generated") == 0
    assert _loss(folder, folder) <= _loss(folder, folder / "fresh") + math.log(1.005)


def _loss(folder, built):
    """The mean log of what is launched over the best that no constraint forbids, by the table."""
    read = read_spec(folder / "treegen.yaml")
    kernel = read.kernels["scale"]
    made = build_problem(kernel, read.devices[DEVICE], read_table(kernel.tables[DEVICE]))
    with imported(built) as generated:
        choose = generated.scale.for_device("NVIDIA H100", "sm_90", "nvidia")
        shapes = zip(*(made.column(name).tolist() for name in kernel.features), strict=True)
        chosen = [choose(**dict(zip(kernel.features, shape, strict=True))) for shape in shapes]
    blocks = [dict(config.parameters)["block"] for config in made.configs]
    places = [blocks.index(config.block) for config in chosen]
    times = np.where(made.allowed, made.times(), np.inf)
    assert np.isfinite(times[range(len(places)), places]).all(), "a constraint forbids what is launched"
    return float(np.mean(np.log(times[range(len(places)), places] / times.min(axis=1))))


def test_a_table_that_is_finished_repairs_what_a_part_of_it_taught(tmp_path):
    """First, most scenarios have the time of one config only, and the rest times of two that are slow."""
    path = _project(tmp_path, _plain, noise=LITTLE)
    full = (tmp_path / "tables/h100/times.csv").read_text().splitlines()
    cut = [",".join([*line.split(",")[:4], ""]) for line in full[1:]]
    alone = [",".join([*line.split(",")[:3], "", ""]) for line in full[1:]]
    part = [full[0], *(one if n % 8 else two for n, (one, two) in enumerate(zip(alone, cut, strict=True)))]
    (tmp_path / "tables/h100/times.csv").write_text("\n".join([*part, ""]))
    assert build(path) == 0
    (tmp_path / "tables/h100/times.csv").write_text("\n".join([*full, ""]))
    assert build(path) == 0
    _assert_as_good_as_fresh(tmp_path)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_another_unit_of_times_is_refused(tmp_path, refusal, factor):
    path = _built(tmp_path)
    before = contents(tmp_path / "generated")
    _write(tmp_path, 1, lambda shape: [factor * time for time in _times(shape)])
    for options in ((), ("--fresh",), ("--check",)):
        assert "--expect-jump" in refusal(tmp_path, "build", "--spec", path, *options)
    assert contents(tmp_path / "generated") == before
    assert build(path, "--expect-jump") == 0
    assert build(path) == 0
