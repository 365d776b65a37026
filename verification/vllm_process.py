"""What checks of vLLM share: a small model of random weights, and the environment of its process."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines.random_weights import register_loader
from benchmarks.engines.vllm_folder import OFFLINE

VOCABULARY = 32000
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
LOADER = "attn_kernels_random"
DEVIATION = 0.04  # of weights, so that tokens of such a small model depend on attention
PLUGIN = "attn_kernels.engines.vllm:register"


def register() -> None:
    """Give vLLM a loader of random weights with which tokens depend on attention; a plugin."""
    register_loader(LOADER, DEVIATION)


def environment(
    work: Path, sites: Sequence[str], paths: Sequence[str], plugin: str = PLUGIN
) -> dict[str, str]:
    """Return the variables of a process: where packages are, and plugins of vLLM.

    Args:
        work: folder to which entry points are written.
        sites: folders that hold an unpacked vLLM.
        paths: folders that hold this package; the working folder if empty.
        plugin: `module:function` that registers the backend CUSTOM.
    """
    info = work / "plugins" / "attn_kernels_checks-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: attn-kernels-checks\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nchecks_weights = verification.vllm_process:register\n"
        f"checks_backend = {plugin}\n"
    )
    folders = [*map(Path, sites), info.parent, *map(Path, paths or ["."])]
    found = [str(folder.resolve()) for folder in folders] + [os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **OFFLINE,
        "PYTHONPATH": os.pathsep.join(filter(None, found)),
        "PYTHONUNBUFFERED": "1",
    }
