"""Plans of mixed batches: the decodes and the prompts each have a config of their own.

No length that the host states decides which part computes a token. ``kernels.schedule`` finds the boundary on
the device, and the launches of the prompts are large enough for all tokens. So a wrong length costs time, but
every result is right.
"""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from attn_kernels.choose.heuristic import Choose
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.structures import Plan
from attn_kernels.planning.make import BOTH, Step, chosen, make_plan


def plan_parts(
    step: Step, batch: Lengths, parts: Parts, choose: Choose, fused: LaunchConfig | None = None
) -> Plan:
    """Plan a batch in two parts, each with the choice for its own lengths.

    Args:
        fused: the config of one launch for both parts; None to launch one after the other.

    Returns:
        A plan of the whole batch, with ``fused`` or the config of the prompts, and the plans of the parts.
    """
    decodes, prompts = parts
    configs = [chosen(choose, part, step.model) for part in parts]
    # The prompts' launches also cover the leading sequences that turn out to be no decodes.
    prompts = prompts._replace(
        num_seqs=batch.num_seqs,
        num_query_tokens=batch.num_query_tokens,
        max_query_len=batch.max_query_len,
    )
    cu_decodes, cu_prompts = step.scratch.cu_parts(batch.num_seqs)
    step_of_decodes = step._replace(cu_seqlens_q=cu_decodes, for_capture=True)
    step_of_prompts = step._replace(cu_seqlens_q=cu_prompts, for_capture=True)
    plan_of_decodes = make_plan(step_of_decodes, decodes, configs[0], part=0)
    plan_of_prompts = make_plan(step_of_prompts, prompts, configs[1], part=1)
    plan_of_both = None if fused is None else make_plan(step_of_prompts, batch, fused, part=BOTH)
    if plan_of_both is not None:
        plan_of_both.workspace += (cu_decodes,)
    return dataclasses.replace(
        plan_of_prompts,
        config=plan_of_prompts.config if plan_of_both is None else plan_of_both.config,
        cu_seqlens_q=step.cu_seqlens_q,
        num_kv_tokens=batch.num_kv_tokens,
        max_seq_len=batch.max_seq_len,
        for_capture=step.for_capture,
        workspace=(),
        launches={},
        parts=(plan_of_decodes, plan_of_prompts),
        fused=plan_of_both,
    )


def check_part_contents(cu_seqlens_q: Tensor, seqused_k: Tensor, parts: Parts) -> None:
    """Check the contents of the index tensors against the lengths of both parts.

    Reads the tensors, so it synchronises with a GPU. Raises ValueError about the first length that is wrong.
    """
    starts = cu_seqlens_q.tolist()
    query_lens = [stop - start for start, stop in pairwise(starts)]
    context_lens = seqused_k.tolist()
    count = parts.decodes.num_seqs
    _check_lens("cu_seqlens_q", "query tokens", query_lens, "max_query_len", parts)
    _check_lens("seqused_k", "keys", context_lens, "max_seq_len", parts)
    if starts[count] != parts.decodes.num_query_tokens:
        raise ValueError(
            f"cu_seqlens_q gives the first {count} sequences {starts[count]} query tokens, but "
            f"parts.decodes.num_query_tokens is {parts.decodes.num_query_tokens}"
        )


def _check_lens(tensor: str, what: str, lens: Sequence[int], field: str, parts: Parts) -> None:
    for i, length in enumerate(lens):
        name = "decodes" if i < parts.decodes.num_seqs else "prompts"
        most = getattr(getattr(parts, name), field)
        if length > most:
            raise ValueError(
                f"{tensor} gives sequence {i} {length} {what}, but parts.{name}.{field} is {most}"
            )
