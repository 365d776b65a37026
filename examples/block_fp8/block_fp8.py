"""A product of float8 matrices with a scale for each 128 x 128 block of B and each 128 values of a row of A.

DeepSeek-V3 (arXiv:2412.19437, section 3.3) introduced these scales. Launch parameters have the names of
vLLM's kernel for the same product, so that vLLM reads the generated module's choices.
"""

import torch
import triton
import triton.language as tl

from triton_tune import tuned

BLOCK = 128  # values that share a scale
TILES = [  # rows, columns, warps, stages, groups
    *((m, n, 4, s, g) for m in (16, 64) for n in (32, 64, 128) for s in (3, 4, 5) for g in (1, 16, 32, 64)),
    *((32, n, 4, s, g) for n in (64, 128) for s in (3, 4) for g in (1, 32)),
    *((128, 64, 4, s, g) for s in (2, 3, 4) for g in (1, 64)),
    *((128, 128, 8, s, g) for s in (3, 4) for g in (1, 32)),
    *((64, 256, 8, 3, g) for g in (1, 32)),
    (16, 256, 8, 3, 1),
    (64, 128, 4, 2, 32),
]
CONFIGS = [
    triton.Config(
        {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": BLOCK, "GROUP_SIZE_M": group},
        num_warps=warps,
        num_stages=stages,
    )
    for m, n, warps, stages, group in TILES
]


@tuned("heuristics.block_fp8")
@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def block_fp8_kernel(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """C [M, N] = A [M, K] times B [N, K] transposed, all contiguous; a step of the loop is a block of K."""
    rows, columns = tl.cdiv(M, BLOCK_SIZE_M), tl.cdiv(N, BLOCK_SIZE_N)
    tile = tl.program_id(0)
    first = tile // (GROUP_SIZE_M * columns) * GROUP_SIZE_M
    height = tl.minimum(GROUP_SIZE_M, rows - first)
    inside = tile % (GROUP_SIZE_M * columns)
    m = (first + inside % height) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    n = inside // height * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    k = tl.arange(0, BLOCK_SIZE_K)
    # Rows and columns beyond the end repeat the last one; they are not stored.
    m_read, n_read = tl.minimum(m, M - 1).to(tl.int64), tl.minimum(n, N - 1).to(tl.int64)
    a_at = a_ptr + m_read[:, None] * K + k[None, :]
    b_at = b_ptr + n_read[None, :] * K + k[:, None]
    blocks = K // BLOCK_SIZE_K
    a_scale_at = a_scale_ptr + m_read * blocks
    b_scale_at = b_scale_ptr + n_read // BLOCK_SIZE_K * blocks
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for block in range(blocks):
        product = tl.dot(tl.load(a_at), tl.load(b_at))
        total += product * tl.load(a_scale_at + block)[:, None] * tl.load(b_scale_at + block)[None, :]
        a_at += BLOCK_SIZE_K
        b_at += BLOCK_SIZE_K
    c_at = c_ptr + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def block_fp8(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """[M, N] in bfloat16.

    Args:
        a: [M, K] float8, where 128 divides K
        b: [N, K] float8
        a_scale: [M, K / 128] float32
        b_scale: [N / 128 rounded up, K / 128] float32
    """
    (M, K), N = a.shape, len(b)
    c = torch.empty(M, N, device=a.device, dtype=torch.bfloat16)

    def grid(config):
        return (triton.cdiv(M, config["BLOCK_SIZE_M"]) * triton.cdiv(N, config["BLOCK_SIZE_N"]),)

    block_fp8_kernel[grid](a, b, a_scale, b_scale, c, M, N, K)
    return c
