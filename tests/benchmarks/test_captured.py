"""``benchmarks.graphs.captured``: its means, and that it sees a wrong replay."""

import math

import pytest

from attn_kernels import Lengths
from attn_kernels.measure.batches import decode
from benchmarks.graphs import captured
from benchmarks.graphs.captured import EXACT, EXACT_PARTS, OURS, PARTS, lines
from benchmarks.graphs.captured_step import CapturedStep
from benchmarks.graphs.server_batches import ServerBatch


@pytest.mark.parametrize("arguments, spoilt", [
    (["--sets", "decode", "--seed", "3", "--batches", "1"], OURS),
    (["--sets", "mixed", "--parts", "--batches", "1"], PARTS),
])  # fmt: skip
def test_replays_are_checked(arguments, spoilt, monkeypatch, capsys):
    assert captured.main(["--device", "cpu", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "0 wrong" in printed
    assert "--parts" not in arguments or EXACT_PARTS in printed

    def replay_with_nan(self):
        replay(self)
        given = self._make_plan.keywords
        if given["for_capture"] and (given["parts"] is not None) == (spoilt == PARTS):
            self._layers[0].out[0, 0, 0] = math.nan

    replay = CapturedStep.replay
    monkeypatch.setattr(CapturedStep, "replay", replay_with_nan)
    assert captured.main(["--device", "cpu", *arguments]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG")]
    assert wrong and all(line.startswith(f"WRONG {spoilt}") for line in wrong)


def test_tables_are_means_of_ratios_to_the_exact_graph():
    def times(kind, context, ours, exact):
        batch = ServerBatch(kind, Lengths(1, 1, 1, context, context), decode(1, context))
        return batch, {OURS: ours, EXACT: exact}

    decodes = [times("decode", 512, 20, 10), times("decode", 9000, 5, 10)]
    found = [line.split() for line in lines([*decodes, times("short", 100, 3, 2)])]
    assert [OURS, "1.000", "2.00", "2.00"] in found
    assert ["<=", "512", "(", "1)", "10.0", "|", "2.000"] in found
    assert [">", "8K", "(", "1)", "10.0", "|", "0.500"] in found
    assert ["<=", "512", "(", "1)", "2.0", "|", "1.500"] in found
