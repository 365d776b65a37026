"""The device, options, time budget and environment facts that all benchmark commands share."""

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import triton

from triton_tune.core.device import device_facts, driver_version
from triton_tune.core.source import hash_of
from tuning_table.command_line import CommandParser
from tuning_table.files import replace_file

EnvironmentFacts = dict[str, str | int | float]
Item = TypeVar("Item")
DEVICE_HELP = "cuda, cuda:N, or cpu (Triton's interpreter, which tests only the command)"


def stop(message: str) -> NoReturn:
    """Print one line to stderr and exit with code 2, for wrong use."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def pyplot_or_stop() -> Any:
    """Matplotlib's pyplot, which draws into files alone."""
    try:
        import matplotlib
    except ImportError:
        stop("matplotlib is not installed: pip install '.[report]'")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def device_from(name: str) -> torch.device:
    """Return the device that `--device` names; exit with code 2 if kernels cannot run there."""
    if name == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            stop("--device cpu runs kernels in Triton's interpreter: set TRITON_INTERPRET=1")
        return torch.device("cpu")
    if not torch.cuda.is_available():
        stop("no GPU was found; TRITON_INTERPRET=1 and --device cpu test the command without one")
    device = torch.device(name)
    if device.index is not None:
        torch.cuda.set_device(device)
    return torch.device("cuda", torch.cuda.current_device())


def parser_of(doc: str | None, prog: str) -> CommandParser:
    """The parser of a command that its module's text describes; wrong use is one line and exit code 2."""
    return CommandParser(prog=prog, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that compiles and launches kernels."""
    parser.add_argument("--device", default="cuda", help=DEVICE_HELP)
    parser.add_argument("--compile-workers", type=int, help="processes that compile before the run (0: none)")
    parser.add_argument("--seconds-budget", type=float, help="stop between batches before this time is over")


def within_deadline(items: Sequence[Item], deadline: float) -> Iterator[Item]:
    """Yield items while one as slow as the slowest so far would end before `deadline` (`time.monotonic`)."""
    slowest = 0.0
    for item in items:
        before = time.monotonic()
        if before + slowest > deadline:
            return
        yield item
        slowest = max(slowest, time.monotonic() - before)


def raise_if_lost(device: torch.device) -> None:
    """Raise the device's error again if a failed launch made the whole device unusable."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def source_hash() -> str:
    """Return twelve digits that change with the source of the kernels or of the generated modules."""
    root = Path(__file__).resolve().parents[2]
    return hash_of(
        root, [path for folder in ("attn_kernels", "generated") for path in (root / folder).rglob("*.py")]
    )


def describe(device: torch.device) -> EnvironmentFacts:
    """Return the device, driver, versions, source hash and date, for a table's head and for JSON."""
    facts, hip = device_facts(device), torch.version.hip
    return {
        "device": facts.pop("name"),
        **facts,
        "driver": driver_version(),
        "runtime": f"rocm {hip}" if hip else f"cuda {torch.version.cuda}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "source": source_hash(),
    }


def headline(facts: EnvironmentFacts) -> str:
    """Return the facts in one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` in one step, so that a killed run leaves no incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
