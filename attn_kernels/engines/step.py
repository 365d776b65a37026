"""One step's batch as vLLM describes it, and its lengths as ``plan`` takes them; imports no engine."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.structures import Plan


@dataclass(eq=False)
class StepMetadata:
    """The batch of one step, for all layers of a builder; fields have vLLM's names."""

    query_start_loc: Tensor  # int32 [num_reqs + 1], on the device
    seq_lens: Tensor  # int32 [num_reqs], on the device
    block_table: Tensor  # int32 [num_reqs, pages], on the device
    slot_mapping: Tensor
    query_start_loc_cpu: Tensor  # int32 [num_reqs + 1]
    seq_lens_cpu_upper_bound: Tensor | None  # int32 [num_reqs]
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int  # an upper bound
    for_capture: bool
    planners: dict[Any, Any]  # by the kind of a layer: its query heads (vLLM), or also its window (SGLang)
    plans: dict[Any, Plan] = field(default_factory=dict)  # by kind, made by the first layer's forward

    def plan_for(self, kind: Any) -> Plan:
        """Plan the step for layers of a kind, at their first call."""
        plan: Plan = self.planners[kind].plan(self)
        self.plans[kind] = plan
        return plan


def step_lengths(step: StepMetadata, block_size: int) -> tuple[Lengths, Parts | None]:
    """Return a step's lengths, and those of its parts if decodes stand before prompts.

    Reads no tensor of the device. Bounds that contradict each other, as those of dummy batches may, are
    widened. No sequence is longer than the block table.
    """
    num_seqs, pages = step.block_table.shape
    num_tokens, max_query_len = int(step.num_actual_tokens), int(step.max_query_len)  # may be NumPy's
    max_seq_len = min(max(int(step.max_seq_len), max_query_len), pages * block_size)
    total = num_seqs * max_seq_len
    contexts = None
    if step.seq_lens_cpu_upper_bound is not None and not step.for_capture:
        contexts = step.seq_lens_cpu_upper_bound.numpy()[:num_seqs].clip(max=max_seq_len)
        total = int(contexts.sum())
    lengths = Lengths(num_seqs, num_tokens, max_query_len, max_seq_len, total)
    if max_query_len <= MAX_DRAFT or step.for_capture:
        return lengths, None
    starts = step.query_start_loc_cpu.numpy()
    query_lens = starts[1 : num_seqs + 1] - starts[:num_seqs]
    count = int((query_lens > MAX_DRAFT).argmax())  # 0 also if there is none
    if count == 0:
        return lengths, None
    decode_tokens = int(starts[count])
    of_decodes = of_prompts = max_seq_len
    decode_keys = count * max_seq_len
    if contexts is not None:
        of_decodes, of_prompts = int(contexts[:count].max()), int(contexts[count:].max())
        decode_keys = int(contexts[:count].sum())
    decodes = Lengths(count, decode_tokens, int(query_lens[:count].max()), of_decodes, decode_keys)
    prompts = Lengths(
        num_seqs - count, num_tokens - decode_tokens, max_query_len, of_prompts, total - decode_keys
    )
    return lengths, Parts(decodes, prompts)
