"""vLLM from a packed folder: unpack it, make a model folder of random weights, and set the environment."""

import fcntl
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common.environment import stop

ROOT = Path(__file__).resolve().parents[2]
PACKED = "vllm.tar.xz"  # vLLM's files and those of its requirements that the machine lacks
TMP = Path(tempfile.gettempdir())
PLUGIN_DIST = "benchmarks_engines_plugins-0.dist-info"
# Variables of vLLM's processes on a machine without a network.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer is not packed
}
LLAMA_3_8B: dict[str, object] = {
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


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes out, by a lock file beside `path`."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive, once for all processes of this machine."""
    with alone(target):
        if not target.exists():
            part = target.with_name(target.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(archive) as tar:
                tar.extractall(part, filter="data")
            part.rename(target)


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder of compiled code, for the same machine on another day."""
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(folder, ".")


def site_of(folder: Path) -> Path:
    """Return where vLLM can be imported from: the folder, or where its packed files were unpacked."""
    if (folder / "vllm" / "__init__.py").exists():
        return folder.resolve()
    if not (folder / PACKED).exists():
        stop(f"--vllm {folder}: holds neither {PACKED} nor a package vllm")
    site = TMP / "benchmarks_engines_site"
    unpack(folder / PACKED, site)
    return site


def write_model(folder: Path, changes: Mapping[str, object]) -> Path:
    """Write the configuration of Llama-3.1-8B's shape with changes; vLLM needs no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA_3_8B, **changes}))
    return folder


def write_plugins(folder: Path, plugin: str | None) -> Path:
    """Write entry points by which vLLM finds the loader of weights and the attention backend.

    Args:
        plugin: `module` or `module:function` that registers the backend CUSTOM; None without one.
    """
    info = folder / PLUGIN_DIST
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: benchmarks-engines-plugins\nVersion: 0\n")
    lines = ["[vllm.general_plugins]", "random_weights = benchmarks.engines.random_weights:register"]
    if plugin is not None:
        lines.append(f"custom_backend = {plugin if ':' in plugin else plugin + ':register'}")
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return folder


def environment(
    site: Path, plugins: Path, cache: Path, paths: Sequence[str], gpu: str | None, record: Path | None
) -> dict[str, str]:
    """Return the environment of a process that runs vLLM, on a machine without a network."""
    found = [site, plugins, ROOT, *map(Path, paths), os.environ.get("PYTHONPATH")]
    values = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in found if path),
        "PYTHONSAFEPATH": "1",  # the working folder may hold a folder named vllm
        "PYTHONUNBUFFERED": "1",
        **OFFLINE,
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }
    if gpu is not None:
        values["CUDA_VISIBLE_DEVICES"] = gpu
    if record is not None:
        values["ATTN_KERNELS_RECORD"] = str(record)
    return values
