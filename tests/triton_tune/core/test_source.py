"""What hashes of source hold: all on which a time or a check depends, and nothing else."""

import linecache
import sys

import pytest

from triton_tune.core.source import hash_of
from triton_tune.kernel.measuring import KernelFile, loaded
from triton_tune.kernel.tuning import load_tunings

KERNEL = """
import functools
import triton
import triton.language as tl

FACTOR = 2

@triton.jit
def twice(x):
    return x * 2

@triton.heuristics({"EVEN": lambda arguments: arguments["N"] % 2 == 0})
@triton.autotune(configs=[triton.Config({"B": 16})], key=["N"])
@triton.jit
def kernel(x_ptr, N, B: tl.constexpr, EVEN: tl.constexpr):
    tl.store(x_ptr, twice(tl.load(x_ptr)))

@functools.cache
def scale():
    return FACTOR

class Call:
    grid = (1,)

    @staticmethod
    def run(x):
        return scale() * launch(x)

def launch(x):
    kernel[Call.grid](x, len(x))
    return x
"""
FILE = """
import functools
import torch
import helpers_of_identity as helpers
from helpers_of_identity import kernel
from triton_tune import Tuning

DTYPE = torch.float16

class Scaled:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, x):
        return x * self.factor

def arguments(size, seed=0):
    return [torch.randn(size, dtype=DTYPE)]

T = Tuning(kernel=kernel, call=helpers.Call.run, arguments=arguments, tolerance=0.1,
           reference=lambda x: 2 * x,
           shapes=[{"size": 8}])
"""


@pytest.fixture
def hash_with(tmp_path, monkeypatch):
    """The identity after `old` became `new` in both files."""
    monkeypatch.syspath_prepend(tmp_path)

    def identity(old, new):
        assert not old or old in KERNEL + FILE
        (tmp_path / "helpers_of_identity.py").write_text(KERNEL.replace(old, new) if old else KERNEL)
        (tmp_path / "tune.py").write_text(FILE.replace(old, new) if old else FILE)
        for cached in (load_tunings.cache_clear, loaded.cache_clear, linecache.clearcache):
            cached()
        sys.modules.pop("helpers_of_identity", None)
        for compiled in tmp_path.glob("__pycache__/*"):  # of the same second and size
            compiled.unlink()
        return loaded(KernelFile(tmp_path / "tune.py", "kernel")).source_hash

    return identity


DIFFERS = [  # with the kernel, its call, arguments, reference and tolerance
    ("return x * 2", "return x * 3"), ("FACTOR = 2", "FACTOR = 3"), ("% 2 == 0", "% 4 == 0"),
    ("twice(tl.load(x_ptr))", "tl.load(x_ptr)"), ("grid = (1,)", "grid = (2,)"), ("() * launch(x)", "()"),
    ("DTYPE = torch.float16", "DTYPE = torch.bfloat16"), ("seed=0", "seed=1"), ("2 * x,", "x + x,"),
    ("tolerance=0.1", "tolerance=0.2"), ("    return x\n", "    return x + 0\n"),
]  # fmt: skip
SAME = [  # with shapes, configs, docstrings, comments and layout
    ('[{"size": 8}]', '[{"size": 8}, {"size": 9}]'), ('{"B": 16})', '{"B": 16}), triton.Config({"B": 32})'),
    ("\nFACTOR", "\n# A comment\n\nFACTOR"), ("reference=lambda x: 2 * x,", "reference=lambda x: (2 * x),\n"),
    ("def twice(x):\n", 'def twice(x):\n    """Of a kernel."""\n'),
    ("class Call:", 'class Call:\n    "A class."'), ("(size, seed=0):", '(size, seed=0):\n    "A function."'),
    ("@triton.autotune", '@__import__("triton_tune").tuned("made")\n@triton.autotune'),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [*DIFFERS, *SAME])
def test_it_changes_with_what_times_and_checks_depend_on(hash_with, old, new):
    assert (hash_with("", "") == hash_with(old, new)) is ((old, new) in SAME)


@pytest.mark.parametrize("references", [
    ("torch.abs", "torch.neg"), ("torch.nn.functional.relu", "torch.nn.functional.gelu"),
    ("functools.partial(torch.add, 1)", "functools.partial(torch.add, 2)"),
    ("torch.nn.ReLU()", "torch.nn.ELU()"), ("Scaled(2)", "Scaled(3)"),
])  # fmt: skip
def test_functions_of_others_count_by_their_names(hash_with, references):
    one, other = (hash_with("lambda x: 2 * x", name) for name in references)
    assert one != other


CODE = '''"""A file."""

class Kept:
    LIMIT = 2

    def run(self, x):
        return f"# {x}", "text"
'''


def test_a_file_counts_by_its_code_and_its_path_below_the_folder(tmp_path):
    one, other, moved = (tmp_path / name for name in ("a/x.py", "b/x.py", "a/y.py"))
    for file in (one, other, moved):
        file.parent.mkdir(exist_ok=True)
        file.write_text(CODE)
    assert hash_of(one.parent, [one]) == hash_of(other.parent, [other]) != hash_of(one.parent, [moved])
    assert hash_of(tmp_path, [one, other]) == hash_of(tmp_path, [other, one]) != hash_of(tmp_path, [one])
    before = hash_of(tmp_path, [moved])
    for old, new, same in (
        ('"""A file."""', "# Another file.", True),
        ('f"# {x}", "text"', "(f\"# {x}\",\n            'text')", True),
        ("\n", "\r\n", True),
        ("LIMIT = 2", "LIMIT = 3", False),
        ("# {x}", "% {x}", False),
    ):
        moved.write_text(CODE.replace(old, new), newline="")
        assert (hash_of(tmp_path, [moved]) == before) is same
