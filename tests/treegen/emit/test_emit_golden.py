"""What treegen prints, letter by letter: the committed packages, and what none of these holds.

    UPDATE_GOLDEN=1 python -m pytest tests/treegen/emit/test_emit_golden.py

writes the new files beside this one after an intended change of the output, and `treegen build` the packages.
Read the difference in git before committing it.
"""

from pathlib import Path

import pytest
from treegen_builders import DEVICE, REPOSITORY, golden, spec, write_spec

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.spec import Config
from treegen.emit.package import emit_package
from treegen.read.spec import read_spec
from treegen.write.modules import read_modules

GOLDEN = Path(__file__).with_name("golden")
OF_KERNEL = ("__init__", "config", "in_kernel/__init__", "in_kernel/default", f"in_kernel/{DEVICE}")
PRINTED = ("__init__.py", *(f"scale/{name}.py" for name in OF_KERNEL))
EXAMPLES = ("examples/anatomy", "examples/block_fp8", "examples/matmul")


@pytest.mark.parametrize("folder", [".", *EXAMPLES])
def test_committed_packages(folder):
    """A module that treegen would print otherwise for its rows is refused."""
    committed = read_spec(REPOSITORY / folder / "treegen.yaml")
    modules = [
        (name, key) for name, kernel in committed.kernels.items() for key in (*kernel.tables, "default")
    ]
    assert [*read_modules(committed)] == modules


def test_words_and_functions_for_kernels(tmp_path):
    content = spec(
        derived={"tiles": "ceil_div(rows, 64) * heads", "each": "columns // max(1, tiles)"},
        regimes={"decode": "rows <= 1", "prompts": "otherwise"},
        values={"heads": ["few", "many"], "warps": ["none", "one"]},
        in_kernel=True,
    )
    content["devices"][DEVICE]["names"] = ["NVIDIA H100", 'NVIDIA "Hopper"']
    read = read_spec(write_spec(tmp_path, content))
    row = Row(Config("plain", (("block", 16), ("warps", 2))))
    decode = Split("columns", 512, 0, Split("each", 12_288, Split("tiles", 96, 1, 2), 3))
    regimes = (
        RegimeRows("decode", decode, (row,) * 4),
        RegimeRows("prompts", Split("rows", 64, 0, 1), (row,) * 2),
    )
    files = emit_package(read, [(read.kernels["scale"], read.devices[DEVICE], Heuristic(regimes))])
    texts = {f"{name.replace('/', '.')}.txt": files[name] for name in PRINTED}
    assert texts == {name: golden(GOLDEN / name, text) for name, text in texts.items()}
