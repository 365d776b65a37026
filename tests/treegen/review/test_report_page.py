"""treegen report: the page, refusals, and that the page loads nothing and escapes everything."""

from __future__ import annotations

import html
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("matplotlib")

from treegen_builders import (
    DEVICE,
    Row,
    build,
    contents,
    planted,
    spec,
    write_project,
    write_table,
    write_winners,
)

from treegen.cli.main import main
from treegen.review.report.command import run
from treegen.review.tables import EvalSettings

Refuse = Callable[..., str]
HOSTILE = """<script>alert("1")</script>&amp;'$\\frac{1}{2}$ {{ 7 * 7 }}"""
SHAPES: list[Row] = [(1 << a, 1 << b, 2) for a in range(9) for b in range(9)]
WINNERS = "amd_mi300x"


def _noisy(row: Row) -> list[float]:
    """`planted`, but in one scenario `wide` takes 26 us, and `medium` 25."""
    times = planted(row)
    return [time * (1.3 if row == (256, 256, 2) and column == 2 else 1) for column, time in enumerate(times)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured H100 and a MI300X of which only the winners are known, built."""
    folder = tmp_path_factory.mktemp("report")
    content = spec(
        tables={DEVICE: "tables/h100", WINNERS: "tables/mi300x"},
        words={"area": "cells", "rows": "row count"},
        regimes={"low": "rows <= 8", "high": "rows > 8"},
    )
    mi300x = {"names": ["AMD Instinct MI300X"], "vendor": "amd", "limits": {"shared_memory": 65536}}
    content["devices"][WINNERS] = mi300x
    write_winners(folder / "tables/mi300x", shapes=SHAPES, device={"name": "AMD Instinct MI300X"})
    path = write_project(folder, content, shapes=SHAPES, times=_noisy)
    assert build(path) == 0
    return path


@pytest.fixture
def copy(project: Path, tmp_path: Path) -> Path:
    shutil.copytree(project.parent, tmp_path / "copy")
    return tmp_path / "copy" / project.name


def _page(path: Path, images: Path | None = None, **options: Any) -> str:
    out = path.parent / "out" / "report.html"
    run(EvalSettings(path, **{"jobs": 1, **options}), out, images)
    return out.read_text()


class _Reader(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.text = " ".join(self.text.split()).replace("\N{MULTIPLICATION SIGN}", "x")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


@pytest.fixture(scope="module")
def page(project: Path) -> _Reader:
    return _Reader(_page(project))


def _section(page: _Reader, device: str) -> str:
    """The text of a device's section."""
    parts = re.split(r"(?=scale on \w+ (?:Takes|Launches))", page.text)
    return next(part for part in parts if part.startswith(f"scale on {device} "))


def test_the_headline_and_the_slowest_choices(page: _Reader) -> None:
    # 80 choices are the best; one takes 26 us where 25 us are possible.
    text = _section(page, DEVICE)
    assert "Takes 1.000x the best measured time on average over 81 scenarios;" in text
    assert "95% of them stay within 1.00x, the worst takes 1.04x." in text
    assert "s081 high, row count 256, columns 256" in text
    assert re.search(r"PLAIN_B128_W8 26 ■?●? ?PLAIN_B64_W4 25 1\.04x", text)


def test_it_draws_the_tree_with_counts_and_guards(page: _Reader) -> None:
    area = [rows * columns for rows, columns, _ in SHAPES]
    few = sum(a <= 64 for a in area)
    text = _section(page, DEVICE)
    assert re.search(
        rf"cells up to \d+ ● PLAIN_B16_W2 {few} 1\.000x cells over \d+ ● PLAIN_B128_W8 {81 - few} ", text
    )
    assert "Outside what was tuned: heads over" in text


def test_fitted_and_held_out_figures_are_labelled(page: _Reader) -> None:
    text = _section(page, DEVICE)
    for label in (
        "geometric mean, fitted",
        "geometric mean, held out",
        "95% stay within, fitted",
        "worst, fitted",
    ):
        assert label in text
    assert "this module scored by the table it is built from: fitted, not held out" in text


def test_a_table_of_winners_shows_no_slowdown(page: _Reader) -> None:
    text = _section(page, WINNERS)
    assert "Launches the measured winner in 100.0% of 81 scenarios." in text
    assert "holds only the fastest config of each scenario" in text
    assert not re.search(r"\d\.\d+x", text)
    assert "How far from the best" not in text


def test_it_says_how_much_was_measured(page: _Reader) -> None:
    assert "243 of 243 cells were timed (100.0%)." in _section(page, DEVICE)
    assert "81 of 243 cells hold a time" in _section(page, WINNERS)
    assert "row count rows 1 256 9 …" in page.text and "heads heads 2 2 1 2" in page.text


def test_every_link_has_a_target_and_ids_are_unique(page: _Reader) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    links = {str(attributes["href"]) for _, attributes in page.tags if "href" in attributes}
    assert len(ids) == len(set(ids))
    assert links and all(link.startswith("#") and link[1:] in ids for link in links)


def test_it_loads_nothing_and_runs_nothing(page: _Reader) -> None:
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "image"}
    for _, attributes in page.tags:
        assert not set(attributes) & {"src", "srcset", "action", "onload", "onerror", "onclick"}
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def test_nothing_from_a_table_is_markup(copy: Path, page: _Reader) -> None:
    run = {"device": {"name": HOSTILE}, "timing": HOSTILE, "driver": HOSTILE, "date": HOSTILE}
    write_table(copy.parent / "tables/h100", shapes=SHAPES, times=_noisy, **run)
    content = yaml.safe_load(copy.read_text())
    content["kernels"]["scale"]["tables"][DEVICE] = {"folder": "tables/h100", "measured_on": HOSTILE}
    copy.write_text(yaml.safe_dump(content))
    text = _page(copy)
    found = _Reader(text)
    assert found.text.count(" ".join(HOSTILE.split())) == 4
    assert "<script" not in text and text.count(html.escape("<script>")) == 4
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in page.tags}


def test_the_same_input_gives_the_same_bytes(project: Path, tmp_path: Path) -> None:
    images = [tmp_path / name for name in ("one", "two")]
    pages = [_page(project, images=folder, jobs=jobs) for folder, jobs in zip(images, (1, 2), strict=True)]
    assert pages[0] == pages[1]
    assert contents(images[0]) == contents(images[1])
    assert sorted(contents(images[0])) == [f"report_{WINNERS}.png", f"report_{DEVICE}.png"]
    for content in contents(images[0]).values():
        assert (
            content is not None
            and content.startswith(b"\x89PNG")
            and content.count(b"Software\0treegen report") == 1
        )


def test_a_config_has_one_colour_whatever_is_reported(project: Path, page: _Reader) -> None:
    def colours(text: str) -> set[tuple[str, str]]:
        chip = r'style="color:var\((--k0c\d+)\)">.</span>(\w+)</span>'
        return {(name, variable) for variable, name in re.findall(chip, text)}

    every, one = colours(_page(project)), colours(_page(project, device=DEVICE))
    assert one <= every and len({name for name, _ in every}) == len(every) >= 2


def test_the_command_writes_a_page_and_replaces_it(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.touch()
    options = ["--kernel", "scale", "--device", WINNERS, "--out", out]
    for _ in range(2):
        assert main(["report", "--spec", str(project), *map(str, options)]) == 0
    assert sorted(contents(tmp_path)) == ["page.html"]
    assert f"scale on {DEVICE}" not in out.read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kernel", "other"], "has no kernel 'other'; it has scale"),
        (["--device", "tpu"], "for the device 'tpu'; there are: nvidia_h100, amd_mi300x"),
        (["--out", "tables"], "tables: is a folder, but a file belongs there"),
        (["--png", "treegen.yaml"], "is a file, but a folder belongs there"),
        (["--out", "treegen.yaml"], "treegen.yaml: was not written by `treegen report`; remove it, or write"),
        (["--out", "tables/h100/times.csv"], "times.csv: was not written by `treegen report`; remove it"),
        (["--out", f"generated/scale/{DEVICE}.py"], f"{DEVICE}.py: was not written by `treegen report`"),
        (["--out", "/dev/null"], "/dev/null: is not an ordinary file, so nothing is written there"),
        (["--png", "drawings"], f"report_{DEVICE}.png: was not written by `treegen report`"),
    ],
)
def test_refusals(
    copy: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(copy.parent)
    Path("drawings").mkdir()
    Path(f"drawings/report_{DEVICE}.png").write_bytes(b"\x89PNG\r\n of another program")
    assert says in refusal(copy.parent, "report", *options)


def test_a_missing_module_is_refused(copy: Path, refusal: Refuse) -> None:
    (copy.parent / f"generated/scale/{DEVICE}.py").unlink()
    line = refusal(copy.parent, "report", "--spec", copy, "--out", copy.parent / "report.html")
    assert line.endswith(f"{DEVICE}.py: no such module; run `treegen build`")


def test_a_module_that_splits_on_a_feature_not_in_the_table_is_refused(
    tmp_path: Path, refusal: Refuse
) -> None:
    content = spec(constraints=[])
    content["kernels"]["scale"]["features"].append("depth")
    path = write_project(tmp_path, content, shapes=SHAPES)
    assert build(path) == 0
    module = tmp_path / f"generated/scale/{DEVICE}.py"
    split = re.sub(r"(    area = .*\n)?    if area <= (\d+):", r"    if depth <= \2:", module.read_text())
    module.write_text(split)
    line = refusal(tmp_path, "report", "--spec", path, "--out", tmp_path / "report.html")
    assert f"splits on depth, which {tmp_path / 'tables/h100'} does not hold" in line


def test_without_matplotlib_it_is_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refuse
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = refusal(project.parent, "report", "--spec", project, "--out", project.parent / "other.html")
    assert line.startswith("needs matplotlib: pip install 'attn-kernels[")
