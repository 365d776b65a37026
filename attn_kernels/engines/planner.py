"""Plans of an engine's steps, and the workspaces that they share; imports no engine."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.planning.plan import plan
from attn_kernels.planning.workspace import Workspace


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
    plans: dict[Any, Any] = field(default_factory=dict)  # by kind, made by the first layer's forward
    # ``bidirectional_ranges`` of ``run``; models of vLLM clear it by this name for layers without ranges.
    mm_prefix_range_tensor: Tensor | None = None
    causal: bool = True

    def plan_for(self, kind: Any) -> Any:
        """Plan the step for layers of a kind, at their first call."""
        self.plans[kind] = plan = self.planners[kind].plan(self)
        return plan


def step_lengths(step: StepMetadata, block_size: int) -> tuple[Lengths, Parts | None]:
    """Return a step's lengths, and those of its parts if decodes stand before prompts.

    Reads no tensor of the device. Bounds that contradict each other, as those of dummy batches may, are
    widened. No sequence is longer than the block table. Raises ValueError about a longer query.
    """
    num_seqs, pages = step.block_table.shape
    num_tokens, max_query_len = int(step.num_actual_tokens), int(step.max_query_len)  # may be NumPy's
    max_seq_len, room = int(step.max_seq_len), pages * block_size
    if step.causal and max_query_len > room:
        raise ValueError(
            f"max_query_len is {max_query_len}, but block_table holds {pages} blocks of {block_size} tokens "
            f"a sequence, so at most {room} is possible"
        )
    max_seq_len = min(max(max_seq_len, max_query_len) if step.causal else max_seq_len, room)
    bounds = step.seq_lens_cpu_upper_bound
    if bounds is None or step.for_capture:
        bounds = torch.full((num_seqs,), max_seq_len, device="cpu")
    contexts = bounds.numpy()[:num_seqs].clip(max=max_seq_len)
    total = int(contexts.sum())
    lengths = Lengths(num_seqs, num_tokens, max_query_len, max_seq_len, total)
    if max_query_len <= MAX_DRAFT or step.for_capture:
        return lengths, None
    starts = step.query_start_loc_cpu.numpy()
    query_lens = starts[1 : num_seqs + 1] - starts[:num_seqs]
    count = int((query_lens > MAX_DRAFT).argmax())  # 0 also if there is none
    if count == 0:
        return lengths, None
    decode_tokens, decode_keys = int(starts[count]), int(contexts[:count].sum())
    of_decodes, of_prompts = int(contexts[:count].max()), int(contexts[count:].max())
    decodes = Lengths(count, decode_tokens, int(query_lens[:count].max()), of_decodes, decode_keys)
    prompts = Lengths(
        num_seqs - count, num_tokens - decode_tokens, max_query_len, of_prompts, total - decode_keys
    )
    return lengths, Parts(decodes, prompts)


def with_own_keys(step: StepMetadata) -> StepMetadata:
    """Return the step with only its own tokens as keys, one per page."""
    lens, longest = step.query_start_loc.diff(), int(step.max_query_len)
    return replace(
        step,
        seq_lens=lens,
        seq_lens_cpu_upper_bound=step.query_start_loc_cpu[: len(lens) + 1].diff(),
        block_table=step.query_start_loc[:-1, None]
        + torch.arange(longest, dtype=torch.int32, device=lens.device),
        max_seq_len=longest,
    )


def over_own_keys(model: Model) -> Model:
    """Return the model of layers that attend to the keys of ``with_own_keys``."""
    return replace(model, block_size=1, cache_dtype=None)


_workspaces: WeakValueDictionary[Hashable, Workspace] = WeakValueDictionary()


def shared_workspace(
    engine: Hashable, device: torch.device, models: Iterable[Model], max_num_seqs: int, max_tokens: int
) -> Workspace:
    """Return the scratch memory of all plans of an engine on one device; it lives as long as its users.

    ``engine``: whatever is the same for all plans that run one after another.
    """
    # Page sizes, cache types and masks do not affect its size, so groups that differ only in them share one.
    alike: dict[str, Any] = {"block_size": 16, "cache_dtype": None, "sliding_window": None, "causal": True}
    unique = {replace(model, **alike) for model in models}
    key = (engine, device, frozenset(unique), max_num_seqs, max_tokens)
    workspace = _workspaces.get(key)
    if workspace is None:
        workspace = _workspaces[key] = Workspace.for_maxima(
            device, unique, max_query_tokens=max_tokens, max_num_seqs=max_num_seqs
        )
    return workspace


class Planner:
    """Plans steps for layers of one model and one group of vLLM's caches.

    ``own_keys``: layers have no cache and attend to the step's own keys, one per page.
    """

    def __init__(self, model: Model, shared: Workspace, *, own_keys: bool = False) -> None:
        self.model = over_own_keys(model) if own_keys else model
        self.own_keys = own_keys
        self.shared = shared  # keeps it alive
        # Layers of several groups take turns within a step, so what a plan computes once is each one's own.
        self.workspace = shared.sibling()

    def plan(self, step: StepMetadata) -> Plan:
        """Plan a step; never waits for the device. Raises as ``attn_kernels.plan``."""
        step = with_own_keys(step) if self.own_keys else step
        model = self.model if step.causal else replace(self.model, causal=False)
        lengths, parts = step_lengths(step, model.block_size)
        seq_lens, bounds = step.seq_lens, step.seq_lens_cpu_upper_bound
        stated = int(step.max_seq_len) if bounds is None else max(int(step.max_seq_len), *bounds.tolist(), 0)
        if stated > lengths.max_seq_len:  # dummy batches may have more keys than the block table
            seq_lens = seq_lens.clamp(max=lengths.max_seq_len)
        return plan(
            step.query_start_loc,
            seq_lens,
            step.block_table,
            model,
            num_query_tokens=lengths.num_query_tokens,
            max_query_len=lengths.max_query_len,
            max_seq_len=lengths.max_seq_len,
            num_kv_tokens=lengths.num_kv_tokens,
            check=False,
            for_capture=step.for_capture,
            # Local attention makes sequences of chunks, which may be too many.
            workspace=self.workspace if lengths.num_seqs <= self.workspace.max_num_seqs else None,
            parts=parts,
        )
