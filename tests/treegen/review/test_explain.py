"""`treegen explain`: the way through the tree, what would change the config, and what it prints."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import (
    DEVICE,
    KERNEL,
    SIDES,
    build,
    golden,
    planted,
    spec,
    winners,
    write_project,
    write_spec,
    write_winners,
)
from treegen_strategies import examples

from treegen.cli.main import main
from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, choose
from treegen.core.problem import broken_invariant
from treegen.review.explain import alternatives, candidates, choice_of, complete
from treegen.write.modules import read_module_and_table

GOLDEN = Path(__file__).parent / "golden"
SHAPES = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 8)]
SECTIONS = {
    "regimes": {
        "thin": {"when": "columns <= 1", "split_on": ["rows"]},
        "thick": {"when": "otherwise", "split_on": ["area"]},
    },
    "classes": {"few": "heads <= 4", "many": "otherwise"},
    "invariants": ["rows <= 1000 * columns"],
}


@pytest.fixture
def explained(capsys):
    def text(path, *words):
        capsys.readouterr()
        assert main(["explain", KERNEL, *words, "--spec", str(path)]) == 0
        return capsys.readouterr().out

    return text


def _times(row):
    """Work makes `planted` slower; medium was timed in small shapes only."""
    narrow, medium, wide = (time * (1 + row[0] * row[1] / 1000) for time in planted(row))
    return [round(narrow, 2), round(medium, 2) if row[0] <= 8 else "", round(wide, 2)]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    path = write_project(tmp_path_factory.mktemp("measured"), spec(**SECTIONS), shapes=SHAPES, times=_times)
    assert build(path) == 0
    return path


@pytest.fixture(scope="module")
def tuned(project):
    return read_module_and_table(project, KERNEL, DEVICE)


def test_the_text(project, tmp_path, explained):
    """Of a measured shape, one outside the tuned ones with a feature of a scenario, and by winners."""
    write_winners(tmp_path / "tables/h100", shapes=SHAPES, times=winners)
    won = write_spec(tmp_path, spec(**SECTIONS))
    assert build(won) == 0
    for path, name, words in (
        (project, "measured", ["rows=8", "columns=64", "heads=2"]),
        (project, "outside", ["rows=8", "heads=20"]),
        (won, "winners", ["rows=8", "columns=32", "heads=2"]),
    ):
        text = explained(path, *words, "--top", "2")
        assert text == golden(GOLDEN / f"explain_{name}.txt", text)


def _with(tuned, *regimes):
    return replace(tuned, module=replace(tuned.module, heuristic=Heuristic(regimes)))


def _planned(tuned):
    narrow, medium, wide = tuned.problem.configs
    small, large = Row(narrow, {"many": medium}, (wide,)), Row(wide, {"many": narrow}, (medium,))
    thick = Split("area", 64, Split("rows", 3, 0, 1), 1)
    return _with(tuned, RegimeRows("thin", 0, (small,)), RegimeRows("thick", thick, (small, large)))


any_shape = st.fixed_dictionaries(
    {"rows": st.integers(1, 99), "columns": st.integers(1, 99), "heads": st.integers(1, 150)}
)


@examples(100)
@given(any_shape)
def test_the_first_candidate_that_fits_is_launched(tuned, known):
    """The only constraint is block >= heads."""
    planned, values = _planned(tuned), complete(known, tuned.problem).values
    choice = choice_of(planned, values)
    tried = list(candidates(planned, choice, values))
    for one in tried:
        fits = int(one["config"].split("_")[1][1:]) >= known["heads"] or one["role"] == "fallback"
        assert fits == (not one["broken"]) and all(f">= {known['heads']}" in text for text in one["broken"])
    first = next(one["config"] for one in tried if not one["broken"])
    assert first == tuned.problem.kernel.constant_name(choice.config)
    roles = ["row", "runner-up", "fallback"]
    assert [one["role"] for one in tried] == (roles if known["heads"] <= 4 else ["class many", *roles])


@examples(60)
@given(any_shape)
def test_an_alternative_is_the_nearest_other_value(tuned, known):
    """Against every value of every feature, on either side."""
    problem, planned = tuned.problem, _planned(tuned)
    kernel, limits = problem.kernel, problem.device.limits
    values = complete(known, problem).values
    choice = choice_of(planned, values)
    found = alternatives(planned, choice, values)
    assert [one["distance"] for one in found] == sorted(one["distance"] for one in found)

    def differs(name, value):
        there = {**(values if name == "area" else known), name: value}
        possible = broken_invariant(kernel, problem.device, there) is None
        return possible and choose(planned.module.heuristic, kernel, limits, there).config != choice.config

    expected = set()
    for name, value in values.items():
        if name != "area" or choice.regime.name == "thick":
            for side in (range(value + 1, 300), range(value - 1, -1, -1)):
                expected |= {(name, next((v for v in side if differs(name, v)), None))}
    found_values = {(one["feature"], one["value"]) for one in found}
    assert found_values == {pair for pair in expected if pair[1] is not None}


def test_a_module_that_is_missing(tmp_path, explained, refusal):
    content = spec({"gpu_b": {"names": ["B"], "vendor": "nvidia", "limits": {"shared_memory": 1}}})
    path = write_project(tmp_path, content)
    assert build(path) == 0
    assert json.loads(explained(path, "rows=8", "--json"))["other_devices"] == ["gpu_b"]
    (tmp_path / f"generated/{KERNEL}/{DEVICE}.py").unlink()
    assert json.loads(explained(path, "rows=8", "--json"))["device"] == "gpu_b"
    message = refusal(tmp_path, "explain", KERNEL, "rows=8", "--device", DEVICE, "--spec", path)
    assert f"{DEVICE}.py" in message


def test_wrong_use_is_one_line_and_writes_nothing(project, refusal):
    for words, named in (
        (["nothing", "rows=1"], "nothing"),
        ([KERNEL, "rows=1", "--device", "amd"], "amd"),
        ([KERNEL, "rows=1", "--top", "0"], "--top 0"),
        ([KERNEL, "rows=4k"], "rows=4k"),
        ([KERNEL, "rows=1", "colums=1"], "colums"),
        ([KERNEL, "\x1b[31m=1"], "\\x1b[31m"),
    ):
        message = refusal(project.parent, "explain", "--spec", project, *words)
        assert named in message and message.isprintable()


def test_text_from_outside_is_no_escape_and_no_markup(tmp_path, explained):
    name = "GPU \x1b[2J\u202e[bold]x[/bold] :smile:"
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": name}})
    path = write_project(tmp_path, content, device={"name": name})
    assert build(path) == 0
    text = explained(path, "rows=8")
    assert "GPU \\x1b[2J\\u202e[bold]x[/bold] :smile:" in text
    assert all(line.isprintable() for line in text.splitlines())
