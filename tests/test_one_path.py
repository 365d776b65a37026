"""From a table to a launch: a changed table changes the config that is planned and launched."""

import json
import shutil

import yaml
from programs import REPOSITORY, printed

from treegen.cli.main import main as treegen_main

TABLE = "tuning_data/unified_attention/nvidia_h100"

# Runs a small batch through the public interface; prints the config of its plan and its error.
LAUNCH = """
import json, torch
import attn_kernels
from attn_kernels.testing.poisoned import make_batch, relative_error

heads = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 64, "block_size": 16}
made = make_batch((3, 1), (40, 17), **heads, dtype=torch.float16)
plan = attn_kernels.plan(
    made.cu_seqlens_q, made.seqused_k, made.block_table, attn_kernels.Model(8, 2, 64, 16, torch.float16),
    num_query_tokens=4, max_query_len=3, max_seq_len=40, device_key="nvidia_h100",
)
out = torch.full_like(made.q, float("nan"))
attn_kernels.run(plan, made.q, made.k_cache, made.v_cache, out=out)
print(json.dumps({"config": plan.config._asdict(), "error": float(relative_error(out, made.reference()))}))
"""


def launch(generated_from):
    return json.loads(printed("-c", LAUNCH, cwd=generated_from))


def test_a_changed_table_changes_the_launch(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / TABLE, tmp_path / TABLE)
    times = tmp_path / TABLE / "times.csv"
    header, *rows = (line.split(",") for line in times.read_text().splitlines())
    column = header.index("qblock_M64_T32_W4_S3")
    rows = [[*row[:column], "0.5", *row[column + 1 :]] for row in rows]  # half a microsecond everywhere
    times.write_text("".join(f"{','.join(row)}\n" for row in (header, *rows)))
    spec = yaml.safe_load((REPOSITORY / "treegen.yaml").read_text())
    kernel = spec["kernels"]["unified_attention"] | {"tables": {"nvidia_h100": TABLE}}
    spec["kernels"] = {"unified_attention": kernel}
    (tmp_path / "treegen.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    for folds in ("folds_of", "group_folds"):  # they give figures to print, and change no row
        monkeypatch.setattr(f"treegen.crossval.folds.{folds}", lambda problem: ())
    assert treegen_main(["build", "--spec", str(tmp_path / "treegen.yaml")]) == 0
    before, after = launch(REPOSITORY), launch(tmp_path)
    changed = {"variant": "qblock", "block_m": 64, "tile_size": 32, "num_warps": 4, "num_stages": 3}
    assert changed.items() <= after["config"].items()
    assert after["config"] != before["config"]
    assert before["error"] < 2e-3 and after["error"] < 2e-3
