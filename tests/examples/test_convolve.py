"""The tutorial's commands, on short signals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples/convolve"


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_tutorial(tmp_path: Path) -> None:
    here = tmp_path / "convolve"
    shutil.copytree(EXAMPLE, here, ignore=shutil.ignore_patterns("tables", "heuristics"))
    measured = _run(here, "measure.py", "tables/cpu", "--largest", "10")
    assert measured.stdout == "tables/cpu: 30 scenarios x 5 configs, 2 repeats\n", measured.stderr
    built = _run(here, "-m", "treegen", "build")
    assert "heuristics: 6 files, 6 changed, 0 removed" in built.stdout, built.stderr
    launched = _run(
        here,
        "-c",
        "import numpy as np\n"
        "from convolve import convolve\n"
        "from heuristics.convolve import for_device\n"
        "config = for_device('', '', 'cpu')(signal_len=300, filter_len=30)\n"
        "x, y = np.arange(300.0), np.arange(30.0)\n"
        "print(np.allclose(convolve(x, y, config.variant, config.block), np.convolve(x, y)))",
    )
    assert launched.stdout == "True\n", launched.stderr
    explained = _run(here, "-m", "treegen", "explain", "convolve", "signal_len=300", "filter_len=30")
    assert "\nlaunches " in explained.stdout, explained.stderr
    shutil.copytree(here, tmp_path / "before")
    text = (here / "treegen.yaml").read_text()
    (here / "treegen.yaml").write_text(text.replace("max_leaves: 6", "max_leaves: 1"))
    assert _run(here, "-m", "treegen", "build").returncode == 0
    assert _run(here, "-m", "treegen", "diff", "../before").returncode in (0, 1)
    checked = _run(here, "-m", "treegen", "check")
    assert (checked.returncode, "no problem" in checked.stdout) == (0, True), checked.stdout


def test_every_config_computes_the_same() -> None:
    code = (
        "import numpy as np\n"
        "from convolve import convolve\n"
        "random = np.random.default_rng(0)\n"
        "for n, m in ((1, 1), (5, 7), (1000, 30), (5000, 1200)):\n"
        "    x, y = random.random(n), random.random(m)\n"
        "    for variant, block in (('direct', 0), ('fft', 0), ('overlap_add', 64), ('overlap_add', 4096)):\n"
        "        assert np.allclose(convolve(x, y, variant, block), np.convolve(x, y))\n"
    )
    done = _run(EXAMPLE, "-c", code)
    assert done.returncode == 0, done.stderr


def test_the_tutorial_runs_what_is_tested_here() -> None:
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", (REPOSITORY / "docs/tutorial.md").read_text())
    commands = [line for block in blocks for line in block.splitlines()]
    treegen = [line.split()[1] for line in commands if line.startswith("treegen ")]
    assert treegen == ["build", "explain", "build", "diff"]
    assert "python measure.py tables/cpu" in commands
