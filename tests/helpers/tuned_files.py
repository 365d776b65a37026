"""Small files of other tools, to import.

The excerpts are from public repositories, shortened: github.com/vllm-project/vllm (Apache-2.0,
fused_moe/configs), sgl-project/sglang (Apache-2.0, quantization/configs), ROCm/aiter (MIT,
aiter/configs/a8w8_tuned_gemm.csv). Names and further values are ours. tests/helpers/write_triton_cache.py let
Triton 3.9.0 write ENTRY.
"""

from collections.abc import Mapping
from typing import Any

GPU = "NVIDIA H100 80GB HBM3"

ENTRY = (
    '[{"kwargs": {"BLOCK": 64}, "num_warps": 2, "num_ctas": 1, "num_stages": 3, "maxnreg": null, '
    '"pre_hook": null, "ir_override": null}, [0.004, 0.00392, 0.00408]]'
)

NAMED = ["--device", GPU, "--features", "n,causal"]

CSV = """\
M,N,causal,dtype,BLOCK,num_warps,time_ms
1,64,true,bf16,16,2,0.010
1,64,true,bf16,64,4,0.020
1,64,true,bf16,16,2,0.012
8,64,false,fp16,16,2,inf
8,64,false,fp16,64,4,0.5
8,64,false,fp16,128,4,
"""

COLUMNS = ["--features", "M,N,causal,dtype", "--time", "time_ms", "--kernel", "mine", "--device", GPU]


def _config(m: int, n: int, k: int, group: int, warps: int, stages: int, **more: int) -> dict[str, int]:
    sizes = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group}
    return {**sizes, "num_warps": warps, "num_stages": stages, **more}


# For 1, 64 and 4096 tokens.
MOE = {
    "triton_version": "3.4.0",
    "1": _config(16, 32, 64, 1, 4, 4),
    "64": _config(16, 128, 128, 64, 8, 3),
    "4096": _config(64, 128, 64, 1, 4, 3),
}
GEMM = {
    "1": _config(32, 16, 128, 8, 4, 2, waves_per_eu=0),
    "64": _config(32, 16, 128, 8, 4, 2, waves_per_eu=0),
    "4096": _config(32, 128, 128, 4, 4, 2, waves_per_eu=0),
}

AITER = """\
gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx942,80,1,1280,8192,torch.int8,34,0,20.5611,a8w8_rowwise_256x16x64x512,1.02,510.5,0.0
gfx942,80,1,8192,1024,torch.int8,78,0,9.1327,a8w8_rowwise_64x16x16x128,1.84,920.43,0.0
gfx942,80,32,1280,8192,torch.int8,34,0,19.9841,a8w8_rowwise_256x16x64x512,33.58,541.92,0.0
gfx950,256,1,1280,8192,torch.int8,34,0,17.6914,a8w8_rowwise_256x16x64x512,1.19,593.31,0.0
gfx950,256,1,1280,8192,torch.float8_e4m3fn,79,3,7.6797,a8w8_rowwise_128x16x32x128,2.73,1366.79,0.1344
"""


BOUNDS = [1, *(2**power for power in range(2, 14))]
"""Those of aiter's keys."""


def launched_by(content: Mapping[str, Any], size: int) -> Any:
    """What vLLM, SGLang or aiter launches for a size."""
    if "any" not in content:
        configs = {int(key): entry for key, entry in content.items()}
        return configs[min(configs.keys(), key=lambda key: abs(key - size))]
    least = (f"M_LEQ_{bound}" for bound in BOUNDS if size <= bound)
    greatest = (f"M_GEQ_{bound}" for bound in reversed(BOUNDS) if size >= bound)
    return content[next(key for key in (*least, *greatest, "any") if key in content)]
