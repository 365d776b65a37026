"""benchmarks.fit.shared judges one module that is fitted to the tables of two GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from treegen_builders import DEVICE, SIDES, planted, spec, write_spec, write_table

from benchmarks.fit import shared
from treegen.core.problem import FORBIDDEN, UNTIMED
from treegen.fit.fit import fit
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec

SHAPES = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 32)]


def test_costs_are_means_and_a_module_for_equal_tables_is_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the second GPU, `wide` takes longer and has no time, or failed, for some shapes."""
    content = spec(tables={DEVICE: "tables/h100", "nvidia_h200": "tables/h200"})
    content["devices"]["nvidia_h200"] = content["devices"][DEVICE] | {"names": ["NVIDIA H200"]}
    ends = {SHAPES[0]: "", SHAPES[1]: "inf"}
    write_table(tmp_path / "tables/h100", shapes=SHAPES)
    h200 = {"name": "NVIDIA H200", "arch": "sm_90"}
    write_table(
        tmp_path / "tables/h200",
        shapes=SHAPES,
        times=lambda shape: [*planted(shape)[:2], ends.get(shape, 1.3 * planted(shape)[2])],
        device=h200,
    )
    path = write_spec(tmp_path, content)
    known = read_spec(path)
    kernel = next(iter(known.kernels.values()))
    one, other = (
        build_problem(kernel, known.devices[key], read_table(kernel.tables[key])) for key in kernel.tables
    )
    both = shared.shared(one, other)
    for row, scenario in enumerate(both.scenarios):
        pairs = [problem.cost[problem.scenarios.index(scenario)].tolist() for problem in (one, other)]
        for cost, pair in zip(both.cost[row].tolist(), zip(*pairs, strict=True), strict=True):
            marks = [mark for mark in (FORBIDDEN, UNTIMED) if mark in pair]
            assert cost == (marks[0] if marks else pytest.approx(sum(pair) / 2, abs=1))
    assert fit(shared.shared(one, one)) == fit(one)
    shared.main([str(path), *kernel.tables])
    assert len(capsys.readouterr().out.splitlines()) == 5
    with pytest.raises(ValueError):
        shared.shared(one, replace(one, configs=one.configs[:2]))
