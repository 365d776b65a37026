"""Where vLLM, its plugins and a model of random weights lie, and the environment of its processes."""

import fcntl
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.environment import stop

ROOT = Path(__file__).resolve().parents[2]
PACKED = "vllm.tar.xz"  # vLLM's files and those of its requirements that the machine lacks
VLLM_HELP = f"a folder with {PACKED} or with a package vllm (default: the installed vLLM)"
TMP = Path(tempfile.gettempdir())
OURS = "CUSTOM"  # vLLM's name for a backend of a plugin
PLUGIN = "attn_kernels.engines.vllm:register"
# Variables of vLLM's processes on a machine without a network.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not packed
}
LLAMA_3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "torch_dtype": "bfloat16",
}


def site_of(folder: Path) -> Path:
    """The folder from which vLLM can be imported: this one, or where its packed files were unpacked."""
    if (folder / "vllm" / "__init__.py").exists():
        return folder.resolve()
    archive, site = folder / PACKED, TMP / "benchmarks_engines_site"
    if not archive.exists():
        stop(f"--vllm {folder}: holds neither {PACKED} nor a package vllm")
    with site.with_name(site.name + ".lock").open("w") as lock:  # once for all processes of this machine
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not site.exists():
            part = site.with_name(site.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(archive) as tar:
                tar.extractall(part, filter="data")
            part.rename(site)
    return site


def write_model(folder: Path, config: Mapping[str, Any]) -> Path:
    """Write a model's configuration; with random weights vLLM needs no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_plugins(folder: Path, backend: str | None) -> Path:
    """Write entry points by which vLLM finds the loader of random weights and the attention backend.

    Args:
        backend: `module:function` that registers the backend CUSTOM; None without one.
    """
    info = folder / "benchmarks_engines_plugins-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: benchmarks-engines-plugins\nVersion: 0\n")
    lines = ["[vllm.general_plugins]", "random_weights = benchmarks.engines.plugins:register_weights"]
    if backend is not None:
        lines.append(f"custom_backend = {backend}")
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return folder


def environment(vllm: Path | None, plugins: Path, cache: Path | None = None) -> dict[str, str]:
    """The environment of a process that runs vLLM.

    Args:
        vllm: folder that holds vLLM, as `site_of` takes it; None if vLLM is installed.
        plugins: folder that `write_plugins` wrote.
        cache: folder of compiled code that later runs find again.
    """
    folders = [vllm and site_of(vllm), plugins.resolve(), ROOT, os.environ.get("PYTHONPATH")]
    values = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in folders if path),
        "PYTHONSAFEPATH": "1",  # the working folder may hold a folder named vllm
        "PYTHONUNBUFFERED": "1",
        **OFFLINE,
    }
    if cache is not None:
        values |= {"VLLM_CACHE_ROOT": str(cache / "vllm"), "TRITON_CACHE_DIR": str(cache / "triton")}
    return values
