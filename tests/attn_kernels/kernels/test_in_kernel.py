"""Generated functions find in a kernel the row of what the host launches, and compile for NVIDIA and AMD."""

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
from in_kernel_choices import MODEL_FEATURES, RandomBatch, differences, draw, of_rows

from generated import unified_attention
from generated.unified_attention import in_kernel

ROOT = Path(__file__).parents[3]
KEYS = sorted(in_kernel.MODULES)
BATCHES = 3_000
BOUNDARIES = 40
NAMES = tuple(draw(random.Random(0), 1)[0].features())


def in_a_kernel(key, batches, dtype=torch.int32):
    """The config of the row that the kernel finds for each batch, given by ten features."""
    features = torch.tensor([list(batch.values()) for batch in batches], dtype=dtype)
    out = torch.full((len(batches),), -1, dtype=torch.int32)
    choice_kernel[(1,)](out, features, features.stride(0), len(batches), in_kernel.MODULES[key].row)
    return [of_rows(key, model_of(batch))[row] for batch, row in zip(batches, out.tolist(), strict=True)]


def model_of(features):
    return RandomBatch((), (), tuple(features[name] for name in MODEL_FEATURES))


def on_the_host(key, batches):
    return [unified_attention.MODULES[key].choose(**batch) for batch in batches]


@pytest.mark.parametrize("key", KEYS)
def test_random_batches(key):
    """Other ones for each device, and as int64 for some."""
    batches = [batch.features() for batch in draw(random.Random(key), BATCHES // len(KEYS) + 1)]
    dtype = torch.int64 if KEYS.index(key) % 3 == 0 else torch.int32
    assert in_a_kernel(key, batches, dtype) == on_the_host(key, batches)


def both_sides(key, rng, most=1 << 20):
    """Two batches that differ by one in one feature, at a place where the host's config changes."""
    choice = unified_attention.MODULES[key].choose
    while True:
        (batch,) = draw(rng, 1)
        features = batch.features()
        name = rng.choice(NAMES)
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
        return [features | {name: value} for value in (low, high)]


@pytest.mark.parametrize("key", [key for key in KEYS if key != "default"])
def test_both_sides_of_boundaries(key):
    rng = random.Random(key)
    batches = [batch for _ in range(BOUNDARIES) for batch in both_sides(key, rng)]
    assert in_a_kernel(key, batches) == on_the_host(key, batches)


def test_batches_that_the_kernel_measures_itself():
    batches = draw(random.Random(1), 40)
    assert any(0 in batch.query_lens for batch in batches)
    batches.append(dataclasses.replace(batches[0], query_lens=(0, 0), context_lens=(5, 9)))  # padding alone
    assert differences("nvidia_h100", in_kernel.MODULES["nvidia_h100"].row, batches, "cpu") == []


def test_a_wrong_row_in_the_kernel_is_noticed():
    default = in_kernel.MODULES["default"].row
    (wrong, *_) = differences("nvidia_h200", default, draw(random.Random(0), 100), "cpu")
    assert wrong[1] == 0


COMPILE = """
import json, sys
import triton
from triton.compiler import ASTSource
from attn_kernels.kernels.segments import count_segments_kernel
from attn_kernels.offline.resources import TARGETS
from choice_kernels import constant_choice_kernel
from generated.unified_attention import in_kernel
found = {}
for key in json.loads(sys.argv[1]):
    row = in_kernel.MODULES[key].row
    features = tuple(json.loads(sys.argv[2]))
    names = count_segments_kernel.arg_names
    types = {name: "*i32" if name.endswith("_ptr") else "i32" for name in names[:-2]}
    counts = types | dict.fromkeys(names[-2:], "constexpr")
    constant = {"out_ptr": "*i32", "FEATURES": "constexpr", "FUNCTION": "constexpr"}
    last = len(names) - 1
    for target in ("sm_90", "gfx942"):
        for name, source in {
            "count": ASTSource(count_segments_kernel, counts, {(last - 1,): row, (last,): tuple(range(40))}),
            "constant": ASTSource(constant_choice_kernel, constant, {(1,): features, (2,): row}),
        }.items():
            found[f"{key} {target} {name}"] = triton.compile(source, target=TARGETS[target]).asm["ttgir"]
print(json.dumps(found))
"""


def test_functions_compile_inlined_and_constants_leave_no_question():
    features = (4, 4, 40_000, 1, 10_000, 32, 8, 128, 16, 2)
    keys = ["nvidia_h100", "amd_mi300x"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(keys), json.dumps(features)],
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
            assert "arith.cmpi" not in text and "scf.if" not in text
        elif key != "amd_mi300x":
            assert "scf.if" in text
