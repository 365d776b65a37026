"""A tree that the lock stores is read as it was; whatever else the lock holds is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from treegen_builders import REPOSITORY, device_and_kernel
from treegen_strategies import CONFIGS, examples, trees

from treegen.core.errors import InputError
from treegen.core.spec import Config, KernelSpec, Parameter
from treegen.core.tree import Leaf, Split, Tree, choose, same_without_gaps
from treegen.read.spec import read_spec
from treegen.review.modules import read_modules
from treegen.write.lock import Lock, committed_tree, read_lock
from treegen.write.stored_tree import stored, tree_of

TREE = Split("rows", 4, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> KernelSpec:
    return device_and_kernel(tmp_path_factory.mktemp("spec"))[1]


@examples(100)
@given(trees())
def test_a_stored_tree_is_read_as_it_was(kernel: KernelSpec, tree: Tree) -> None:
    assert same_without_gaps(tree_of(json.loads(json.dumps(stored(tree, kernel))), kernel), tree)


def test_a_split_and_a_leaf_are_a_line_each(kernel: KernelSpec) -> None:
    assert stored(TREE, kernel) == {
        "parameters": ["block", "warps"],
        "nodes": ["rows <= 4", "plain 8 3", "plain 16 4"],
    }


def test_a_parameter_that_the_spec_gained_has_its_default_and_one_that_it_lost_is_refused(
    kernel: KernelSpec,
) -> None:
    def of(parameters: dict[str, Parameter]) -> KernelSpec:
        return dataclasses.replace(kernel, parameters=parameters)

    more = {"stages": Parameter("S", 3), **kernel.parameters}
    found = tree_of(stored(TREE, kernel), of(more))
    assert choose(found, {"rows": 1}) == Config("plain", (("stages", 3), ("block", 8), ("warps", 3)))
    for others in ({**more, "stages": Parameter("S")}, {"block": Parameter("B")}):
        with pytest.raises(ValueError):
            tree_of(stored(TREE, kernel), of(others))


DAMAGED: list[Any] = [
    *(None, [], "tree", {}, {"nodes": ["plain 8 3"]}, {"parameters": ["block", "warps"], "nodes": {}}),
    *(
        {"parameters": ["block", "warps"], "nodes": nodes}
        for nodes in [
            *([], ["rows <= 4"], ["rows <= 4", "plain 8 3"], ["plain 8 3", "plain 8 3"], [None], [["plain"]]),
            *(["other 8 3"], ["plain 8"], ["plain 8 3 1"], ["plain 8 x"], ["plain 8 1.5"], ["plain  8 3"]),
            *(["rows < 4", "plain 8 3", "plain 8 3"], ["rows\x1b <= 4", "plain 8 3", "plain 8 3"]),
            *(["rows <= " + "9" * 5000, "plain 8 3", "plain 8 3"], ["rows <= 4"] * 5000),
            [*(node for _ in range(300) for node in ("rows <= 4", "plain 8 3")), "plain 8 3"],
            ["plain 8 3"] * 20_000,
        ]
    ),
]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: ascii(content)[:60])
def test_anything_else_is_refused(kernel: KernelSpec, content: Any) -> None:
    with pytest.raises(ValueError):
        tree_of(content, kernel)
    lock = Lock(Path("generated"), {"trees": {kernel.name: {"gpu": content}}})
    with pytest.raises(InputError, match=r"treegen[.]lock"):
        lock.tree(kernel, "gpu")


@pytest.mark.parametrize("project", ["", "examples/matmul", "examples/block_fp8"])
def test_the_committed_modules_are_what_their_stored_trees_print(project: str) -> None:
    spec = read_spec(REPOSITORY / project / "treegen.yaml")
    found = read_modules(spec)
    assert len(found) == sum(len(kernel.tables) + 1 for kernel in spec.kernels.values())
    module = found[next(iter(found))]
    with pytest.raises(InputError, match=module.path.stem):
        committed_tree(module.kernel, module.device, module.path, module.text + "\n")


def test_a_missing_lock_stores_no_tree(tmp_path: Path, kernel: KernelSpec) -> None:
    with pytest.raises(InputError, match=r"treegen[.]lock"):
        read_lock(tmp_path).tree(kernel, "gpu")
