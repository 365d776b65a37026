"""benchmarks.packages tunes kernels of other packages, and judges them on models that were not tuned."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.packages import measure, models

PAGE = (Path(__file__).parents[2] / "docs/your_kernel.md").read_text()
(TUNE,) = re.findall(r"```python\n# tune.py\n(import fla.*?)```", PAGE, re.DOTALL)
TUNE = TUNE.replace("T in (3, 250) for D in (48, 100)", "T in (3, 25) for D in (48,)")
UNTUNED = """
import dataclasses

from tune import TUNING

UNTUNED = dataclasses.replace(TUNING, shapes=[{"T": 7, "D": 40}, {"T": 9, "D": 40}])
del TUNING
"""


def test_no_judged_model_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TINY", False)
    for kernel in measure.KERNELS:
        shapes, judged = models.tuned(kernel)["shapes"], models.judged(kernel)
        (names,) = (names for names in shapes if isinstance(names, tuple))
        assert len(judged) > 30
        assert not {tuple(shape[name] for name in names) for shape in judged} & set(shapes[names])


def test_a_kernel_is_tuned_and_judged_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # the package decorates functions with torch.compile
    monkeypatch.setattr(measure, "KERNELS", ("l2norm",))
    root = tmp_path / "benchmarks/packages"
    (root / "l2norm").mkdir(parents=True)
    (root / "l2norm/tune.py").write_text(TUNE)
    (root / "untuned.py").write_text(UNTUNED)
    monkeypatch.setenv("PYTHONPATH", str(measure.HERE.parents[1]))
    monkeypatch.setattr(measure, "HERE", root)
    out = tmp_path / "out"
    budget = ["--tuning", "40", "--judging", "30", "--launches"]
    assert measure.main(["--packages", str(tmp_path), "--out", str(out), *budget]) == 0
    capsys.readouterr()
    assert measure.main(["--kernels", "--out", str(out)]) == 0  # prints the tables alone
    printed = capsys.readouterr().out
    figures = json.loads((out / "l2norm/40s/figures.json").read_text())
    assert figures["sizes"].startswith("2, 2, ")
    assert all(float(figures[name].split()[0]) >= 1 for name in ("module", "autotuner", "hindsight"))
    assert figures["module"] in printed and "Tuned in 40s" in printed
    assert "launches" in figures and "first_module" in figures
