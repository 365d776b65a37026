"""Plans: the batch metadata and the config of one step, made once for all layers."""

from torch import Tensor

from attn_kernels.choose.capture import choose_for_capture
from attn_kernels.choose.heuristic import choose_for_device, choose_for_key
from attn_kernels.choose.mixed import SERIES, WHOLE, choose_mixed, mixed_features, needs_parts
from attn_kernels.choose.recording import recorder_of_process
from attn_kernels.core import checks
from attn_kernels.core.config import LaunchConfig, complete
from attn_kernels.core.lengths import Lengths, Parts, check_parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.variant import Fresh
from attn_kernels.launch.run import begin
from attn_kernels.planning.make import Step, chosen, make_plan
from attn_kernels.planning.parts import check_part_contents, plan_parts
from attn_kernels.planning.workspace import Workspace


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
    """Validate a batch, choose its config and return the plan that ``run`` takes, once a step.

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
            its ``sliding_window``. Layers of other windows may share the plan; ``run`` is given their own.
        num_query_tokens: of all sequences together.
        max_query_len, max_seq_len: the longest query and context, in tokens.
        num_kv_tokens: sum of ``seqused_k``; ``num_seqs * max_seq_len`` if the host does not know it.
        config: launch with this instead of the choice of the generated module.
        device_key: choose by the generated module of this name instead of the device's. Beside a ``config``
            with ``device_segments``, the GPU calls this module for the number of segments.
        check: also check the contents of the index tensors. None: if they are on the CPU and the plan is not
            ``for_capture``. True: always, which synchronises. False: never.
        for_capture: a graph of this plan will be replayed for other batches in the same index tensors. All
            lengths given here are maxima; ``choose.capture`` chooses the config.
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
        num_seqs, blocks_per_seq, model.block_size, num_query_tokens, max_query_len, max_seq_len
    )
    add_up: tuple[str, ...] = ("num_seqs", "num_query_tokens", "num_kv_tokens")
    if num_kv_tokens is None:
        add_up = ("num_seqs", "num_query_tokens")
        num_kv_tokens = num_seqs * max_seq_len
    else:
        checks.check_int("num_kv_tokens", num_kv_tokens, 0)
    lengths = Lengths(num_seqs, num_query_tokens, max_query_len, max_seq_len, num_kv_tokens)
    if parts is not None:
        check_parts(parts, lengths, add_up=() if for_capture else add_up)

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
        )
        if parts is not None and not for_capture:
            check_part_contents(cu_seqlens_q, seqused_k, parts)

    if workspace is not None and not isinstance(workspace, Workspace):
        raise TypeError(f"workspace is a {type(workspace).__name__}, but an attn_kernels.Workspace is needed")
    if workspace is not None and workspace.device != device:
        raise ValueError(f"workspace is on {workspace.device}, but cu_seqlens_q is on {device}")
    scratch = workspace or Fresh(device)
    step = Step(cu_seqlens_q, seqused_k, block_table, model, scratch, device_key, for_capture, max_page_id)
    for_parts = config is not None and needs_parts(complete(config))
    if for_parts and parts is None:
        raise ValueError(f"config is {config}, but it needs parts")
    if config is not None and not for_parts:
        if device_key is not None and not complete(config).device_segments:
            raise ValueError(f"device_key is {device_key!r}, but config was given too: only one can choose")
        made = make_plan(step, lengths, config)
    else:
        if for_capture:
            choose = choose_for_capture(device, device_key)
        else:
            choose = choose_for_device(device) if device_key is None else choose_for_key(device_key)
        way: LaunchConfig = WHOLE
        if parts is not None and parts.decodes.num_query_tokens and parts.prompts.num_query_tokens:
            way = config or choose_mixed(device, device_key)(**mixed_features(parts, model))
        if parts is not None and way.variant != WHOLE.variant:
            fused = None if way.variant == SERIES.variant else way
            made = plan_parts(step, lengths, parts, choose, fused)
        else:
            made = make_plan(step, lengths, chosen(choose, lengths, model))
        recorder = recorder_of_process()
        if recorder is not None and config is None:
            recorder.record(model, lengths, parts, for_capture)
    begin(made)
    return made
