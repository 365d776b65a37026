"""Fill Triton's cache with all that a model's layers can launch, on a machine without a GPU.

    python -m attn_kernels.offline.fill_cache --device-key nvidia_h100 --target sm_90 --heads 32/8/128
    python -m attn_kernels.offline.fill_cache ... --heads 64/8/64 --features sinks --features sinks,window

The cache lies in TRITON_CACHE_DIR, and may be shipped with an image that has the same Triton. A server's log
names the same facts of its launches: ``heads 32/8/128 page 16 bfloat16/float8_e4m3fn window``.

Exit codes: 0 all compile, 1 some do not, 2 wrong use.
"""

import sys
import warnings
from collections.abc import Sequence

import torch
from triton import knobs

from attn_kernels.core.checks import FP8
from attn_kernels.core.errors import AttnKernelsWarning
from attn_kernels.core.model import Model
from attn_kernels.offline.__main__ import RaisingParser
from attn_kernels.offline.absent_gpu import absent_gpu
from attn_kernels.offline.resources import TARGETS
from attn_kernels.warmup.compile_ahead import fill_cache, launches_of
from attn_kernels.warmup.dummy_launch import FEATURES
from triton_tune.core.device import ASSUMED
from triton_tune.processes.compile_ahead import default_workers, minimal

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def _parser() -> RaisingParser:
    summary = "Fill Triton's cache with all that a model's layers can launch, on a machine without a GPU."
    parser = RaisingParser(
        prog="python -m attn_kernels.offline.fill_cache", description=summary, allow_abbrev=False
    )
    add = parser.add_argument
    add("--device-key", required=True, help="the generated module of the GPU, such as nvidia_h100")
    add("--target", required=True, choices=TARGETS, help="the GPU's architecture")
    add(
        "--multiprocessors",
        type=int,
        default=ASSUMED["multiprocessors"],
        metavar="N",
        help="of the GPU; default: %(default)s",
    )
    add("--heads", required=True, help="query heads, KV heads and head size of one GPU's share: 32/8/128")
    add("--page", type=int, default=16, metavar="N", help="tokens a page holds; default: 16")
    add("--dtype", choices=DTYPES, default="bfloat16")
    add("--fp8-cache", action="store_true", help="the caches are fp8 (e4m3)")
    add(
        "--features",
        action="append",
        help=f"of a kind of layer, once for each, comma-separated: {', '.join(FEATURES)}; none if not given",
    )
    add("--jobs", type=int, default=default_workers(), metavar="N", help="processes; default: %(default)s")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all kernels compile, 1 if some do not, 2 after wrong use."""
    try:
        options = _parser().parse_args(arguments)
        if knobs.runtime.interpret:
            raise ValueError("TRITON_INTERPRET is set, but compiling needs a process without it")
        if options.jobs < 1:
            raise ValueError(f"--jobs is {options.jobs}, but at least 1 is needed")
        heads = [int(number) for number in options.heads.split("/") if number.isdecimal()]
        if len(heads) != 3 or options.heads.count("/") != 2:
            raise ValueError(
                f"--heads is {options.heads!r:.40}, but three numbers such as 32/8/128 are needed"
            )
        cache_dtype = FP8 if options.fp8_cache else None
        model = Model(heads[0], heads[1], heads[2], options.page, DTYPES[options.dtype], cache_dtype)
        kinds = [tuple(filter(None, words.split(","))) for words in options.features or [""]]
        with absent_gpu(options.target, options.multiprocessors) as device, warnings.catch_warnings():
            warnings.simplefilter("ignore", AttnKernelsWarning)  # the stand-in has no name
            launches = minimal(
                launches_of(device, model, features=kinds, device_key=options.device_key, for_capture=True)
            )
            filled = fill_cache(launches, device, options.jobs, lambda done, total: None)
    except (TypeError, ValueError) as error:
        print(f"attn_kernels.offline.fill_cache: {error}", file=sys.stderr)
        return 2
    needed = {key for found in filled.needed.values() for key in found}
    counts = filled.counts
    print(
        f"{knobs.cache.dir}: {len(needed)} kernels of {len(launches)} launches; {counts.jobs} were missing "
        f"and compiled in {filled.seconds:.1f} s"
    )
    for job in counts.broken:
        print(f"failed: {job} ended its process")
    if counts.failed:
        print(f"failed: {counts.failed} do not compile; python -m attn_kernels.offline says why")
    return 1 if counts.failed or counts.broken else 0


if __name__ == "__main__":
    sys.exit(main())
