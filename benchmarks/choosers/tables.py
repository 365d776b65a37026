"""The committed tables on which ways of choosing are compared, and what some ways must know of kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from treegen.core.problem import Problem
from treegen.read.problem import build_problem, read_table, spec_problem
from treegen.read.spec import read_spec

Shape = Mapping[str, int]
"""A scenario's features, also derived ones, by name."""

Tiles = Callable[[Shape, Mapping[str, int]], tuple[int, int]]
"""From a shape and a config's parameters: how many programs run, and the steps of a program's loop."""

MULTIPROCESSORS = 132  # of an H100 SXM and of an H200


@dataclass(frozen=True)
class Case:
    """A table to learn from, and the scenarios of other models to choose in."""

    name: str
    folder: str  # of treegen.yaml
    kernel: str
    device: str
    # The table of other models, beside that of the device; None: groups are left out in turn.
    unseen: str | None
    tokens: str  # the feature that vLLM calls M
    key: tuple[str, ...]  # of the kernel's autotuner
    tiles: Tiles | None = None  # None: the configs are no tiles


@cache
def read(case: Case) -> tuple[Problem, Problem | None]:
    """The tables of the known and of the unseen models. Raises InputError."""
    spec = read_spec(Path(case.folder) / "treegen.yaml")
    kernel, device = spec.kernels[case.kernel], spec.devices[case.device]
    folder = kernel.tables[case.device]
    seen = spec_problem(kernel, device, read_table(folder))
    if case.unseen is None:
        return seen, None
    return seen, build_problem(kernel, device, read_table(folder.parent / case.unseen.format(case.kernel)))


def shapes(problem: Problem) -> list[Shape]:
    """Each scenario's features."""
    return [dict(zip(problem.names, row, strict=True)) for row in problem.features.tolist()]


def _product(m: str, n: str, k: str) -> Tiles:
    """The tiles of a product of M x K and K x N, whose sides are the config's parameters of these names."""

    def tiles(shape: Shape, config: Mapping[str, int]) -> tuple[int, int]:
        return -(-shape["M"] // config[m]) * -(-shape["N"] // config[n]), -(-shape["K"] // config[k])

    return tiles


def _attention(shape: Shape, config: Mapping[str, int]) -> tuple[int, int]:
    rows = shape["num_query_tokens"] * shape["gqa_group_size"] // config["block_m"] + shape["num_seqs"]
    return rows * shape["num_kv_heads"], -(-shape["max_seq_len"] // config["tile_size"])


# The attention kernels have no autotuner. Triton's attention kernels that have one name the model in its key,
# and leave out the lengths of a step, for which a server cannot search again.
_MODEL = ("num_query_heads", "num_kv_heads", "head_size", "block_size", "kv_element_size")
_UNIFIED, _MIXED = "unified_attention", "mixed_attention"
_H100, _H200 = "nvidia_h100", "nvidia_h200"
_UNTUNED = "../../untuned_data/{}/nvidia_h200"
_QUERIES, _PROMPTS, _MNK = "num_query_tokens", "num_prompt_tokens", ("M", "N", "K")
_MATMUL, _FP8 = (_product(f"BLOCK_{size}M", f"BLOCK_{size}N", f"BLOCK_{size}K") for size in ("", "SIZE_"))
CASES = (
    Case("attention, H100", ".", _UNIFIED, _H100, "other_models_nvidia_h100", _QUERIES, _MODEL, _attention),
    Case("attention, H200", ".", _UNIFIED, _H200, "other_models_nvidia_h200", _QUERIES, _MODEL, _attention),
    Case("mixed steps, H100", ".", _MIXED, _H100, None, _PROMPTS, _MODEL),
    Case("mixed steps, H200", ".", _MIXED, _H200, "untuned_nvidia_h200", _PROMPTS, _MODEL),
    Case("matmul, H200", "examples/matmul", "matmul", _H200, _UNTUNED, "M", _MNK, _MATMUL),
    Case("block fp8, H200", "examples/block_fp8", "block_fp8", _H200, _UNTUNED, "M", _MNK, _FP8),
)
