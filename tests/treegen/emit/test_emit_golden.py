"""What treegen prints, letter by letter.

    UPDATE_GOLDEN=1 python -m pytest tests/treegen/emit/test_emit_golden.py

writes the new files after an intended change of the output. Read the difference in git before committing it.
"""

import os
from pathlib import Path

from treegen_builders import spec, write_spec

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.spec import Config
from treegen.emit.package import emit_package
from treegen.read.spec import read_spec

GOLDEN = Path(__file__).with_name("golden")
FAMILY, MODEL = "nvidia", "nvidia_h100"


def _spec(folder):
    content = spec(
        features=["num_seqs", "query_len", "seq_len", "query_heads", "kv_heads", "dtype"],
        constants=["query_heads", "kv_heads", "dtype"],
        derived={
            "gqa_group_size": "query_heads // max(1, kv_heads)",
            "tiles": "ceil_div(query_len, 64) * num_seqs * kv_heads",
            "keys_per_tile": "seq_len // max(1, tiles)",
        },
        regimes={"decode": {"when": "query_len <= 1"}, "prompts": {"when": "otherwise"}},
        classes={"narrow": "dtype == 1 and gqa_group_size <= 8", "wide": "otherwise"},
        values={"dtype": ["bf16", "fp8"]},
        config={
            "variants": ["plain", "split"],
            "parameters": {"block": "B", "parts": {"letter": "N", "default": 1}, "num_warps": "W"},
        },
        constraints=[
            "block >= gqa_group_size",
            {"holds": "parts * block * 1024 <= shared_memory", "variants": ["split"]},
        ],
        fallback={"variant": "plain", "block": 64, "num_warps": 4},
        in_kernel=True,
        tables={MODEL: "tables/h100", FAMILY: "tables/h100"},
    )
    content["devices"][FAMILY] = {"vendor": "nvidia", "limits": {"shared_memory": 101376}}
    content["devices"][MODEL]["names"] = ["NVIDIA H100", 'NVIDIA "Hopper"']
    return read_spec(write_spec(folder, content))


def _config(variant, block, warps, parts=1):
    return Config(variant, (("block", block), ("parts", parts), ("num_warps", warps)))


def _heuristic():
    small, large, split = _config("plain", 16, 2), _config("plain", 128, 8), _config("split", 16, 4, 8)
    decode = Split("seq_len", 512, 0, Split("keys_per_tile", 12_288, Split("tiles", 96, 1, 2), 3))
    rows = (
        Row(small, comment="1 scenario, 1.00x the best"),
        Row(split, {"narrow": large}, (large,), "1,120 scenarios, 1.04x the best"),
        Row(split, {}, (small, large), "0 scenarios"),
        Row(large),
    )
    prompts = Split("query_len", 64, 0, 1)
    won = Row(large, {"narrow": small}, comment="40 scenarios, 92% won")
    return Heuristic(
        (RegimeRows("decode", decode, rows), RegimeRows("prompts", prompts, (Row(small, {}, (large,)), won)))
    )


def test_printed_text(tmp_path):
    read = _spec(tmp_path)
    files = emit_package(read, [(read.kernels["scale"], read.devices[MODEL], _heuristic())])
    texts = {f"{name.replace('/', '.')}.txt": text for name, text in files.items()}
    if os.environ.get("UPDATE_GOLDEN") == "1":
        for name, text in texts.items():
            (GOLDEN / name).write_text(text)
    assert texts == {path.name: path.read_text() for path in GOLDEN.glob("*.py.txt")}
