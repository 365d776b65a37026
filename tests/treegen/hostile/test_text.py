"""Text from outside is never code: it arrives as the text it was, or the build ends with status 2.

The last part attacks every text there is in the spec, the tables and a cache, found by walking through them.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import json
import operator
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile.damage import places, rename_key
from hostile.folder import write
from hostile.payloads import CODE
from hostile.project import CACHE, CSV_FILES, SPEC, YAML_FILES, csv_bytes, project, yaml_bytes
from hostile.run import BUILD, IMPORT, READERS, Command, built_project, run
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, build, contents, imported, spec, write_project, write_table
from treegen_strategies import examples

from treegen.emit.environment import literal
from treegen.read.yaml_file import Fields

ATTACKS = [
    "it's",
    'say "hello"',
    """both ' and \"""",
    '"""\nimport os\nos.system("touch owned")\n"""',
    "'''",
    "a\\",
    'a\\"',
    "\\'",
    "line\nbreak",
    "carriage\rreturn",
    "form\x0cfeed, \x1b[2J, \x85 and \u2028",
    "{{ 7 * 7 }} {% raw %} {# comment #}",
    "%s {0} {kernel.name} ${HOME}",
    "# comment",
    "\\N{BULLET} \\x41 \\u0041 \\101",
    "ＮＶＩＤＩＡ Ä 漢字 🚀 \u202e",  # noqa: RUF001
    "tab\tand nul \0",
    "  blanks  ",
    "",
    "x" * 10_000,
]


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: ascii(text)[:30])
def test_the_name_of_a_gpu(tmp_path: Path, text: str) -> None:
    content = spec()
    content["devices"][DEVICE] |= {"names": [text], "arch": text + "a", "vendor": text + "v"}
    content["devices"]["family"] = {"vendor": text + "v"}
    content["kernels"]["scale"]["tables"]["family"] = "tables/h100"
    path = write_project(tmp_path, content)
    before = contents(tmp_path)
    if build(path) == 2:
        assert contents(tmp_path) == before
        return
    with imported(tmp_path) as generated:
        package = generated.scale
        assert list(package._BY_NAME) == [text]
        assert list(package._BY_ARCH) == [text + "a"] and list(package._BY_VENDOR) == [text + "v"]
        assert package.for_device(text, "?", "?") is package.MODULES[DEVICE].choose
        assert package.for_device("?", text + "a", "?") is package.MODULES[DEVICE].choose
        assert package.for_device("?", "?", text + "v") is package.MODULES["family"].choose
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("field", ["driver", "torch", "source_hash", "date", "timing"])
def test_what_a_table_says_of_itself_reaches_no_module(tmp_path: Path, field: str) -> None:
    plain = write_project(tmp_path / "plain")
    attack = write_project(tmp_path / "attack")
    write_table(tmp_path / "attack/tables/h100", **{field: ATTACKS[3]})
    assert (build(plain), build(attack)) == (0, 0)
    modules = [
        {name: text for name, text in contents(tmp_path / side / "generated").items() if name.endswith(".py")}
        for side in ("plain", "attack")
    ]
    assert modules[0] == modules[1]


def test_the_device_name_of_a_table_reaches_no_module(tmp_path: Path) -> None:
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": ATTACKS[3]}})
    path = write_project(tmp_path, content, device={"name": ATTACKS[3]})
    assert build(path) == 0
    for text in contents(tmp_path / "generated").values():
        assert text is None or b"owned" not in text


MARKUP = ["[/x]", "[bold]7[/bold]", "[link=file:///etc/passwd]x[/link]", "\x1b[2Jgone"]


@pytest.mark.parametrize("text", MARKUP, ids=ascii)
def test_a_count_of_configs_that_is_no_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = write_project(tmp_path)
    write_table(tmp_path / "tables/h100", origin={"evaluated_configs": text})
    assert build(path) in (0, 2)
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert not any(" of " in line for line in captured.out.splitlines() if line.startswith("scale "))


def test_a_count_of_configs_of_5000_digits(tmp_path: Path) -> None:
    path = write_project(tmp_path)
    run = write_table(tmp_path / "tables/h100", origin={"evaluated_configs": 12345}) / "run.yaml"
    run.write_text(run.read_text().replace("12345", "0x" + "f" * 5000))
    assert build(path) in (0, 2)


@examples(300)
@given(st.text())
def test_a_literal_is_its_text(text: str) -> None:
    source = literal(text)
    assert ast.literal_eval(source) == text
    assert source.isascii() and source.isprintable()
    assert len(ast.parse(source).body) == 1


@examples(50)
@given(st.integers())
def test_a_literal_is_its_number(value: int) -> None:
    assert ast.literal_eval(literal(value)) == value


HOSTILE_KEYS: list[dict[str, Any]] = [
    {"features": ['rows"); import os', "columns", "heads"]},
    {"features": ["rows\n    import os", "columns", "heads"]},
    {"configs": [{"id": "a", "variant": 'plain"); import os; ("', "block": 1, "warps": 1}]},
    {"configs": [{"id": 'a"\nimport os', "variant": "plain", "block": 1, "warps": 1}]},
    {"configs": [{"id": "a", "variant": "plain", "block": "1); import os; (1", "warps": 1}]},
]


@pytest.mark.parametrize("changes", HOSTILE_KEYS)
def test_code_in_a_tables_words(tmp_path: Path, refusal: Any, changes: dict[str, Any]) -> None:
    path = write_project(tmp_path)
    write_table(tmp_path / "tables/h100", **changes)
    refusal(tmp_path, "build", "--spec", path)


# Every text there is


def _attacked(data: Any, text: str) -> Iterator[tuple[str, Any]]:
    """Copies of nested data, each with the text in another place, of a text or of a key; and that place."""
    for position, (holder, key) in enumerate(places(data)):
        for kind in ("key", "value"):
            if isinstance(holder, dict) if kind == "key" else isinstance(holder[key], str):
                copied = copy.deepcopy(data)
                place, at = next(itertools.islice(places(copied), position, None))
                if kind == "key":
                    rename_key(place, at, text)
                else:
                    place[at] = text
                yield f"{kind} {key}", copied


LOADS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    **dict.fromkeys(YAML_FILES, (yaml.safe_load, yaml_bytes)),
    **dict.fromkeys(
        CSV_FILES, (lambda text: [row.split(",") for row in text.decode().splitlines()[:3]], csv_bytes)
    ),
    CACHE: (json.loads, lambda data: json.dumps(data).encode()),
}
TEXTS = [text for text in CODE if len(text) < 1000]


@pytest.mark.parametrize("file", LOADS, ids=lambda name: name.split("/", 1)[1].split("/gpu")[0])
def test_any_text_of_a_file(tmp_path: Path, file: str) -> None:
    """`run` refuses modules that are not printed trees, modules that act on import, and files elsewhere.

    Where one text is accepted, others are tried as well.
    """
    read, dump = LOADS[file]
    base, command = project(), IMPORT if file == CACHE else BUILD
    accepted = 0
    for number, _ in enumerate(_attacked(read(base[file]), "")):
        pending = [TEXTS[number % len(TEXTS)]]
        while pending:
            text = pending.pop()
            attacked = next(itertools.islice(_attacked(read(base[file]), text), number, None))[1]
            with tempfile.TemporaryDirectory(dir=tmp_path) as name:
                status = run(Path(name), base | {file: dump(attacked)}, command)
            if status == 0 and text is TEXTS[number % len(TEXTS)]:
                accepted += 1
                pending = [TEXTS[(number + step) % len(TEXTS)] for step in (7,)]
    assert accepted > 0 or file in CSV_FILES


FREE = {
    SPEC: [("devices", "first", key) for key in ("arch", "vendor")],
    YAML_FILES[1]: [("device", "name"), ("device", "arch")]
    + [
        (key,)
        for key in ("driver", "torch", "triton", "source_hash", "date", "timing", "scenario_set", "strategy")
    ],
}
MARKED = [text for text in TEXTS if "<" in text or "[" in text or "\x1b" in text or "\u202e" in text]
ALL_MARKED = [" ".join(MARKED), "\n".join(reversed(MARKED))]


@pytest.mark.parametrize(
    "command", READERS, ids=lambda command: " ".join(command.words[:1] + command.words[-1:])
)
@pytest.mark.parametrize("text", ALL_MARKED, ids=["in a line", "in lines"])
def test_every_free_text_at_once_in_what_people_read(tmp_path: Path, text: str, command: Command) -> None:
    """`run` refuses terminal escapes, and scripts and images in Markdown and HTML."""
    folder = dict(built_project())
    for file, fields in FREE.items():
        data = yaml.safe_load(bytes(folder[file]))
        for *outer, key in fields:
            functools.reduce(operator.getitem, outer, data)[key] = text
        if file == SPEC:
            entry = {"folder": "tables/measured", "measured_on": text}
            data["kernels"]["scale"]["tables"]["first"] = entry
        folder[file] = yaml_bytes(data)
    assert run(tmp_path, folder, command) in (0, 1)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_any_folder_of_a_cache(tmp_path: Path, text: str) -> None:
    parts = CACHE.split("/")
    for position in range(2, len(parts) - 1):
        named = text.replace("/", "").replace("\0", "")[:100]
        moved = "/".join(part + named * (place == position) for place, part in enumerate(parts))
        try:
            moved.encode()
        except UnicodeEncodeError:
            continue
        with tempfile.TemporaryDirectory(dir=tmp_path) as name:
            run(Path(name), {moved: project()[CACHE], SPEC: b""}, IMPORT)


def test_the_project_under_attack_uses_every_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A new word of the spec or of run.yaml must be in tests/helpers/hostile/project.py to be attacked."""
    known: dict[str, set[str]] = {}
    used: dict[str, set[str]] = {}

    def only(fields: Fields, words: Any) -> None:
        place = f"{fields.path.name} {re.sub(r'[0-9]+|(?<=devices).*', '', fields.where)}"
        known.setdefault(place, set()).update(words := list(words))
        used.setdefault(place, set()).update(fields)
        real(fields, words)

    real = Fields.only
    monkeypatch.setattr(Fields, "only", only)
    write(tmp_path, project())
    assert build(tmp_path / SPEC) == 0
    missing = {place: known[place] - used[place] for place in known if known[place] - used[place]}
    assert missing == {}
