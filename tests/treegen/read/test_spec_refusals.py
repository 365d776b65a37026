"""What a spec may not say. Every refusal is one InputError that names the file and the line."""

from pathlib import Path

import pytest
from treegen_builders import DEVICE, KERNEL, error_of, line_of, spec, write_spec

from treegen.read.spec import find_spec, read_spec

SECTIONS = {
    "root": lambda s: s,
    "device": lambda s: s["devices"][DEVICE],
    "limits": lambda s: s["devices"][DEVICE]["limits"],
    "kernel": lambda s: s["kernels"][KERNEL],
    "config": lambda s: s["kernels"][KERNEL]["config"],
    "fallback": lambda s: s["kernels"][KERNEL]["fallback"],
    "tree": lambda s: s["kernels"][KERNEL]["tree"],
    "objective": lambda s: s["kernels"][KERNEL]["objective"],
    "translate": lambda s: s["kernels"][KERNEL]["translate"]["theirs"],
}


def put(section, **values):
    return lambda s: SECTIONS[section](s).update(values)


def kernel(**values):
    return put("kernel", **values)


def parameters(**values):
    return put("config", parameters=values)


def third_parameter(entry):
    return parameters(block="B", warps="W", parts=entry)


def bound(**changes):
    return kernel(constraints=[{"holds": "block >= heads", "variants": ["split"], **changes}])


def regime(when):
    return kernel(regimes={"decode": {"when": when}, "rest": {"when": "otherwise"}})


def model_class(when):
    return kernel(classes={"few": when, "many": "otherwise"})


def words(listed):
    return kernel(values={"heads": listed})


def device_b(entry):
    return lambda s: s["devices"].update(b=entry)


def written(folder, change):
    content = spec(
        config={"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}},
        derived={"area": "rows * columns", "double": "heads * 2"},
        translate={"theirs": {"variant": "plain", "rename": {"BLOCK": "block"}}},
        objective={"weight": 1},
    )
    change(content)
    return write_spec(folder, content)


def refused(folder, change, needle):
    """The message of a spec with a change, which must name the line that holds the needle."""
    path = written(folder, change)
    line = line_of(path.read_text(), *((needle,) if isinstance(needle, str) else needle))
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:{line}: ") and "\n" not in message and message.isprintable()
    return message


@pytest.mark.parametrize("section", [section for section in SECTIONS if section != "limits"])
def test_an_unknown_word_is_named(tmp_path, section):
    assert "surprise" in refused(tmp_path, put(section, surprise=1), "surprise")


REQUIRED = {
    "root": ["format", "output", "devices", "kernels"],
    "device": ["vendor"],
    "kernel": ["features", "config", "fallback", "tables"],
    "fallback": ["variant", "warps"],
    "translate": ["variant", "rename"],
}


@pytest.mark.parametrize(("section", "word"), [(s, word) for s, words in REQUIRED.items() for word in words])
def test_a_required_word_is_missed_by_name(tmp_path, section, word):
    assert word in error_of(read_spec, written(tmp_path, lambda s: SECTIONS[section](s).pop(word)))


LONG = 2**62 + 1
NAN, INFINITY = float("nan"), float("inf")
PRICES = [-0.0001, 1.5, NAN, INFINITY, 10**400, True, None, [0.1], "5e-4"]


def each(section, **values):
    """Wrong values of some words of a section, each with the line of its word."""
    for word, wrong in values.items():
        for value in wrong:
            yield put(section, **{word: value}), f"{word}:" if section == "root" else f" {word}:"


def many(needle, change, *values):
    """A change for each value; the line of the mistake holds the needle, in which {} is the value."""
    return ((change(value), needle.format(value)) for value in values)


WRONG = [
    *each("root", format=[2], devices=[["h100"]], kernels=[{}, "scale"]),
    *each("device", vendor=[1], arch=[90], names=["H100", ["a", "a"]]),
    *each("limits", memory=["48K", 4.5, LONG, -LONG]),
    *each("config", variants=[[]]),
    *each("tree", max_depth=[0, 5], max_rows=[13, 0, True, 8.0], max_configs=[65, 0]),
    *each("tree", max_leaves=[1], leaf_price=[1], config_price=[1], row_price=PRICES, cell_price=PRICES),
    *each("objective", weight=["colour", "block", "rows / 2", "", 1.5, True]),
    *each("kernel", features=[[], {"rows": 1}, ["rows", "rows"], [1]], derived=[["area"]]),
    *each("kernel", constants=[["size"], ["area"], ["block"], "heads", [1], ["heads", "heads"]]),
    *each("kernel", constants=[["rows", "columns", "heads"]], hold_out_by=[["size"], ["block"], "heads"]),
    *each("kernel", split_on=[["colour"], ["shared_memory"], ["block"], ["heads"], ["double"], ["rows"] * 2]),
    *each("kernel", constraints=["block >= 1"], in_kernel=[["block"], "yes", 1], tables=[["a"]]),
    *each("kernel", objective=["speed", None, ["weight"]], regimes=[["decode"], {"rows": "otherwise"}]),
    (device_b("H100"), "b:"),
    (device_b({"vendor": "x", "names": ["NVIDIA H100"]}), "b:"),
    (lambda s: s["devices"].update(default={"vendor": "x"}), "default:"),
    (lambda s: s["devices"].update(one={"vendor": "amd"}, two={"vendor": "amd"}), "two:"),
    (lambda s: s["devices"].update({k: {"vendor": "amd", "arch": "a"} for k in ("one", "two")}), "two:"),
    (put("limits", heads=4), "features:"),
    (kernel(derived={"rows": "heads"}), ("rows:", 1)),
    (kernel(derived={"shared_memory": "rows"}), ("shared_m", 2)),
    (device_b({"vendor": "amd", "limits": {"area": 1}}), "area: r"),
    (kernel(derived={"a": "b", "b": "rows"}), ("a: b", 1)),
    (kernel(derived={"a": "block"}), ("a: block", 1)),
    *((kernel(derived={"area": text}), "area:") for text in (5, "area + 1", "rows and columns", "not rows")),
    (kernel(derived={"ok": "rows <= 2", "area": "ok and columns"}), "area:"),
    (put("config", variants=["plain"], parameters={}), "variants:"),
    *many("{}: X", lambda name: parameters(**{name: "X"}), "rows", "area", "shared_memory", "variant"),
    (parameters(block="B", warps="B"), "warps: B"),
    *((parameters(block=letters), f"block: {letters}") for letters in ("b", "B1", "BLOCK")),
    *((parameters(block=letters), "block:") for letters in ("", "Β")),  # noqa: RUF001 - a Greek letter
    *((third_parameter(entry), "parts:") for entry in (["N", 1], {"letter": "B", "default": 1})),
    *((third_parameter({"letter": letter, "default": 1}), f"letter: {letter}") for letter in ("n", 5)),
    *many("default:", lambda n: third_parameter({"letter": "N", "default": n}), -1, 2**31, None),
    (third_parameter({"default": 1}), "default: 1"),
    (third_parameter({"letter": "N"}), "letter: N"),
    (third_parameter({"letter": "N", "default": 1, "most": 2}), "most: 2"),
    (kernel(constraints=[5]), "- 5"),
    (kernel(constraints=[["block >= heads"]]), "- - block >= heads"),
    (kernel(constraints=["1 < 2", "1 < 2"]), ("- 1 < 2", 2)),
    *many("- {}", lambda text: kernel(constraints=[text]), "block > size", "block", "1 < block < 9"),
    *many("- {}", lambda text: kernel(constraints=[text]), "block and warps", "area or block >= 2"),
    (kernel(constraints=["not (block + 1)"]), "block + 1"),
    (kernel(constraints=["1 < 2", "block >= heads.real"]), "heads.real"),
    (kernel(constraints=[{"holds": "block >= 1"}]), "holds:"),
    (kernel(constraints=[{"variants": ["split"]}]), "- variants:"),
    (kernel(constraints=["1 < 2", {"holds": "1 < 2", "variants": ["split"]}]), "- holds:"),
    (kernel(in_kernel=True, constraints=["block >= rows"]), "in_kernel:"),
    (kernel(in_kernel=True, constraints=["block >= heads or area <= 2"]), "in_kernel:"),
    (bound(on=1), "on'"),
    *((bound(variants=variants), ("variants:", 2)) for variants in (["fast"], [])),
    *((bound(holds=holds), f"holds: {holds}") for holds in (5, "block >= size")),
    (kernel(invariants=["rows"]), ("- rows", 2)),
    (put("fallback", variant="fast"), "variant: fast"),
    (put("fallback", block="64"), "block: '64'"),
    *((put("fallback", block=block), f"block: {block}") for block in (-64, 2**31)),
    (kernel(tables={"a100": "t"}), "a100:"),
    (kernel(tables={DEVICE: 5}), "nvidia_h100: 5"),
    (kernel(translate={"other": "plain"}), "other: plain"),
    (put("translate", variant="fast"), "variant: fast"),
    *((put("translate", rename={"A": name}), f"A: {name}") for name in ("b", "shared_memory")),
    (put("translate", constants={"block": 3}), "block: 3"),
    (put("translate", constants={"rows": LONG}), "rows: 4"),
    (kernel(regimes={"a|b": "rows <= 1"}), "a|b"),
    *many("when: {}", regime, "heads <= 1", "block <= 1", "rows", "rows <= size", "double <= 2", "otherwise"),
    (kernel(regimes={"decode": "rows <= 1", "rest": "columns <= 1"}), "rest:"),
    (kernel(regimes={"decode": {"when": "otherwise", "split": []}}), "split:"),
    (kernel(regimes={"decode": {"when": "otherwise", "split_on": ["heads"]}}), "split_on:"),
    (kernel(regimes={"decode": {"split_on": ["rows"]}}), "split_on:"),
    *many(
        "few:", model_class, "rows <= 1", "area <= 1", "block <= 1", "heads", "heads <= 2 <= 3", "otherwise"
    ),
    (kernel(classes={"few": "heads <= 4"}), "few:"),
    (kernel(classes={"few": "heads <= 4", "many": "heads > 4"}), "many:"),
    (kernel(classes={"a|b": "otherwise"}), "a|b"),
    (kernel(values={"colour": ["red"]}), "colour"),
    *many("heads:", words, "bf16", [], {"a": 1, "b": 1}, ["a", "a"], ["<b>"], ["a\n# b"], [16]),
    (kernel(values={"heads": {"a": "b"}}), "a: b"),
    (kernel(hook="os:system"), "os:system"),
]


@pytest.mark.parametrize(("change", "needle"), WRONG)
def test_a_wrong_value_names_its_line(tmp_path, change, needle):
    refused(tmp_path, change, needle)


@pytest.mark.parametrize("needle", ["max_depth: 4", "output: generated", "vendor: nvidia", "block: 64"])
def test_a_number_too_long_to_print_is_refused(tmp_path, needle):
    path = write_spec(tmp_path)
    key = needle.split(":")[0]
    path.write_text(path.read_text().replace(needle, f"{key}: 0x{'f' * 5000}"))
    assert error_of(read_spec, path).startswith(f"{path}:{line_of(path.read_text(), key + ': 0x')}: ")


EXPRESSIONS = ["rows.real", "rows.__class__.__mro__", "print(rows)", "__import__('os').system('id')"]
EXPRESSIONS += ["min(1, 2)(3)", "max(rows, heads, key=rows)", "max(*rows)", "max(rows)", "min()"]
EXPRESSIONS += ["next_power_of_2(rows, heads)", "lambda: rows", "f'{rows}'", "'rows'", "rows * 0.5"]
EXPRESSIONS += ["rows * 2j", "True", "None", "...", "rows / 2", "rows ** 2", "9 ** 9 ** 9", "1 << rows"]
EXPRESSIONS += ["~rows", "not rows + 1", "+rows", "rows and heads + 1", "rows < heads < 2"]
EXPRESSIONS += ["rows if heads else 1", "rows[0]", "[rows]", "rows, heads", "(rows := 5)"]
EXPRESSIONS += ["[rows for rows in heads]", "~" * 290 + "rows", "rows" + ".a" * 140, "9" * 70]
EXPRESSIONS += ["0x7f" + "f" * 14, "", " ", "rows +", "rows columns", "rows; heads", "x = rows"]
EXPRESSIONS += ["(" * 250, "rows)", "#", "rows\nheads", "rows\n  + heads", "rows \\", "$rows", "1rows"]
EXPRESSIONS += ["rows" + " + rows" * 43]
DIVISIONS = ["rows // columns", "rows // 0", "rows // -1", "rows // (1 - 1)", "rows // max(0, columns)"]
DIVISIONS += ["rows // min(1, columns)", "rows // (1 + columns)", "rows // (2 * columns)", "1 // (0 // 1)"]
DIVISIONS += ["rows // max(columns, heads)", "rows // shared_memory", "rows // (2 - 1)"]
DIVISIONS += ["rows % columns", "rows % -1", "ceil_div(rows, columns)", "ceil_div(rows, 0)"]


@pytest.mark.parametrize("text", EXPRESSIONS + DIVISIONS)
def test_an_expression_beyond_the_language_or_that_may_divide_by_zero(tmp_path, text):
    assert "derived.area" in refused(tmp_path, kernel(derived={"area": text}), "area:")


BAD_NAMES = ["class", "match", "_", "print", "__init__", "__builtins", "a.b", "a b", "../a", "a\\b", "1a", ""]
BAD_NAMES += ["a'b", "a\nb", "a\0b", "a{{b}}", "ä", "a\u200b", "a" * 65]
BAD_NAMES += ["ａ"]  # noqa: RUF001 - a fullwidth letter, which Python would read as the ASCII one
NAMED = {
    "feature": lambda s, name: SECTIONS["kernel"](s)["features"].append(name),
    "derived": lambda s, name: SECTIONS["kernel"](s)["derived"].update({name: "rows"}),
    "parameter": lambda s, name: SECTIONS["config"](s)["parameters"].update({name: "X"}),
    "variant": lambda s, name: SECTIONS["config"](s)["variants"].append(name),
    "kernel": lambda s, name: s.update(kernels={name: s["kernels"][KERNEL]}),
    "device": lambda s, name: s["devices"].update({name: {"vendor": "nvidia"}}),
    "limit": lambda s, name: SECTIONS["limits"](s).update({name: 1}),
    "hook": lambda s, name: SECTIONS["kernel"](s).update(hook=name),
}


@pytest.mark.parametrize("place", NAMED)
@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_that_no_identifier_or_file_can_have(tmp_path, place, name):
    path = written(tmp_path, lambda s: NAMED[place](s, name))
    if place == "variant" and name in ("class", "match", "print"):
        assert name in read_spec(path).kernels[KERNEL].variants  # a text and a constant, such as PRINT
        return
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:") and message.isprintable()


@pytest.mark.parametrize("variants", [["split", "split_n8"], ["a_b2", "a_b2_n1_w4"], ["a", "a_f1_f2"]])
@pytest.mark.parametrize("turn", [1, -1])
def test_variants_whose_constants_would_share_a_name(tmp_path, variants, turn):
    letters = {"parts": {"letter": "N", "default": 1}, "far": {"letter": "F", "default": 0}}
    config = {"variants": ["plain", *variants[::turn]], "parameters": {"block": "B", "warps": "W", **letters}}
    message = error_of(read_spec, path := write_spec(tmp_path, spec(config=config)))
    assert message.startswith(f"{path}:{line_of(path.read_text(), 'variants:')}: ") and variants[1] in message


FOLDERS = {
    "output table": ["..", "../other", "a/../..", ".", "a/..", "/", "/etc", "/tmp/x", "", "link/t", "loop"],
    "table output": ["a\0b", "\ud800"],  # no file system can name these
    "output": [".git", ".git/out", "class", "a-b", "out/2", "treegen.yaml", "a/../class", "json", "a/numpy"],
}
FOLDER_CASES = [(key, n) for keys, names in FOLDERS.items() for key in keys.split() for n in names]


@pytest.mark.parametrize(("key", "folder"), FOLDER_CASES)
def test_a_folder_outside_or_an_output_that_is_no_package(tmp_path, key, folder):
    content = spec() | {"output": folder} if key == "output" else spec(tables={DEVICE: folder})
    path = write_spec(tmp_path / "project", content)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "project/loop").symlink_to(tmp_path / "project/loop")
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:2: " if key == "output" else f"{path}:")
    assert key in message or folder in FOLDERS["table output"]


def test_no_spec_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert error_of(find_spec, None).startswith("treegen.yaml: ")
    assert error_of(read_spec, tmp_path / "none.yaml").startswith(f"{tmp_path / 'none.yaml'}: ")
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\n")
    assert error_of(read_spec, tmp_path / "bytes.yaml").startswith(f"{tmp_path / 'bytes.yaml'}:1: ")
    write_spec(tmp_path)
    assert find_spec(None) == Path("treegen.yaml")


ONE_KERNEL = """
format: 1
output: class
devices:
  gpu: {vendor: nvidia, limits: {memory: 8}, arhc: sm_90}
kernels:
  mine:
    features: [M, N]
    derived:
      tiles: M * Q
      double: 2 * tiles
      shares: M // N
    config:
      parameters: {BLOCK: MMMMM, WARPS: W, STAGES: W}
    fallback: {BLOCK: 1}
    tree: {max_depth: 0, max_rows: many}
    tables: {gpu: tables/gpu, other: tables/other}
"""
LATER = ONE_KERNEL.replace("class", "made").replace(", arhc: sm_90", "").replace("M * Q", "M * N")
LATER = LATER.replace("M // N", "M // 2").replace("MMMMM", "B").replace("STAGES: W", "STAGES: S")
LATER = LATER.replace("0, max_rows: many", "1, max_rows: 2").replace(", other: tables/other", "")
LATER += """
    constraints: [BLOCK, BLOCK <= memory * P, BLOCK <= M]
    words: {Z: "a phrase"}
    objective: {weight: false}
"""


@pytest.mark.parametrize(("text", "lines"), [
    (ONE_KERNEL, [3, 5, 10, 12, 14, 14, 16, 16, 17]),
    (LATER, [15, 15, 19, 19, 20, 21]),
])  # fmt: skip
def test_all_mistakes_are_told_at_once_a_line_each(tmp_path, text, lines):
    (tmp_path / "treegen.yaml").write_text(text)
    told = error_of(read_spec, tmp_path / "treegen.yaml").splitlines()
    assert sorted(int(line.removeprefix(str(tmp_path)).split(":")[1]) for line in told) == lines
