"""The cells of the notebook run without torch and Triton."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples/demo"


def test_it_goes_from_a_table_to_a_tree_and_shows_what_a_slower_config_changes(tmp_path: Path) -> None:
    cells = json.loads((DEMO / "demo.ipynb").read_text())["cells"]
    sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    blocked = "import sys; sys.modules.update(torch=None, triton=None)\n"
    code = blocked + "\n".join(map("".join, sources[:-1]))  # the last one shows the page in Jupyter
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=DEMO, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    commands = re.findall(r"(?ms)^\$ treegen (\w+)(.*?)\(exit code (\d)\)", done.stdout)
    assert [(name, code) for name, _, code in commands] == [
        ("build", "0"),
        ("build", "0"),
        ("diff", "0"),  # the launched config got slower, which is the driver's fault
        ("report", "0"),
    ]
    assert "def steps_row(" in done.stdout and "M64_N256_K64_W8_S4" in commands[2][1]
    (report,) = tmp_path.glob("*/report.html")
    assert done.stdout.endswith(f"{report.resolve()}\n")
