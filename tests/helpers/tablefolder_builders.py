"""A small table of a tuning run, for the tests of its folder."""

from pathlib import Path

import pytest

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import Cell, ConfigEntry, Failure, Header, Visit
from attn_kernels.tuning.table.folder import TableFolder

DATE = "2026-01-02"
SCENARIOS = [("decode-0", (1, 2048)), ("prefill-0", (512, 512)), ("mixed-0", (7, -1))]


def config(name: str, **parameters: int) -> ConfigEntry:
    return ConfigEntry(name, "qblock", {"block_m": 16, "num_warps": 4, **parameters})


HEADER = Header(
    kernel="attention",
    device={
        "name": "NVIDIA H100 80GB HBM3",
        "arch": "sm_90",
        "multiprocessors": 132,
        "cache_bytes": 52428800,
    },
    driver="550.54",
    torch="2.11",
    triton="3.6.0",
    source_hash="0" * 64,
    timing="graph replay, cold L2: median of 3",
    scenario_set="serving (small)",
    scenarios_digest="sha256:12ab",
    seed=0,
    strategy="full",
    features=("num_seqs", "max_seq_len"),
    configs=(config("M16"), config("M32", block_m=32), config("M64", block_m=64)),
)
VISITS = (
    Visit(
        "prefill-0", 1, {"M16": 706.34, "M32": Failure("OutOfResources: shared memory, 300000"), "M64": 17.8}
    ),
    Visit("decode-0", 1, {"M16": 5.1234}),
    Visit("decode-0", 2, {"M16": 5.1, "M64": Failure('wrong: "nan"\nat [0, 1]')}),
)


def start(folder: Path, header: Header = HEADER, date: str = DATE) -> TableFolder:
    return TableFolder.open(folder, header, SCENARIOS, date)


def filled(folder: Path, *visits: Visit) -> Path:
    with start(folder) as table:
        for visit in visits or VISITS:
            table.append(visit)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def read_back(visits: tuple[Visit, ...]) -> list[tuple[str, int, dict[str, Cell]]]:
    return [(visit.scenario, visit.repeat, dict(visit.cells)) for visit in visits]


def refusal(folder: Path, header: Header = HEADER) -> str:
    """The one line with which opening is refused; nothing may change."""
    before = contents(folder)
    with pytest.raises(TuningError) as caught:
        start(folder, header)
    assert contents(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)
