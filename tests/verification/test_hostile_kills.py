"""A few real kills (`python -m verification.hostile` makes hundreds), and what is noticed after one."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.hostile import folder as folders
from verification.hostile import kills
from verification.hostile.folder import Entry
from verification.hostile.project import OUTPUT


@pytest.mark.parametrize("number", [2, 6])
def test_a_build_that_is_killed(number: int) -> None:
    """At any moment, and while it writes: the default of a parameter changes, so the package is closed."""
    assert kills.kill(0, number).why == ""


FIRST, CONFIG, PACKAGE = (f"{OUTPUT}/scale/{name}.py" for name in ("first", "config", "__init__"))
OLD, NEW = "old", "new"
LEFT: dict[str, tuple[dict[str, bytes | str], str]] = {
    "half a file": ({FIRST: b'"""scale on first'}, "neither old nor new"),
    "a bystander": ({f"{OUTPUT}/notes.txt": b"yours"}, "neither old nor new"),
    "a table": ({"project/tables/measured/times.csv": b""}, "none of the build's"),
    "a new config with old modules": ({CONFIG: NEW}, "chooses neither as before nor as after"),
    "a new module that no lock knows": ({FIRST: NEW}, "the next build leaves another state"),
    "a file that nobody clears away": ({f"{OUTPUT}/litter": b""}, "neither old nor new"),
}


@pytest.mark.parametrize(("left", "says"), LEFT.values(), ids=LEFT)
def test_what_a_kill_must_not_leave(tmp_path: Path, left: dict[str, bytes | str], says: str) -> None:
    change = kills.change_of(2)
    known: dict[str, dict[str, Entry]] = {OLD: change.old, NEW: change.new}
    found = {name: known[text][name] if isinstance(text, str) else text for name, text in left.items()}
    folders.write(tmp_path, change.start | found)
    assert says in kills.looked_at(tmp_path, change).why


def test_what_a_kill_may_leave(tmp_path: Path) -> None:
    change = kills.change_of(2)
    folders.write(tmp_path, change.start | {f"{OUTPUT}/scale/.treegen-x": b"half"})
    assert kills.looked_at(tmp_path, change) == kills.Landed(kills.BEFORE)
