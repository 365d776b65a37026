"""Compile configs for a GPU that is not there, and see whether they fit it.

    python -m attn_kernels.offline --target sm_90 --device-key nvidia_h100
    python -m attn_kernels.offline --target gfx942 --block-m 64 --tile-size 64 --num-warps 4 --num-stages 2

The first form compiles every config constant of a generated module, the second one config, at every head
size given. Exit codes: 0 all fit, 1 some do not fit or do not compile, 2 wrong use.
"""

import argparse
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from attn_kernels import checks
from attn_kernels.config import Config, LaunchConfig
from attn_kernels.kernels import qblock
from attn_kernels.launch import VARIANTS

# Bytes of shared memory that one block may have. NVIDIA: CUDA C++ Programming Guide, technical
# specifications per compute capability (163 KiB for 8.0, 227 KiB for 9.0). AMD: the 64 KiB of LDS of a
# compute unit, CDNA2 and CDNA3 ISA reference guides.
SHARED_LIMITS = {"sm_80": 166912, "sm_90": 232448, "gfx90a": 65536, "gfx942": 65536}
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
DTYPE_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled kernel needs: bytes of shared memory a block, registers and 4-byte spills a thread."""

    shared_bytes: int
    registers: int | None
    spills: int | None


def compile_config(
    config: LaunchConfig,
    *,
    target: str,
    head_size: int,
    block_size: int,
    queries_per_kv: int,
    dtype: torch.dtype = torch.bfloat16,
) -> Resources:
    """Compile a config's kernel as a launch on ``target`` (``sm_90``, ``gfx942``, ...) would; needs no GPU.

    Strides are taken to allow 16-byte accesses, as those of a contiguous cache do at most head sizes.
    ``registers`` and ``spills`` are None where Triton's bundled tools do not tell.

    Raises:
        ValueError: an impossible config, size or target. TypeError: dtype. RuntimeError: TRITON_INTERPRET is
        set. Whatever Triton raises when it cannot compile.
    """
    return measure(compile_kernel(config, target, head_size, block_size, queries_per_kv, dtype))


def compile_kernel(
    config: LaunchConfig,
    target: str,
    head_size: int,
    block_size: int,
    queries_per_kv: int,
    dtype: torch.dtype,
) -> Any:
    """Triton's compiled kernel, whose ``asm`` holds every stage (``ttgir``, ``ptx`` or ``amdgcn``)."""
    checks.check_config(config, VARIANTS)
    checks.check_heads(queries_per_kv, 1, head_size)
    checks.check_int("block_size", block_size, 1)
    checks.check_dtype(dtype)
    if target not in TARGETS:
        raise ValueError(f"target is {target!r}, but the targets are: {', '.join(TARGETS)}")
    kernel = qblock.qblock_kernel
    if not isinstance(kernel, JITFunction):
        raise RuntimeError("TRITON_INTERPRET is set, but compiling needs a process without it")
    constants = qblock.compile_time_constants(
        config, head_size=head_size, block_size=block_size, queries_per_kv=queries_per_kv
    )
    signature = {name: _argument_type(name, constants, dtype) for name in kernel.arg_names}
    aligned = [["tt.divisibility", 16]]
    attributes = {
        (index,): aligned
        for index, name in enumerate(kernel.arg_names)
        if name.endswith("_ptr") and name not in qblock.INDEX_POINTERS
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=TARGETS[target], options=qblock.compile_options(config))


def _argument_type(name: str, constants: dict[str, int | bool], dtype: torch.dtype) -> str:
    if name in constants:
        return "constexpr"
    if name in qblock.INDEX_POINTERS:
        return "*i32"
    if name.endswith("_ptr"):
        return "*" + DTYPE_NAMES[dtype]
    return "i32" if name in qblock.RUNTIME_INTS else "fp32"


def measure(kernel: Any) -> Resources:
    """Read a compiled kernel's resources: from its cubin with cuobjdump, or from its AMD assembly."""
    shared = int(kernel.metadata.shared)
    if "amdgcn" in kernel.asm:
        counts = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", kernel.asm["amdgcn"]))
        return Resources(shared, _int(counts.get("vgpr_count")), _int(counts.get("vgpr_spill_count")))
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not tool.exists():
        return Resources(shared, None, None)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    return Resources(shared, int(found[1]), int(found[2]) // 4) if found else Resources(shared, None, None)


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the command's table."""

    name: str
    config: Config
    head_size: int


def generated_configs(device_key: str) -> dict[str, Config]:
    """The config constants of a generated module by name. Raises ValueError."""
    from generated import unified_attention

    if device_key not in unified_attention.MODULES:
        known = ", ".join(sorted(unified_attention.MODULES))
        raise ValueError(f"device key is {device_key!r}, but the generated modules are: {known}")
    constants = vars(unified_attention.MODULES[device_key])
    found = {name: value for name, value in constants.items() if name.isupper() and isinstance(value, tuple)}
    return {
        name: Config(*(getattr(value, field) for field in Config._fields))
        for name, value in found.items()
        if hasattr(value, "variant")
    }


def _attempt(
    case: Case, target: str, block_size: int, queries_per_kv: int, dtype: torch.dtype
) -> Resources | str:
    try:
        return compile_config(
            case.config,
            target=target,
            head_size=case.head_size,
            block_size=block_size,
            queries_per_kv=queries_per_kv,
            dtype=dtype,
        )
    except Exception as error:  # a compiler may raise anything; the table names it and goes on
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _results(cases: list[Case], jobs: int, **shape: Any) -> Iterator[Resources | str]:
    attempt = partial(_attempt, **shape)
    if jobs == 1:
        yield from map(attempt, cases)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(attempt, cases)


def _print_table(cases: list[Case], results: Iterator[Resources | str], limit: int) -> int:
    """Print a line a case, and return how many do not fit."""
    width = max(len(case.name) for case in cases)
    print(f"{'config':{width}}  head  shared bytes  registers  spills  fits {limit}")
    misfits = 0
    for case, result in zip(cases, results, strict=True):
        start = f"{case.name:{width}}  {case.head_size:4}"
        if isinstance(result, str):
            misfits += 1
            print(f"{start}  {result}")
            continue
        fits = result.shared_bytes <= limit
        misfits += not fits
        registers, spills = ("-" if n is None else n for n in (result.registers, result.spills))
        print(f"{start}  {result.shared_bytes:12}  {registers:>9}  {spills:>6}  {'yes' if fits else 'NO'}")
    return misfits


def _parser() -> argparse.ArgumentParser:
    summary = "Compile configs for a GPU that is not there, and see whether they fit it."
    parser = argparse.ArgumentParser(prog="python -m attn_kernels.offline", description=summary)
    parser.add_argument("--target", required=True, choices=TARGETS, help="the GPU to compile for")
    parser.add_argument("--device-key", help="compile every config of this generated module")
    parser.add_argument("--variant", default="qblock", choices=VARIANTS)
    for field in Config._fields[1:]:
        parser.add_argument(f"--{field.replace('_', '-')}", type=int)
    parser.add_argument("--head-sizes", type=int, nargs="+", default=[128], metavar="N")
    parser.add_argument("--block-size", type=int, default=16, help="tokens a page holds")
    parser.add_argument("--queries-per-kv", type=int, default=4)
    parser.add_argument("--dtype", default="bf16", choices=DTYPE_NAMES.values())
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    return parser


def _configs(options: argparse.Namespace) -> dict[str, Config]:
    """The configs that the command line asks for. Raises ValueError."""
    parameters = [getattr(options, field) for field in Config._fields[1:]]
    if options.device_key is not None:
        if any(value is not None for value in parameters):
            raise ValueError("--device-key and config parameters were both given, but only one can choose")
        configs = generated_configs(options.device_key)
        if not configs:
            raise ValueError(f"the generated module {options.device_key} has no config constants")
        return configs
    if None in parameters:
        raise ValueError("give --device-key, or all of --block-m --tile-size --num-warps --num-stages")
    config = Config(options.variant, *parameters)
    checks.check_config(config, VARIANTS)
    return {"{}_M{}_T{}_W{}_S{}".format(*config): config}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        configs = _configs(options)
        for head_size in options.head_sizes:
            checks.check_heads(1, 1, head_size)
        if not isinstance(qblock.qblock_kernel, JITFunction):
            raise ValueError("TRITON_INTERPRET is set, but compiling needs a process without it")
    except ValueError as error:
        print(f"attn_kernels.offline: {error}", file=sys.stderr)
        return 2
    cases = [Case(name, config, size) for size in options.head_sizes for name, config in configs.items()]
    results = _results(
        cases,
        max(1, min(options.jobs, len(cases))),
        target=options.target,
        block_size=options.block_size,
        queries_per_kv=options.queries_per_kv,
        dtype={name: dtype for dtype, name in DTYPE_NAMES.items()}[options.dtype],
    )
    limit = SHARED_LIMITS[options.target]
    misfits = _print_table(cases, results, limit)
    fitting = f"{len(cases) - misfits} of {len(cases)}"
    print(f"{fitting} fit {options.target} ({limit} bytes of shared memory a block)")
    return 1 if misfits else 0


if __name__ == "__main__":
    sys.exit(main())
