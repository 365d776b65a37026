"""`treegen explain` as a command: what it refuses, its JSON, and text from outside."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from treegen_builders import (
    DEVICE,
    FEATURES,
    KERNEL,
    REPOSITORY,
    as_h100,
    build,
    grid,
    spec,
    winners,
    write_project,
    write_spec,
    write_winners,
)
from treegen_strategies import examples

from treegen.cli.main import main
from treegen.core.errors import InputError
from treegen.review.explain.explanation import explain
from treegen.review.explain.figures import figures_text
from treegen.review.explain.terminal import show_explanation
from treegen.review.explain.tuned_module import TunedModule, read_tuned_module

Explain = Callable[..., str]


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Explain:
    def text(path: Path, *words: str) -> str:
        capsys.readouterr()
        assert main(["explain", KERNEL, *words, "--spec", str(path)]) == 0
        return capsys.readouterr().out

    return text


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = write_project(tmp_path)
    assert build(path) == 0
    return path


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nothing", "rows=1"], "has no kernel 'nothing'; it has scale"),
        ([KERNEL, "rows=1", "--device", "amd"], "for the device 'amd'; there are: nvidia_h100"),
        ([KERNEL, "rows=1", "--top", "0"], "--top 0: must be at least 1"),
        ([KERNEL, "rows=4k"], "rows=4k: the value must be an integer"),
        ([KERNEL, "rows=1", "colums=1"], "'colums': unknown feature; known: rows, columns, heads"),
        ([KERNEL, "\x1b[31m=1"], "unknown feature"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    project: Path, refusal: Callable[..., str], words: list[str], what: str
) -> None:
    message = refusal(project.parent, "explain", "--spec", project, *words)
    assert what in message and message.isprintable()


def test_at_least_one_feature_must_be_given(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["explain", KERNEL, "--spec", str(project)])
    assert left.value.code == 2 and len(capsys.readouterr().err.splitlines()) == 1


def test_options_may_stand_before_the_features(project: Path, explained: Explain) -> None:
    assert explained(project, "--top", "1", "rows=8") == explained(project, "rows=8", "--top", "1")


def test_a_device_without_module_is_refused_by_name_and_passed_over_otherwise(
    tmp_path: Path, explained: Explain, refusal: Callable[..., str]
) -> None:
    content: dict[str, Any] = spec(tables={DEVICE: "tables/h100", "gpu_b": as_h100()})
    content["devices"]["gpu_b"] = {"names": ["B"], "vendor": "nvidia", "limits": {"shared_memory": 1}}
    path = write_project(tmp_path, content)
    assert build(path) == 0
    assert "scale on nvidia_h100" in (text := explained(path, "rows=8"))
    assert "other devices: gpu_b" in text
    (tmp_path / f"generated/{KERNEL}/{DEVICE}.py").unlink()
    assert "scale on gpu_b" in (text := explained(path, "rows=8"))
    assert "other devices" not in text
    message = refusal(tmp_path, "explain", KERNEL, "rows=8", "--device", DEVICE, "--spec", path)
    assert message.endswith(f"{DEVICE}.py: no such module; `treegen build` writes it")


def test_text_from_outside_is_neither_a_terminal_escape_nor_markup(
    tmp_path: Path, explained: Explain
) -> None:
    name = "GPU \x1b[2J\u202e[bold]x[/bold] :smile:"
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": name}})
    path = write_project(tmp_path, content, device={"name": name})
    assert build(path) == 0
    text = explained(path, "rows=8")
    assert "GPU \\x1b[2J\\u202e[bold]x[/bold] :smile:" in text
    assert all(line.isprintable() for line in text.splitlines())
    assert json.loads(explained(path, "rows=8", "--json"))["table"]["device_name"].startswith("GPU \x1b[2J")


def _keys(value: Any, place: str = "") -> set[str]:
    """Every key of nested objects, with dots; an object whose keys are names from the spec has none."""
    if isinstance(value, list):
        return set().union(*(_keys(item, place) for item in value)) if value else set()
    if not isinstance(value, Mapping):
        return set()
    if place.rpartition(".")[2] in ("values", "parameters", "region", "differs"):
        return set()
    named = {f"{place}.{name}".lstrip("."): item for name, item in value.items()}
    return set(named).union(*(_keys(item, name) for name, item in named.items()))


def _documented() -> set[str]:
    page = (REPOSITORY / "docs/explain.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \|", page[page.index("## JSON") :], flags=re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([a-z_.]+)`", row)}


def test_the_keys_of_the_json_are_those_documented(project: Path, explained: Explain) -> None:
    found = _keys(json.loads(explained(project, "rows=5", "columns=70", "heads=70", "--json")))
    found |= _keys(json.loads(explained(project, "rows=8", "--json")))
    nested = {
        "config": ["name", "variant", "parameters"],
        "time_us": ["value", "low", "high", "measured", "of"],
    }
    documented = _documented()
    for place in ("runners_up.config", "nearest.best"):
        found -= {f"{place}.{key}" for key in nested["config"]}
    for place in ("slowdown", "runners_up.ratio"):
        found -= {f"{place}.{key}" for key in nested["time_us"]}
    optional = {"outside.least", "outside.greatest", "outside.below", "outside.above"}
    optional |= {"outside.distance", "outside.usual", "outside.feature", "outside.value", "outside.kind"}
    assert found <= documented and documented - found <= optional


def test_json_and_text_agree(project: Path, explained: Explain) -> None:
    words = ("rows=8", "columns=64", "heads=2")
    text, figures = explained(project, *words), json.loads(explained(project, *words, "--json"))
    assert f"launches {figures['config']['name']}\n" in text
    assert figures["time_us"] == {"value": 20.0, "low": 20.0, "high": 20.0, "measured": True, "of": 2}
    assert "20.0 us, measured in" in text and figures["measured_scenario"] in text
    assert [runner["ratio"]["value"] for runner in figures["runners_up"]] == [1.25, 2.0]
    assert figures["nearest"][0]["scenario"] == figures["measured_scenario"]
    assert figures["nearest"][0]["slowdown"] == 1.0
    assert [step["answer"] for step in figures["path"]] == [
        step["value"] <= step["at_most"] for step in figures["path"]
    ]


def test_json_of_winners_has_no_times(tmp_path: Path, explained: Explain) -> None:
    write_winners(tmp_path / "tables/h100", shapes=grid(), times=winners)
    path = write_spec(tmp_path, spec())
    assert build(path) == 0
    figures = json.loads(explained(path, "rows=8", "--json"))
    assert figures["time_us"] is figures["slowdown"] is figures["runners_up"] is None
    assert {near["time_us"] for near in figures["nearest"]} == {None}
    assert {near["best_time_us"] for near in figures["nearest"]} == {None}
    assert figures["won_nearest"]["of"] == 9 and "winner" in figures["no_time"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TunedModule:
    path = write_project(tmp_path_factory.mktemp("built"))
    assert build(path) == 0
    return read_tuned_module(path, KERNEL, None)


@examples(60)
@given(st.dictionaries(st.sampled_from(FEATURES), st.integers(1 - 2**62, 2**62 - 1), min_size=1))
def test_any_integers_are_explained_or_refused_in_one_line(
    built: TunedModule, values: dict[str, int]
) -> None:
    try:
        found = explain(built, values, 2)
    except InputError as error:
        assert "grows beyond 62 bits" in str(error)
        return
    figures = json.loads(figures_text(found))
    assert all(figures["shape"]["values"][name] == value for name, value in values.items())
    out = io.StringIO()
    show_explanation(found, Console(file=out, width=100))
    assert f"launches {figures['config']['name']}" in out.getvalue()
    assert ("OUTSIDE" in out.getvalue()) == bool(figures["outside"])


def test_top_limits_runners_up_and_neighbours(project: Path, explained: Explain) -> None:
    figures = json.loads(explained(project, "rows=8", "--top", "1", "--json"))
    assert len(figures["runners_up"]) == len(figures["nearest"]) == 1
