"""Whatever is damaged, a command succeeds, or it says why in one line, exits with 2 and changes nothing.

Here specs, locks and modules are damaged; tests/tuning_table damages tables.

`DAMAGE_EXAMPLES=300 python -m pytest tests/treegen/test_damage.py` tries 300 inputs of each kind.
"""

import ast
import contextlib
import copy
import io
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import (
    DEVICE,
    as_config,
    as_h100,
    build,
    contents,
    imported,
    spec,
    write_project,
    write_table,
    write_winners,
    yaml_text,
)
from treegen_strategies import examples

from treegen.cli.main import main
from treegen.core.heuristic import choose
from treegen.emit.templating import literal
from treegen.read.spec import read_spec
from treegen.write.modules import loaded, read_modules

EXAMPLES = int(os.environ.get("DAMAGE_EXAMPLES", "8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project that uses every word, so that each can be damaged, after a build of an older table.

    So a build finds a tree and changes it.
    """
    parameters = {"block": "B", "parts": {"letter": "N", "default": 1}, "warps": "W"}
    split = {"variant": "split", "rename": {"ROWS": "rows"}, "constants": {"heads": 2}}
    bound = {"holds": "8 * block * (warps + fast) <= memory", "variants": ["plain"]}
    content = spec(
        derived={"area": "rows * columns", "share": "(area + memory) // max(1, heads)"},
        split_on=["rows", "area", "share"],
        config={"variants": ["plain", "split"], "parameters": parameters},
        constraints=["block >= heads", bound],
        fallback={"variant": "plain", "block": 16, "parts": 1, "warps": 2},
        tree={"max_depth": 3, "max_rows": 6, "max_configs": 9, "row_price": 0.001, "cell_price": 0.001},
        objective={"weight": "1 + min(heads, 7)"},
        translate={"foreign": split},
        tables={DEVICE: "tables/h100", "other": "tables/winners", "family": as_h100()},
        regimes={"decode": {"when": "rows <= 1", "split_on": ["columns"]}, "large": {"when": "otherwise"}},
        classes={"one": "heads <= 1 or heads % 8 == 7", "many": "otherwise"},
        hold_out_by=["columns"],
        values={"heads": {"one": 0, "two": 1, "three": 2}, "warps": ["none", "1 warp", "2 warps"]},
        invariants=["rows <= area * 2", "heads >= 1"],
        hook="scale",
        in_kernel=True,
    )
    content["devices"][DEVICE]["limits"] = {"memory": 4096, "fast": 1}
    content["devices"]["other"] = {"names": ["Other"], "vendor": "amd", "limits": {"memory": 1024, "fast": 0}}
    content["devices"]["family"] = {"vendor": "nvidia", "limits": {"memory": 2048, "fast": 0}}
    folder = tmp_path_factory.mktemp("built")
    foreign = {"kernel": "foreign", "features": ["ROWS", "columns", "extra"], "device": {"name": "Other"}}
    write_winners(folder / "tables/winners", **foreign)
    assert build(write_project(folder, content)) == 0
    write_table(folder / "tables/h100", times=lambda shape: [30.0, 15.0, 10.0 + shape[0]])
    return folder


# Damage

LOCK = "generated/treegen.lock"
MODULES = (f"generated/scale/{DEVICE}.py", "generated/scale/config.py", "generated/scale/in_kernel/other.py")

TEXTS = ["", "a b", "a\nb", "a\0b", "a" * 65, "a" * 5000, "\u00e9", "r\u043ews", "\x1b[2J", "\u202ea"]
TEXTS += ["a-b", "../a", "/etc/passwd", "class", "__import__", "None", "choose", "default", "rows", "area"]
TEXTS += ["block", "null", "[/x]", "{0.__class__}", "{{ 7 * 7 }}", "\\", "=cmd|' /C calc'!A0", "\udcff"]
TEXTS += ['"""\nimport os\n"""', '"); import os; os.system("touch x") #', "rows // columns", "rows // 0"]
TEXTS += ["9 ** 9 ** 9", "(" * 140 + "rows" + ")" * 140, "lambda: 0", "rows.real", "1or 2", "'\\d'", "2 <= 1"]
TEXTS += ["rows * rows" * 20, "block >= rows * columns"]
NUMBERS = [float("nan"), float("inf"), 1e308, -0.0, 0.5, True, None, -1, 0, 1, 2, 33, 1025, 2**31]
NUMBERS += [2**62 + 1, 2**63, -(2**63), 10**30, 10**400, 10**4000, [], {}, [[]], {"a": {}}, [None]]
SNIPPETS = [bytes([byte]) for byte in b"\0\xff\r\n\t'\",:{]"]
SNIPPETS += [b"\xef\xbb\xbf", b"- ", b"&a ", b"*a", b"!!int ", b"---\n", b"nan", b"-1", b"9" * 30]
SNIPPETS += [b"0x" + b"f" * 5000, b"__import__", b"[" * 90_000]


def _places(data):
    """Every mapping or list in nested data with each of its keys or indices."""
    if isinstance(data, dict | list):
        for key in list(data) if isinstance(data, dict) else range(len(data)):
            yield data, key
            yield from _places(data[key])


@st.composite
def damaged_bytes(draw, text):
    """The text with a part removed, doubled, moved or replaced, or in another encoding."""
    one, two = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    encoding = draw(st.sampled_from(["utf-16", "utf-8-sig", "cp037"]))
    damaged = [text[:one], text[one:], text[:one] + text[two:], text[:two] + text[one:]]
    damaged += [text[:one] + snippet + text[one:] for snippet in draw(st.permutations(SNIPPETS))[:3]]
    damaged += [text.replace(b"\n", b"\r\n"), text.decode(errors="replace").encode(encoding, "replace")]
    return draw(st.sampled_from(damaged))


@st.composite
def damaged_data(draw, data):
    """Nested data with another value, text or key in a place, or an entry removed, copied or wrapped."""
    data = copy.deepcopy(data)
    every = list(_places(data))
    (holder, key), (donor, source) = draw(st.tuples(*[st.sampled_from(every)] * 2))
    kind = draw(st.sampled_from(["value", "text", "key", "remove", "copy", "wrap", "many"]))
    if kind == "remove":
        del holder[key]
    elif kind == "many" and isinstance(holder, list):
        holder += [copy.deepcopy(holder[key])] * 2000
    elif kind == "key" and isinstance(holder, dict):
        holder[draw(st.sampled_from(TEXTS))] = holder.pop(key)
    else:
        values = {"value": st.sampled_from(NUMBERS), "copy": st.just(copy.deepcopy(donor[source]))}
        values["wrap"] = st.sampled_from([[holder[key]], {"a": holder[key]}])
        holder[key] = draw(values.get(kind, st.sampled_from(TEXTS)))
    return data


@st.composite
def damage(draw, kind, folder):
    """Damage one file of a project."""
    names = {"spec": ("treegen.yaml",), "lock": (LOCK,), "modules": MODULES}
    file, _, how = kind.partition(": ")
    path = folder / draw(st.sampled_from(names[file]))
    text = path.read_bytes()
    match how:
        case "bytes":
            path.write_bytes(draw(damaged_bytes(text)))
        case _ if path.suffix == ".yaml":
            data = draw(damaged_data(yaml.safe_load(text)))
            path.write_bytes(yaml_text(data).encode("utf-8", "surrogatepass"))
        case _:
            path.write_text(json.dumps(draw(damaged_data(json.loads(text)))))


KINDS = ["spec: bytes", "spec: data", "lock: bytes", "lock: data", "modules: bytes"]
COMMANDS = ["build", "build", "build", "build --check", "check --skip code --skip compile", "diff ../built"]
COMMANDS += ["explain scale rows=16 columns=32 heads=2"]


@pytest.mark.parametrize("kind", KINDS)
@examples(EXAMPLES)
@given(st.data())
def test_damage_is_refused_in_one_line_or_does_no_harm(built, kind, data):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        shutil.copytree(built, root / "built")
        project = shutil.copytree(built, root / "project")
        (root / "outside").write_text("mine")
        (project / "generated/mine.py").write_text("MINE = 1\n")
        data.draw(damage(kind, project))
        command = data.draw(st.sampled_from(COMMANDS)).split()
        before = contents(root)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(project), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", SyntaxWarning)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(command)
        errors = [line for line in err.getvalue().splitlines() if not line.endswith(" s")]
        assert status in (0, 1, 2) and not warned
        assert all(line.isprintable() for line in (*out.getvalue().split("\n"), *errors))
        after = contents(root)
        if status == 2:
            # A spec has a line for each mistake; all else has one line.
            assert len(errors) == 1 or (errors and all(".yaml:" in line for line in errors))
            assert all(line.startswith("treegen: ") for line in errors)
        else:
            assert errors == []
        if status != 0 or command != ["build"]:
            assert after == before
            return
        found = read_spec(project / "treegen.yaml")
        changed = {root / path for path in {*before, *after} if before.get(path) != after.get(path)}
        assert all(path == found.output or path.is_relative_to(found.output) for path in changed)
        assert (project / "generated/mine.py").read_text() == "MINE = 1\n"
        assert_rows_are_launched(found)


def assert_rows_are_launched(spec):
    """Each module is the text that treegen prints for its rows, and launches what these say."""
    for module in read_modules(spec).values():
        kernel, launch = module.kernel, loaded(module)["choose"]
        for size in (-1, 0, 1, 8, 64, 65, 4096):
            shape = dict.fromkeys(kernel.features, size)
            expected = choose(module.heuristic, kernel, module.device.limits, shape).config
            assert as_config(launch(**shape), kernel) == expected


@pytest.mark.parametrize("what", ["/dev/zero", "/dev/full", "pipe"])
@pytest.mark.parametrize("name", ["treegen.yaml", "tables/h100/times.csv", LOCK, MODULES[0]])
def test_a_device_in_place_of_a_file_is_not_read(tmp_path, name, what):
    """It was read until memory ended, or for ever."""
    path = write_project(tmp_path)
    build(path)
    new, file = contents(tmp_path / "generated"), tmp_path / name
    file.unlink()
    os.mkfifo(file) if what == "pipe" else file.symlink_to(what)
    replaced = name == MODULES[0]  # the lock tells what else is kept, so one that cannot be read is refused
    assert build(path) == (0 if replaced else 2)
    now = contents(tmp_path / "generated")
    assert all(now[path] == new[path] for path in now.keys() | new.keys() if path != "treegen.lock")


# Text from outside is never code

ATTACKS = [text for text in TEXTS if len(text) < 100 and text.isprintable()]
ATTACKS += [
    '"""\nimport os\nos.system("touch owned")\n"""',
    "a\rb",
    "\x0c \x1b[2J \x85 \u2028",
    "tab\tand \0",
]


def test_the_names_of_gpus_are_texts(tmp_path):
    names = [text for text in ATTACKS if text]
    content = spec(tables={DEVICE: as_h100(), "family": as_h100()})
    content["devices"][DEVICE] |= {"names": names, "arch": ATTACKS[-4]}
    content["devices"]["family"] = {"vendor": ATTACKS[-3]}
    path = write_project(tmp_path, content)
    assert build(path) == 0
    with imported(tmp_path) as generated:
        package = generated.scale
        for gpu in (*((name, "?", "?") for name in names), ("?", ATTACKS[-4], "?")):
            assert package.key_for(*gpu) == DEVICE
        assert package.key_for("?", "?", ATTACKS[-3]) == "family"
    assert_rows_are_launched(read_spec(path))


def test_what_a_table_says_of_itself_reaches_no_module(tmp_path):
    attack = "\n".join(ATTACKS).replace("\0", "")
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": attack}})
    free = dict.fromkeys(["driver", "torch", "source_hash", "date", "timing"], attack)
    plain = write_project(tmp_path / "plain")
    texts = write_project(tmp_path / "texts", content, device={"name": attack}, **free)
    assert build(plain) == build(texts) == 0
    one, other = (contents(tmp_path / side / "generated") for side in ("plain", "texts"))
    assert one.pop("treegen.lock") != other.pop("treegen.lock") and one == other


@examples(200)
@given(st.one_of(st.text(), st.integers()))
def test_a_literal_is_its_text_or_number(value):
    source = literal(value)
    assert ast.literal_eval(source) == value and source.isascii() and source.isprintable()
