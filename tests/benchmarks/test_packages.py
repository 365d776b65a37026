"""benchmarks.packages tunes kernels of other packages, and judges them on models that were not tuned."""

import json
import runpy
import sys

from forked import forked

from benchmarks.packages import measure, models
from benchmarks.packages.processes import Commands
from triton_tune.bench import pool

TUNE = "from scaled_kernel import ADDED as TUNING\n"
UNTUNED = """
import dataclasses
import tune

UNTUNED = dataclasses.replace(tune.TUNING, shapes=[{"size": 7}, {"size": 40}])
"""


def test_no_judged_model_is_tuned(monkeypatch):
    monkeypatch.setattr(models, "TINY", False)
    for kernel in measure.KERNELS:
        shapes, judged = models.tuned(kernel)["shapes"], models.judged(kernel)
        (names,) = (names for names in shapes if isinstance(names, tuple))
        assert len(judged) > 30
        assert not {tuple(shape[name] for name in names) for shape in judged} & set(shapes[names])


def in_a_fork(commands, module, *words, **limits):
    """In place of a new process, which would import torch again."""

    def run():
        for name in list(sys.modules):  # of another folder that a test has used
            if name.partition(".")[0] in ("heuristics", "tune", "untuned"):
                del sys.modules[name]
        sys.path[:0] = map(str, commands.imports)
        sys.argv[1:] = map(str, words)
        runpy.run_module(module, run_name="__main__")

    status, output = forked(run, commands.folder)
    assert status == 0, output
    return 0.0


def test_a_kernel_is_tuned_and_judged(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    monkeypatch.setattr(measure, "KERNELS", ("sums",))
    monkeypatch.setattr(measure, "HERE", tmp_path)
    monkeypatch.setattr(Commands, "run", in_a_fork)
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/tune.py").write_text(TUNE)
    (tmp_path / "untuned.py").write_text(UNTUNED)
    out = tmp_path / "out"
    budget = ["--tuning", "20", "--judging", "20", "--launches"]
    assert measure.main(["--packages", str(tmp_path), "--out", str(out), *budget]) == 0
    capsys.readouterr()
    assert measure.main(["--kernels", "--out", str(out)]) == 0  # prints the tables alone
    printed = capsys.readouterr().out
    figures = json.loads((out / "sums/20s/figures.json").read_text())
    assert figures["sizes"].startswith("2, 2, ")
    assert all(float(figures[name].split()[0]) >= 1 for name in ("module", "autotuner", "hindsight"))
    assert figures["module"] in printed and "Tuned in 20s" in printed
    assert "launches" in figures and "first_module" in figures
