"""What treegen prints, letter by letter.

    UPDATE_GOLDEN=1 python -m pytest tests/treegen/emit/test_emit_golden.py

writes the new files after an intended change of the output. Read the difference in git before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from treegen_builders import guard, spec, write_spec

from treegen.core.spec import Config, Spec
from treegen.core.tree import Leaf, Split, Tree
from treegen.emit.package import device_module, kernel_package, top_package
from treegen.emit.triton import in_kernel_module, in_kernel_package
from treegen.passes.simplify import simplify
from treegen.read.spec import read_spec

GOLDEN = Path(__file__).with_name("golden")
FAMILY, MODEL = "nvidia", "nvidia_h100"


def _spec(folder: Path) -> Spec:
    content = spec(
        features=["num_seqs", "query_len", "seq_len", "query_heads", "kv_heads"],
        derived={
            "queries_per_kv": "query_heads // max(1, kv_heads)",
            "scores": "query_len * seq_len",
            "scores_per_program": "scores // max(16, num_seqs * kv_heads)",
            "both": "scores_per_program + scores",
            "room": "(shared_memory - scores) // 3",
            "max_room": "max(1, room, 65536, -num_seqs)",
            "padded": "next_power_of_2(min(seq_len, shared_memory // 100000 * 65536))",
        },
        config={
            "variants": ["plain", "split"],
            "parameters": {"block": "B", "parts": {"letter": "N", "default": 1}, "num_warps": "W"},
        },
        constraints=[
            "block >= queries_per_kv",
            {"holds": "parts * 64 >= num_seqs", "variants": ["split"]},
        ],
        fallback={"variant": "plain", "block": 64, "num_warps": 4},
        in_kernel=["parts", "block"],
        tables={MODEL: "tables/h100", FAMILY: "tables/h100"},
    )
    content["devices"][FAMILY] = {"vendor": "nvidia", "limits": {"shared_memory": 101376}}
    content["devices"][MODEL]["names"] = ["NVIDIA H100", 'NVIDIA "Hopper"']
    return read_spec(write_spec(folder, content))


def _leaf(variant: str, block: int, warps: int, parts: int = 1) -> Leaf:
    return Leaf(Config(variant, (("block", block), ("parts", parts), ("num_warps", warps))))


def _tree() -> Tree:
    """Leaves on both sides, nested sides, features derived from derived ones and used twice."""
    decode = Split(
        "scores_per_program",
        98_304,
        _leaf("split", 16, 4),
        Split("padded", 4096, _leaf("plain", 16, 2), _leaf("plain", 16, 8)),
    )
    prefill = Split(
        "scores",
        1_048_576,
        Split("num_seqs", 0, _leaf("plain", 128, 8), _leaf("plain", 16, 2)),
        _leaf("plain", 128, 8),
    )
    again = Split("both", 77, _leaf("plain", 16, 2), _leaf("plain", 16, 4))
    mixed = Split("scores", 12_288, Split("scores", 1024, prefill, again), _leaf("split", 32, 4, 8))
    return Split("query_len", 1, decode, Split("seq_len", -1, prefill, Split("both", -9, again, mixed)))


def _with_room(tree: Tree) -> Tree:
    return Split("room", -4096, Split("max_room", 70_000, _leaf("split", 16, 4, 2), tree), tree)


def _files(folder: Path) -> dict[str, str]:
    read = _spec(folder)
    kernel, device = read.kernels["scale"], read.devices[MODEL]
    guarded = simplify(
        guard(simplify(_tree()), kernel, device, {"queries_per_kv": (4, 4), "num_seqs": (1, 99)})
    )
    fenced = simplify(guard(_leaf("split", 32, 4), kernel, device, {"queries_per_kv": (1, 64)}))
    return {
        "device_module": device_module(kernel, MODEL, device.limits, guarded),
        "in_kernel_module": in_kernel_module(kernel, MODEL, device.limits, _with_room(guarded)),
        "in_kernel_init": in_kernel_package(kernel)["__init__.py"],
        "family_module": device_module(kernel, FAMILY, read.devices[FAMILY].limits, fenced),
        "default_module": device_module(kernel, "default", {}, Leaf(kernel.fallback)),
        "top_package": top_package(read.kernels),
        **{
            f"kernel_{name.strip('_').removesuffix('.py').strip('_')}": text
            for name, text in kernel_package(kernel, read.devices).items()
        },
    }


NAMES = ("device_module", "family_module", "default_module", "top_package", "kernel_config", "kernel_init")
NAMES += ("in_kernel_module", "in_kernel_init")


@pytest.mark.parametrize("name", NAMES)
def test_printed_text(tmp_path: Path, name: str) -> None:
    text = _files(tmp_path)[name]
    golden = GOLDEN / f"{name}.py.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert text == golden.read_text()


def test_every_printed_file_has_its_golden_one(tmp_path: Path) -> None:
    assert set(_files(tmp_path)) == set(NAMES)
    assert {path.name for path in GOLDEN.glob("*.py.txt")} == {f"{name}.py.txt" for name in NAMES}
