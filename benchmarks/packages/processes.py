"""The commands of a measurement, as processes that can import the packages, with one log."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.environment import device_from, stop

REPOSITORY = Path(__file__).resolve().parents[2]


def add_folders(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options of the folders that a measurement reads and writes."""
    parser.add_argument("--packages", type=Path, default=Path(".packages"), help="folder of the packages")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder of all results")


def check_machine(packages: Path) -> None:
    """Exit with code 2 where kernels cannot run, or there are no packages."""
    device_from("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")
    if not packages.is_dir():
        stop(f"--packages {packages}: no such folder; benchmarks/README.md says how to fill it")


@dataclass(frozen=True)
class Commands:
    """Runs Python modules in a folder, which gets log.txt. All paths are absolute."""

    folder: Path
    imports: Sequence[Path]  # folders for PYTHONPATH, before this repository

    def start(self, *words: object, cache: Path | None = None) -> subprocess.Popen[bytes]:
        """Start `python -m WORDS`, with Triton's cache in a folder."""
        path = [*self.imports, REPOSITORY, os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONUNBUFFERED": "1"}
        if cache is not None:
            env["TRITON_CACHE_DIR"] = str(cache)
        command = [sys.executable, "-m", *map(str, words)]
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=self.folder)

    def run(
        self, *words: object, cache: Path | None = None, limit: float | None = None, most: int = 0
    ) -> float:
        """Seconds that a command took.

        Raises SubprocessError where it took longer than `limit`, or its exit code is not one of 0 to `most`.
        """
        begun = time.monotonic()
        process = self.start(*words, cache=cache)
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        if not 0 <= status <= most:
            raise subprocess.CalledProcessError(status, [str(word) for word in words])
        return time.monotonic() - begun

    def last_line(self) -> str:
        """The last line of the log."""
        lines = (self.folder / "log.txt").read_text().splitlines()
        return lines[-1] if lines else ""
