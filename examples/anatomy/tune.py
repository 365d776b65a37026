"""What `triton-tune` measures for step 8: steps of a server, for models of three layouts of heads.

From the repository's root: python -m triton_tune examples/anatomy/tune.py --out examples/anatomy/tuning_data
"""

import random
from functools import partial
from itertools import accumulate, product

import torch

from examples.anatomy import step1_pytorch, step8_tuned
from examples.anatomy.common import Batch
from triton_tune import Tuning

CONSTANTS = ("num_kv_heads", "gqa_group_size", "head_size")
HEADS = [(8, 4, 128), (4, 7, 128), (8, 4, 64)]
# Sequences that decode and their longest context; prompts, their longest chunk and the keys before it.
STEPS = [
    *((n, longest, 0, 0, 0) for n, longest in ((1, 300), (1, 5000), (1, 32768), (3, 1500), (4, 14000))),
    *((n, longest, 0, 0, 0) for n, longest in ((9, 700), (16, 3000), (24, 9000), (40, 250), (64, 5000))),
    *((0, 0, n, chunk, 0) for n, chunk in ((1, 130), (1, 700), (1, 2500), (1, 5000), (5, 1500), (14, 200))),
    *((0, 0, n, chunk, before) for n, chunk, before in ((1, 500, 7000), (1, 500, 30000), (3, 250, 3000))),
    *((n, longest, n, chunk, 0) for n, longest, chunk in ((1, 20000, 500), (4, 6000, 1000), (15, 3000, 400))),
    *((n, longest, 1, chunk, 0) for n, longest, chunk in ((30, 1500, 130), (50, 4000, 2000))),
]


def arguments(lengths: tuple[int, ...], **constants: int) -> list[Batch]:
    """A batch with pages of 16 tokens in random order; the tuner sets the device."""
    (decodes, longest, prompts, chunk, before), draw = lengths, random.Random(str(lengths)).randint
    seq_lens, chunks = (
        [draw(most // 2, most) for _ in range(count)]
        for count, most in ((decodes, longest), (prompts, chunk))
    )
    queries, keys = (*[1] * decodes, *chunks), (*seq_lens, *(before + n for n in chunks))
    num_kv_heads, group, head_size = (constants[name] for name in CONSTANTS)
    pages = -(-max(keys) // 16)
    q = torch.randn(sum(queries), num_kv_heads * group, head_size).bfloat16()
    k, v = torch.randn(2, len(keys) * pages, 16, num_kv_heads, head_size).bfloat16()
    blocks = torch.randperm(len(keys) * pages, dtype=torch.int32).view(len(keys), pages)
    index = (blocks, torch.tensor(keys, dtype=torch.int32))
    starts = torch.tensor([0, *accumulate(queries)], dtype=torch.int32)
    return [Batch(q, k, v, torch.empty_like(q), *index, starts, queries, keys)]


TUNING = Tuning(
    kernel=step8_tuned.tuned_kernel,
    name="anatomy",
    call=partial(step8_tuned.attention, kernel=step8_tuned.tuned_kernel),
    arguments=arguments,
    reference=step1_pytorch.attention,
    shapes=[
        dict(zip((*CONSTANTS, "lengths"), (*heads, lengths), strict=True))
        for lengths, heads in product(STEPS, HEADS)
    ],
    features=step8_tuned.FEATURES,
    constants=CONSTANTS,
)
