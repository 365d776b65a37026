"""What a diff says, against enumeration: both packages are imported and asked, and times come from the CSV.

Two kernels, one with regimes, classes, constraints and a limit, are compiled for two GPUs. Their spec, tables
and rows are edited at random.
"""

import csv
import importlib
import math
import random
import statistics
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from treegen_builders import as_h100, grid, imported, spec, time_rows, write_project
from treegen_diffs import BEST, compared, heuristic, of_device, project, write_modules
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.heuristic import split_features
from treegen.core.spec import FALLBACK_DEVICE
from treegen.crossval.score import Score
from treegen.fit.fit import fit
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.review.diff.changes import Kind
from treegen.review.diff.markdown import headline, markdown

CONFIGS = [{"id": f"c{k}", "variant": "plain", "block": 8 << k, "warps": 1 + k % 3} for k in range(5)]
SHAPES = [*product((1, 4, 8, 64), (1, 8, 64), (2, 16))]
IDS = [f"s{k + 1:03}" for k in range(len(SHAPES))]
GPUS = [
    ("GPU a", "a1", "v"),
    ("GPU b", "b1", "v"),
    ("other", "a1", "v"),
    ("other", "", "v"),
    ("other", "", "w"),
]
THRESHOLD = 1.01


def base():
    names = {"gpu_a": "GPU a", "gpu_b": "GPU b"}
    content = spec(tables={key: {"folder": "tables/h100", "measured_on": "GPU"} for key in names})
    content["devices"] = {
        key: {"names": [name], "arch": f"{key[-1]}1", "vendor": "v", "limits": {"most": 512}}
        for key, name in names.items()
    }
    (first,) = content["kernels"].values()
    first["fallback"] = {"variant": "plain", "block": 64, "warps": 1}
    more = {
        "regimes": {"short": {"when": "rows <= 4", "split_on": ["area", "columns"]}, "long": "otherwise"},
        "classes": {"few": "heads <= 2", "many": "otherwise"},
        "constraints": ["block >= heads", "block * warps <= most"],
        "translate": {"scale": {"variant": "plain", "rename": {}}},
    }
    content["kernels"]["other"] = {**first, **more, "tables": dict(first["tables"])}
    return content


def times(rng, repeats=2, noise=0.0):
    speed = [rng.uniform(0.8, 1.3) for _ in CONFIGS]
    table = []
    for scenario, shape in zip(IDS, SHAPES, strict=True):
        row = [10 * math.prod(shape) ** 0.3 * s * rng.choice((1, 1, 1.2)) for s in speed]
        missing = {k for k in range(len(row)) if rng.random() < 0.25} if rng.random() < 0.7 else set()
        for repeat in range(repeats):
            cells = [f"{t * math.exp(rng.gauss(0, noise)):.6g}" for t in row]
            cells = ["" if k in missing and k > 1 else cell for k, cell in enumerate(cells)]
            table.append([scenario, str(repeat + 1), *cells])
    return table


def built(folder, content, table, rng, previous):
    """A package whose rows were fitted, or are those of `previous`."""
    run = {"device": {"name": "GPU", "arch": "a1"}, "driver": content.pop("driver", "1")}
    path = write_project(folder, content, shapes=SHAPES, rows=table, configs=CONFIGS, **run)
    read, measured = read_spec(path), read_table(folder / "tables/h100")
    modules = {}
    for kernel in read.kernels.values():
        fresh = None  # the same for both GPUs, which differ in name alone
        for key in kernel.tables:
            found = previous.get((kernel.name, key))
            if found is None or rng.random() < 0.5 or not _usable(found, kernel):
                fresh = found = fresh or fit(build_problem(kernel, read.devices[key], measured))
            previous[kernel.name, key] = modules[kernel.name, key] = found
    write_modules(path, modules)
    return read


def _usable(found, kernel):
    others = {name for regime in found.regimes for row in regime.rows for name in row.others}
    parameters = {tuple(n for n, _ in config.parameters) for config in found.configs}
    pairs = [*zip(found.regimes, kernel.regimes, strict=False)]
    return (
        [regime.name for regime in found.regimes] == [regime.name for regime in kernel.regimes]
        and all(set(split_features(one.tree)) <= set(other.split_on) for one, other in pairs)
        and others <= {entry.name for entry in kernel.classes}
        and parameters <= {tuple(kernel.parameters)}
    )


SPEC_EDITS = ["constraint", "class", "regime", "derived", "unused", "fallback", "parameter", "renamed"]
SPEC_EDITS += ["key", "swapped", "fewer devices", "arguments", "limit", "no classes", "no regimes"]
TABLE_EDITS = ["slower", "fewer scenarios", "failures", "one repeat"]


def edit(what, content, table, rng):
    """Edit the spec or the table. Raises KeyError where another edit has renamed a kernel."""
    kernels = content["kernels"]
    match what:
        case "constraint":
            rules = ["block * warps <= 96", "block >= 2 * heads", "area <= 64 * block", "warps <= 2"]
            kernels["other"]["constraints"] = [*kernels["other"]["constraints"], rng.choice(rules)]
        case "class":
            tiny = f"heads <= {rng.choice([-5, 0, 1, 2, 4])}"
            kernels["other"]["classes"] = {"tiny": tiny, "few": "heads <= 2", "many": "otherwise"}
        case "regime":
            kernels["other"]["regimes"]["short"]["when"] = f"rows <= {rng.choice([3, 5, 8])}"
        case "derived":
            area = rng.choice(["columns * rows", "rows * columns + 1"])
            kernels[rng.choice(["scale", "other"])]["derived"] = {"area": area}
        case "unused":
            kernels["scale"]["derived"] = {"area": "rows * columns", "unused": "2 * heads"}
        case "fallback":
            chosen = {k: v for k, v in rng.choice(CONFIGS).items() if k != "id"}
            kernels[rng.choice(["scale", "other"])]["fallback"] = chosen
        case "parameter":
            parameters = {"block": "B", "warps": "W", "more": {"letter": "X", "default": 3}}
            for kernel in kernels.values():
                kernel["config"] = {"variants": ["plain"], "parameters": parameters}
        case "renamed":
            name = rng.choice([*kernels])
            content["kernels"] = {("new" if k == name else k): v for k, v in kernels.items()}
            content["kernels"]["new"]["translate"] = {"scale": {"variant": "plain", "rename": {}}}
        case "key":
            content["devices"] = {k.replace("gpu_a", "gpu_n"): v for k, v in content["devices"].items()}
            for kernel in kernels.values():
                kernel["tables"] = {k.replace("gpu_a", "gpu_n"): v for k, v in kernel["tables"].items()}
        case "swapped":
            a, b = content["devices"].values()
            part = rng.choice(["names", "arch", "order"])
            if part == "order":
                first, second = content["devices"]
                content["devices"] = {second: {**b, "arch": a["arch"]}, first: a}
            else:
                a[part], b[part] = b[part], a[part]
        case "fewer devices":
            for kernel in kernels.values():
                kernel["tables"] = {"gpu_b": kernel["tables"]["gpu_b"]}
        case "arguments":
            name, value = rng.choice(
                [("features", ["columns", "rows", "heads"]), ("constants", ["heads", "columns"])]
            )
            kernels["scale"][name] = value
        case "limit":
            for device in content["devices"].values():
                device["limits"]["most"] = rng.choice([64, 128, 256])
        case "no classes":
            kernels["other"].pop("classes")
        case "no regimes":
            kernels["other"].pop("regimes")
        case "one repeat":
            table[:] = [row for row in table if row[1] == "1"]
        case "slower":
            column, by = rng.randrange(2, 7), rng.choice((0.7, 1.1, 3.0))
            for row in table:
                row[column] = f"{float(row[column]) * by:.6g}" if row[column] else ""
            content["driver"] = rng.choice(("1", "2"))
        case "fewer scenarios":
            keep = {scenario for k, scenario in enumerate(IDS) if rng.random() < 0.7 or k < 3}
            table[:] = [row for row in table if row[0] in keep]
        case _:
            column = rng.randrange(3, 7)
            for row in table:
                row[column] = "inf" if IDS.index(row[0]) % 4 == 0 else row[column]


class Both:
    """What the packages of two folders launch, by asking them."""

    def __init__(self, old, new):
        self.packages = [self._imported(folder) for folder in (old, new)]
        self.medians = {}
        rows = {}
        for row in csv.DictReader((new / "tables/h100/times.csv").open()):
            rows.setdefault(row["scenario"], []).append(row)
        for (scenario, repeats), config in product(rows.items(), CONFIGS):
            if numbers := [float(row[config["id"]]) for row in repeats if row[config["id"]]]:
                middle = math.inf if math.inf in numbers else statistics.median(numbers)
                self.medians.setdefault(scenario, {})[config["block"], config["warps"]] = middle

    def _imported(self, folder):
        names = [path.parent.name for path in folder.glob("generated/*/config.py")]
        with imported(folder):
            return {name: importlib.import_module(f"generated.{name}") for name in names}

    def scenarios(self):
        for scenario, shape in zip(IDS, SHAPES, strict=True):
            if scenario in self.medians:
                yield scenario, dict(zip(("rows", "columns", "heads"), shape, strict=True))

    @staticmethod
    def id_of(config):
        return config.block, config.warps

    def pairs(self, old, new):
        """The times of the old and the new config in the scenarios where they differ, by these configs."""
        found = {}
        for scenario, shape in self.scenarios():
            one, other = (self.id_of(choose(**shape)) for choose in (old, new))
            if one != other:
                known = self.medians[scenario]
                found.setdefault((one, other), []).append((known.get(one), known.get(other)))
        return found

    def differ(self, old, new, shapes):
        return any(self.id_of(old(**shape)) != self.id_of(new(**shape)) for shape in shapes)


def ratio(times):
    both = [math.log(new / old) for old, new in times if old and new and math.isfinite(old + new)]
    return math.exp(statistics.fmean(both)) if both else None


@examples(40, shrink=False)
@given(st.integers(0, 1 << 30))
def test_every_sentence_agrees_with_the_packages(tmp_path_factory, seed):
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("diff")
    content, table, previous = base(), times(rng), {}
    built(folder / "old", base(), table, rng, previous)
    edits = rng.sample([*SPEC_EDITS, *TABLE_EDITS], rng.choice((1, 1, 2, 3)))
    note(f"{edits} in {folder}")
    table = [list(row) for row in table]
    for what in edits:
        with suppress(KeyError):
            edit(what, content, table, rng)
    try:
        built(folder / "new", content, table, rng, previous)
    except InputError as error:
        note(f"refused: {error}")
        return
    judge(compared(folder / "old", folder / "new"), Both(folder / "old", folder / "new"), rng)


def judge(diff, both, rng):
    old, new = both.packages
    sizes = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 63, 64, 65, 512)
    shapes = [{name: rng.choice(sizes) for name in ("rows", "columns", "heads")} for _ in range(500)]
    text, said, differs = markdown(diff), " ".join(headline(diff)), False
    gone = {name for name in old if name not in new}
    for name in old.keys() & new.keys():
        gone |= {f"{name}.{key}" for key in old[name].MODULES if key not in new[name].MODULES}
        for key in old[name].MODULES.keys() & new[name].MODULES.keys() - {FALLBACK_DEVICE}:
            (found,) = (m for m in diff.modules if (m.kernel, m.device) == (name, key))
            chooses = [package[name].MODULES[key].choose for package in (old, new)]
            differs |= judge_module(found, both, chooses, shapes)
    assert all(any(f"{what} is gone" in line for line in diff.gone) for what in gone), (gone, diff.gone)
    moved = False
    for name in old.keys() & new.keys():
        for gpu in GPUS:
            one, other = (package[name].for_device(*gpu) for package in (old, new))
            keys = [choose.__module__.rsplit(".")[-1] for choose in (one, other)]
            if keys[0] != keys[1]:
                known = [s for s in diff.served if s.kernel == name and [s.before, s.now] == keys]
                assert known and known[0].differs == bool(both.pairs(one, other)), gpu
                moved |= known[0].differs
    assert diff.breaks >= bool(gone or moved)
    for phrase in ("All modules launch the same", "All tuned GPUs get the same", "Nothing else is launched"):
        assert (phrase in said) <= (not differs and not moved and not gone), phrase
    assert ("Nothing regresses" in said) <= (not any(s.price and s.price.regresses for s in diff.served))
    assert "None" not in text
    assert ("launches differently" in text) == any(m.kind is Kind.CHANGED for m in diff.modules)
    assert diff.regresses == any(
        module.regresses or (module.world is not None and module.world.contradicts) for module in diff.modules
    )
    assert (" regress" in said) <= any(m.lines for m in diff.modules)


def judge_module(found, both, chooses, shapes):
    """Compare what is said of a module; returns whether it launches another config anywhere."""
    pairs = both.pairs(*chooses)
    assert found.changed == sum(map(len, pairs.values()))
    assert (found.kind is Kind.CHANGED) == bool(pairs)
    without = sum(None in pair for times in pairs.values() for pair in times)
    fails = sum(pair[1] == math.inf != pair[0] for times in pairs.values() for pair in times)
    assert found.untimed == without
    lines = sorted(round(line.price.ratio or 0, 4) for line in found.lines)
    assert lines == sorted(round(ratio(times) or 0, 4) for times in pairs.values())
    slow = any((ratio(times) or 0) > THRESHOLD * (1 + 1e-9) for times in pairs.values())
    assert found.regresses >= (slow or fails > 0)
    worst = max((ratio([pair]) or 0 for times in pairs.values() for pair in times), default=0)
    assert found.regresses <= (worst > THRESHOLD or fails > 0)
    elsewhere = both.differ(*chooses, shapes)
    if found.kind in (Kind.SAME, Kind.TEXT, Kind.TRIED):
        assert not elsewhere
    if found.kind is Kind.ELSEWHERE:
        assert found.example is not None and both.differ(*chooses, [dict(found.example)])
    return bool(pairs) or elsewhere


def test_nothing_is_said_of_what_modules_that_cannot_be_compared_launch(tmp_path):
    """An old module was edited; another one serves its architecture now."""
    content = spec(tables={"gpu_a": as_h100(), "gpu_b": as_h100()})
    device = {"names": ["GPU a"], "arch": "a1", "vendor": "v"}
    content["devices"] = {"gpu_a": device, "gpu_b": {"names": ["GPU b"], "arch": "b1", "vendor": "v"}}
    for name in ("old", "new"):
        path = write_project(tmp_path / name, content)
        write_modules(path, {("scale", "gpu_a"): heuristic(BEST), ("scale", "gpu_b"): heuristic(BEST)})
        device["arch"], content["devices"]["gpu_b"]["arch"] = "b1", "a1"
    with (tmp_path / "old/generated/scale/gpu_a.py").open("a") as file:
        file.write("edited = True\n")
    diff = compared(tmp_path / "old", tmp_path / "new")
    kinds = {module.device: module.kind for module in diff.modules}
    assert kinds == {"gpu_a": Kind.INCOMPARABLE, "gpu_b": Kind.SAME, "default": Kind.SAME}
    found = {(one.before, one.now): (one.differs, one.price) for one in diff.served}
    assert found == {("gpu_a", "gpu_b"): (True, None), ("gpu_b", "gpu_a"): (False, None)}
    *served, said = headline(diff)
    assert "launch the same" not in said and "scale on gpu_a" in said and not diff.regresses
    assert all("may launch" in line for line in served) and len(served) == 1


def test_a_feature_of_another_name_is_not_taken_from_what_the_new_spec_derives(tmp_path):
    """The old module asks for the area, which does not follow from the new table's columns."""
    project(tmp_path / "old")
    lines = {"features": ["lines", "columns", "heads"]}
    content = spec(**lines, derived={"area": "64 * lines * columns"})
    diff = compared(tmp_path / "old", project(tmp_path / "new", BEST, content, **lines))
    found = of_device(diff)
    assert (found.kind, found.unknown, found.changed) == (Kind.INCOMPARABLE, found.scenarios, 0)
    assert found.example is None and not any("launch" in line for line in headline(diff))


def test_other_shapes_with_the_same_times_are_another_table(tmp_path):
    project(tmp_path / "old")
    project(
        tmp_path / "new", shapes=[(rows + (rows == 8), columns, heads) for rows, columns, heads in grid()]
    )
    world = of_device(compared(tmp_path / "old", tmp_path / "new")).world
    assert world is not None and (world.scenarios, world.common) == ((9, 9), 6)


def test_a_table_of_one_repeat_is_taken_to_be_as_noisy_as_the_one_before(tmp_path):
    rows = time_rows(grid())
    for row in rows[len(grid()) :]:
        row[2:] = [float(cell) * 1.02 for cell in row[2:]]
    project(tmp_path / "old", rows=rows)
    project(tmp_path / "same", rows=rows, driver="580")
    project(tmp_path / "once", rows=rows[: len(grid())], driver="580")
    worlds = [of_device(compared(tmp_path / "old", tmp_path / name)).world for name in ("same", "once")]
    errors = [world.alone.error for world in worlds if world is not None and world.alone is not None]
    assert errors[0] == pytest.approx(errors[1]) and errors[1] > 0.005


@examples(24, shrink=False)
@given(st.integers(0, 1 << 30))
def test_a_score_is_what_the_module_loses_by_the_table(tmp_path_factory, seed):
    """Over the best time of the configs that the constraints allow; without a time it counts as 2x slower."""
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("score")
    content, table = base(), times(rng, noise=0.02)
    for what in rng.sample(["constraint", "class", "fallback", "failures"], 2):
        edit(what, content, table, rng)
    try:
        read = built(folder, content, table, rng, fitted := {})
    except InputError:
        return
    both = Both(folder, folder)
    for name, kernel in read.kernels.items():
        problem = build_problem(kernel, read.devices["gpu_a"], read_table(kernel.tables["gpu_a"]))
        found = fitted[name, "gpu_a"]
        choose, loss = both.packages[0][name].gpu_a.choose, []
        for scenario, shape in both.scenarios():
            if scenario not in problem.scenarios:
                continue
            allowed = problem.allowed[problem.scenarios.index(scenario)]
            ids = [(dict(c.parameters)["block"], dict(c.parameters)["warps"]) for c in problem.configs]
            measured = both.medians[scenario]
            best = min(measured[c] for c, ok in zip(ids, allowed, strict=True) if ok and c in measured)
            time = measured.get(both.id_of(choose(**shape)))
            loss.append(math.log(time / best) if time and math.isfinite(time) else math.log(2))
        score = Score.of(problem, found).quality
        assert score.slowdown == pytest.approx(math.exp(statistics.fmean(loss)), rel=1e-5)
