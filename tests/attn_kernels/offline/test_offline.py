"""Compilation for absent GPUs, in other processes: this one runs the interpreter."""

import json
from types import SimpleNamespace

import pytest
import torch
from kernel_cases import FP8
from programs import printed, python

from attn_kernels import Config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.offline import __main__ as command
from attn_kernels.offline import compile as module
from attn_kernels.offline.__main__ import ALL, main
from attn_kernels.offline.compile import FEATURES, CompileOutcome
from attn_kernels.offline.resources import SHARED_LIMITS, Resources
from attn_kernels.tuning.space.rules import shared_bytes
from attn_kernels.tuning.space.space import gpu_of

TARGETS = ("sm_80", "gfx942")  # the fixture ``compiled`` has sm_90


def offline(*arguments):
    result = python("-m", "attn_kernels.offline", *arguments, TRITON_INTERPRET=None)
    assert result.stderr == "", "neither errors nor warnings"
    header, *lines, summary = result.stdout.splitlines()
    titles = "variant/kernel target head features shared bytes registers spills fits"
    assert header.split() == titles.split()
    return result.returncode, [line.split() for line in lines], summary


def small(config):
    """A config that compiles quickly; those of the Hopper kernel allow no smaller one."""
    if VARIANTS[config.variant].mixed or config.tma:
        return config
    return config._replace(block_m=16, tile_size=16, num_warps=1, num_stages=1)


def test_every_kernel_of_every_variant_compiles_with_all_features():
    """For one GPU of each vendor."""
    chosen = {config.variant: small(config) for config in ALL}
    configs = [word for config in chosen.values() for word in ("--config", str(config))]
    code, lines, summary = offline(
        *configs, "--target", *TARGETS, "--features", "all", "--head-sizes", "16", "--jobs", "2"
    )
    assert code == 0, lines
    assert summary.startswith(f"{len(lines)} of {len(lines)} fit")
    for _, target, head_size, features, shared, registers, spills, fits in lines:
        assert (head_size, features, fits) == ("16", "all", "yes") and int(spills) >= 0
        assert 0 <= int(shared) <= SHARED_LIMITS[target] and 0 < int(registers) <= 512
        assert f"{SHARED_LIMITS[target]} on {target}" in summary
    kernels = {
        f"{name}/{kernel.__name__}" for name, variant in VARIANTS.items() for kernel in variant.kernels
    } | {"pod/divide_kernel"}
    names = [line[0].split("/")[1].rstrip("0123456789") for line in lines]  # reduce16, reduce64, reduce256
    found = {
        (f"{line[0].split('_M')[0]}/{name}_kernel", line[1]) for line, name in zip(lines, names, strict=True)
    }
    assert found == {(kernel, target) for kernel in kernels for target in TARGETS}


QBLOCK = "qblock_M64_T32_W4_S2"
# A thread's spilled registers with Triton 3.9 at a head size of 128; those of 3.6 are fewer.
MOST_SPILLS = {"qblock_M128_T128_W8_S2_D1": 88, "stream_k_M16_T128_W4_S2_D1": 8, "pod_M128_T64_W4_S3": 112}
# On a Hopper GPU, with features, on another GPU, and where the Hopper kernel refuses the head size.
PLACES = ("sm_90",), ("sm_90", 80, ("softcap", "sinks")), ("sm_80",), ("sm_90", 72)
JOINS = ["reduce16", "reduce64", "reduce256"]
KERNELS = {
    "qblock": (["schedule", "hopper", "join_prompts"], ["qblock", *JOINS, "split_keys"], ["qblock", *JOINS]),
    "stream_k": (["schedule", "hopper"], ["qblock", *JOINS, "split_keys"], ["qblock"]),
    "pod": (["divide", "schedule", "hopper"], ["divide"], ["divide"]),
}
# Head sizes and features with which configs have about as much shared memory as an H100.
NEAR_THE_LIMIT = [
    ("qblock_M128_T128_W8_S3", 128, []),  # fits
    ("qblock_M16_T64_W4_S4", 256, []),  # fits
    ("qblock_M128_T64_W8_S3", 256, []),  # does not
    ("qblock_M64_T64_W4_S3", 128, ["fp8"]),  # fits
    ("qblock_M128_T32_W8_S2", 512, []),  # fits
    ("qblock_M64_T32_W4_S3", 512, ["fp8"]),  # fits
]
COMPILE = """
import json, re, sys
from concurrent.futures import ProcessPoolExecutor
import torch
from attn_kernels import Config
from attn_kernels.offline.compile import CompileShape, compile_kernel, needed_kernels
from attn_kernels.offline.resources import measure

INSTRUCTIONS = r"^\\s+(?:@\\S+ )?([a-z_]+[.a-z0-9_:]*)"
COPIES = r"cp\\.async\\.c[ag]\\.shared\\.global .*?(0x\\w+)"

def needed(name, target, head_size=128, features=()):
    shape = CompileShape(target, head_size, 16, 4, torch.bfloat16, tuple(features))
    return needed_kernels(Config.parse(name), shape)

def compile_all(job):
    found = []
    for name, kernel in needed(*job).items():
        compiled = compile_kernel(kernel)
        text, measured = compiled.asm.get("ptx") or compiled.asm["amdgcn"], measure(compiled)
        found.append({
            "config": job[0],
            "target": job[1],
            "kernel": name,
            "spills": measured.spills,
            "shared": measured.shared_memory,
            "instructions": sorted(set(re.findall(INSTRUCTIONS, text, re.M))),
            "copies": sorted(set(re.findall(COPIES, text))),
        })
    return found

jobs, names, places = json.loads(sys.argv[1])
with ProcessPoolExecutor(2) as pool:
    found = sum(pool.map(compile_all, jobs), [])
print(json.dumps([found, {name: [list(needed(name, *place)) for place in places] for name in names}]))
"""


@pytest.fixture(scope="module")
def compiled():
    """Kernels of QBLOCK on three GPUs, those of other configs on an H100, and what each place needs."""
    jobs = [(name, "sm_90") for name in (*MOST_SPILLS, QBLOCK)]
    jobs += [(QBLOCK, target) for target in TARGETS]
    jobs += [(name, "sm_90", *where) for name, *where in NEAR_THE_LIMIT]
    found, names = json.loads(
        printed("-c", COMPILE, json.dumps([jobs, list(MOST_SPILLS), PLACES]), TRITON_INTERPRET=None)
    )
    return [SimpleNamespace(**one) for one in found], names


@pytest.fixture
def of_qblock(compiled):
    return [one for one in compiled[0] if one.config == QBLOCK]


def test_hardly_a_register_spills_at_the_default_config(of_qblock):
    assert [(one.kernel, one.target, one.spills) for one in of_qblock if one.spills > 4] == []


def test_keys_and_values_are_copied_16_bytes_at_a_time(of_qblock):
    for one in of_qblock:
        if one.kernel == "split_keys":  # reads neither
            continue
        if one.kernel.startswith("reduce"):
            assert one.target.startswith("gfx") or "ld.global.v4.b32" in one.instructions
        elif one.target.startswith("sm"):
            assert one.copies == ["0x10"], one.kernel
        else:
            assert "global_load_dwordx4" in one.instructions, one.kernel
            narrow = ("global_load_dword", "global_load_dwordx2", "global_load_ushort")
            assert not set(narrow) & set(one.instructions)


def test_products_use_matrix_instructions(of_qblock):
    names = {"sm_90": "wgmma.mma_async", "sm_80": "mma.sync", "gfx942": "v_mfma"}
    for one in of_qblock:
        used = any(instruction.startswith(names[one.target]) for instruction in one.instructions)
        assert used == (not one.kernel.startswith(("reduce", "split_keys"))), one


@pytest.mark.parametrize("name", MOST_SPILLS)
def test_the_hopper_kernel_compiles_where_it_can(name, compiled):
    of_name = {one.kernel: one for one in compiled[0] if one.config == name}
    by_hopper, on_ampere, by_pointers = KERNELS[name.split("_M")[0]]
    assert list(of_name) == by_hopper
    assert compiled[1][name] == [by_hopper, by_hopper, on_ampere, by_pointers]
    for begin in ("cp.async.bulk.tensor", "wgmma.mma_async", "setmaxnreg"):
        assert any(instruction.startswith(begin) for instruction in of_name["hopper"].instructions)
    assert of_name["schedule"].spills == 0
    assert of_name["hopper"].spills <= MOST_SPILLS[name]
    assert max(one.shared for one in of_name.values()) <= SHARED_LIMITS["sm_90"]


@pytest.mark.parametrize("name, head_size, features", NEAR_THE_LIMIT)
def test_shared_memory_is_what_the_rules_of_tuning_say(name, head_size, features, compiled):
    model = HeadLayout(32, 8, head_size).model(16, torch.bfloat16, FP8 if features else None)
    allocated = max(one.shared for one in compiled[0] if one.config == name)
    assert (
        shared_bytes(Config.parse(name), model, gpu_of({"arch": "sm_90", "multiprocessors": 132}))
        == allocated
    )


def test_what_does_not_compile_is_a_line_of_the_table(monkeypatch, capsys):
    outcomes = [CompileOutcome({}, "TypeError: no"), CompileOutcome({"qblock": Resources(1 << 20, None, 9)})]
    monkeypatch.setattr(module.knobs.runtime, "interpret", False)
    monkeypatch.setattr(command, "compile_in_processes", lambda compile_one, cases, jobs: iter(outcomes))
    assert main(["--target", "sm_80", "sm_90", "--variant", "qblock"]) == 1
    _, failed, too_large, summary = capsys.readouterr().out.splitlines()
    assert failed.endswith("TypeError: no")
    assert too_large.split()[4:] == ["1048576", "-", "9", "NO"]
    assert summary.startswith("0 of 2 fit")


def test_features_are_compiled_in_their_order(monkeypatch, capsys):
    found = []
    monkeypatch.setattr(module.knobs.runtime, "interpret", False)
    monkeypatch.setattr(command, "compile_in_processes", lambda compile_one, cases, jobs: map(note, cases))

    def note(case):
        found.append(case.shape.features)
        return CompileOutcome({})

    assert main(["--target", "sm_80", "--variant", "qblock", "--features", "fp8", "window", "fp8"]) == 0
    assert main(["--target", "sm_80", "--all"]) == 0
    assert found == [("window", "fp8"), *((), FEATURES) * len(ALL)]


@pytest.mark.parametrize(
    "arguments, named",
    [
        ("", "--all --variant --config"),
        ("--all --variant qblock", "--variant"),
        ("--all --target sm_70", "sm_70"),
        ("--all --features tanh", "tanh"),
        ("--all --features=", "--features"),
        ("--all --jobs 0", "--jobs"),
        ("--all --gqa-group-size 0", "num_query_heads"),
        ("--all --block-size 0", "block_size"),
        ("--all --head 64", "--head"),
        ("--variant paged", "paged"),
        ("--variant qblock --head-sizes 600", "head_size"),
        ("--variant qblock", "TRITON_INTERPRET"),
        ("--config qblock", "qblock"),
        ("--config paged_M16_T16", "paged"),
    ],
)
def test_wrong_use_is_one_line(arguments, named, capsys):
    try:
        assert main(arguments.split()) == 2
    except SystemExit as end:  # of the parser
        assert end.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert named in captured.err
    assert len(captured.err.splitlines()) == 1
