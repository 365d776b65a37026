"""Where a run happens: the device, the options all commands share, and the facts that a figure depends on."""

import argparse
import datetime
import os
import platform
import sys
from pathlib import Path
from typing import NoReturn

import torch
import triton

from attn_kernels.measure.device import driver_version, hash_of
from attn_kernels.measure.tensors import cache_bytes
from tuning_table.files import replace_file

Facts = dict[str, str | int | float]


def stop(message: str) -> NoReturn:
    """Wrong use: one line on stderr, exit code 2."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def device_from(name: str) -> torch.device:
    """The device to run on; stops when it cannot work."""
    if name == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            stop("--device cpu runs kernels in Triton's interpreter: set TRITON_INTERPRET=1")
        return torch.device("cpu")
    if not torch.cuda.is_available():
        stop("no GPU here; TRITON_INTERPRET=1 with --device cpu tests the plumbing")
    device = torch.device(name)
    if device.index is not None:
        torch.cuda.set_device(device)
    return torch.device("cuda", torch.cuda.current_device())


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Options that every benchmark command has."""
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu (interpreter, plumbing only)")
    parser.add_argument("--compile-workers", type=int, help="processes that compile ahead (0: none)")
    parser.add_argument("--seconds-budget", type=float, help="stop cleanly between batches after this time")


def source_hash() -> str:
    """Twelve digits that change when the kernels or the generated heuristics do."""
    root = Path(__file__).resolve().parents[2]
    return hash_of(
        root, [path for folder in ("attn_kernels", "generated") for path in (root / folder).rglob("*.py")]
    )


def describe(device: torch.device) -> Facts:
    """Device, driver, versions and date, for the head of a table and for JSON."""
    versions: Facts = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "source": source_hash(),
    }
    if device.type != "cuda":
        return {"device": "cpu (Triton interpreter)", **versions}
    card = torch.cuda.get_device_properties(device)
    hip = torch.version.hip
    return {
        "device": card.name,
        "arch": card.gcnArchName if hip else f"sm_{card.major}{card.minor}",
        "multiprocessors": card.multi_processor_count,
        "memory_gib": round(card.total_memory / 2**30, 1),
        "cache_mib": cache_bytes(device) >> 20,
        "driver": driver_version(),
        "runtime": f"rocm {hip}" if hip else f"cuda {torch.version.cuda}",
        **versions,
    }


def headline(facts: Facts) -> str:
    """The facts in one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` in one step, so that a killed run leaves no half-written file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
