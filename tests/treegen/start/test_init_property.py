"""What `treegen init` writes, `treegen build` builds: over CSV files with any headers and values."""

import contextlib
import csv
import io
from pathlib import Path

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.cli.main import main

PLAIN = ["M", "N", "K", "BLOCK_M", "BK", "num_warps", "dtype", "algorithm", "json", "numpy", "on", "null"]
PLAIN += ["M_N", "tiles_M", "tiles", "waves", "multiprocessors", "shared_memory", "tl", "STEPS", "kernel"]
NAMES = ["variant", "max", "class", "match", "Config", "VALUES", "steps", "step", "choose", "row", "fits"]
NAMES += ["kind", "id", "scenario", "repeat", "True", "1a", "ä", "_a", "__a", "a-b", "default", "count"]
NAMES.append("x y")
ANY_NAME = st.one_of(*[st.sampled_from(PLAIN)] * 12, st.sampled_from(NAMES))
WORDS = ["max", "Json", "on", "no", "null", "steps", "a b", "a_b", "1a", "", "x: {y}", "config", "SORT_M64"]
CELLS = st.one_of(
    *[st.lists(st.integers(0, 4096), min_size=2, max_size=3)] * 9,
    st.lists(st.sampled_from([-1, 1, 2**31, 2**61, 2**63]), min_size=2, max_size=3),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=3),
    st.sampled_from([["0.5", "0.25"], ["true", "false"], ["None", "1"], [7, 7]]),
)
COLUMNS = st.dictionaries(ANY_NAME, CELLS, min_size=2, max_size=5)


def run(*arguments: str) -> tuple[int, str]:
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        return main(list(arguments)), err.getvalue()


@examples(150)
@given(
    COLUMNS,
    st.integers(1, 4),
    st.one_of(*[st.just("topk")] * 5, ANY_NAME),
    st.sampled_from(["cpu", "NVIDIA H100 80GB HBM3", "json", "on", *["NVIDIA H200"] * 4, "max"]),
)
@example({"M": [1, 64], "N": [8, 512], "BLOCK_M": [16, 32], "num_warps": [4, 8]}, 2, "matmul", "NVIDIA H200")
@example({"n": [1, 64], "algorithm": ["max", "json", "on"]}, 1, "numpy", "cpu")
def test_what_init_writes_builds(
    tmp_path_factory: pytest.TempPathFactory,
    columns: dict[str, list[object]],
    count: int,
    kernel: str,
    device: str,
) -> None:
    folder = tmp_path_factory.mktemp("p")
    features = list(columns)[: min(count, len(columns) - 1)]
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "time_us"])
        for place in range(18):
            cells = [values[place // 3**at % len(values)] for at, values in enumerate(columns.values())]
            writer.writerow([*cells, 10 + place % 7])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        named = ["--features", ",".join(features), "--time", "time_us", "--kernel", kernel]
        status, error = run("import", "csv", "t.csv", *named, "--device", device)
        for table in Path("tuning_data").glob("*/*"):
            status, error = run("init", str(table))
            if status == 0:
                event("built")
                assert run("build") == (0, "")
                assert run("check")[0] == 0
    assert status in (0, 2) and error.count("\n") == (status == 2)
