"""The demo notebook, the commands of the tutorial on short signals, and the decode loop."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

from programs import REPOSITORY, printed

from treegen.cli.main import main as treegen

DEMO, CONVOLVE = REPOSITORY / "examples/demo", REPOSITORY / "examples/convolve"


def test_it_goes_from_a_table_to_a_tree_and_shows_what_a_slower_config_changes(tmp_path):
    cells = json.loads((DEMO / "demo.ipynb").read_text())["cells"]
    sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    blocked = "import sys; sys.modules.update(torch=None, triton=None)\n"
    code = blocked + "\n".join(map("".join, sources[:-1]))  # the last one shows the page in Jupyter
    told = printed("-c", code, cwd=DEMO, TMPDIR=str(tmp_path))
    commands = re.findall(r"(?ms)^\$ treegen (\w+)(.*?)\(exit code (\d)\)", told)
    assert [(name, code) for name, _, code in commands] == [
        ("build", "0"),
        ("build", "0"),
        ("diff", "0"),  # the launched config got slower, which is the driver's fault
        ("report", "0"),
    ]
    assert "def steps_row(" in told and "M64_N256_K64_W8_S4" in commands[2][1]
    (report,) = tmp_path.glob("*/report.html")
    assert told.endswith(f"{report.resolve()}\n")


LAUNCH = """
import numpy as np
from convolve import convolve
from heuristics.convolve import for_device
config = for_device("", "", "cpu")(signal_len=300, filter_len=30)
x, y = np.arange(300.0), np.arange(30.0)
print(np.allclose(convolve(x, y, config.variant, config.block), np.convolve(x, y)))
"""


def test_the_tutorial(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", (REPOSITORY / "docs/tutorial.md").read_text())
    commands = [line for block in blocks for line in block.splitlines()]
    ours = [line.split()[1] for line in commands if line.startswith("treegen ")]
    assert ours == ["build", "explain", "build", "diff"]
    assert "python measure.py tables/cpu" in commands
    here = tmp_path / "convolve"
    shutil.copytree(CONVOLVE, here, ignore=shutil.ignore_patterns("tables", "heuristics"))
    monkeypatch.chdir(here)
    assert "30 scenarios x 5 configs, 2 repeats" in printed(
        "measure.py", "tables/cpu", "--largest", "10", cwd=here
    )
    assert treegen(["build"]) == 0
    assert printed("-c", LAUNCH, cwd=here) == "True\n"
    assert treegen(["explain", "convolve", "signal_len=300", "filter_len=30"]) == 0
    shutil.copytree(here, tmp_path / "before")
    text = Path("treegen.yaml").read_text()
    Path("treegen.yaml").write_text(text.replace("max_rows: 6", "max_rows: 1"))
    assert treegen(["build"]) == 0
    assert treegen(["diff", "../before"]) in (0, 1)
    capsys.readouterr()
    assert treegen(["check"]) == 0
    assert "no problem" in capsys.readouterr().out


def test_the_decode_loop_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["decode_step.py", "--device", "cpu"])
    runpy.run_path(str(REPOSITORY / "examples/decode_step.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()] == ["step 0", "step 1"]
    assert "nan" not in out
