"""The tuned JSON files of vLLM, SGLang and aiter: their names, and which entry they launch for a size.

- vLLM and SGLang take the entry with the least absolute difference to M, the first of equal ones:
  `min(configs.keys(), key=lambda x: abs(x - M))` in vllm/model_executor/layers/fused_moe/fused_moe.py and
  quantization/utils/fp8_utils.py, and in sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py.
  All keys must be integers; only vLLM's fused MoE allows `triton_version` beside them. SGLang keeps files of
  fused MoE in a folder for each version of Triton.
- aiter takes the first `M_LEQ_<bound>` with M <= bound, else `any`, if a file has no `M_GEQ_<bound>`, and
  ignores other keys: aiter/ops/triton/utils/gemm_config_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from treegen.core.errors import InputError
from treegen.importers.tables import version_suffix
from treegen.importers.tuned_json import DOWN, KERNELS, UNQUANTISED

BOUNDS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)  # those that aiter looks for
_GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)  # vLLM's benchmark
TRITONS_OWN = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_ABSENT = (UNQUANTISED, "none")  # words of an import for missing parts of a name
_PARTS = ("dtype", "backend", "block_shape", "per_channel_quant", "cache_dtype")  # in the order of a name

Entry = dict[str, Any]  # what a kernel is launched with


class Exported(NamedTuple):
    """A file of another project."""

    text: str
    summary: str  # what it holds, for the terminal


class Facts(NamedTuple):
    """What names a file and tells where its entries come from."""

    kernel: str
    device_name: str  # as the driver reports it
    device: str  # its key in the spec
    arch: str
    triton: str  # the version that the table was measured with; empty if unknown
    provenance: str  # in words
    values: Mapping[str, str]  # of the features that do not run along the file, and other parts of its name
    unknown: Collection[str] = ()  # parts that the table has, but not for this shape
    origin: Mapping[str, Any] = {}  # where an imported table comes from


class Format(NamedTuple):
    sizes: tuple[int, ...]  # at which files have entries
    name: Callable[[Facts], str]
    provenance: Callable[[Facts], Mapping[str, str]] = lambda facts: {"provenance": facts.provenance}
    bounds: bool = False  # whether keys are bounds; else any size may be a key, and the nearest one counts
    nested: bool = False  # whether an entry holds the arguments of `triton.Config`

    def key(self, size: int) -> str:
        if not self.bounds:
            return str(size)
        return next((f"M_LEQ_{bound}" for bound in BOUNDS if size <= bound), "any")

    def entry(self, parameters: Entry) -> Entry:
        if not self.nested:
            return parameters
        own = {name: parameters[name] for name in TRITONS_OWN if name in parameters}
        return {"kwargs": {name: value for name, value in parameters.items() if name not in own}, **own}

    def launched(self, entries: Mapping[str, Entry], sizes: Iterable[int]) -> Iterator[Entry]:
        """The entry that is launched for each size, in ascending order."""
        keys = sorted(map(int, entries)) if not self.bounds else []
        place = 0
        for size in sizes:
            while place + 1 < len(keys) and keys[place + 1] - size < size - keys[place]:
                place += 1
            yield entries[str(keys[place]) if keys else self.key(size)]


def _by_sizes(facts: Facts, space: str = "") -> str:
    """`E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128]`, or with other sizes."""
    given = {name: text for name, text in facts.values.items() if text not in _ABSENT}
    sizes = next((sizes for sizes in KERNELS if set(sizes) <= given.keys()), None)
    if sizes is None or ("K" in sizes and not {"dtype", "block_shape"} <= given.keys()):
        what = "files are named by E and N, by headdim and dstate, or by N, K, dtype and block_shape"
        raise InputError(facts.kernel, f"{what}, as in dtype=fp8_w8a8")
    for name in _PARTS:
        if name in facts.unknown and name not in facts.values:
            raise InputError(facts.kernel, f"its table does not tell {name} of this shape; give {name}=...")
    given["device_name"] = facts.device_name.replace(" ", "_")
    if "E" in sizes and "H200" in given["device_name"].split("_") and not space:
        given["device_name"] = "NVIDIA_H200"
    if "block_shape" in given:
        given["block_shape"] = f"[{given['block_shape'].replace('x', ',' + space)}]"
    named = (*sizes, "device_name", *_PARTS)
    return ",".join(f"{name}={given[name]}" for name in named if name in given)


def _sglang_name(facts: Facts) -> str:
    kernel = facts.kernel.removesuffix(version_suffix(facts.triton))
    name = f"{_by_sizes(facts, ' ')}{DOWN if kernel.endswith(DOWN) else ''}.json"
    version = facts.triton.partition("+")[0].replace(".", "_")
    return f"triton_{version}/{name}" if version and "E" in facts.values else name


def _aiter_name(facts: Facts) -> str:
    """`gfx942-GEMM-A8W8-N=1280-K=8192.json`, of the kernel gemm_a8w8.

    Where the source has its nested layout, as in `gfx950/triton/gemm/gemm_afp4wfp4/GEMM-AFP4WFP4-N=...`, the
    file has it, too: aiter looks there first.
    """
    if not facts.arch or not {"N", "K"} <= facts.values.keys():
        raise InputError(facts.kernel, "aiter's files are named by the device's `arch`, and by N and K")
    config = str(facts.origin.get("config_name", facts.kernel.upper().replace("GEMM_", "GEMM-", 1)))
    sizes = {
        n: v for n, v in facts.values.items() if re.fullmatch("[A-Z][0-9]*", n) and v.isdecimal() and v != "0"
    }
    order = sorted(sizes, key=lambda n: ("BNK".find(n[0]), n))
    name = config + "".join(f"-{n}={sizes[n]}" for n in order) + ".json"
    backend = "gluon" if facts.kernel.endswith("_gluon") else "triton"
    if "layout" in facts.origin:
        return f"{facts.arch}/{backend}/gemm/{config.lower().replace('-', '_')}/{name}"
    return f"{'gluon/' if backend == 'gluon' else ''}{facts.arch}-{name}"


def _triton_name(facts: Facts) -> str:
    return ",".join([facts.kernel, facts.device, *(f"{n}={v}" for n, v in facts.values.items())]) + ".json"


def _vllm_version(facts: Facts) -> Mapping[str, str]:
    return {"triton_version": facts.triton} if "K" not in facts.values and facts.triton else {}


FORMATS: Mapping[str, Format] = {
    "vllm": Format(_GRID, lambda facts: f"{_by_sizes(facts)}.json", _vllm_version),
    "sglang": Format(_GRID, _sglang_name, lambda _: {}),
    "aiter": Format((*BOUNDS, 2 * BOUNDS[-1]), _aiter_name, bounds=True),
    "triton": Format(_GRID, _triton_name, nested=True),
}
