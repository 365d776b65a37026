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


def _kernel(content: Spec) -> Spec:
    return content["kernels"][KERNEL]


def _error(folder: Path, change: Change) -> tuple[str, str, str]:
    """Message, its prefix up to the line number, and the text of the spec."""
    content = spec(translate={"theirs": {"variant": "plain", "rename": {"BLOCK": "block"}}})
    change(content)
    path = write_spec(folder, content)
    return error_of(read_spec, path), f"{path}:", path.read_text()


SECTIONS: dict[str, Callable[[Spec], Spec]] = {
    "root": lambda s: s,
    "device": lambda s: s["devices"][DEVICE],
    "kernel": _kernel,
    "config": lambda s: _kernel(s)["config"],
    "fallback": lambda s: _kernel(s)["fallback"],
    "tree": lambda s: _kernel(s)["tree"],
    "translate": lambda s: _kernel(s)["translate"]["theirs"],
}


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_word_is_named(tmp_path: Path, section: str) -> None:
    message, path, _ = _error(tmp_path, lambda s: SECTIONS[section](s).update(surprise=1))
    assert message.startswith(path) and "unknown word 'surprise'; known here: " in message


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_word_is_named_with_its_line(tmp_path: Path, section: str) -> None:
    message, path, text = _error(tmp_path, lambda s: SECTIONS[section](s).update(surprise=1))
    assert message.startswith(f"{path}{line_of(text, 'surprise')}: ")


MISSING = [
    ("root", "format"),
    ("root", "output"),
    ("root", "devices"),
    ("root", "kernels"),
    ("device", "vendor"),
    ("kernel", "features"),
    ("kernel", "config"),
    ("kernel", "fallback"),
    ("kernel", "tree"),
    ("kernel", "tables"),
    ("config", "variants"),
    ("config", "parameters"),
    ("fallback", "variant"),
    ("fallback", "warps"),
    ("tree", "max_depth"),
    ("tree", "max_leaves"),
    ("translate", "variant"),
    ("translate", "rename"),
]


@pytest.mark.parametrize(("section", "word"), MISSING)
def test_missing_word(tmp_path: Path, section: str, word: str) -> None:
    message, path, _ = _error(tmp_path, lambda s: SECTIONS[section](s).pop(word))
    assert message.startswith(path) and message.endswith(f"lacks '{word}'")


def _set(section: str, **values: Any) -> Change:
    return lambda s: SECTIONS[section](s).update(values)


def _limits(content: Spec, **limits: Any) -> None:
    content["devices"][DEVICE]["limits"] = limits


def _second_device(content: Spec, **fields: Any) -> None:
    content["devices"]["second"] = {"vendor": "nvidia", **fields}


def _parameters(**letters: Any) -> Change:
    return lambda s: _kernel(s)["config"].update(parameters=letters)


WRONG: list[tuple[str, Change, str | tuple[str, int], str]] = [
    ("format", _set("root", format=2), "format:", "must be 1"),
    ("devices as a list", _set("root", devices=["h100"]), "devices:", "must be a mapping"),
    ("no kernels", _set("root", kernels={}), "kernels:", "names no kernel"),
    ("kernels as text", _set("root", kernels="scale"), "kernels:", "must be a mapping"),
    ("device as text", lambda s: s["devices"].update(b="H100"), "b:", "must be a mapping"),
    (
        "device called default",
        lambda s: s["devices"].update(default={"vendor": "x"}),
        "default:",
        "package uses itself",
    ),
    (
        "device called config",
        lambda s: s["devices"].update(config={"vendor": "x"}),
        "config:",
        "package uses itself",
    ),
    ("vendor as a number", _set("device", vendor=1), "vendor: 1", "must be text, not 1"),
    ("arch as a number", _set("device", arch=90), "arch: 90", "must be text, not 90"),
    ("GPU names as text", _set("device", names="H100"), "names:", "must be a list"),
    ("GPU name twice", _set("device", names=["a", "a"]), "names:", "names 'a' twice"),
    (
        "GPU name of two devices",
        lambda s: _second_device(s, names=["NVIDIA H100"]),
        "second:",
        "the GPU name 'NVIDIA H100' already belongs to nvidia_h100",
    ),
    ("limit as text", lambda s: _limits(s, memory="48K"), "memory:", "must be an integer, not '48K'"),
    ("limit beyond 62 bits", lambda s: _limits(s, memory=2**62 + 1), "memory:", "must be between"),
    ("limit as a float", lambda s: _limits(s, memory=4.5), "memory:", "must be an integer, not 4.5"),
    ("no features", _set("kernel", features=[]), "features:", "names no feature"),
    ("features as a mapping", _set("kernel", features={"rows": 1}), "features:", "must be a list"),
    ("feature twice", _set("kernel", features=["rows", "rows"]), "features:", "names 'rows' twice"),
    ("derived as a list", _set("kernel", derived=["area"]), "derived:", "must be a mapping"),
    ("derived as a number", _set("kernel", derived={"area": 5}), "area:", "must be text, not 5"),
    (
        "derived under a feature's name",
        _set("kernel", derived={"rows": "heads"}),
        ("rows:", 1),
        "already taken",
    ),
    (
        "derived under a limit's name",
        _set("kernel", derived={"shared_memory": "rows"}),
        ("shared_m", 2),
        "already",
    ),
    ("derived from itself", _set("kernel", derived={"area": "area + 1"}), "area:", "unknown name 'area'"),
    (
        "derived from a later one",
        _set("kernel", derived={"a": "b", "b": "rows"}),
        ("a: b", 1),
        "unknown name 'b'",
    ),
    (
        "derived from a parameter",
        _set("kernel", derived={"a": "block"}),
        ("a: block", 1),
        "unknown name 'block'",
    ),
    ("split_on the unknown", _set("kernel", split_on=["colour"]), "split_on:", "unknown feature 'colour'"),
    (
        "split_on a limit",
        _set("kernel", split_on=["shared_memory"]),
        "split_on:",
        "unknown feature 'shared_mem",
    ),
    ("split_on a parameter", _set("kernel", split_on=["block"]), "split_on:", "unknown feature 'block'"),
    ("split_on twice", _set("kernel", split_on=["rows", "rows"]), "split_on:", "names 'rows' twice"),
    (
        "trust in the unknown",
        _set("kernel", trusted_as_measured=["size"]),
        "trusted_as",
        "unknown feature 'size'",
    ),
    (
        "trust in a limit",
        _set("kernel", trusted_as_measured=["shared_memory"]),
        "trusted_as",
        "unknown feature",
    ),
    ("trust as text", _set("kernel", trusted_as_measured="rows"), "trusted_as", "must be a list"),
    ("trust twice", _set("kernel", trusted_as_measured=["rows", "rows"]), "trusted_as", "names 'rows' twice"),
    ("no variants", _set("config", variants=[]), "variants:", "needs at least one variant"),
    ("no parameters", _parameters(), "variants:", "needs at least one variant and one parameter"),
    ("parameter under a feature's name", _parameters(rows="R"), "rows: R", "'rows' is already taken"),
    ("parameter under a derived name", _parameters(area="A"), "area: A", "'area' is already taken"),
    ("parameter under a limit's name", _parameters(shared_memory="S"), "shared_memory: S", "already taken"),
    ("parameter called variant", _parameters(variant="V"), "variant: V", "package uses itself"),
    ("letters taken", _parameters(block="B", warps="B"), "warps: B", "the letters B are taken"),
    ("letters in lower case", _parameters(block="b"), "block: b", "one to four capital letters"),
    ("letters with a digit", _parameters(block="B1"), "block: B1", "one to four capital letters"),
    ("no letters", _parameters(block=""), "block: ''", "one to four capital letters"),
    ("too many letters", _parameters(block="BLOCK"), "block: BLOCK", "one to four capital letters"),
    ("letters in Greek", _parameters(block="Β"), "block:", "one to four capital letters"),  # noqa: RUF001
    ("constraints as text", _set("kernel", constraints="block >= 1"), "constraints:", "must be a list"),
    ("constraint as a number", _set("kernel", constraints=[5]), "constraints:", "holds 5"),
    ("constraint twice", _set("kernel", constraints=["1 < 2", "1 < 2"]), "constraints:", "twice"),
    (
        "constraint on the unknown",
        _set("kernel", constraints=["block > size"]),
        "- block > size",
        "name 'size'",
    ),
    (
        "constraint that compares nothing",
        _set("kernel", constraints=["block"]),
        ("- block", 1),
        "one comparison",
    ),
    ("constraint by equality", _set("kernel", constraints=["block == 2"]), "- block == 2", "one comparison"),
    (
        "chained constraint",
        _set("kernel", constraints=["1 < block < 9"]),
        "- 1 < block < 9",
        "one comparison",
    ),
    (
        "fallback of an unknown variant",
        _set("fallback", variant="fast"),
        "variant: fast",
        "unknown variant 'fast'",
    ),
    (
        "fallback without an integer",
        _set("fallback", block="64"),
        "block: '64'",
        "must be an integer, not '64'",
    ),
    (
        "negative fallback",
        _set("fallback", block=-64),
        "block: -64",
        "must be between 0 and 2147483647, not -64",
    ),
    ("huge fallback", _set("fallback", block=2**31), "block: 2147483648", "must be between 0 and 2147483647"),
    ("no depth", _set("tree", max_depth=0), "max_depth: 0", "must be between 1 and 32, not 0"),
    ("negative depth", _set("tree", max_depth=-1), "max_depth: -1", "must be between 1 and 32, not -1"),
    ("too deep", _set("tree", max_depth=33), "max_depth: 33", "must be between 1 and 32, not 33"),
    ("too many leaves", _set("tree", max_leaves=1025), "max_leaves: 1025", "must be between 1 and 1024"),
    ("no leaves", _set("tree", max_leaves=0), "max_leaves: 0", "must be between 1 and 1024, not 0"),
    ("leaves as truth", _set("tree", max_leaves=True), "max_leaves: true", "must be an integer, not True"),
    ("leaves as a float", _set("tree", max_leaves=8.0), "max_leaves: 8.0", "must be an integer, not 8.0"),
    ("no tables", _set("kernel", tables={}), "tables:", "names no table"),
    ("tables as a list", _set("kernel", tables=["a"]), "tables:", "must be a mapping"),
    (
        "table of an unknown device",
        _set("kernel", tables={"a100": "t"}),
        "a100:",
        "unknown device 'a100'",
    ),
    ("table as a number", _set("kernel", tables={DEVICE: 5}), "nvidia_h100: 5", "must be text, not 5"),
    (
        "translation as text",
        _set("kernel", translate={"other": "plain"}),
        "other: plain",
        "must be a mapping",
    ),
    ("translated variant", _set("translate", variant="fast"), "variant: fast", "unknown variant 'fast'"),
    ("rename to nothing", _set("translate", rename={"A": "b"}), "A: b", "unknown feature or parameter 'b'"),
    (
        "rename to a limit",
        _set("translate", rename={"A": "shared_memory"}),
        "A: shared",
        "unknown feature or param",
    ),
    (
        "rename twice",
        _set("translate", rename={"A": "rows", "B": "rows"}),
        "B: rows",
        "already has another source",
    ),
]


@pytest.mark.parametrize(
    ("change", "needle", "says"), [case[1:] for case in WRONG], ids=[c[0] for c in WRONG]
)
def test_wrong_word(tmp_path: Path, change: Change, needle: str | tuple[str, int], says: str) -> None:
    message, path, text = _error(tmp_path, change)
    line = line_of(text, needle) if isinstance(needle, str) else line_of(text, *needle)
    assert message.startswith(f"{path}{line}: ") and says in message


def test_a_feature_under_a_limits_name(tmp_path: Path) -> None:
    message, path, _ = _error(tmp_path, lambda s: _limits(s, heads=4))
    assert message.startswith(path) and "heads" in message


@pytest.mark.parametrize("needle", ["max_depth: 4", "output: generated", "vendor: nvidia", "block: 64"])
def test_a_number_too_long_to_print(tmp_path: Path, needle: str) -> None:
    path = write_spec(tmp_path)
    key = needle.split(":")[0]
    path.write_text(path.read_text().replace(needle, f"{key}: 0x{'f' * 5000}"))
    assert error_of(read_spec, path).startswith(f"{path}:{line_of(path.read_text(), key + ': 0x')}: ")


def test_no_spec(tmp_path: Path) -> None:
    assert error_of(read_spec, tmp_path / "none.yaml") == f"{tmp_path / 'none.yaml'}: no such file"
