"""Generated functions choose in a kernel what the host chooses, and compile inlined for NVIDIA and AMD."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from choice_kernels import choice_kernel
from in_kernel_choices import differences, draw

from generated import unified_attention
from generated.unified_attention import in_kernel

ROOT = Path(__file__).parents[3]
KEYS = sorted(in_kernel.MODULES)
BATCHES = 3_000
BOUNDARIES = 40


def in_a_kernel(function, rows, dtype=torch.int32):
    """What the function chooses for rows of ten integers."""
    features = torch.tensor(rows, dtype=dtype)
    out = torch.full((len(rows),), -1, dtype=torch.int32)
    choice_kernel[(1,)](out, features, features.stride(0), len(rows), function)
    return out.tolist()


def names_of(choice):
    return choice.__code__.co_varnames[: choice.__code__.co_kwonlyargcount]


def on_the_host(key, rows):
    choice = unified_attention.MODULES[key].choose
    return [choice(**dict(zip(names_of(choice), row, strict=True))).num_segments for row in rows]


def rows_of(batches):
    return [tuple(batch.features().values()) for batch in batches]


@pytest.mark.parametrize("key", KEYS)
def test_random_batches(key):
    """Other ones for each device, and as int64 for some."""
    rows = rows_of(draw(random.Random(key), BATCHES // len(KEYS) + 1))
    dtype = torch.int64 if KEYS.index(key) % 3 == 0 else torch.int32
    assert in_a_kernel(in_kernel.MODULES[key].num_segments, rows, dtype) == on_the_host(key, rows)


def both_sides(key, rng, most=1 << 20):
    """Two rows that differ by one in one feature, at a place where the host's config changes."""
    choice = unified_attention.MODULES[key].choose
    names = names_of(choice)
    while True:
        (batch,) = draw(rng, 1)
        features = batch.features()
        name = rng.choice(names)
        low, high = sorted(rng.choice([0, 1, most, features[name]]) for _ in range(2))
        at_low = choice(**features | {name: low})
        if at_low == choice(**features | {name: high}):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if choice(**features | {name: middle}) == at_low:
                low = middle
            else:
                high = middle
        return [tuple((features | {name: value}).values()) for value in (low, high)]


@pytest.mark.parametrize("key", [key for key in KEYS if key != "default"])
def test_both_sides_of_boundaries(key):
    rng = random.Random(key)
    rows = [row for _ in range(BOUNDARIES) for row in both_sides(key, rng)]
    assert in_a_kernel(in_kernel.MODULES[key].num_segments, rows) == on_the_host(key, rows)


def test_batches_that_the_kernel_measures_itself():
    batches = draw(random.Random(1), 40)
    assert any(0 in batch.query_lens for batch in batches)
    batches.append(dataclasses.replace(batches[0], query_lens=(0, 0), context_lens=(5, 9)))  # padding alone
    assert differences({"nvidia_h100": in_kernel.MODULES["nvidia_h100"]}, batches, "cpu") == []


def test_another_tree_in_the_kernel_is_noticed():
    (wrong, *_) = differences(
        {"nvidia_h200": in_kernel.MODULES["default"]}, draw(random.Random(0), 100), "cpu"
    )
    key, _, expected, chosen = wrong
    assert (key, chosen) == ("nvidia_h200", 1) and expected > 1


COMPILE = """
import json, sys
import triton
from triton.compiler import ASTSource
from attn_kernels.offline.resources import TARGETS
from choice_kernels import choice_kernel, constant_choice_kernel
from generated.unified_attention import in_kernel
found = {}
for key in json.loads(sys.argv[1]):
    function = in_kernel.MODULES[key].num_segments
    runtime = dict.fromkeys(("stride", "count"), "i32") | {"FUNCTION": "constexpr"}
    runtime |= {"out_ptr": "*i32", "features_ptr": "*i32"}
    constant = {"out_ptr": "*i32", "FEATURES": "constexpr", "FUNCTION": "constexpr"}
    row = tuple(json.loads(sys.argv[2]))
    for target in ("sm_90", "gfx942"):
        for name, source in {
            "runtime": ASTSource(choice_kernel, runtime, {(4,): function}),
            "constant": ASTSource(constant_choice_kernel, constant, {(1,): row, (2,): function}),
        }.items():
            found[f"{key} {target} {name}"] = triton.compile(source, target=TARGETS[target]).asm["ttgir"]
print(json.dumps(found))
"""


def test_functions_compile_inlined_and_constants_leave_no_question():
    row = (4, 4, 40_000, 1, 10_000, 32, 8, 128, 16, 2)
    keys = ["nvidia_h100", "amd_mi300x"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(keys), json.dumps(row)],
        env=environment | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests/helpers")))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 4 * len(keys)
    for name, text in found.items():
        key, _, kind = name.split()
        assert "tt.call" not in text and text.count("tt.func") == 1
        if kind == "constant":
            (expected,) = on_the_host(key, [row])
            assert "arith.cmpi" not in text and "scf.if" not in text
            assert f"dense<{expected}>" in text or f"constant {expected} : i32" in text
        elif key != "amd_mi300x":
            assert "scf.if" in text
