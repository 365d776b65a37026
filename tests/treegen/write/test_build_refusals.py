"""Broken input: status 2, exactly one line on stderr, not a byte changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from treegen_builders import build, line_of, spec, treegen_command, write_project, write_table

Refuse = Callable[..., str]


def _append(name: str, text: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        with (folder / name).open("a") as out:
            out.write(text)

    return damage


def _replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return damage


TABLE = "tables/h100"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "unknown word": (_append("treegen.yaml", "colour: red\n"), "unknown word 'colour'"),
    "spec is no YAML": (_append("treegen.yaml", "][\n"), "not valid YAML"),
    "empty spec": (lambda f: (f / "treegen.yaml").write_text(""), "must hold a mapping"),
    "no table": (_replace("treegen.yaml", TABLE, "tables/none"), "no such table folder"),
    "table is a file": (_replace("treegen.yaml", TABLE, "treegen.yaml"), "no such table folder"),
    "row cut off": (_append(f"{TABLE}/times.csv", "s001,3,1"), "cut off"),
    "row with text": (_append(f"{TABLE}/times.csv", "s001,3,1,2,fast\n"), "'fast'"),
    "scenario twice": (_append(f"{TABLE}/scenarios.csv", "s001,1,1,1\n"), "already in line 2"),
    "no times": (lambda f: (f / TABLE / "times.csv").unlink(), "no such file"),
    "run is a list": (lambda f: (f / TABLE / "run.yaml").write_text("[]\n"), "must hold a mapping"),
    "other features": (
        lambda f: write_table(f / TABLE, features=["a", "b", "c"]),
        "has a column a, which is no feature of scale, and none for rows",
    ),
    "other parameters": (
        lambda f: write_table(
            f / TABLE, configs=[{"id": "a", "variant": "plain", "warps": 1}], times=lambda shape: [1]
        ),
        "lacks the parameter block",
    ),
    "constraint without a bound": (
        _replace("treegen.yaml", "block >= heads", "block >= heads * rows"),
        "ties heads",
    ),
    "line break in a name": (_append("treegen.yaml", '"a\\nb": 1\n'), "unknown word 'a\\nb'"),
    "terminal escape in a name": (_append("treegen.yaml", '"\\e[2J": 1\n'), "unknown word '\\x1b[2J'"),
}


@pytest.mark.parametrize("check", [[], ["--check"]], ids=["build", "check"])
@pytest.mark.parametrize(("damage", "says"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_input(
    tmp_path: Path, refusal: Refuse, damage: Callable[[Path], object], says: str, check: list[str]
) -> None:
    path = write_project(tmp_path)
    damage(tmp_path)
    line = refusal(tmp_path, "build", "--spec", path, *check)
    assert says in line and line.isprintable()


def test_one_bad_table_among_good_ones_stops_all(tmp_path: Path, refusal: Refuse) -> None:
    content = spec(tables={"nvidia_h100": TABLE, "second": "tables/second"})
    content["devices"]["second"] = {"vendor": "nvidia"}
    path = write_project(tmp_path, content)
    write_table(tmp_path / "tables/second", rows=[["s001", 1, 0, 1, 1]])
    assert f"{tmp_path}/tables/second/times.csv:2: " in refusal(tmp_path, "build", "--spec", path)


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = write_project(tmp_path)
    _replace("treegen.yaml", "max_depth: 4", "max_depth: deep")(tmp_path)
    done = treegen_command("build", cwd=tmp_path)
    line = line_of(path.read_text(), "max_depth")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        f"treegen: treegen.yaml:{line}: kernels.scale.tree.max_depth: must be an integer, not 'deep'\n"
    )
    assert not (tmp_path / "generated").exists()


@pytest.mark.parametrize("key", ["output", "table", "--output", "--spec"])
def test_a_file_name_too_long(tmp_path: Path, refusal: Refuse, key: str) -> None:
    name = "a" * 300
    content = {**spec(), "output": name} if key == "output" else spec(tables={"nvidia_h100": name})
    path = write_project(tmp_path, content if key in ("output", "table") else None)
    options = {"--output": ["--output", tmp_path / name], "--spec": ["--spec", tmp_path / name]}
    refusal(tmp_path, "build", "--spec", path, *options.get(key, []))


@pytest.mark.parametrize("arguments", [[], ["--spec", "none.yaml"]])
def test_no_spec(
    tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no such spec; name one with --spec FILE" in refusal(tmp_path, "build", *arguments)


@pytest.mark.parametrize(
    ("obstacle", "arguments", "says"),
    [
        (None, ["--output", "a\0b"], "'a\\x00b': "),
        ("generated", [], "generated: is a file, but a folder belongs there"),
        ("generated/scale", [], "generated/scale: is a file, but a folder belongs there"),
        ("generated/scale/config.py/inside", [], "config.py: is a folder, but a file belongs there"),
        (None, ["--spec", "."], "no such spec"),
    ],
)
def test_paths_that_cannot_be_used(
    tmp_path: Path,
    refusal: Refuse,
    monkeypatch: pytest.MonkeyPatch,
    obstacle: str | None,
    arguments: list[str],
    says: str,
) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    if obstacle:
        (tmp_path / obstacle).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / obstacle).write_text("mine")
    assert says in refusal(tmp_path, "build", *arguments)


def test_damage_after_a_build_leaves_the_build(tmp_path: Path, refusal: Refuse) -> None:
    path = write_project(tmp_path)
    assert build(path) == 0
    _append(f"{TABLE}/times.csv", "s001,3,1,2,fast\n")(tmp_path)
    assert f"{tmp_path / TABLE / 'times.csv'}:20: " in refusal(tmp_path, "build", "--spec", path)
