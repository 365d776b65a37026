"""`treegen export prune` and `hub`: one plain file with which Triton's autotuner times nothing."""

import importlib
import itertools
import runpy
import sys
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from programs import printed
from treegen_builders import REPOSITORY
from triton.runtime.autotuner import Autotuner

from treegen.cli.main import main

MATMUL = REPOSITORY / "examples/matmul"
FLA = REPOSITORY / "tests/treegen/importers/real/fla"


def loaded(path):
    return SimpleNamespace(**runpy.run_path(str(path)))


def test_matmul_launches_what_its_module_does(tmp_path, monkeypatch):
    monkeypatch.chdir(MATMUL)
    assert main(["export", "prune", "matmul", "--device", "nvidia_h200", "--to", str(tmp_path)]) == 0
    made = loaded(tmp_path / "matmul_configs.py")
    monkeypatch.syspath_prepend(str(MATMUL))
    for name in [name for name in sys.modules if name.partition(".")[0] == "heuristics"]:
        monkeypatch.delitem(sys.modules, name)
    choose = importlib.import_module("heuristics.matmul").MODULES["nvidia_h200"].choose
    assert made.KEY == ["M", "N", "K"]
    seen = set()
    for m, n, k in itertools.product((1, 40, 97, 512, 8192), (64, 4096, 16384), (128, 4096)):
        (found,) = made.prune(made.CONFIGS, {"M": m, "N": n}, K=k)
        wanted = choose(M=m, N=n, K=k)._asdict()
        kwargs = found.all_kwargs()
        assert all(kwargs[name] == value for name, value in wanted.items() if name != "variant")
        assert any(found is config for config in made.CONFIGS)
        seen.add(str(found))
    assert len(seen) > 3


def test_the_file_of_all_gpus_imports_none_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(MATMUL)
    assert main(["export", "hub", "matmul", "--to", str(tmp_path)]) == 0
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["build.toml", "torch-ext/matmul/__init__.py", "torch-ext/matmul/configs.py"]
    program = (
        "import sys, matmul; "
        "print(len(matmul.prune(matmul.CONFIGS, {'M': 1, 'N': 2, 'K': 3})), "
        "[n for n in sys.modules if n.partition('.')[0] in ('treegen', 'triton_tune', 'tuning_table')])"
    )
    assert printed("-c", program, cwd=tmp_path / "torch-ext") == "1 []\n"


def l2norm_fwd_kernel(  # fla's has these arguments
    x, y, rstd, eps, T, D: tl.constexpr, BD: tl.constexpr, NB: tl.constexpr, BT: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0) * BT + tl.arange(0, BT)
    place = row[:, None] * D + tl.arange(0, BD)[None, :]
    inside = (row < T)[:, None] & (tl.arange(0, BD) < D)[None, :]
    values = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values, 1) + eps)
    tl.store(y + place, (values * scale[:, None]).to(y.dtype.element_ty), mask=inside)
    tl.store(rstd + row, scale, mask=row < T)


def test_a_kernel_of_fla_launches_without_timing(tmp_path, monkeypatch):
    # To time a config is an error, but for Triton before 3.8, which times the one that is left.
    times = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8)
    monkeypatch.setattr(Autotuner, "_bench", (lambda *_, **__: [1.0] * 3) if times else None)
    monkeypatch.chdir(tmp_path)
    features = ("--features", "D,NB,x_dtype,y_dtype,rstd_dtype", "--device", "NVIDIA H100 80GB HBM3")
    assert main(["import", "fla", str(FLA), *features]) == 0
    assert main(["init", "tuning_data/l2norm_fwd_kernel/nvidia_h100"]) == 0
    assert main(["build"]) == 0
    assert main(["export", "prune", "l2norm_fwd_kernel", "--device", "nvidia_h100"]) == 0
    made = loaded(tmp_path / "exported/l2norm_fwd_kernel_configs.py")
    rule = {"early_config_prune": made.prune}
    kernel = triton.autotune(configs=made.CONFIGS, key=made.KEY, prune_configs_by=rule)(
        triton.jit(l2norm_fwd_kernel)
    )
    launched = set()
    for size, dtype in itertools.product((64, 100, 256), (torch.float32, torch.bfloat16, torch.float16)):
        x = torch.randn(9, size, dtype=dtype)
        y, rstd = torch.full_like(x, torch.nan), torch.full((9,), torch.nan)
        kernel[lambda meta: (triton.cdiv(9, meta["BT"]),)](x, y, rstd, 1e-6, 9, D=size, BD=256, NB=4)
        exact = x.double() / torch.sqrt((x.double() ** 2).sum(1, keepdim=True) + 1e-6)
        torch.testing.assert_close(y.double(), exact, atol=1e-2 if dtype != torch.float32 else 1e-5, rtol=0)
        launched.add((size, dtype, kernel.best_config.kwargs["BT"], kernel.best_config.num_warps))
    assert {(64, torch.bfloat16, 16, 4), (256, torch.float32, 32, 8)} < launched
    fallback = {(block, warps) for _, dtype, block, warps in launched if dtype == torch.float16}
    assert len(fallback) == 1  # no table has this data type


def test_what_prune_refuses(tmp_path, monkeypatch, refusal):
    monkeypatch.chdir(MATMUL)
    to = ("--to", tmp_path / "to")
    assert "Q=x" in refusal(tmp_path, "export", "prune", "matmul", "Q=x", *to)
    assert "M=x.shape" in refusal(tmp_path, "export", "prune", "matmul", "M=x.shape[0]", *to)
    assert "--along" in refusal(tmp_path, "export", "hub", "matmul", "--along", "M", *to)
    assert "nvidia_b200" in refusal(tmp_path, "export", "prune", "matmul", "--device", "nvidia_b200", *to)
