"""A plan of one config, for a whole batch or for a part of it."""

from typing import NamedTuple

from torch import Tensor

from attn_kernels.choose.heuristic import Choose, segments_function
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.arguments import head_padded
from attn_kernels.kernels.registry import VARIANTS, check_config
from attn_kernels.kernels.variant import Scratch, ScratchSizes
from attn_kernels.launch.direct import launch_cache_for

BOTH = 2  # the part of one launch for both parts


class Step(NamedTuple):
    """What ``plan`` was given beside lengths and configs, after its checks."""

    cu_seqlens_q: Tensor
    seqused_k: Tensor
    block_table: Tensor
    model: Model
    scratch: Scratch
    device_key: str | None
    for_capture: bool
    max_page_id: int | None


def chosen(choose: Choose, lengths: Lengths, model: Model) -> LaunchConfig:
    """The choice for a batch of these lengths."""
    if model.sliding_window is not None:
        lengths = lengths.in_window(model.sliding_window)
    return choose(
        num_seqs=lengths.num_seqs,
        num_query_tokens=lengths.num_query_tokens,
        num_kv_tokens=lengths.num_kv_tokens,
        max_query_len=lengths.max_query_len,
        max_seq_len=lengths.max_seq_len,
        num_query_heads=model.num_query_heads,
        num_kv_heads=model.num_kv_heads,
        head_size=model.head_size,
        block_size=model.block_size,
        kv_element_size=model.kv_element_size,
    )


def make_plan(step: Step, lengths: Lengths, config: LaunchConfig, part: int = 0) -> Plan:
    """Check a config and make its plan, with its scratch memory; ``part`` as in ``ScratchSizes``.

    Raises TypeError and ValueError about ``config``, the workspace and environment variables.
    """
    full_config = _complete_and_checked(config)
    if VARIANTS[full_config.variant].mixed and part != BOTH:
        raise ValueError(f"config is {full_config}, but it needs parts")
    model, device = step.model, step.cu_seqlens_q.device
    sizes = ScratchSizes(
        lengths.num_seqs,
        lengths.num_query_tokens,
        model.num_query_heads,
        head_padded(model.head_size),
        full_config.num_segments,
        full_config.block_m,
        full_config.programs_per_sm,
        full_config.device_segments,
        part,
        model.queries_per_kv,
        full_config,
    )
    return Plan(
        cu_seqlens_q=step.cu_seqlens_q,
        seqused_k=step.seqused_k,
        block_table=step.block_table,
        device=device,
        num_seqs=lengths.num_seqs,
        num_query_tokens=lengths.num_query_tokens,
        num_kv_tokens=lengths.num_kv_tokens,
        max_query_len=lengths.max_query_len,
        max_seq_len=lengths.max_seq_len,
        model=model,
        config=full_config,
        max_page_id=step.max_page_id,
        workspace=VARIANTS[full_config.variant].scratch(step.scratch, sizes),
        launch_cache=launch_cache_for(full_config, model, device),
        for_capture=step.for_capture,
        segments_function=segments_function(device, step.device_key) if full_config.device_segments else None,
    )


_completed: dict[int, tuple[LaunchConfig, Config]] = {}
MAX_REMEMBERED = 4096


def _complete_and_checked(config: LaunchConfig) -> Config:
    """Complete and check a config; remembered by identity, as 32.0 == 32, and modules return constants."""
    known = _completed.get(id(config))
    if known is not None and known[0] is config:
        return known[1]
    full_config = complete(config)
    check_config(full_config)
    if len(_completed) >= MAX_REMEMBERED:
        _completed.clear()
    _completed[id(config)] = (config, full_config)
    return full_config
