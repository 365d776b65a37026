"""First starts of servers: one rank compiles for all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.launch.first_start import start

pytestmark = pytest.mark.gpu


def test_of_two_ranks_one_compiles(device: torch.device, tmp_path: Path) -> None:
    outcomes = start(2, "llama3_8b", False, "cuda", tmp_path)
    idle, busy = sorted(int(str(outcome["compiled"])) for outcome in outcomes)
    assert idle == 0 < busy
    assert [outcome["failures"] for outcome in outcomes] == [[], []]
