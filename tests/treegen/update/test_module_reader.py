"""Reading a module undoes printing it; whatever is not printed so is refused at its line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_builders import DEVICE, REPOSITORY, device_and_kernel, imported, line_of
from treegen_strategies import any_integer, examples, expressions, near_thresholds

from treegen.core import expr
from treegen.core.spec import Config, KernelSpec, Parameter
from treegen.core.tree import Leaf, Split, Tree, choose
from treegen.emit.python import device_module
from treegen.read.spec_file import read_spec
from treegen.update.module_reader import MAX_CHARACTERS, UnreadableModule, read_module

PATH = Path("old/module.py")
FEATURES = ("rows", "columns")
LIMIT = "heads"  # of what `expressions` are over, a name that is no feature here


def _without_gaps(tree: Tree) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    return Split(tree.feature, tree.threshold, _without_gaps(tree.low), _without_gaps(tree.high))


def _refusal(text: str, kernel: KernelSpec, **limits: int) -> tuple[int, str]:
    with pytest.raises(UnreadableModule) as caught:
        read_module(text, kernel, PATH, limits)
    assert caught.value.__suppress_context__  # nothing of Python's parser is shown with it
    message = str(caught.value)
    assert message.startswith(f"{PATH}:{caught.value.line}: ") and message.isprintable()
    assert 1 <= caught.value.line <= text.count("\n") + 1
    return caught.value.line, message.split(": ", 1)[1]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> KernelSpec:
    derived = {
        "area": "rows * columns",
        "share": "area // max(1, heads)",
        "padded": "next_power_of_2(columns) - share",
        "room": "max(shared_memory - area, -shared_memory)",
    }
    config = {
        "variants": ["plain", "split"],
        "parameters": {"block": "B", "parts": {"letter": "N", "default": 1}, "warps": "W"},
    }
    folder = tmp_path_factory.mktemp("spec")
    return device_and_kernel(folder, derived=derived, config=config, constraints=[])[1]


# Whatever tree and spec


@st.composite
def kernels(draw: st.DrawFn, base: KernelSpec) -> KernelSpec:
    """A kernel over FEATURES with up to four derived features, which may use LIMIT and one another."""
    derived: dict[str, expr.Expression] = {}
    for position in range(draw(st.integers(0, 4))):
        expression = draw(expressions())
        if derived and draw(st.booleans()):
            earlier = expr.Name(draw(st.sampled_from(sorted(derived))))
            expression = expr.Call(draw(st.sampled_from(["+", "-", "min"])), (expression, earlier))
        derived[f"d{position}"] = expression
    names = draw(st.permutations(["block", "warps", "stages"]))
    defaults = [draw(st.one_of(st.none(), st.integers(0, 3))) for _ in names]
    parameters = {
        name: Parameter(name[0].upper(), default) for name, default in zip(names, defaults, strict=True)
    }
    variants = ("plain", "split", "naive")[: draw(st.integers(1, 3))]
    return dataclasses.replace(
        base, features=FEATURES, derived=derived, variants=variants, parameters=parameters
    )


def trees(kernel: KernelSpec) -> st.SearchStrategy[Tree]:
    configs = st.builds(
        lambda variant, values: Config(variant, tuple(zip(kernel.parameters, values, strict=True))),
        st.sampled_from(kernel.variants),
        st.tuples(*[st.integers(0, 5) for _ in kernel.parameters]),
    )
    gaps = st.one_of(st.none(), st.tuples(st.integers(), st.integers()))
    features = st.sampled_from([*kernel.features, *kernel.derived])
    return st.recursive(
        configs.map(Leaf),
        lambda inner: st.builds(Split, features, any_integer, inner, inner, gaps),
        max_leaves=12,
    )


@examples(80)
@given(st.data(), any_integer)
def test_a_module_is_read_as_the_tree_that_it_was_printed_from(
    base: KernelSpec, data: st.DataObject, limit: int
) -> None:
    kernel = data.draw(kernels(base))
    tree = data.draw(trees(kernel))
    compact = data.draw(st.booleans())
    text = device_module(kernel, DEVICE, {LIMIT: limit}, tree, compact=compact)
    found = read_module(text, kernel, PATH, {LIMIT: limit})
    assert found == _without_gaps(tree)
    assert device_module(kernel, DEVICE, {LIMIT: limit}, found, compact=compact) == text
    assert read_module(text, kernel, PATH) == found  # the limit is read from the module
    for _ in range(3):
        values = {name: data.draw(st.sampled_from(near_thresholds(tree, name))) for name in FEATURES}
        values[LIMIT] = limit
        for name, expression in kernel.derived.items():
            values[name] = expr.evaluate(expression, values)
        assert choose(found, values) == choose(tree, values)


def test_a_module_of_before_is_read_and_one_of_both_is_refused(base: KernelSpec) -> None:
    """Modules once computed a derived feature on each side; nothing was ever printed half so, half as now."""
    kernel = _with_derived(base, share="area // max(1, heads)", padded="columns // max(1, heads)")
    leaf = Leaf(Config("plain", (("block", 16), ("parts", 1), ("warps", 4))))
    other = Leaf(Config("plain", (("block", 32), ("parts", 1), ("warps", 4))))
    share, padded = Split("share", 3, leaf, other), Split("padded", 5, leaf, other)
    tree = Split("rows", 9, Split("rows", 2, share, padded), Split("columns", 2, share, padded))
    now, before = (device_module(kernel, DEVICE, LIMITS, tree, compact=compact) for compact in (True, False))
    assert (now.count("share = "), before.count("share = ")) == (1, 2)
    assert now.index("share = ") < now.index("if rows")
    assert read_module(before, kernel, PATH, LIMITS) == read_module(now, kernel, PATH, LIMITS) == tree
    line = next(line for line in now.splitlines(True) if "padded = " in line)
    with pytest.raises(UnreadableModule, match="stands where treegen prints"):
        read_module(before.replace("    if rows <= 9", line + "    if rows <= 9"), kernel, PATH, LIMITS)


def test_a_long_chain_of_questions(base: KernelSpec) -> None:
    leaves = [Leaf(Config("plain", (("block", 1 << k), ("parts", 1), ("warps", 4)))) for k in range(5)]
    tree: Tree = leaves[0]
    for threshold in range(200):
        low, high = (leaves[threshold % 5], tree) if threshold % 3 else (tree, leaves[threshold % 5])
        tree = Split("rows", threshold, low, high)
    text = device_module(base, "default", {}, tree)
    assert device_module(base, "default", {}, read_module(text, base, PATH)) == text


# The committed modules

SPEC = read_spec(REPOSITORY / "treegen.yaml")
KERNEL = SPEC.kernels["unified_attention"]


@pytest.mark.parametrize("key", ["default", *KERNEL.tables])
def test_the_committed_modules_are_read_and_printed_as_they_are(key: str) -> None:
    path = SPEC.output / KERNEL.name / f"{key}.py"
    limits = SPEC.devices[key].limits if key in SPEC.devices else {}
    tree = read_module(path.read_text(), KERNEL, path, limits)
    assert device_module(KERNEL, key, limits, tree).encode() == path.read_bytes()
    with imported(REPOSITORY) as generated:
        module = generated.unified_attention.MODULES[key]
        features = {name: near_thresholds(tree, name) for name in KERNEL.features}
        for step in range(200):
            point = {name: values[step * 7 % len(values)] for name, values in features.items()}
            values = dict(point)
            for name, expression in KERNEL.derived.items():
                values[name] = expr.evaluate(expression, {**limits, **values})
            config, printed = choose(tree, values), module.choose(**point)
            assert printed._asdict() == {"variant": config.variant, **dict(config.parameters)}


# Damage

MODULE = '''"""scale on nvidia_h100: which config to launch. Generated by treegen; do not edit."""

from .config import Config

PLAIN_B16_W2 = Config("plain", block=16, warps=2)
PLAIN_B64_W4 = Config("plain", block=64, warps=4)
SPLIT_B16_N8_W2 = Config("split", block=16, parts=8, warps=2)


def choose(
    *,
    rows: int,
    columns: int,
    heads: int,
) -> Config:
    area = rows * columns
    share = area // (heads if heads > 1 else 1)
    if share > 4096:
        return PLAIN_B64_W4
    if rows <= -1:
        room = max(10_000 - area, -10_000)
        if room <= 12_288:
            return PLAIN_B64_W4
        return SPLIT_B16_N8_W2
    else:
        if heads <= 8:
            return PLAIN_B16_W2
        padded = (1 << max(0, columns - 1).bit_length()) - share
        if padded <= 64:
            return PLAIN_B64_W4
        return PLAIN_B16_W2
'''
LIMITS = {"shared_memory": 10_000}


def test_the_module_to_damage_is_read(base: KernelSpec) -> None:
    narrow, wide = (
        Leaf(Config("plain", (("block", b), ("parts", 1), ("warps", w)))) for b, w in ((16, 2), (64, 4))
    )
    split = Leaf(Config("split", (("block", 16), ("parts", 8), ("warps", 2))))
    few = Split("room", 12_288, wide, split)
    many = Split("heads", 8, narrow, Split("padded", 64, wide, narrow))
    tree = Split("share", 4096, Split("rows", -1, few, many), wide)
    assert device_module(base, DEVICE, LIMITS, tree) == MODULE
    assert read_module(MODULE, base, PATH, LIMITS) == read_module(MODULE, base, PATH) == tree


SOLE = "PLAIN_B16_W2 = Config"
SHARE = "share = area // (heads if heads > 1 else 1)"
DAMAGE: list[tuple[str, str, int | str, str]] = [
    # old text, new text (first occurrence), line or a part of it, part of the message
    ("scale on", "other on", 1, "no module of scale begins with"),
    ("scale on nvidia_h100", "scale on NVIDIA", 1, "no module of scale begins with"),
    ('"""scale', '# """scale', 1, "no module of scale begins with"),
    ('"""scale', '\ufeff"""scale', 1, "no module of scale begins with"),
    ("do not edit.", "edit me.", 1, "stands where treegen prints"),
    ("from .config import Config", "from .config import Config as C", 3, "stands where treegen prints"),
    ("from .config import Config", "import os", 3, "'import os' has no place in a module"),
    ("from .config import Config\n\n", "", 3, "stands where treegen prints 'from .config import Config'"),
    (SOLE, "if True: pass\n" + SOLE, 5, "has no place in a module"),
    (SOLE, "PLAIN_B64_W4 = Config", 6, "'PLAIN_B64_W4' is defined again"),
    (SOLE, "PLAIN_B17_W2 = Config", "return PLAIN_B16_W2", "'PLAIN_B16_W2' is no config of this module"),
    (SOLE, "PLAIN_B16_W2: Config = Config", 5, "has no place in a module"),
    ('(\n    *,\n    rows: int', "(\n    rows: int", 11, "stands where treegen prints '    *,'"),
    (' Config("plain", block=16', ' Config("plane", block=16', 5, "unknown variant 'plane'; known: plain, s"),
    (' Config("plain", block=16', " Config(plain, block=16", 5, "is no config"),
    (' Config("plain", block=16', ' exec("plain", block=16', 5, "is no config"),
    (' Config("plain", block=16', ' Config("plain", bloc=16', 5, "unknown parameter 'bloc'; known: block, p"),
    (' Config("plain", block=16', ' Config("plain", **{}', 5, "unknown parameter None"),
    (' Config("plain", block=16, ', ' Config("plain", ', 5, "the config lacks block"),
    ("block=16, warps=2", "warps=2, block=16", 5, "stands where treegen prints"),
    ("block=16, warps=2", "block=16, parts=1, warps=2", 5, "stands where treegen prints"),
    ("block=16, warps=2", "block=16, block=16, warps=2", 5, "stands where treegen prints"),
    ("block=16, warps=2", "block=32, warps=2", 5, "stands where treegen prints"),
    ("block=16, warps=2", "block=True, warps=2", 5, "something else in place of an integer"),
    ("block=16, warps=2", "block=1_6, warps=2", 5, "stands where treegen prints"),
    ("block=16, warps=2", "block=0x" + "f" * 5000 + ", warps=2", 5, "the number is too long to print"),
    ("block=16, warps=2", "block=" + "9" * 5000 + ", warps=2", 5, "is not Python"),
    ("PLAIN_B64_W4 = ", "PLAIN_B32_W4 = Config('plain', block=32, warps=4)\nPLAIN_B64_W4 = ", 6, "stands"),
    ("def choose", "async def choose", "def choose", "has no place in a module"),
    ("def choose", "@cache\ndef choose", "def choose", "treegen prints 'def choose(\'"),
    ("def choose", "def chose", "def choose", "has no place in a module"),
    ("    columns: int,\n", "", "    columns: int", "treegen prints '    columns: int,'"),
    ("    columns: int,\n", "    lines: int,\n", "    columns: int", "'    lines: int,' stands where"),
    ("rows: int", "rows: int = 1", "    rows: int", "treegen prints '    rows: int,'"),
    (") -> Config:", "):", ") ->", "stands where treegen prints ') -> Config:'"),
    ("    area = ", '    """Docs."""\n    area = ', "    area = ", "has no place in a tree"),
    ("    area = ", "    area = area = ", "    area = ", "has no place in a tree"),
    ("    area = ", "    rows = ", "    area = ", "'rows' is no derived feature of scale"),
    ("rows * columns", "columns * rows", "    area = ", "spec says: 'area = rows * columns'"),
    ("rows * columns", "(rows *\n    columns)", "    area = ", "is not what the spec says"),
    ("rows * columns", "rows * columns  # ", "    area = ", "is not what the spec says"),
    ("    area = rows * columns\n", "", "    area = ", "treegen prints '    area = rows * columns'"),
    ("> 1 else 1", "> 2 else 1", "    share = ", "is not what the spec says"),
    ("max(10_000", "max(10_001", "    room = ", "is not what the spec says"),
    ("        room = ", f"        {SHARE}\n        room = ", "    room = ", "stands"),
    ("share > 4096", "share >= 4096", "if share", "is not `feature <= integer` or"),
    ("share > 4096", "4096 < share", "if share", "is not `feature <= integer` or"),
    ("share > 4096", "not share <= 4096", "if share", "is not `feature <= integer` or"),
    ("share > 4096", "share > rows", "if share", "in place of an integer"),
    ("share > 4096", "share > 4_096", "if share", "treegen prints '    if share > 4096:'"),
    ("share > 4096", "share > 0x1000", "if share", "stands where treegen prints"),
    ("share > 4096", "share > -" + "0x" + "f" * 5000, "if share", "the number is too long to print"),
    ("share > 4096", "share > -0", "if share", "treegen prints '    if share > 0:'"),
    ("share > 4096", "share > 40960", "if share", "treegen prints '    if share > 40_960:'"),
    ("share > 4096", "shared > 4096", "if share", "'shared' is no feature of scale"),
    ("share > 4096", "padded > 4096", "if share", "stands where treegen prints"),
    ("share > 4096", "shared_memory > 4096", "if share", "'shared_memory' is no feature of scale"),
    ("rows <= -1", "rows <= --1", "if rows", "in place of an integer"),
    ("rows <= -1", "\uff52ows <= -1", "if rows", "no module contains the character '\\uff52'"),
    ("rows <= -1", "rows <= -1\0", "if rows", "no module contains the character '\\x00'"),
    ("rows <= -1", "rows <= -1\udc80", "if rows", "no module contains the character '\\udc80'"),
    ("rows <= -1:\n", "rows <= -1:\r\n", "if rows", "no module contains the character '\\r'"),
    ("rows <= -1", "rows <= " + "-" * 100_000 + "1", "if rows", "the module is nested too deeply"),
    ("rows <= -1", "rows <= 1" + "+1" * 100_000, "if rows", "the module is nested too deeply"),
    ("rows <= -1", "rows <= " + "(" * 300 + "1" + ")" * 300, "if rows", "is not Python"),
    ("rows <= -1", "rows <= '\\d'", "if rows", "in place of an integer"),
    ("return PLAIN_B64_W4", "return Config('plain', 64, 4)", "return PLAIN_B64", "has no place in a tree"),
    ("return PLAIN_B64_W4", "return PLAIN_B65_W4", "return PLAIN_B64", "'PLAIN_B65_W4' is no config of this"),
    ("return PLAIN_B64_W4", "pass", "return PLAIN_B64", "has no place in a tree"),
    ("return PLAIN_B64_W4", "return PLAIN_B64_W4; x", "return PLAIN_B64", "is never reached"),
    ("return PLAIN_B64_W4", "return PLAIN_B64_W4 ", "return PLAIN_B64", "stands where treegen prints"),
    (":\n        return PLAIN_B64_W4", ": return PLAIN_B64_W4", "if share", "stands where treegen prints"),
    ("        return PLAIN_B64_W4\n", "", "return PLAIN_B64", "is not Python"),
    ("    if rows", "    elif rows", "if rows", "treegen prints '    if rows <= -1:'"),
    ("        return SPLIT_B16_N8_W2\n", "", "if room", "nothing is returned after 'if room <= 12_288:'"),
    ("        return SPLIT_B16_N8_W2\n", "        return PLAIN_B16_W2\n", 7, "stands where treegen prints"),
    ("return SPLIT_B16_N8_W2\n", "return SPLIT_B16_N8_W2\n\n", "    else:", "'' stands where treegen prints"),
    ("            return PLAIN_B64_W4\n        return SPL", "            return PLAIN_B64_W4\n        else:\n"
     "            return SPL", "        return SPL", "'        else:' stands where treegen prints"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "message"), DAMAGE, ids=[f"{i}-{ascii(d[1])[:40]}" for i, d in enumerate(DAMAGE)]
)
def test_damage(base: KernelSpec, old: str, new: str, line: int | str, message: str) -> None:
    assert old in MODULE
    found, what = _refusal(MODULE.replace(old, new, 1), base, **LIMITS)
    assert message in what and found == (line if isinstance(line, int) else line_of(MODULE, line))


QUESTION = "    if share > 4096:\n        return PLAIN_B64_W4\n"
STAIRS = "".join(" " * (4 + k) + "if rows <= 1:\n" for k in range(150))
LAST = MODULE.count("\n")
WHOLE: dict[str, tuple[str, int, str]] = {
    "empty": ("", 1, "no module of scale begins with ''"),
    "zeros": ("\0" * 9, 1, "no module of scale begins with"),
    "blank line": (MODULE + "\n", LAST + 1, "'' stands where treegen prints the end of the file"),
    "no line end": (MODULE[:-1], LAST, "the last line does not end"),
    "more": (MODULE + "print()\n", LAST + 1, "'print()' stands where treegen prints the end of the file"),
    "unreached": (MODULE + "    return PLAIN_B16_W2\n", LAST + 1, "'return PLAIN_B16_W2' is never reached"),
    "no choose": (MODULE[: MODULE.index("def choose")], 10, "the module ends without `choose`"),
    "no tree": (MODULE[: MODULE.index("    if share")], 17, "nothing is returned after 'share = area //"),
    "no body": (MODULE[: MODULE.index("    area")], 15, "is not Python"),
    "carriage returns": (MODULE.replace("\n", "\r\n"), 1, "no module contains the character '\\r'"),
    "huge": (MODULE + "#" * MAX_CHARACTERS, 1, f"the module is longer than {MAX_CHARACTERS} characters"),
    "chain": (MODULE.replace(QUESTION, QUESTION * 9_000), 10, "the module is nested too deeply"),
    "stairs": (MODULE[: MODULE.index("    area")] + STAIRS, 15 + 100, "is not Python"),
    "elif": (MODULE.replace(QUESTION, QUESTION + QUESTION.replace("if", "elif") * 9_000), 1, "too deeply"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_damage_all_over(base: KernelSpec, name: str) -> None:
    text, line, message = WHOLE[name]
    found, what = _refusal(text, base, **LIMITS)
    assert message in what and found == line


def test_every_cut_is_noticed(base: KernelSpec) -> None:
    for length in range(len(MODULE)):
        _refusal(MODULE[:length], base, **LIMITS)


@pytest.mark.parametrize("name", ["__init__.py", "config.py"])
def test_the_other_files_of_a_package_are_no_modules_of_a_device(name: str) -> None:
    text = (SPEC.output / KERNEL.name / name).read_text()
    assert _refusal(text, KERNEL)[0] == 1


# A spec that has changed since


def test_a_limit_that_the_module_was_not_printed_with(base: KernelSpec) -> None:
    line, what = _refusal(MODULE, base, shared_memory=20_000)
    assert line == line_of(MODULE, "room = ") and "'room = max(20_000 - area, -20_000)'" in what


def test_a_limit_that_is_two_numbers(base: KernelSpec) -> None:
    kernel = _with_derived(base, share="area // max(1, limit)", padded="columns - max(1, limit)")
    text = device_module(kernel, DEVICE, {"limit": 8, **LIMITS}, read_module(MODULE, base, PATH))
    assert device_module(kernel, DEVICE, {"limit": 8, **LIMITS}, read_module(text, kernel, PATH)) == text
    line, what = _refusal(text.replace("columns - 8", "columns - 9"), kernel)
    assert line == line_of(text, "columns - 8") and "max(1, limit) is another number here" in what


def test_a_limit_that_is_printed_twice(base: KernelSpec) -> None:
    kernel = _with_derived(base, share="min(area, limit)", padded="columns - limit")
    text = device_module(kernel, DEVICE, {"limit": 8, **LIMITS}, read_module(MODULE, base, PATH))
    assert device_module(kernel, DEVICE, {"limit": 8, **LIMITS}, read_module(text, kernel, PATH)) == text
    assert "share = (8 if 8 < area else area)" in text
    line, what = _refusal(text.replace("8 if 8", "9 if 8"), kernel)
    assert line == line_of(text, "share = ") and "limit is another number here than above" in what


def test_a_limit_that_is_printed_with_and_without_parentheses(base: KernelSpec) -> None:
    kernel = _with_derived(base, share="max(limit - 9, area) + columns * (limit - 9)")
    text = device_module(kernel, DEVICE, {"limit": 2, **LIMITS}, read_module(MODULE, base, PATH))
    assert "share = (area if area > -7 else -7) + columns * (-7)" in text
    for limits in ({}, {"limit": 2}):
        tree = read_module(text, kernel, PATH, limits)
        assert device_module(kernel, DEVICE, {"limit": 2, **LIMITS}, tree) == text


CHANGES: list[tuple[Callable[[KernelSpec], KernelSpec], str, str]] = [
    (lambda k: dataclasses.replace(k, name="other"), '"""', "no module of other begins"),
    (lambda k: dataclasses.replace(k, features=("columns", "rows", "heads")), "    rows:", "stands where"),
    (lambda k: dataclasses.replace(k, features=(*k.features, "more")), ") -> ", "prints '    more: int,'"),
    (lambda k: dataclasses.replace(k, variants=("plain",)), "SPLIT", "unknown variant 'split'; known: plain"),
    (lambda k: _with_parameters(k, block=None), "PLAIN", "unknown parameter 'block'; known: parts, warps"),
    (lambda k: _with_parameters(k, warps=Parameter("V")), "PLAIN", "prints 'PLAIN_B16_V2"),
    (lambda k: _with_parameters(k, stages=Parameter("S")), "PLAIN", "the config lacks stages"),
    (lambda k: _with_parameters(k, parts=Parameter("N", 8)), "SPLIT", "prints 'SPLIT_B16_W2"),
    (lambda k: _with_parameters(k, parts=Parameter("N")), "PLAIN", "the config lacks parts"),
    (lambda k: _with_parameters(k, warps=Parameter("W", 4)), "PLAIN_B64", "prints 'PLAIN_B64 ="),
    (lambda k: _with_derived(k, area="rows * columns * 1"), "    area =", "is not what the spec says"),
    (lambda k: _with_derived(k, padded="columns"), "    padded =", "the spec says: 'padded = columns'"),
    (lambda k: dataclasses.replace(k, derived={}), "    area =", "'area' is no derived feature of scale"),
]  # fmt: skip


def _with_parameters(kernel: KernelSpec, **changes: Parameter | None) -> KernelSpec:
    parameters = {**kernel.parameters, **changes}
    kept = {name: parameter for name, parameter in parameters.items() if parameter is not None}
    return dataclasses.replace(kernel, parameters=kept)


def _with_derived(kernel: KernelSpec, **changes: str) -> KernelSpec:
    parsed = {name: expr.parse(text) for name, text in changes.items()}
    return dataclasses.replace(kernel, derived={**kernel.derived, **parsed})


@pytest.mark.parametrize(("change", "line", "message"), CHANGES, ids=[c[2] for c in CHANGES])
def test_another_spec(
    base: KernelSpec, change: Callable[[KernelSpec], KernelSpec], line: str, message: str
) -> None:
    found, what = _refusal(MODULE, change(base), **LIMITS)
    assert message in what and found == line_of(MODULE, line)


def test_a_new_parameter_with_a_default_leaves_old_modules_readable(base: KernelSpec) -> None:
    tree = read_module(MODULE, _with_parameters(base, stages=Parameter("S", 3)), PATH, LIMITS)
    assert choose(tree, {"share": 5000}) == Config(
        "plain", (("block", 64), ("parts", 1), ("warps", 4), ("stages", 3))
    )


# Edits at random

TOKENS = st.sampled_from(
    [*"0159_-+*/()<=>:,.#;@'\"\\ \n\t\r\0\x0c\u2028\udc80é", *re.findall(r"\w+|[^\w\s]+| +|\n", MODULE)]
)


@st.composite
def edits(draw: st.DrawFn, text: str) -> str:
    """The text with characters cut, put in or replaced, a token replaced, or lines moved or indented."""
    kind = draw(st.sampled_from(["cut", "insert", "replace", "token", "lines", "indent"]))
    if kind in ("lines", "indent"):
        lines = text.splitlines(keepends=True)
        assume(len(lines) > 1)
        line, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        if kind == "indent":
            lines[line] = draw(
                st.sampled_from(["    " + lines[line], lines[line][4:], lines[line].rstrip("\n") + " \n"])
            )
        else:
            count = draw(st.integers(0, 4))
            lines[line : line + count] = lines[other : other + draw(st.integers(0, 4))]
        return "".join(lines)
    place = draw(st.integers(0, len(text)))
    if kind == "cut":
        return text[:place] + text[place + draw(st.integers(1, 40)) :]
    if kind == "insert":
        return text[:place] + draw(TOKENS) + text[place:]
    if kind == "replace":
        return text[:place] + draw(TOKENS) + text[place + 1 :]
    old = list(re.finditer(r"\w+|[^\w\s]+", text))
    assume(old)
    token = draw(st.sampled_from(old))
    return text[: token.start()] + draw(TOKENS) + text[token.end() :]


@examples(400)
@given(st.data())
def test_an_edited_module_is_refused_or_is_what_its_tree_is_printed_as(
    base: KernelSpec, data: st.DataObject
) -> None:
    text = data.draw(edits(MODULE))
    for _ in range(data.draw(st.integers(0, 2))):
        text = data.draw(edits(text))
    try:
        tree = read_module(text, base, PATH, LIMITS)
    except UnreadableModule as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert str(error).isprintable() and str(error).startswith(f"{PATH}:{error.line}: ")
        return
    device = re.match('"""scale on (.*?):', text)
    assert device is not None and device_module(base, device.group(1), LIMITS, tree) == text


def test_an_edit_that_treegen_could_have_printed_is_read_as_it_stands(base: KernelSpec) -> None:
    tree = read_module(MODULE.replace("share > 4096", "share <= 12"), base, PATH, LIMITS)
    before = read_module(MODULE, base, PATH, LIMITS)
    assert isinstance(before, Split) and tree == Split("share", 12, before.high, before.low)
