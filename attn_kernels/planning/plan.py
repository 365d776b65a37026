"""Plans: the batch metadata and the config of one step, made once for all layers."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from attn_kernels.choose.choices import Choices, check_batch_invariant, checked, choices_for
from attn_kernels.choose.mixed import SEPARATE, SINGLE, needs_parts
from attn_kernels.choose.recording import recorder_of_process
from attn_kernels.core import checks
from attn_kernels.core.config import Config, LaunchConfig
from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts, check_part_contents, check_parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.arguments import head_padded, multiprocessors
from attn_kernels.kernels.hopper_limits import launches
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.splits import find_splits, most_hopper_splits
from attn_kernels.kernels.variant import Fresh, Scratch, ScratchSizes
from attn_kernels.launch.operators import take_handle
from attn_kernels.launch.run import begin
from attn_kernels.planning.workspace import Workspace

BOTH = 2  # the part of one launch for both parts


def plan(
    cu_seqlens_q: Tensor,
    seqused_k: Tensor,
    block_table: Tensor,
    model: Model,
    *,
    num_query_tokens: int,
    max_query_len: int,
    max_seq_len: int,
    num_kv_tokens: int | None = None,
    config: LaunchConfig | None = None,
    device_key: str | None = None,
    check: bool | None = None,
    for_capture: bool = False,
    workspace: Workspace | None = None,
    parts: Parts | None = None,
) -> Plan:
    """Validate a batch, choose its config, and return the plan that ``run`` takes; call it once per step.

    Synchronises with the device only if ``check=True``, so it may be called while a CUDA graph is captured.
    Capture a graph that is replayed for other batches with ``for_capture``, and keep the plan as long as the
    graph (docs/graphs.md). With ``parts``, and for some configs, this launches a kernel that looks at the
    batch once for all layers. Run the layers of one plan one after another: they share its workspace.

    Args:
        cu_seqlens_q: int32 [num_seqs + 1], where each sequence's query tokens begin; ends at
            ``num_query_tokens``. Sequences may have no query tokens.
        seqused_k: int32 [num_seqs], keys of each sequence, its query tokens included.
        block_table: int32 [num_seqs, max_blocks_per_seq], page ids; entries past a sequence's keys are
            never read. Its rows may be strided.
        model: the constants of the layers. Only the choice of the config depends on its ``cache_dtype`` and
            its ``sliding_window``, and only the order of the work on ``causal``. Layers of other windows, and
            of the other kind of attention, may share the plan; ``run`` is given their own.
        num_query_tokens: of all sequences together.
        max_query_len, max_seq_len: the longest query and context, in tokens.
        num_kv_tokens: sum of ``seqused_k``; if None, and in a graph's plan, all contexts
            but the longest count as half as long.
        config: launch with this instead of the choice of the generated module.
        device_key: choose by the generated module of this name instead of the device's.
        check: also check the contents of the index tensors. None: if they are on the CPU and the plan is not
            ``for_capture``. True: always, which synchronises. False: never.
        for_capture: a graph of this plan will be replayed for other batches in the same index tensors. All
            lengths given here are maxima, and each replay splits contexts by the lengths in memory. Prompts'
            config is chosen as if the longest context were half of ``max_seq_len``.
        workspace: scratch memory for one plan after another; allocated if None.
        parts: the lengths of the leading decodes and of the prompts behind them. The generated module of
            ``mixed_attention`` then chooses one of three ways: one launch that computes both parts at once, a
            choice for each part and one launch after the other, or one choice for the whole batch. Wrong
            lengths cost time, but every result is right. With ``for_capture`` they are maxima too; then
            ``check`` ignores them. One config serves the whole batch if a part has no query tokens, or if
            ``config`` is given and not of these ways (``choose.mixed``).

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a wrong shape, device, size, config or content.
    """
    checks.check_index_tensors(cu_seqlens_q, seqused_k, block_table)
    if not isinstance(model, Model):
        raise TypeError(f"model is a {type(model).__name__}, but an attn_kernels.Model is needed")
    num_seqs, blocks_per_seq = block_table.shape
    checks.check_lengths(
        num_seqs,
        blocks_per_seq,
        model.block_size,
        num_query_tokens,
        max_query_len,
        max_seq_len,
        model.causal,
    )
    is_known = num_kv_tokens is not None
    if num_kv_tokens is None:
        num_kv_tokens = num_seqs * max_seq_len
    else:
        checks.check_int("num_kv_tokens", num_kv_tokens, 0)
    lengths = Lengths(num_seqs, num_query_tokens, max_query_len, max_seq_len, num_kv_tokens)
    if parts is not None:
        sums = ("num_seqs", "num_query_tokens", "num_kv_tokens")
        check_parts(parts, lengths, add_up=() if for_capture else sums if is_known else sums[:-1])
        if for_capture:
            parts = Parts(*(part.of_unknown_total(model.sliding_window) for part in parts))
    if for_capture or not is_known:
        lengths = lengths.of_unknown_total(model.sliding_window)

    device = cu_seqlens_q.device
    max_page_id = None
    if check or (check is None and device.type == "cpu" and not for_capture):
        max_page_id = checks.check_contents(
            cu_seqlens_q,
            seqused_k,
            block_table,
            num_query_tokens=num_query_tokens,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
            block_size=model.block_size,
            causal=model.causal,
        )
        if parts is not None and not for_capture:
            check_part_contents(cu_seqlens_q, seqused_k, parts)

    if workspace is not None and not isinstance(workspace, Workspace):
        raise TypeError(f"workspace is a {type(workspace).__name__}, but an attn_kernels.Workspace is needed")
    if workspace is not None and workspace.device != device:
        raise ValueError(f"workspace is on {workspace.device}, but cu_seqlens_q is on {device}")
    scratch = workspace or Fresh(device)
    choices = choices_for(model, device, device_key)
    step = Step(cu_seqlens_q, seqused_k, block_table, choices, scratch, for_capture, max_page_id)
    given = None if config is None else checked(config)
    if given is not None:
        check_batch_invariant(model, "config", given)
    if given is not None and not needs_parts(given):
        if device_key is not None:
            raise ValueError(f"device_key is {device_key!r}, but config was given too: only one can choose")
        made = _plan_whole(step, lengths, given)
    else:
        made = _plan_chosen(step, lengths, parts, given) if given else _plan_to_fit(step, lengths, parts)
        recorder = recorder_of_process()
        if recorder is not None and given is None:
            recorder.record(model, lengths, parts, for_capture)
    begin(made)
    take_handle(made)
    return made


class Step(NamedTuple):
    """What ``plan`` was given beside lengths and configs, after its checks."""

    cu_seqlens_q: Tensor
    seqused_k: Tensor
    block_table: Tensor
    choices: Choices
    scratch: Scratch
    for_capture: bool = False
    max_page_id: int | None = None


def _plan_chosen(step: Step, lengths: Lengths, parts: Parts | None, way: Config | None) -> Plan:
    """Plan a batch with choices for all that is not given.

    Args:
        way: how to compute a mixed batch; the choice for its parts if None.
    """
    choices = step.choices
    if parts is None:
        if way is not None:
            raise ValueError(f"config is {way}, but it needs parts")
    elif parts.decodes.num_query_tokens and parts.prompts.num_query_tokens:
        way = way or choices.way(parts)
        if way != SINGLE:
            configs = [_choose(step, part) for part in parts]
            return plan_parts(step, lengths, parts, configs, None if way == SEPARATE else way)
    return _plan_whole(step, lengths, _choose(step, lengths))


def _plan_to_fit(step: Step, lengths: Lengths, parts: Parts | None) -> Plan:
    """Plan a batch with choices for all, and with others where one turns out not to fit the device."""

    def again(config: Config, error: Exception) -> Plan:
        step.choices.step_down(config, error)
        following = _plan_to_fit(step, lengths, parts)
        if config in (following.config, *(part.config for part in following.parts)):  # the fallback
            raise error
        begin(following)
        return following

    made = _plan_chosen(step, lengths, parts, None)
    made.again = again
    return made


def _choose(step: Step, lengths: Lengths) -> Config:
    """Choose a config; of a graph's prompts by half the longest context, which few of its steps reach."""
    if step.for_capture and lengths.max_query_len > MAX_DRAFT:
        lengths = lengths._replace(max_seq_len=lengths.max_seq_len // 2)
    return step.choices.config(lengths)


def _plan_whole(step: Step, lengths: Lengths, config: Config, part: int = 0) -> Plan:
    """Plan a batch, or a part of it, with one config; ``part`` as in ``ScratchSizes``."""
    choices, variant = step.choices, VARIANTS[config.variant]
    model, device = choices.model, choices.device
    num_splits = split_keys = 1
    by_hopper = launches(config, device)
    if not by_hopper or config.variant == "qblock":
        find = most_hopper_splits if by_hopper else variant.find_splits or find_splits
        num_splits, split_keys = find(
            config, model, lengths, multiprocessors(device), step.scratch.max_partials
        )
    sizes = ScratchSizes(
        lengths.num_seqs,
        lengths.num_query_tokens,
        model.num_query_heads,
        head_padded(model.head_size),
        num_splits,
        config.block_m,
        step.for_capture,
        part,
        model.gqa_group_size,
        config,
    )
    return Plan(
        cu_seqlens_q=step.cu_seqlens_q,
        seqused_k=step.seqused_k,
        block_table=step.block_table,
        device=device,
        num_seqs=lengths.num_seqs,
        num_query_tokens=lengths.num_query_tokens,
        max_query_len=lengths.max_query_len,
        max_seq_len=lengths.max_seq_len,
        model=model,
        config=config,
        max_page_id=step.max_page_id,
        workspace=variant.scratch(step.scratch, sizes),
        launch_cache=choices.launch_cache(config, step.for_capture),
        num_splits=num_splits,
        split_keys=split_keys,
        for_capture=step.for_capture,
        lse_stride=lengths.num_query_tokens,
    )


def plan_parts(
    step: Step, batch: Lengths, parts: Parts, configs: Sequence[Config], fused: Config | None = None
) -> Plan:
    """Plan a batch in two parts, each with a config of its own.

    No length that the host states decides which part computes a token. ``divide_kernel`` finds the boundary
    on the device, and the launches of the prompts are large enough for all tokens. So a wrong length costs
    time, but every result is right.

    Args:
        configs: of the decodes and of the prompts.
        fused: the config of one launch for both parts; None to launch one after the other.

    Returns:
        A plan of the whole batch, with ``fused`` or the config of the prompts, and the plans of the parts.
    """
    # The prompts' launches also cover the leading sequences that turn out to be no decodes.
    prompts = parts.prompts._replace(
        num_seqs=batch.num_seqs, num_query_tokens=batch.num_query_tokens, max_query_len=batch.max_query_len
    )
    cu_decodes, cu_prompts = step.scratch.cu_parts(batch.num_seqs)
    step_of_decodes = step._replace(cu_seqlens_q=cu_decodes)
    step_of_prompts = step._replace(cu_seqlens_q=cu_prompts)
    plan_of_decodes = _plan_whole(step_of_decodes, parts.decodes, configs[0], part=0)
    plan_of_prompts = _plan_whole(step_of_prompts, prompts, configs[1], part=1)
    plan_of_decodes.lse_stride = batch.num_query_tokens
    plan_of_both = None
    if fused is not None:
        plan_of_both = _plan_whole(step_of_prompts, batch, fused, part=BOTH)
        plan_of_both.workspace += (cu_decodes,)
    return dataclasses.replace(
        plan_of_prompts,
        config=fused or configs[1],
        cu_seqlens_q=step.cu_seqlens_q,
        max_seq_len=batch.max_seq_len,
        num_splits=1,
        workspace=(),
        launches={},
        parts=(plan_of_decodes, plan_of_prompts),
        fused=plan_of_both,
    )
