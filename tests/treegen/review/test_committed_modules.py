"""The committed `generated` package: it needs no packages, is small and total, and agrees with its lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import REPOSITORY
from treegen_strategies import any_integer, examples

from generated import unified_attention
from treegen.core.expr import evaluate
from treegen.core.problem import holds
from treegen.read.spec_file import read_spec

MODULES: dict[str, ModuleType] = unified_attention.MODULES
SPEC = read_spec(REPOSITORY / "treegen.yaml")
KERNEL = SPEC.kernels["unified_attention"]
FALLBACK = {"variant": KERNEL.fallback.variant, **dict(KERNEL.fallback.parameters)}
LOCK = json.loads((REPOSITORY / "generated/treegen.lock").read_text())
FEATURES = KERNEL.features
ENTRIES: dict[str, dict[str, Any]] = LOCK["heuristics"]["unified_attention"]


def _constants(module: ModuleType) -> list[Any]:
    return [value for value in vars(module).values() if isinstance(value, unified_attention.Config)]


def test_every_device_of_the_lock_has_its_module() -> None:
    assert Path(str(unified_attention.__file__)).is_relative_to(REPOSITORY / "generated")
    assert set(MODULES) == {*ENTRIES, "default"}
    assert {"nvidia_h100", "amd_mi300x"} <= set(MODULES)


BARE = """
import random, sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import generated
from generated import unified_attention
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
assert loaded <= {"generated", "typing", "collections", *sys.stdlib_module_names}, loaded
random.seed(0)
for module in unified_attention.MODULES.values():
    code = module.choose.__code__
    names = code.co_varnames[: code.co_kwonlyargcount]
    assert len(names) == 10
    for _ in range(2000):
        near, far = random.randint(-5, 300), 10**18
        point = {name: random.choice([near, random.randint(-far, far)]) for name in names}
        assert type(module.choose(**point)) is unified_attention.Config
print("fine", len(unified_attention.MODULES))
"""


def test_an_interpreter_without_packages_is_enough(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BARE, str(REPOSITORY)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"fine {len(MODULES)}\n", "")


@pytest.mark.parametrize("key", MODULES)
@examples(300)
@given(st.fixed_dictionaries({name: st.one_of(st.integers(1, 300), any_integer) for name in FEATURES}))
def test_any_integers_choose_a_constant_that_meets_every_constraint_or_the_fallback(
    key: str, point: dict[str, int]
) -> None:
    chosen = MODULES[key].choose(**point)
    assert any(chosen is constant for constant in _constants(MODULES[key]))
    limits = SPEC.devices[key].limits if key in SPEC.devices else {}
    values = {**limits, **point, **chosen._asdict()}
    for name, expression in KERNEL.derived.items():
        values[name] = evaluate(expression, values)
    assert chosen._asdict() == FALLBACK or all(
        holds(c, values) for c in KERNEL.constraints if c.variants is None or chosen.variant in c.variants
    )
