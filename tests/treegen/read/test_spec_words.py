"""Unknown, missing and contradictory words of the spec: an error that names the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, KERNEL, error_of, line_of, spec, write_spec

from treegen.read.spec_file import read_spec

Spec = dict[str, Any]
Change = Callable[[Spec], object]
SECTIONS: dict[str, Callable[[Spec], Spec]] = {
    "root": lambda s: s,
    "device": lambda s: s["devices"][DEVICE],
    "limits": lambda s: s["devices"][DEVICE]["limits"],
    "kernel": lambda s: s["kernels"][KERNEL],
    "config": lambda s: s["kernels"][KERNEL]["config"],
    "fallback": lambda s: s["kernels"][KERNEL]["fallback"],
    "tree": lambda s: s["kernels"][KERNEL]["tree"],
    "translate": lambda s: s["kernels"][KERNEL]["translate"]["theirs"],
}


def _error(folder: Path, change: Change) -> tuple[str, str]:
    """The error after its path, and the text of the spec."""
    content = spec(
        config={"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}},
        translate={"theirs": {"variant": "plain", "rename": {"BLOCK": "block"}}},
    )
    change(content)
    path = write_spec(folder, content)
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:")
    return message.removeprefix(f"{path}:"), path.read_text()


def put(section: str, **values: Any) -> Change:
    return lambda s: SECTIONS[section](s).update(values)


def kernel(**values: Any) -> Change:
    return put("kernel", **values)


def parameters(**values: Any) -> Change:
    return put("config", parameters=values)


def parts(entry: Any) -> Change:
    return parameters(block="B", warps="W", parts=entry)


def bound(**changes: Any) -> Change:
    return kernel(constraints=[{"holds": "block >= heads", "variants": ["split"], **changes}])


@pytest.mark.parametrize("section", [section for section in SECTIONS if section != "limits"])
def test_an_unknown_word(tmp_path: Path, section: str) -> None:
    message, text = _error(tmp_path, put(section, surprise=1))
    assert message.startswith(f"{line_of(text, 'surprise')}: ")
    assert "unknown word 'surprise'; known here: " in message


MISSING = {
    "root": ["format", "output", "devices", "kernels"],
    "device": ["vendor"],
    "kernel": ["features", "config", "fallback", "tree", "tables"],
    "config": ["parameters"],
    "fallback": ["variant", "warps"],
    "tree": ["max_depth", "max_leaves"],
    "translate": ["variant", "rename"],
}


@pytest.mark.parametrize(("section", "word"), [(s, word) for s, words in MISSING.items() for word in words])
def test_a_missing_word(tmp_path: Path, section: str, word: str) -> None:
    assert _error(tmp_path, lambda s: SECTIONS[section](s).pop(word))[0].endswith(f"lacks '{word}'")


TAKEN, UNKNOWN = "is already taken", "unknown feature "
LETTERS, LAUNCH = "one to four capital letters", "must be between 0 and 2147483647, not "
PHRASE, COMPARISON = "is not a phrase", "must be one comparison"
LONG = 2**62 + 1

WRONG: list[tuple[Change, str | tuple[str, int], str]] = [
    (put("root", format=2), "format:", "must be 1"),
    (put("root", devices=["h100"]), "devices:", "must be a mapping"),
    (put("root", kernels={}), "kernels:", "names no kernel"),
    (put("root", kernels="scale"), "kernels:", "must be a mapping"),
    (lambda s: s["devices"].update(b="H100"), "b:", "must be a mapping"),
    (lambda s: s["devices"].update(default={"vendor": "x"}), "default:", "package uses itself"),
    (put("device", vendor=1), "vendor: 1", "must be text, not 1"),
    (put("device", arch=90), "arch: 90", "must be text, not 90"),
    (put("device", names="H100"), "names:", "must be a list"),
    (put("device", names=["a", "a"]), "names:", "names 'a' twice"),
    (
        lambda s: s["devices"].update(b={"vendor": "x", "names": ["NVIDIA H100"]}),
        "b:",
        "belongs to nvidia_h100",
    ),
    (put("limits", memory="48K"), " memory:", "must be an integer, not '48K'"),
    (put("limits", memory=4.5), " memory:", "must be an integer, not 4.5"),
    (put("limits", memory=LONG), " memory:", f"must be between -{LONG - 1} and {LONG - 1}, not {LONG}"),
    (put("limits", memory=-LONG), " memory:", f"not -{LONG}"),
    (put("limits", heads=4), "features:", TAKEN),
    (kernel(features=[]), "features:", "names no feature"),
    (kernel(features={"rows": 1}), "features:", "must be a list"),
    (kernel(features=["rows", "rows"]), "features:", "names 'rows' twice"),
    (kernel(features=[1]), "features:", "holds 1, which is not a word"),
    (kernel(derived=["area"]), "derived:", "must be a mapping"),
    (kernel(derived={"area": 5}), "area:", "must be text, not 5"),
    (kernel(derived={"rows": "heads"}), ("rows:", 1), TAKEN),
    (kernel(derived={"shared_memory": "rows"}), ("shared_m", 2), TAKEN),
    (lambda s: s["devices"].update(b={"vendor": "amd", "limits": {"area": 1}}), "area: r", TAKEN),
    (kernel(derived={"area": "area + 1"}), "area:", "unknown name 'area'"),
    (kernel(derived={"a": "b", "b": "rows"}), ("a: b", 1), "unknown name 'b'"),
    (kernel(derived={"a": "block"}), ("a: block", 1), "unknown name 'block'"),
    (kernel(split_on=["colour"]), "split_on:", UNKNOWN + "'colour'"),
    (kernel(split_on=["shared_memory"]), "split_on:", UNKNOWN + "'shared_memory'"),
    (kernel(split_on=["block"]), "split_on:", UNKNOWN + "'block'"),
    (kernel(split_on=["rows", "rows"]), "split_on:", "names 'rows' twice"),
    (kernel(trusted_as_measured=["size"]), "trusted_as", UNKNOWN + "'size'"),
    (kernel(trusted_as_measured="rows"), "trusted_as", "must be a list"),
    (put("config", variants=[]), "variants:", "needs at least one variant"),
    (parameters(), "variants:", "needs at least one variant and one parameter"),
    (parameters(rows="R"), "rows: R", TAKEN),
    (parameters(area="A"), "area: A", TAKEN),
    (parameters(shared_memory="S"), "shared_memory: S", TAKEN),
    (parameters(variant="V"), "variant: V", "package uses itself"),
    (parameters(block="B", warps="B"), "warps: B", "the letters B are taken"),
    (parameters(block="b"), "block: b", LETTERS),
    (parameters(block="B1"), "block: B1", LETTERS),
    (parameters(block=""), "block: ''", LETTERS),
    (parameters(block="BLOCK"), "block: BLOCK", LETTERS),
    (parameters(block="Β"), "block:", LETTERS),  # noqa: RUF001 - a Greek letter
    (parts({"default": 1}), "default: 1", "lacks 'letter'"),
    (parts({"letter": "N"}), "letter: N", "lacks 'default'"),
    (parts({"letter": "N", "default": 1, "most": 2}), "most: 2", "unknown word 'most'"),
    (parts({"letter": "n", "default": 1}), "parts:", LETTERS),
    (parts({"letter": 5, "default": 1}), "letter: 5", "must be text, not 5"),
    (parts({"letter": "B", "default": 1}), "parts:", "the letters B are taken"),
    (parts({"letter": "N", "default": -1}), "default: -1", LAUNCH + "-1"),
    (parts({"letter": "N", "default": 2**31}), "default: 21", LAUNCH + "2147483648"),
    (parts({"letter": "N", "default": None}), "default: null", "must be an integer, not None"),
    (parts(["N", 1]), "parts:", "must be text or a mapping, not ['N', 1]"),
    (kernel(constraints="block >= 1"), "constraints:", "must be a list"),
    (kernel(constraints=[5]), "constraints:", "holds 5"),
    (kernel(constraints=[["block >= heads"]]), "constraints:", "holds ['block >= heads']"),
    (kernel(constraints=["1 < 2", "1 < 2"]), "constraints:", "names '1 < 2' twice"),
    (kernel(constraints=["block > size"]), "- block > size", "unknown name 'size'"),
    (kernel(constraints=["block"]), ("- block", 1), COMPARISON),
    (kernel(constraints=["block == 2"]), "- block == 2", COMPARISON),
    (kernel(constraints=["1 < block < 9"]), "- 1 < block < 9", COMPARISON),
    (
        kernel(constraints=["1 < 2", "block >= heads.real"]),
        "heads.real",
        "'block >= heads.real' holds 'heads.",
    ),
    (kernel(constraints=[{"holds": "block >= 1"}]), "holds:", "lacks 'variants'"),
    (kernel(constraints=[{"variants": ["split"]}]), "- variants:", "lacks 'holds'"),
    (kernel(constraints=["1 < 2", {"holds": "1 < 2", "variants": ["split"]}]), "constraints:", "twice"),
    (bound(on=1), "on'", "unknown word 'on'; known here: holds, variants"),
    (bound(variants=["fast"]), ("variants:", 2), "unknown variant 'fast'; known here: plain, split"),
    (bound(variants=[]), ("variants:", 2), "names no variant"),
    (bound(holds=5), "holds: 5", "must be text, not 5"),
    (bound(holds="block >= size"), "holds: block", "unknown name 'size'"),
    (put("fallback", variant="fast"), "variant: fast", "unknown variant 'fast'"),
    (put("fallback", block="64"), "block: '64'", "must be an integer, not '64'"),
    (put("fallback", block=-64), "block: -64", LAUNCH + "-64"),
    (put("fallback", block=2**31), "block: 2147483648", LAUNCH),
    (put("tree", max_depth=0), "max_depth: 0", "must be between 1 and 32, not 0"),
    (put("tree", max_depth=33), "max_depth: 33", "must be between 1 and 32, not 33"),
    (put("tree", max_leaves=1025), "max_leaves: 1025", "must be between 1 and 1024"),
    (put("tree", max_leaves=0), "max_leaves: 0", "must be between 1 and 1024, not 0"),
    (put("tree", max_leaves=True), "max_leaves: true", "must be an integer, not True"),
    (put("tree", max_leaves=8.0), "max_leaves: 8.0", "must be an integer, not 8.0"),
    (kernel(tables={}), "tables:", "names no table"),
    (kernel(tables=["a"]), "tables:", "must be a mapping"),
    (kernel(tables={"a100": "t"}), "a100:", "unknown device 'a100'; known here: nvidia_h100"),
    (kernel(tables={DEVICE: 5}), "nvidia_h100: 5", "must be text, not 5"),
    (kernel(translate={"other": "plain"}), "other: plain", "must be a mapping"),
    (put("translate", variant="fast"), "variant: fast", "unknown variant 'fast'"),
    (put("translate", rename={"A": "b"}), "A: b", "unknown feature or parameter 'b'"),
    (put("translate", rename={"A": "shared_memory"}), "A: shared", "unknown feature or parameter"),
    (put("translate", rename={"A": "rows", "B": "rows"}), "B: rows", "already has another source"),
    (put("translate", constants={"block": 3}), "block: 3", UNKNOWN + "'block'; known here: rows"),
    (put("translate", rename={"A": "rows"}, constants={"rows": 3}), "rows: 3", "is renamed from a column"),
    (put("translate", constants={"rows": LONG}), "rows: 4", "must be between"),
    (kernel(words={"nothing": "x"}), "nothing", "unknown feature or parameter 'nothing'"),
    (kernel(words={"rows": "<b>bold</b>"}), "rows: <b>", PHRASE),
    (kernel(words={"rows": 5}), "rows: 5", "must be text, not 5"),
    (kernel(regimes={"a|b": "rows <= 1"}), "a|b", PHRASE),
    (kernel(regimes={"decode": "rows <= columns"}), "decode", "must compare one feature with an integer"),
    (kernel(regimes={"decode": "block <= 1"}), "decode", "unknown name 'block'"),
    (kernel(regimes={"decode": "rows == 1"}), "decode", COMPARISON),
    (kernel(hook="os:system"), "os:system", "is not a plain name"),
]


@pytest.mark.parametrize(("change", "needle", "says"), WRONG)
def test_a_wrong_word(tmp_path: Path, change: Change, needle: str | tuple[str, int], says: str) -> None:
    message, text = _error(tmp_path, change)
    line = line_of(text, needle) if isinstance(needle, str) else line_of(text, *needle)
    assert message.startswith(f"{line}: ") and says in message


def test_the_ends_of_ranges_are_accepted(tmp_path: Path) -> None:
    content = spec(tree={"max_depth": 32, "max_leaves": 1024, "leaf_price": 1, "config_price": 0})
    put("limits", memory=2**62, less=-(2**62))(content)
    put("fallback", block=2**31 - 1, warps=0)(content)
    read = read_spec(write_spec(tmp_path, content))
    assert read.devices[DEVICE].limits["memory"] == -read.devices[DEVICE].limits["less"] == 2**62
    budget = read.kernels[KERNEL].budget
    assert (budget.max_depth, budget.max_leaves, budget.leaf_price, budget.config_price) == (32, 1024, 1, 0)
    assert read.kernels[KERNEL].fallback.parameters == (("block", 2**31 - 1), ("warps", 0))


@pytest.mark.parametrize("needle", ["max_depth: 4", "output: generated", "vendor: nvidia", "block: 64"])
def test_a_number_too_long_to_print(tmp_path: Path, needle: str) -> None:
    path = write_spec(tmp_path)
    key = needle.split(":")[0]
    path.write_text(path.read_text().replace(needle, f"{key}: 0x{'f' * 5000}"))
    assert error_of(read_spec, path).startswith(f"{path}:{line_of(path.read_text(), key + ': 0x')}: ")


def test_no_spec(tmp_path: Path) -> None:
    assert error_of(read_spec, tmp_path / "none.yaml") == f"{tmp_path / 'none.yaml'}: no such file"
