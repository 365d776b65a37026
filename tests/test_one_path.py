"""From a table to a launch: a changed table changes the config with which the kernel is launched."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import treegen.build
from treegen.cli.main import main as treegen_main

REPOSITORY = Path(__file__).parents[1]
TABLE = "tuning_data/unified_attention/nvidia_h100"

# Runs a small batch through the public interface; prints what the Q-Block kernel was launched with.
LAUNCH = """
import json, torch
import attn_kernels
from attn_kernels.kernels import qblock
from attn_kernels.testing.reference import paged_attention_reference

real, seen = qblock.qblock_kernel, []

class Recorder:
    def __getitem__(self, grid):
        def launch(*arguments, **options):
            const = arguments[real.arg_names.index("const")]
            names = ("block_m", "tile_size", "num_stages")
            seen.append({name: getattr(const, name) for name in names} | options)
            return real[grid](*arguments, **options)
        return launch

torch.manual_seed(0)
q = torch.randn(4, 8, 64, dtype=torch.float16)
k, v = torch.randn(2, 8, 16, 2, 64, dtype=torch.float16)
cu = torch.tensor([0, 3, 4], dtype=torch.int32)
used = torch.tensor([40, 17], dtype=torch.int32)
table = torch.arange(6, dtype=torch.int32).reshape(2, 3)
plan = attn_kernels.plan(
    cu, used, table, attn_kernels.Model(8, 2, 64, 16, q.dtype), num_query_tokens=4, max_query_len=3,
    max_seq_len=40, device_key="nvidia_h100",
)
qblock.qblock_kernel = Recorder()
out = attn_kernels.run(plan, q, k, v, out=torch.full_like(q, float("nan")))
expected = paged_attention_reference(q, k, v, cu, used, table)
print(json.dumps({
    "config": plan.config._asdict(),
    "launched": seen,
    "error": float((out.double() - expected).norm() / expected.norm()),
}))
"""


def launch(generated_from: Path) -> dict[str, dict[str, object]]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{generated_from}:{REPOSITORY}"}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH], env=environment, cwd=generated_from, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make_fastest_everywhere(times: Path, config: str) -> None:
    """Wherever anything was timed, `config` takes half a microsecond."""
    with times.open(newline="") as source:
        header, *rows = list(csv.reader(source))
    column = header.index(config)
    for row in rows:
        row[column] = "0.5"
    with times.open("w", newline="") as target:
        csv.writer(target, lineterminator="\n").writerows([header, *rows])


def test_a_changed_table_changes_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(REPOSITORY / TABLE, tmp_path / TABLE)
    make_fastest_everywhere(tmp_path / TABLE / "times.csv", "qblock_M64_T32_W4_S3")
    spec = yaml.safe_load((REPOSITORY / "treegen.yaml").read_text())
    kernel = spec["kernels"]["unified_attention"] | {"tables": {"nvidia_h100": TABLE}}
    spec["kernels"] = {"unified_attention": kernel}
    (tmp_path / "treegen.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    for folds in ("folds_of", "group_folds"):  # they give figures to print, and change no row
        monkeypatch.setattr(treegen.build, folds, lambda problem: ())
    assert treegen_main(["build", "--spec", str(tmp_path / "treegen.yaml")]) == 0

    before, after = launch(REPOSITORY), launch(tmp_path)

    changed = {"variant": "qblock", "block_m": 64, "tile_size": 32, "num_warps": 4, "num_stages": 3}
    assert changed.items() <= after["config"].items()
    assert after["config"] != before["config"]
    del changed["variant"]
    assert after["launched"] == [{**changed, "enable_fp_fusion": True}]
    assert before["error"] < 2e-3 and after["error"] < 2e-3
