"""Compile configs for GPUs that this machine lacks, and show whether they fit.

    python -m attn_kernels.offline --all
    python -m attn_kernels.offline --target sm_90 --variant segmented --tile-size 64 --features window,fp8
    python -m attn_kernels.offline --target sm_90 gfx942 --config segmented_M16_T64_N8_W4_S3
    python -m attn_kernels.offline --target gfx942 --device-key amd_mi300x
    python -m attn_kernels.offline --target sm_90 --config qblock_M128_T128_W8_S3_D1 --each-feature

Exit codes: 0 all fit, 1 some do not fit or do not compile, 2 wrong use.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import product
from typing import NoReturn

from attn_kernels.choose.heuristic import KERNEL, configs_of
from attn_kernels.choose.packages import kernel_package
from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import VARIANTS, check_config
from attn_kernels.offline.resources import SHARED_LIMITS, TARGETS
from attn_kernels.offline.sources import DTYPE_NAMES, FEATURES, CompileShape, sources
from attn_kernels.offline.table import KernelCase, compile_cases, print_table

# What --variant compiles where the command line gives no other launch parameters.
DEFAULTS = {name: variant.samples[0] for name, variant in VARIANTS.items()}
ALL = (*DEFAULTS.values(), *(config for variant in VARIANTS.values() for config in variant.samples[1:]))
PARAMETERS = Config._fields[1:]


class RaisingParser(argparse.ArgumentParser):
    """A parser that raises ValueError."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> RaisingParser:
    summary = "Compile configs for GPUs that this machine lacks, and show whether they fit."
    parser = RaisingParser(prog="python -m attn_kernels.offline", description=summary, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", action="store_true", help="every variant, plain and with all features")
    what.add_argument("--variant", choices=VARIANTS, help="one config of this variant; see below")
    what.add_argument("--config", action="append", help="a config by its name; may be repeated")
    what.add_argument("--device-key", help="every config of this generated module")
    add = parser.add_argument
    add("--target", nargs="+", choices=TARGETS, default=list(TARGETS), help="GPUs; all if not given")
    add(
        "--features",
        type=_features,
        help=f"comma-separated: {', '.join(FEATURES)}, or all; none if not given",
    )
    add("--each-feature", action="store_true", help="plain, with each feature alone, and with all")
    add("--head-sizes", type=int, nargs="+", default=[128], metavar="N")
    add("--block-size", type=int, default=16, metavar="N", help="tokens a page holds")
    add("--queries-per-kv", type=int, default=4, metavar="N")
    add("--dtype", default="bf16", choices=DTYPE_NAMES.values())
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes at a time")
    fields = parser.add_argument_group("launch parameters, in place of a default that fits every target")
    for field in PARAMETERS:
        fields.add_argument(f"--{field.replace('_', '-')}", type=int, metavar="N")
    return parser


def _features(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of features; returns them in the order of ``FEATURES``."""
    names = FEATURES if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in FEATURES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of: {', '.join(FEATURES)}, all")
    return tuple(name for name in FEATURES if name in names)


def generated_configs(device_key: str) -> list[Config]:
    """The configs of a generated module. Raises ValueError if there is no such module, or it has none."""
    unified_attention = kernel_package(KERNEL)
    if device_key not in unified_attention.MODULES:
        known = ", ".join(sorted(unified_attention.MODULES))
        raise ValueError(f"device key is {device_key!r}, but the generated modules are: {known}")
    configs = configs_of(unified_attention.MODULES[device_key])
    if not configs:
        raise ValueError(f"the generated module {device_key} has no config constants")
    return configs


def _configs(options: argparse.Namespace) -> list[Config]:
    """The configs that the command line names. Raises ValueError."""
    given = {name: getattr(options, name) for name in PARAMETERS if getattr(options, name) is not None}
    if given and options.variant is None:
        option = next(iter(given)).replace("_", "-")
        raise ValueError(f"--{option} is given without --variant, which it belongs to")
    if options.variant is not None:
        configs = [DEFAULTS[options.variant]._replace(**given)]
    elif options.config is not None:
        configs = list(dict.fromkeys(map(Config.parse, options.config)))
    elif options.device_key is not None:
        configs = generated_configs(options.device_key)
    else:
        configs = list(ALL)
    for config in configs:
        check_config(config)
    return configs


def _cases(options: argparse.Namespace) -> list[KernelCase]:
    """Everything to compile. Raises ValueError, or RuntimeError if TRITON_INTERPRET is set."""
    if options.each_feature and options.features is not None:
        raise ValueError("--each-feature and --features are given, but only one of them can choose")
    if options.jobs < 1:
        raise ValueError(f"--jobs is {options.jobs}, but at least 1 is needed")
    features = [options.features or ()]
    if options.all and options.features is None:
        features.append(FEATURES)
    if options.each_feature:
        features = [(), *((name,) for name in FEATURES), FEATURES]
    dtype = {name: dtype for dtype, name in DTYPE_NAMES.items()}[options.dtype]
    sizes = (options.block_size, options.queries_per_kv, dtype)
    shapes = [
        (config, CompileShape(target, head_size, *sizes, names))
        for config, target, head_size, names in product(
            _configs(options), dict.fromkeys(options.target), dict.fromkeys(options.head_sizes), features
        )
    ]
    return [
        KernelCase(config, kernel, shape) for config, shape in shapes for kernel in sources(config, shape)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all kernels fit, 1 if some do not fit or compile, 2 after wrong use."""
    try:
        options = _parser().parse_args(arguments)
        cases = _cases(options)
    except (ValueError, RuntimeError) as error:
        print(f"attn_kernels.offline: {error}", file=sys.stderr)
        return 2
    misfits = print_table(cases, compile_cases(cases, min(options.jobs, len(cases))))
    limits = ", ".join(
        f"{SHARED_LIMITS[target]} on {target}"
        for target in dict.fromkeys(case.shape.target for case in cases)
    )
    print(f"{len(cases) - misfits} of {len(cases)} fit (bytes of shared memory a block may have: {limits})")
    return 1 if misfits else 0


if __name__ == "__main__":
    sys.exit(main())
