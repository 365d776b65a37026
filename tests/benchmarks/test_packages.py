"""benchmarks.packages tunes kernels of other packages, and judges them on models that were not tuned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.packages import measure, models

TUNE = """
import fla.modules.l2norm as package
import torch
from triton_tune import Tuning


def reference(x):
    scale = (x.float().square().sum(-1) + 1e-6).rsqrt()
    return x * scale[:, None], scale


TUNING = Tuning(
    kernel=package.l2norm_fwd_kernel,
    name="l2norm",
    call=package.l2norm_fwd,
    shapes=[{"T": T, "D": 48} for T in (3, 25)],
    arguments=lambda T, D: torch.randn(T, D),
    reference=reference,
    features={"T": "T"},
)
"""


UNTUNED = """
import dataclasses

from tune import TUNING

UNTUNED = dataclasses.replace(TUNING, shapes=[{"T": 7, "D": 40}, {"T": 9, "D": 40}])
del TUNING
"""


@pytest.mark.parametrize("kernel", measure.KERNELS)
def test_no_judged_model_is_tuned(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TINY", False)
    shapes = models.tuned(kernel)["shapes"]
    (names,) = (names for names in shapes if isinstance(names, tuple))
    judged = models.judged(kernel)
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
