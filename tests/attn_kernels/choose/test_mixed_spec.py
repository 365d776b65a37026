"""The kernel mixed_attention of the spec, from a table of times by a formula to the choice of a plan."""

from __future__ import annotations

import dataclasses
import importlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from attn_kernels import Config
from attn_kernels.choose import choices
from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SERIES
from attn_kernels.measure.batches import Batch
from attn_kernels.tuning.kernels import MIXED
from treegen.cli.main import main
from tuning_table import create

REPOSITORY = Path(__file__).parents[3]
H200 = ("NVIDIA H200", "sm_90", "nvidia")
CONFIGS = (SERIES, *(Config("pod", 128, 64, num_stages=s, decode_tile=k) for s in (2, 3) for k in (64, 128)))
BEST_POD = CONFIGS[-1]


def times(batch: Batch) -> tuple[float, float]:
    """Microseconds that the decodes and the prompts take alone."""
    decodes, prompts = batch.parts
    keys = decodes.num_kv_tokens * batch.layout.num_kv_heads
    context = prompts.num_kv_tokens / prompts.num_seqs
    return keys / 8e3, prompts.num_query_tokens * context * batch.layout.num_query_heads / 1e6


def time_of(config: Config, batch: Batch) -> float:
    """The one kernel hides the shorter part behind the longer, but slows the longer down."""
    longer, shorter = max(times(batch)), min(times(batch))
    if config == SERIES:
        return longer + shorter
    return 1.15 * longer * (1.0 if config == BEST_POD else 1.1)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module that a build writes from the spec's kernel and the formula."""
    folder = tmp_path_factory.mktemp("project")
    spec = yaml.safe_load((REPOSITORY / "treegen.yaml").read_text())
    del spec["kernels"]["unified_attention"]
    (folder / "treegen.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    scenarios = MIXED.sets["steps"](0)
    table = create(
        folder / spec["kernels"]["mixed_attention"]["tables"]["nvidia_h200"],
        kernel=MIXED.name,
        device={"name": "NVIDIA H200", "arch": "sm_90"},
        timing="a formula",
        origin={"tool": "a formula"},
        features=MIXED.features,
        configs=[
            {"id": str(c), "variant": c.variant} | {name: getattr(c, name) for name in MIXED.parameters}
            for c in CONFIGS
        ],
        scenarios={s.id: list(MIXED.features_of(s.batch).values()) for s in scenarios},
    )
    noise = random.Random(7)
    with table:
        for scenario in scenarios:
            cells = {str(c): time_of(c, scenario.batch) * noise.uniform(0.99, 1.01) for c in CONFIGS}
            table.append(scenario.id, cells)
    assert main(["build", "--spec", str(folder / "treegen.yaml")]) == 0
    return folder


@pytest.fixture
def generated(
    project: Path, monkeypatch: pytest.MonkeyPatch, new_process: None
) -> Iterator[Callable[[tuple[str, str, str]], None]]:
    """A function that puts the built package and a GPU in place of this process's."""
    name = "generated.mixed_attention"
    for known in [known for known in sys.modules if known == "generated" or known.startswith("generated.")]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.syspath_prepend(str(project))
    importlib.invalidate_caches()
    package = importlib.import_module(name)
    assert isinstance(package, ModuleType)

    def on(described: tuple[str, str, str]) -> None:
        monkeypatch.setattr(choices, "describe_device", lambda device: described)
        monkeypatch.setattr(choices, "multiprocessors", lambda device: 132)
        choices_for.cache_clear()

    yield on
    for known in [known for known in sys.modules if known == "generated" or known.startswith("generated.")]:
        del sys.modules[known]


GPU = torch.device("cuda", 0)


def test_the_module_takes_the_faster_way_in_steps_that_it_has_not_seen(
    generated: Callable[[tuple[str, str, str]], None],
) -> None:
    generated(H200)
    ways, lost = set(), 1.0
    scenarios = MIXED.sets["untuned_steps"](0)
    for scenario in scenarios:
        choice = choices_for(scenario.batch.model, GPU)
        config = choice.way(scenario.batch.parts)
        best = min(time_of(one, scenario.batch) for one in CONFIGS)
        lost *= time_of(config, scenario.batch) / best
        ways.add(config)
    assert ways == {SERIES, BEST_POD}
    assert lost ** (1 / len(scenarios)) < 1.02
    assert choice.fused() == [BEST_POD]


@pytest.mark.parametrize(
    ("described", "change"),
    [
        (("NVIDIA A100-SXM4-80GB", "sm_80", "nvidia"), {}),
        (("cpu", "cpu", "cpu"), {}),
        (H200, {"head_size": 256}),
        (H200, {"cache_dtype": torch.float8_e4m3fn}),
        (H200, {"num_query_heads": 1024, "num_kv_heads": 1}),
    ],
)
@pytest.mark.filterwarnings("ignore::attn_kernels.AttnKernelsWarning")
def test_series_serves_other_gpus_and_shapes(
    generated: Callable[[tuple[str, str, str]], None], described: tuple[str, str, str], change: dict[str, Any]
) -> None:
    generated(H200)
    batches = [scenario.batch for scenario in MIXED.sets["steps"](0)]
    by_pod = [batch for batch in batches if choices_for(batch.model, GPU).way(batch.parts) == BEST_POD]
    assert by_pod
    generated(described)
    for batch in by_pod:
        model = dataclasses.replace(batch.model, **change)
        assert choices_for(model, GPU).way(batch.parts) == SERIES
