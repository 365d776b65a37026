"""A small triton-dejavu cache, in the folders and the layout that triton-dejavu 0.7 writes."""

import json
from pathlib import Path
from typing import Any

CONFIG = "BLOCK: {}, num_warps: {}, fast: {}, maxnreg: None"
SCENARIOS = {
    "('16', '4', 'True', 'bf16', 'torch.bfloat16')": (CONFIG.format(16, 2, False), 0.01),
    "('32', '4', 'False', 'bf16', 'torch.bfloat16')": (CONFIG.format(128, 8, True), 0.02),
    "('64', '4', 'False', 'bf16', 'torch.bfloat16')": (CONFIG.format(16, 8, False), 1.5),
    "('128', '4', 'True', 'bf16', 'torch.bfloat16')": (CONFIG.format(16, 2, False), 0.25),
}


def cache(**changes: Any) -> dict[str, Any]:
    return {
        "signature": "JITFunction(package.module:my_kernel)",
        "total_bench_time_s": 12.6,
        "evaluated_configs": 540,
        "keys": ["SEQ", "HEADS", "CAUSAL", "DTYPE"],
        "cache": {key: config for key, (config, _) in SCENARIOS.items()},
        "timings": {key: [time, time * 2] for key, (_, time) in SCENARIOS.items()},
        "timings_data": {"labels": ["ms"], "rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": True},
        **changes,
    }


def write_cache(
    root: Path,
    content: dict[str, Any] | str | None = None,
    gpu: str = "NVIDIA_H100_80GB_HBM3",
    triton: str = "3.3.0",
) -> Path:
    gpu_folder = root / f"dejavu_0.7/triton_{triton}/cuda_12.4/gpu_{gpu}"
    folder = (
        gpu_folder / "my_kernel/autotune_config-0a/code_version-1b/tune_features-2c/kernel_configs-3d/default"
    )
    folder.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(cache() if content is None else content)
    (folder / "cache.json").write_text(text)
    return folder / "cache.json"
