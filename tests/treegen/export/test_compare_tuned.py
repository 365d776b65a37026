"""`treegen diff old.json new.json`: where two tuned files of other projects launch different parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples
from tuned_files import BOUNDS, launched_by

from treegen.cli.main import main
from treegen.export.compare import changes

ENTRY = st.fixed_dictionaries({"BLOCK_SIZE_M": st.sampled_from([16, 64])}, optional={"num_warps": st.just(4)})
SIZES = st.dictionaries(st.integers(0, 40).map(str), ENTRY, min_size=1, max_size=6)
LEAST = st.dictionaries(st.sampled_from([f"M_LEQ_{b}" for b in BOUNDS[:6]]), ENTRY, max_size=3)
GREATEST = st.dictionaries(st.sampled_from([f"M_GEQ_{b}" for b in BOUNDS[:6]]), ENTRY, max_size=3)
AITER = st.tuples(LEAST, GREATEST, ENTRY).map(lambda parts: {**parts[0], **parts[1], "any": parts[2]})


@examples(200)
@given(st.one_of(SIZES, AITER), st.one_of(SIZES, AITER))
def test_each_size_is_in_the_range_of_its_change(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, Any], new: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    paths = folder / "old.json", folder / "new.json"
    for path, content in zip(paths, (old, new), strict=True):
        path.write_text(json.dumps(content))
    found = changes(*paths)
    for size in [*range(1, 70), 100_000]:
        before, after = launched_by(old, size), launched_by(new, size)
        differing = {n: (before.get(n), after.get(n)) for n in {**before, **after}}
        differing = {name: pair for name, pair in differing.items() if pair[0] != pair[1]}
        inside = [c.parameters for c in found if c.first <= size and (c.last is None or size <= c.last)]
        assert inside == ([differing] if differing else [])


def test_the_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small, large = {"BLOCK": 16, "num_warps": 4}, {"BLOCK": 64, "num_warps": 4}
    Path("old.json").write_text(json.dumps({"triton_version": "3.4.0", "1": small, "64": large}))
    Path("new.json").write_text(json.dumps({"1": small, "64": large, "96": {**large, "mod|ifier": "<b>"}}))
    assert main(["diff", "old.json", "new.json"]) == 0
    assert (
        capsys.readouterr().out
        == """\
### treegen diff: `old.json` to `new.json`

**Other parameters are launched in 1 range of M; elsewhere the same.** These files hold no times.

| M | mod&#124;ifier |
| --- | --- |
| 81 on | None -> '&#60;b>' |
"""
    )
    assert main(["diff", "old.json", "old.json"]) == 0
    assert "**The same is launched for every M.**" in capsys.readouterr().out
    assert main(["diff", "old.json", "new.json", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"][0]["first"] == 81


NO_TUNED_FILE = ["", "[]", "{}", '{"small": {}}', '{"1": 2}', '{"1": {}, "any": {}}', '{"M_LEQ_3": {}}']
NO_TUNED_FILE += ['{"M_GEQ_64": {}}']


@pytest.mark.parametrize("text", NO_TUNED_FILE)
def test_what_is_no_tuned_file(tmp_path: Path, text: str, refusal: Callable[..., str]) -> None:
    (tmp_path / "old.json").write_text('{"1": {}}')
    (tmp_path / "new.json").write_text(text)
    assert "new.json" in refusal(tmp_path, "diff", tmp_path / "old.json", tmp_path / "new.json")
