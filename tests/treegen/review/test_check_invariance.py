"""`invariant_to`: which specs are refused, what is built, and that the proof finds hidden dependence."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import (
    DEVICE,
    KERNEL,
    REPOSITORY,
    build,
    error_of,
    line_of,
    spec,
    write_project,
    write_spec,
)

from treegen.cli.main import main
from treegen.cli.parsers import FINE, FOUND
from treegen.read.spec import read_spec
from treegen.review.check.invariance import readings

STEPS = ["rows", "columns"]
CLASSES = {"few": "heads <= 2", "many": "otherwise"}


@pytest.mark.parametrize("features", [STEPS, ["columns"]])
def test_a_build_asks_about_no_other_feature_and_is_proved(
    features: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert build(write_project(tmp_path, spec(invariant_to=features, classes=CLASSES))) == 0
    text = Path(f"generated/{KERNEL}/{DEVICE}.py").read_text()
    assert ("if rows" in text) == ("rows" not in features)
    assert main(["check"]) == FINE
    assert "2 modules proved" in capsys.readouterr().out


def test_a_module_that_was_edited_is_a_problem_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert build(write_project(tmp_path, spec(invariant_to=STEPS))) == 0
    path = Path(f"generated/{KERNEL}/{DEVICE}.py")
    text = path.read_text()
    edited = text.replace(
        "        return steps[",
        "        if rows > 8:\n            return PLAIN_B64_W4\n        return steps[",
    )
    assert edited != text
    path.write_text(edited)
    assert main(["check"]) == FOUND
    assert f"    {path}:{line_of(edited, 'if rows > 8')}: rows " in capsys.readouterr().out


REFUSED = {
    "a tree": {"split_on": ["area"]},
    "a regime": {"regimes": {"few": "rows <= 8", "many": "otherwise"}},
    "a tree of a regime": {"regimes": {"every": {"when": "otherwise", "split_on": ["columns"]}}},
    "a constraint": {"constraints": ["block >= area"]},
    "a kernel": {"in_kernel": True},
}


@pytest.mark.parametrize("sections", REFUSED.values(), ids=REFUSED)
def test_a_spec_that_lets_a_feature_decide_is_refused(sections: dict[str, object], tmp_path: Path) -> None:
    text = error_of(read_spec, write_spec(tmp_path, spec(invariant_to=STEPS, **sections)))
    assert "invariant_to" in text and len(text.splitlines()) == 1


@pytest.mark.parametrize("name", ["heads", "area", "none"])
def test_only_raw_features_of_steps_can_be_named(name: str, tmp_path: Path) -> None:
    assert "invariant_to" in error_of(read_spec, write_spec(tmp_path, spec(invariant_to=[name])))


FREE = """
def for_model(heads):
    wide = heads > 8
    def step(rows, columns):
        return A if wide else B
    return step

def choose(*, rows, columns, heads):
    return for_model(heads)(rows, columns)
"""
DECIDING = {
    "a condition": "    if rows > 8: return A\n",
    "a condition on what follows from it": "    x = rows * 2\n    y = [x]\n    return A if y[0] > 8 else B\n",
    "what is returned": "    return [A, B][min(rows, 1)]\n",
    "a loop": "    for one in (A, B)[: rows]:\n        config = one\n    return config\n",
    "a comprehension": "    return [one for one in (A, B) if rows][0]\n",
    "a guard": "    match heads:\n        case _ if rows > 8: return A\n",
    "another name": "    return pick(rows)\ndef pick(n):\n    return A if n > 8 else B\n",
    "a keyword": "    return pick(n=rows)\ndef pick(*, n):\n    return A if n > 8 else B\n",
    "spread arguments": "    return pick(*[rows])\ndef pick(n):\n    return A if n > 8 else B\n",
    "all arguments": "    return pick(rows)\ndef pick(*n):\n    return A if n[0] > 8 else B\n",
    "a default": "    def pick(n=rows):\n        return A if n > 8 else B\n    return pick()\n",
    "a lambda": "    pick = lambda n: A if n > 8 else B\n    return pick(rows)\n",
    "a function of two names": "    return pick(rows)\npick = other\ndef pick(n): return A\n",
    "a returned function": "    return f(1)(rows)\ndef f(a):\n    def g(n): return n\n    return g\n",
    "one of two": "    return f(1)(rows)\ndef f(a): return g if a else A\ndef g(n): return A\n",
    "a list that grows": "    seen.append(rows)\n    return A if seen[0] else B\n",
    "a place in a list": "    seen[rows] = 1\n    return A if seen[0] else B\n",
    "an exception": "    try:\n        seen[rows]\n    except KeyError:\n        return A\n    return B\n",
    "eval": "    return eval('A if rows else B')\n",
    "a decorator": "    return A\n@wrap\ndef other(n): return n\n",
    "an assignment in a test": "    if (n := rows): return A\n",
    "a while": "    while rows: return A\n",
    "arguments of a step in another order": (
        "    return for_model(heads)(rows, columns)\n"
        "def for_model(heads):\n    def step(columns, rows): return A\n    return step\n"
    ),
    "another step": (
        "    return for_model(heads)(rows, columns)\ndef other(n, m): return A if n > 8 else B\n"
        "def for_model(heads):\n    if heads: return other\n"
        "    def step(rows, columns): return A\n    return step\n"
    ),
    "another for_model": (
        "    return for_model(heads)(rows, columns)\nfrom .config import other as for_model\n"
        "def for_model(heads):\n    def step(rows, columns): return A\n    return step\n"
    ),
}


def test_a_module_in_which_no_feature_decides_is_proved() -> None:
    assert not readings(FREE, STEPS)


@pytest.mark.parametrize("body", DECIDING.values(), ids=DECIDING)
def test_dependence_is_found_wherever_it_hides(body: str) -> None:
    assert readings(f"def choose(rows, columns, heads):\n{body}", STEPS)


@pytest.mark.parametrize("feature", ["num_seqs", "num_query_tokens", "max_query_len", "max_seq_len"])
def test_every_feature_that_our_trees_ask_about_is_found(feature: str) -> None:
    text = (REPOSITORY / "generated/unified_attention/nvidia_h100.py").read_text()
    found = readings(text, [feature])
    assert found and {name for _, name, _ in found} == {feature}
