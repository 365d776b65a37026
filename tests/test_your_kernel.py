"""The page "Your kernel in ten minutes", followed word for word in Triton's interpreter."""

import re
import shlex
import subprocess
from functools import partial
from pathlib import Path

from forked import code, forked

from treegen.cli.main import main as treegen
from triton_tune.bench import pool
from triton_tune.cli.main import main as triton_tune

PAGE = Path(__file__).resolve().parents[1] / "docs" / "your_kernel.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")


def run(line, folder):
    """Run a line of a shell and return what it prints. Our commands, and Python, need no new process."""
    command, _, otherwise = line.partition(" || ")
    name, *words = shlex.split(command)
    arguments = []
    for word in words:
        arguments += [str(path.relative_to(folder)) for path in folder.glob(word)] if "*" in word else [word]
    calls = {"triton-tune": partial(triton_tune, arguments), "treegen": partial(treegen, arguments)}
    if name == "python":
        calls[name] = code(arguments[1] if arguments[0] == "-c" else (folder / arguments[0]).read_text())
    if name in calls:
        # The package of a page decorates functions with torch.compile when it is imported.
        status, output = forked(calls[name], folder, variables={"TORCHDYNAMO_DISABLE": "1"})
    else:
        done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True)
        status, output = done.returncode, done.stdout
    assert status == 0 or otherwise, (line, output)
    return output


def follow(page, folder):
    """Write the files that a page names, run its commands, and return what they print."""
    outputs = []
    for kind, text in BLOCK.findall(page):
        named = NAMED.match(text)
        if named:
            (folder / named[1]).write_text(text)
        elif kind == "sh" and not text.startswith("pip install"):
            outputs += [run(line, folder) for line in text.splitlines()]
    return "".join(outputs)


def test_the_page_is_followed_word_for_word(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    everything = follow(PAGE.read_text().replace(other_packages(), ""), tmp_path)
    assert "rms_norm: 12 shapes, 8 configs, 96 cells" in everything
    assert "the search is finished" in everything
    assert "tensor(600.00" in everything or "tensor(599.9" in everything  # of ones, each normalised to one
    assert "launches RMS_NORM_" in everything
    assert (tmp_path / "heuristics/rms_norm/cpu.py").is_file()
    assert '@tuned("heuristics.rms_norm")\n@triton.autotune' in (tmp_path / "norm.py").read_text()


def other_packages():
    """The section about a kernel of another package."""
    (section,) = re.findall(r"^## A kernel you do not own$.*?(?=^## )", PAGE.read_text(), re.M | re.S)
    return section


def test_a_kernel_of_another_package_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    output = follow(other_packages(), tmp_path)
    assert "l2norm: 4 shapes, 25 configs, 100 cells" in output and "features: D, NB, T" in output
    assert "tensor(5." in output or "tensor(4.99" in output  # five rows of length one
    assert "BT: " in output.splitlines()[-1]  # the config that was launched
    assert (tmp_path / "heuristics/l2norm/cpu.py").is_file()
