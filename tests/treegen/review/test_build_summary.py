"""What `treegen build` prints of few kernels and of many."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import DEVICE, KERNEL, build, spec, write_spec, write_table

from treegen.review.build_summary import MOST_KERNELS


@pytest.mark.parametrize("kernels", [MOST_KERNELS, 3 * MOST_KERNELS])
def test_of_many_kernels_those_that_are_slow_are_shown_and_a_line_tells_of_all(
    tmp_path: Path, kernels: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last kernel has one row, which is far slower than the best."""
    content = spec()
    for number in range(kernels):
        name, table = f"kernel{number}", f"tables/{number}"
        tree = {"max_depth": 4, "max_rows": 1 if number == kernels - 1 else 8}
        content["kernels"][name] = spec(tree=tree, tables={DEVICE: table})["kernels"][KERNEL]
        write_table(tmp_path / table, kernel=name, summary={"finished": False})
    del content["kernels"][KERNEL]
    assert build(write_spec(tmp_path, content)) == 0
    text = capsys.readouterr().out
    shown = [line for line in text.splitlines() if line.startswith("kernel") and " " not in line]
    if kernels == MOST_KERNELS:
        assert shown == [f"kernel{number}" for number in range(kernels)]
    else:
        assert shown == [f"kernel{kernels - 1}"] and len(text.splitlines()) < 15
        assert f"{kernels} modules, {9 * kernels} scenarios, {2 * kernels - 1} rows" in text
