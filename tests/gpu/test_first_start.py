"""First starts of servers: one rank compiles for all."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.gpu
# Waits for a line on stdin, compiles ahead, and prints the outcome as JSON.
RANK = """
import dataclasses, json, sys, torch
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.warmup.compile_ahead import compile_ahead

device = torch.device(sys.argv[1])
torch.cuda.set_device(device)
torch.zeros(1, device=device)
print("ready", flush=True)
sys.stdin.readline()
done = compile_ahead(device, HeadLayout(32, 8).model(16, torch.bfloat16), for_capture=True)
print(json.dumps(dataclasses.asdict(done)))
"""


def test_of_two_ranks_one_compiles(tmp_path: Path) -> None:
    """Two processes begin at the same time, with an empty cache; they share a GPU if there is only one."""
    env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    names = ["cuda:0", f"cuda:{min(1, torch.cuda.device_count() - 1)}"]
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RANK, name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=env,
                )
            )
            for name in names
        ]
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("go\n")
            rank.stdin.flush()
        outcomes = [json.loads(rank.communicate()[0]) for rank in ranks]
    idle, busy = sorted(outcome["compiled"] for outcome in outcomes)
    assert idle == 0 < busy
    assert [outcome["failures"] for outcome in outcomes] == [[], []]
