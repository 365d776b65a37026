"""Compile configs for GPUs that this machine lacks, and show whether they fit.

    python -m attn_kernels.offline --all
    python -m attn_kernels.offline --target sm_90 --variant qblock --features window fp8
    python -m attn_kernels.offline --target sm_90 gfx942 --config qblock_M16_T64_W4_S3

Exit codes: 0 all fit, 1 some do not fit or do not compile, 2 wrong use.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product

from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.offline.compile import (
    DTYPES,
    FEATURES,
    CompileCase,
    CompileOutcome,
    CompileShape,
    compile_case,
    compile_in_processes,
)
from attn_kernels.offline.resources import SHARED_LIMITS, TARGETS
from triton_tune.cli.arguments import count
from tuning_table.command_line import CommandParser

ALL = tuple(config for variant in VARIANTS.values() for config in variant.samples)


def _parser() -> CommandParser:
    summary = "Compile configs for GPUs that this machine lacks, and show whether they fit."
    parser = CommandParser(prog="python -m attn_kernels.offline", description=summary, allow_abbrev=False)
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("--all", action="store_true", help="every variant, plain and with all features")
    subject.add_argument(
        "--variant", choices=VARIANTS, help="a config of this variant that fits every target"
    )
    subject.add_argument("--config", action="append", help="a config by its name; may be repeated")
    add = parser.add_argument
    add("--target", nargs="+", choices=TARGETS, default=list(TARGETS), help="GPUs; all if not given")
    names = (*FEATURES, "all")
    add("--features", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}; default: none")
    add("--head-sizes", type=int, nargs="+", default=[128], metavar="N")
    add("--block-size", type=int, default=16, metavar="N", help="tokens per page")
    add("--gqa-group-size", type=int, default=4, metavar="N")
    add("--dtype", default="bf16", choices=DTYPES)
    jobs, processors = partial(count, least=1), os.cpu_count() or 1
    add("--jobs", type=jobs, default=processors, metavar="N", help="processes at a time")
    return parser


def _configs(options: argparse.Namespace) -> Sequence[Config]:
    """The configs that the command line names. Raises ValueError."""
    if options.variant is not None:
        return VARIANTS[options.variant].samples[:1]
    return ALL if options.config is None else [Config.parse(text) for text in options.config]


def _cases(options: argparse.Namespace) -> list[CompileCase]:
    """Everything to compile. Raises ValueError, or RuntimeError if TRITON_INTERPRET is set."""
    given = options.features or ()
    features = [FEATURES if "all" in given else tuple(name for name in FEATURES if name in given)]
    if options.all and not given:
        features.append(FEATURES)
    sizes = (options.block_size, options.gqa_group_size, DTYPES[options.dtype])
    places = product(
        dict.fromkeys(_configs(options)),
        dict.fromkeys(options.target),
        dict.fromkeys(options.head_sizes),
        features,
    )
    cases = [
        CompileCase(config, CompileShape(target, head_size, *sizes, names))
        for config, target, head_size, names in places
    ]
    for case in cases:
        case.check()
    return cases


def print_table(cases: Sequence[CompileCase], outcomes: Iterable[CompileOutcome]) -> tuple[int, int]:
    """Print a line for each kernel; return how many there are, and how many fit."""
    wide = max(len(f"{case.config}/join_prompts") for case in cases)
    named = ["all" if case.shape.features == FEATURES else ",".join(case.shape.features) for case in cases]
    narrow = max(map(len, ("features", *named)))
    header = f"{'variant/kernel':{wide}}  target  head  {'features':{narrow}}"
    print(f"{header}  shared bytes  registers  spills  fits")
    count = fitting = 0
    for (config, shape), features, outcome in zip(cases, named, outcomes, strict=True):
        where = f"  {shape.target:6}  {shape.head_size:4}  {features or 'plain':{narrow}}  "
        if outcome.error is not None:
            count += 1
            print(f"{config!s:{wide}}{where}{outcome.error}", flush=True)
        for name, found in outcome.kernels.items():
            fits = found.shared_memory <= SHARED_LIMITS[shape.target]
            registers, spills = ("-" if n is None else n for n in (found.registers, found.spills))
            line = f"{f'{config}/{name}':{wide}}{where}{found.shared_memory:12}  {registers:>9}  {spills:>6}"
            print(f"{line}  {'yes' if fits else 'NO'}", flush=True)
            count, fitting = count + 1, fitting + fits
    return count, fitting


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all kernels fit, 1 if some do not fit or compile, 2 after wrong use."""
    options = _parser().parse_args(arguments)
    try:
        cases = _cases(options)
    except (ValueError, RuntimeError) as error:
        print(f"attn_kernels.offline: {error}", file=sys.stderr)
        return 2
    count, fitting = print_table(cases, compile_in_processes(compile_case, cases, options.jobs))
    targets = dict.fromkeys(case.shape.target for case in cases)
    limits = ", ".join(f"{SHARED_LIMITS[target]} on {target}" for target in targets)
    print(f"{fitting} of {count} fit (bytes of shared memory a block may have: {limits})")
    return 0 if fitting == count else 1


if __name__ == "__main__":
    sys.exit(main())
