"""What a diff says, against enumeration: both packages are imported and asked, and times come from the CSV.

Two kernels, one with regimes, classes, constraints and a limit, are compiled for two GPUs. Their spec, tables
and rows are edited at random.
"""

from __future__ import annotations

import csv
import importlib
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from treegen_builders import csv_text, imported, run, spec, yaml_text
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.heuristic import Heuristic
from treegen.core.spec import FALLBACK_DEVICE, Spec
from treegen.crossval.score import Score
from treegen.emit.package import emit_package
from treegen.fit.fit import fit
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.review.diff.changes import Diff, Kind, ModuleChange, compare
from treegen.review.diff.markdown import headline, markdown
from treegen.review.diff.snapshots import read_snapshot
from treegen.write.files import write_files
from treegen.write.lock import LOCK
from treegen.write.stored import stored

CONFIGS = [{"id": f"c{k}", "variant": "plain", "block": 8 << k, "warps": 1 + k % 3} for k in range(5)]
SHAPES = [*product((1, 4, 8, 64), (1, 8, 64), (2, 16))]
GPUS = [
    ("GPU a", "a1", "v"),
    ("GPU b", "b1", "v"),
    ("other", "a1", "v"),
    ("other", "", "v"),
    ("other", "", "w"),
]
THRESHOLD = 1.01
Content = dict[str, Any]
Table = list[list[str]]
Edit = Callable[[Content, Table, random.Random], object]


def base() -> Content:
    content = spec(tables={"gpu_a": "tables/t", "gpu_b": "tables/t"})
    names = {"gpu_a": "GPU a", "gpu_b": "GPU b"}
    content["devices"] = {
        key: {"names": [name], "arch": f"{key[-1]}1", "vendor": "v", "limits": {"most": 512}}
        for key, name in names.items()
    }
    (first,) = content["kernels"].values()
    tables = {key: {"folder": "tables/t", "measured_on": "GPU"} for key in names}
    first |= {"tables": tables, "fallback": {"variant": "plain", "block": 64, "warps": 1}}
    more = {
        "regimes": {"short": {"when": "rows <= 4", "split_on": ["area", "columns"]}, "long": "otherwise"},
        "classes": {"few": "heads <= 2", "many": "otherwise"},
        "constraints": ["block >= heads", "block * warps <= most"],
        "translate": {"scale": {"variant": "plain", "rename": {}}},
    }
    content["kernels"] = {"scale": first, "other": {**first, **more, "tables": dict(tables)}}
    return content


def times(rng: random.Random, repeats: int = 2, noise: float = 0.0) -> Table:
    speed = [rng.uniform(0.8, 1.3) for _ in CONFIGS]
    table = []
    for number, shape in enumerate(SHAPES):
        row = [10 * math.prod(shape) ** 0.3 * s * rng.choice((1, 1, 1.2)) for s in speed]
        missing = {k for k in range(len(row)) if rng.random() < 0.25} if rng.random() < 0.7 else set()
        for repeat in range(repeats):
            cells = [f"{t * math.exp(rng.gauss(0, noise)):.6g}" for t in row]
            cells = ["" if k in missing and k > 1 else cell for k, cell in enumerate(cells)]
            table.append([f"s{number:03}", str(repeat + 1), *cells])
    return table


def write(folder: Path, content: Content, table: Table) -> Path:
    (folder / "tables/t").mkdir(parents=True)
    header = run(tuple(CONFIGS), device={"name": "GPU", "arch": "a1"}, driver=content.pop("driver", "1"))
    (folder / "tables/t/run.yaml").write_text(yaml_text(header))
    rows = [[f"s{k:03}", *shape] for k, shape in enumerate(SHAPES) if any(r[0] == f"s{k:03}" for r in table)]
    (folder / "tables/t/scenarios.csv").write_text(csv_text(["scenario", *header["features"]], rows))
    ids = [config["id"] for config in CONFIGS]
    (folder / "tables/t/times.csv").write_text(csv_text(["scenario", "repeat", *ids], table))
    path = folder / "treegen.yaml"
    path.write_text(yaml_text(content))
    return path


def built(path: Path, rng: random.Random, previous: dict[tuple[str, str], Heuristic]) -> Spec:
    """A package whose rows were fitted, or are those of `previous`, or had their configs exchanged."""
    read = read_spec(path)
    modules, rows, table = [], {}, read_table(path.parent / "tables/t")
    for kernel in read.kernels.values():
        fresh: Heuristic | None = None  # the same for both GPUs, which differ in name alone
        rows[kernel.name] = {FALLBACK_DEVICE: stored(Heuristic(()), kernel)}
        for key in kernel.tables:
            problem = build_problem(kernel, read.devices[key], table)
            found = previous.get((kernel.name, key))
            known = {regime.name: regime.split_on for regime in kernel.regimes}
            if found is None or rng.random() < 0.5 or not _usable(found, known, kernel):
                fresh = found = fresh or fit(problem)
            previous[kernel.name, key] = found
            modules.append((kernel, read.devices[key], found))
            rows[kernel.name][key] = stored(found, kernel)
    lock = json.dumps({"rows": rows})
    write_files(read.output, {**emit_package(read, modules), LOCK: lock})
    return read


def _usable(found: Heuristic, known: dict[str, tuple[str, ...]], kernel: Any) -> bool:
    text = repr(found.regimes)
    asked = {name for name in ("area", "rows", "columns") if f"feature='{name}'" in text}
    classes = {entry.name for entry in kernel.classes}
    others = {name for regime in found.regimes for row in regime.rows for name in row.others}
    parameters = {tuple(n for n, _ in config.parameters) for config in found.configs}
    return (
        [*known] == [regime.name for regime in found.regimes]
        and all(asked <= set(split_on) for split_on in known.values())
        and others <= classes
        and parameters <= {tuple(kernel.parameters)}
    )


# Edits of the spec, then of the table.


def constraint(content: Content, table: Table, rng: random.Random) -> None:
    rule = rng.choice(["block * warps <= 96", "block >= 2 * heads", "area <= 64 * block", "warps <= 2"])
    content["kernels"]["other"]["constraints"] = [*content["kernels"]["other"]["constraints"], rule]


def a_class(content: Content, table: Table, rng: random.Random) -> None:
    bound = rng.choice([-5, 0, 1, 2, 4])
    content["kernels"]["other"]["classes"] = {
        "tiny": f"heads <= {bound}",
        "few": "heads <= 2",
        "many": "otherwise",
    }


def a_regime(content: Content, table: Table, rng: random.Random) -> None:
    content["kernels"]["other"]["regimes"]["short"]["when"] = f"rows <= {rng.choice([3, 5, 8])}"


def derived(content: Content, table: Table, rng: random.Random) -> None:
    kernel = content["kernels"][rng.choice(["scale", "other"])]
    kernel["derived"] = rng.choice([{"area": "columns * rows"}, {"area": "rows * columns + 1"}])


def unused(content: Content, table: Table, rng: random.Random) -> None:
    content["kernels"]["scale"]["derived"] = {"area": "rows * columns", "unused": "2 * heads"}


def other_fallback(content: Content, table: Table, rng: random.Random) -> None:
    chosen = {k: v for k, v in rng.choice(CONFIGS).items() if k != "id"}
    content["kernels"][rng.choice(["scale", "other"])]["fallback"] = chosen


def parameter(content: Content, table: Table, rng: random.Random) -> None:
    for kernel in content["kernels"].values():
        kernel["config"] = {
            "variants": ["plain"],
            "parameters": {"block": "B", "warps": "W", "more": {"letter": "X", "default": 3}},
        }


def renamed(content: Content, table: Table, rng: random.Random) -> None:
    kernels = content["kernels"]
    name = rng.choice([*kernels])
    content["kernels"] = {("new" if k == name else k): v for k, v in kernels.items()}
    content["kernels"]["new"]["translate"] = {"scale": {"variant": "plain", "rename": {}}}


def other_key(content: Content, table: Table, rng: random.Random) -> None:
    content["devices"] = {k.replace("gpu_a", "gpu_n"): v for k, v in content["devices"].items()}
    for kernel in content["kernels"].values():
        kernel["tables"] = {k.replace("gpu_a", "gpu_n"): v for k, v in kernel["tables"].items()}


def swapped(content: Content, table: Table, rng: random.Random) -> None:
    a, b = content["devices"].values()
    what = rng.choice(["names", "arch", "order"])
    if what == "order":
        first, second = content["devices"]
        content["devices"] = {second: {**b, "arch": a["arch"]}, first: a}
    else:
        a[what], b[what] = b[what], a[what]


def fewer_devices(content: Content, table: Table, rng: random.Random) -> None:
    for kernel in content["kernels"].values():
        kernel["tables"] = {"gpu_b": kernel["tables"]["gpu_b"]}


def arguments(content: Content, table: Table, rng: random.Random) -> None:
    kernel = content["kernels"]["scale"]
    if rng.random() < 0.5:
        kernel["features"] = ["columns", "rows", "heads"]
    else:
        kernel["constants"] = ["heads", "columns"]


def slower(content: Content, table: Table, rng: random.Random) -> None:
    column, by = rng.randrange(2, 7), rng.choice((0.7, 1.1, 3.0))
    for row in table:
        row[column] = f"{float(row[column]) * by:.6g}" if row[column] else ""
    content["driver"] = rng.choice(("1", "2"))


def fewer_scenarios(content: Content, table: Table, rng: random.Random) -> None:
    keep = {f"s{k:03}" for k in range(len(SHAPES)) if rng.random() < 0.7 or k < 3}
    table[:] = [row for row in table if row[0] in keep]


def failures(content: Content, table: Table, rng: random.Random) -> None:
    column = rng.randrange(3, 7)
    for row in table:
        row[column] = "inf" if int(row[0][1:]) % 4 == 0 else row[column]


EDITS: list[Edit] = [
    constraint,
    a_class,
    a_regime,
    derived,
    unused,
    other_fallback,
    parameter,
    renamed,
    other_key,
]
EDITS += [swapped, fewer_devices, arguments, slower, fewer_scenarios, failures]


class Both:
    """What the packages of two folders launch, by asking them."""

    def __init__(self, old: Path, new: Path) -> None:
        self.folders = old, new
        with ExitStack() as stack:
            self.packages = [self._imported(stack, folder) for folder in self.folders]
        self.medians: dict[str, dict[str, float]] = {}
        rows: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader((new / "tables/t/times.csv").open()):
            rows.setdefault(row["scenario"], []).append(row)
        for scenario, repeats in rows.items():
            for config in CONFIGS:
                cells = [row[config["id"]] for row in repeats if row[config["id"]]]
                known = {"inf": math.inf}
                numbers = [known.get(cell, 0.0) or float(cell) for cell in cells]
                if numbers:
                    middle = math.inf if math.inf in numbers else statistics.median(numbers)
                    self.medians.setdefault(scenario, {})[config["id"]] = middle

    def _imported(self, stack: ExitStack, folder: Path) -> dict[str, Any]:
        stack.enter_context(imported(folder))
        names = [path.parent.name for path in folder.glob("generated/*/config.py")]
        return {name: importlib.import_module(f"generated.{name}") for name in names}

    def scenarios(self) -> Iterator[tuple[str, dict[str, int]]]:
        for number, shape in enumerate(SHAPES):
            if f"s{number:03}" in self.medians:
                yield f"s{number:03}", dict(zip(("rows", "columns", "heads"), shape, strict=True))

    @staticmethod
    def id_of(config: Any) -> tuple[int, int]:
        return config.block, config.warps

    def time(self, scenario: str, config: tuple[int, int]) -> float | None:
        ids = [c["id"] for c in CONFIGS if (c["block"], c["warps"]) == config]
        return self.medians[scenario].get(ids[0]) if ids else None

    def pairs(self, old: Any, new: Any) -> dict[tuple[Any, Any], list[tuple[float | None, float | None]]]:
        found: dict[tuple[Any, Any], list[tuple[float | None, float | None]]] = {}
        for scenario, shape in self.scenarios():
            one, other = (self.id_of(choose(**shape)) for choose in (old, new))
            if one != other:
                found.setdefault((one, other), []).append(
                    (self.time(scenario, one), self.time(scenario, other))
                )
        return found

    def differ(self, old: Any, new: Any, shapes: list[dict[str, int]]) -> bool:
        return any(self.id_of(old(**shape)) != self.id_of(new(**shape)) for shape in shapes)


def ratio(times: list[tuple[float | None, float | None]]) -> float | None:
    both = [math.log(new / old) for old, new in times if old and new and math.isfinite(old + new)]
    return math.exp(statistics.fmean(both)) if both else None


@examples(40, shrink=False)
@given(st.integers(0, 1 << 30))
def test_every_sentence_agrees_with_the_packages(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("diff")
    content, table, previous = base(), times(rng), {}
    built(write(folder / "old", base(), table), rng, previous)
    edits = rng.sample(EDITS, rng.choice((1, 1, 2)))
    note(f"{[edit.__name__ for edit in edits]} in {folder}")
    table = [list(row) for row in table]
    for edit in edits:
        with suppress(KeyError):  # of a kernel that another edit has renamed
            edit(content, table, rng)
    try:
        built(write(folder / "new", content, table), rng, previous)
    except InputError as error:
        note(f"refused: {error}")
        return
    with ExitStack() as stack:
        sides = [read_snapshot(str(folder / name), None, stack) for name in ("old", "new")]
        diff = compare(*sides, THRESHOLD)
    judge(diff, Both(folder / "old", folder / "new"), rng)


def judge(diff: Diff, both: Both, rng: random.Random) -> None:
    old, new = both.packages
    shapes = [
        {
            name: rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 63, 64, 65, 512))
            for name in ("rows", "columns", "heads")
        }
        for _ in range(500)
    ]
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
    assert ("All modules launch the same" in said) <= (not differs and not gone and not moved)
    assert ("launches differently" in text) == any(m.kind is Kind.CHANGED for m in diff.modules)
    assert diff.regresses == any(
        module.regresses or (module.world is not None and module.world.contradicts) for module in diff.modules
    )
    assert (" regress" in said) <= any(m.lines for m in diff.modules)


def judge_module(found: ModuleChange, both: Both, chooses: list[Any], shapes: list[dict[str, int]]) -> bool:
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
    if found.kind in (Kind.SAME, Kind.TEXT):
        assert not elsewhere
    if found.kind is Kind.ELSEWHERE:
        assert found.example is not None and both.differ(*chooses, [dict(found.example)])
    return bool(pairs) or elsewhere


@examples(24, shrink=False)
@given(st.integers(0, 1 << 30))
def test_a_score_is_what_the_module_loses_by_the_table(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Over the best time of the configs that the constraints allow; without a time it counts as 2x slower."""
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("score")
    content, table = base(), times(rng, noise=0.02)
    for edit in rng.sample([constraint, a_class, other_fallback, failures], 2):
        edit(content, table, rng)
    try:
        read = built(write(folder, content, table), rng, fitted := {})
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
            known = [t for c, ok in zip(ids, allowed, strict=True) if ok and (t := both.time(scenario, c))]
            best, time = min(known), both.time(scenario, both.id_of(choose(**shape)))
            loss.append(math.log(time / best) if time and math.isfinite(time) else math.log(2))
        score = Score.of(problem, found).quality
        assert score.slowdown == pytest.approx(math.exp(statistics.fmean(loss)), rel=1e-5)
