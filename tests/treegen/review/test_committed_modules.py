"""The committed `generated` package needs no packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from treegen_builders import REPOSITORY

from generated import unified_attention

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
    assert (done.stdout, done.stderr) == (f"fine {len(unified_attention.MODULES)}\n", "")
