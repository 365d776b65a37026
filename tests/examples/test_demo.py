"""The demo runs as a script, and its notebook is made of the script."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples/demo"


def test_it_goes_from_a_table_to_a_tree_and_shows_what_a_slower_config_changes(tmp_path: Path) -> None:
    code = "import sys; sys.modules.update(torch=None, triton=None); exec(open('demo.py').read())"
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


def test_the_notebook_has_the_cells_of_the_script_and_their_outputs() -> None:
    cells = re.findall(r"(?ms)^# %%([^\n]*)\n(.*?)(?=^# %%|\Z)", (DEMO / "demo.py").read_text())
    sources = [re.sub(r"(?m)^# ?", "", body) if marker else body for marker, body in cells]
    notebook = json.loads((DEMO / "demo.ipynb").read_text())["cells"]
    assert ["".join(cell["source"]) for cell in notebook] == [source.strip() for source in sources]
    assert all(cell["outputs"] for cell in notebook[3:] if cell["cell_type"] == "code")
