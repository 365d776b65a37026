"""Whatever the damage of a file of another tool: a table, or one line and nothing written."""

import json
import random
import re
from pathlib import Path

import pytest
from treegen_builders import contents
from tuned_files import AITER, COLUMNS, CSV, ENTRY, MOE, NAMED

from treegen.cli.main import main
from treegen.read.problem import read_table

MOE_NAME = "E=128,N=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
FILES: dict[str, tuple[str, str, list[str]]] = {
    "triton": ("scale.autotune.json", f'{{"key": [8, true], "configs_timings": [{ENTRY}]}}', NAMED),
    "csv": ("all.csv", CSV, COLUMNS),
    "vllm": (MOE_NAME, json.dumps(MOE), []),
    "aiter": ("a8w8_tuned_gemm.csv", AITER, []),
}
VALUES = ["", "null", "true", "-1", "1e999", "9" * 400, "9" * 5000, "[" * 900 + "]" * 900, "{}", "[]"]
VALUES += ["NaN", "Infinity", '{"a": [1, {"b": [null]}]}', '"\\ud800"', '"a\\nb"', "0.5", "\x00", "\u2028"]
VALUES.append("'")


def _damaged(text: str, draw: random.Random) -> str:
    """The text with a number, a word or a stretch of it replaced, doubled or removed."""
    parts = [match.span() for match in re.finditer(r'[0-9.]+|"[^"]*"|[a-z_]+|[\[\]{},:\n]', text)]
    for _ in range(draw.choice((1, 1, 2, 4))):
        start, end = draw.choice(parts)
        new = draw.choice([*VALUES, text[start:end] * 2, text[slice(*draw.choice(parts))]])
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize("name", FILES)
def test_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file, text, options = FILES[name]
    draw = random.Random(name)
    refused = 0
    for place in range(150):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / file).write_bytes(_damaged(text, draw).encode("utf-8", "surrogatepass"))
        before = contents(folder)
        arguments = ["import", name, str(folder / file), "--to", str(folder / "to"), *options]
        capsys.readouterr()
        status = main(arguments)
        errors = capsys.readouterr().err
        if status == 0:
            assert errors == ""
            for run in (folder / "to").rglob("run.yaml"):
                read_table(run.parent)
        else:
            refused += 1
            assert status == 2 and errors.count("\n") == 1 and errors[:-1].isprintable(), errors
            assert contents(folder) == before
    assert 0 < refused < 150
