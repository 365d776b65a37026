"""benchmarks.packages tunes kernels of other packages, and judges them on models that were not tuned."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from benchmarks.packages import measure

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
    shapes=[{"T": T, "D": D} for T in (3, 25) for D in (48, 100)],
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
def test_no_judged_model_was_tuned(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = ("fla.ops.common.chunk_h", "mamba_ssm.ops.triton.ssd_chunk_scan")
    for name in (*packages, "torchao.prototype.quantized_training.int8_mm"):
        for end in (*(at for at, letter in enumerate(name) if letter == "."), len(name)):
            monkeypatch.setitem(sys.modules, name[:end], MagicMock())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.syspath_prepend(measure.HERE / kernel)
    monkeypatch.delitem(sys.modules, "tune", raising=False)
    tuned = runpy.run_path(str(measure.HERE / kernel / "tune.py"))["TUNING"].shapes
    judged = runpy.run_path(str(measure.HERE / kernel / "untuned.py"))["UNTUNED"].shapes
    (names,) = (names for names in tuned if isinstance(names, tuple))
    assert len(judged) > 30
    assert not {tuple(shape[name] for name in names) for shape in judged} & set(tuned[names])
    sys.modules.pop("tune")


def test_a_kernel_is_tuned_and_judged_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(measure, "KERNELS", ("l2norm",))
    root = tmp_path / "benchmarks/packages"
    (root / "l2norm").mkdir(parents=True)
    (root / "l2norm/tune.py").write_text(TUNE)
    (root / "l2norm/untuned.py").write_text(UNTUNED)
    monkeypatch.setenv("PYTHONPATH", str(measure.HERE.parents[1]))
    monkeypatch.setattr(measure, "HERE", root)
    out = tmp_path / "out"
    assert measure.main(["--packages", str(tmp_path), "--out", str(out), "--budget", "20"]) == 0
    figures = json.loads((out / "l2norm/figures.json").read_text())
    assert figures["shapes"] == "4, 2" and figures["untimed"] == 0
    assert float(figures["module"].split()[0]) >= 1 <= float(figures["autotuner"].split()[0])
    assert figures["module"] in capsys.readouterr().out
