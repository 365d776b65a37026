"""Every command of docs/imports.md and docs/export.md runs and prints what the page shows."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from treegen_builders import REPOSITORY
from treegen_caches import cache, write_cache
from tuned_files import AITER, CSV, ENTRY, GEMM, MOE

from treegen.cli.main import main

REAL = REPOSITORY / "tests/treegen/importers/real"
PAGE = (REPOSITORY / "docs/imports.md").read_text()
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")[1:]}


def _write(path, content):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The sources that the page's commands name."""
    monkeypatch.chdir(tmp_path)
    configs = ",".join(ENTRY.replace('"BLOCK": 64', f'"BLOCK": {block}') for block in (64, 128, 256))
    for key in ('[8, true, "torch.float16"]', '[9, false, "torch.float32"]'):
        _write(f"cache/{key[1]}/scale.autotune.json", f'{{"key": {key}, "configs_timings": [{configs}]}}')
    _write("times.csv", CSV)
    vllm = "vllm/model_executor/layers/fused_moe/configs"
    _write(f"{vllm}/E=128,N=1024,device_name=NVIDIA_H200.json", MOE)
    _write(f"{vllm}/E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", {"64": MOE["1"]})
    name = "N=1536,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128, 128].json"
    _write(f"python/sglang/srt/layers/quantization/configs/{name}", GEMM)
    _write("aiter/configs/a8w8_tuned_gemm.csv", AITER)
    shutil.copytree(REAL / "fla", "fla/configs/NVIDIA_H100_80GB_HBM3")
    shutil.copytree(REAL / "gemlite", "gemlite/configs")
    shutil.copytree(REAL / "aiter", "aiter/ops/triton/configs/gemm")
    shutil.copy(REAL / "kernel_tuner/convolution.json", "convolution.json")
    write_cache(Path("dejavu_data"))
    _write("cache.json", cache())


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("title", SECTIONS)
def test_imports(title, capsys):
    commands = re.findall(r"^    treegen (import .*)$", SECTIONS[title], re.MULTILINE)
    printed = ""
    for place, command in enumerate(commands):
        assert main([*shlex.split(command), "--to", f"to{place}"]) == 0
        out = capsys.readouterr().out.replace(f"to{place}/", "tuning_data/")
        printed += "" if out in printed else out
    (shown,) = re.findall(r"```\n(.*?)```", SECTIONS[title], re.DOTALL)
    assert commands and printed == shown


def test_exports(tmp_path, monkeypatch, capsys):
    shutil.copytree(REPOSITORY / "examples/block_fp8", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    page = (REPOSITORY / "docs/export.md").read_text()
    commands = re.findall(r"^    treegen (.*)$", page, re.MULTILINE)
    assert commands and all(main(shlex.split(command)) == 0 for command in commands)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert capsys.readouterr().out == "".join(text for language, text in blocks if not language)
