"""A matrix product in Triton whose launch parameters come from a generated module."""

import torch
import triton
import triton.language as tl

from triton_tune import tuned

SHARED = 227 << 10  # bytes of shared memory that a block may have on an H100 or H200
TILES = [
    *((16, n) for n in (32, 64, 128, 256)),
    *((32, n) for n in (32, 64, 128)),
    *((64, n) for n in (64, 128, 256)),
    *((128, n) for n in (64, 128, 256)),
    (256, 128),
]


def _configs() -> list[triton.Config]:
    configs = []
    for m, n in TILES:
        small = m * n <= 64 * 64
        for k in (64, 128, 256) if small else (64, 128) if m * n < 128 * 256 else (64,):
            for stages in (3, 5) if small else (3, 4):
                if 2 * (m + n) * k * stages <= SHARED:
                    config = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
                    warps = 8 if m * n >= 128 * 128 else 4
                    configs.append(triton.Config(config, num_warps=warps, num_stages=stages))
    return configs


@tuned("heuristics.matmul")
@triton.autotune(configs=_configs(), key=["M", "N", "K"])
@triton.heuristics({"WHOLE": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit(do_not_specialize=["M"])  # so that no new number of rows compiles
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUP: tl.constexpr = 8,
):
    """C = A B. A program computes one tile; tiles of GROUP rows of tiles follow one another, to share B."""
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    first = tile // (GROUP * columns) * GROUP
    height = tl.minimum(GROUP, rows - first)
    place = tile % (GROUP * columns)
    m = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    # Rows beyond the end repeat the last one, so that only columns need a mask; they are not stored.
    a_at = a_ptr + tl.minimum(m, M - 1).to(tl.int64)[:, None] * stride_a + k[None, :]
    b_at = b_ptr + k.to(tl.int64)[:, None] * stride_b + n[None, :]
    inside = (n < N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        if WHOLE:
            a, b = tl.load(a_at), tl.load(b_at, mask=inside, other=0.0)
        else:
            a = tl.load(a_at, mask=k[None, :] < K - start, other=0.0)
            b = tl.load(b_at, mask=(k[:, None] < K - start) & inside, other=0.0)
        total = tl.dot(a, b, total)
        a_at += BLOCK_K
        b_at += BLOCK_K * stride_b
    c_at = c_ptr + m.to(tl.int64)[:, None] * stride_c + n[None, :]
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def matmul(a: torch.Tensor, b: torch.Tensor, kernel=matmul_kernel) -> torch.Tensor:
    """[M, N] the product of [M, K] and [K, N], whose rows are contiguous.

    kernel: what launches, for comparisons.
    """
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(config):
        return (triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"]),)

    kernel[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0))
    return c
