"""Plans: the batch metadata and the config of one step, made once for all layers."""

from torch import Tensor

from attn_kernels.choose.capture import choose_for_capture
from attn_kernels.choose.heuristic import choose_for_device, choose_for_key, segments_function
from attn_kernels.core import checks
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.arguments import head_padded
from attn_kernels.kernels.config_check import check_config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.scratch import Fresh, ScratchSizes
from attn_kernels.launch.direct import launch_cache_for
from attn_kernels.launch.run import begin
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
) -> Plan:
    """Validate a batch, choose its config and return the plan that ``run`` takes, once a step.

    Synchronises with the device only if ``check=True``, so it may be called while a CUDA graph is captured.
    Capture a graph that is replayed for other batches with ``for_capture``, and keep the plan as long as the
    graph (docs/graphs.md). For some configs this launches a kernel that looks at the batch once for all
    layers. Run the layers of one plan one after another: they share its workspace.

    Args:
        cu_seqlens_q: int32 [num_seqs + 1], where each sequence's query tokens begin; ends at
            ``num_query_tokens``. Sequences may have no query tokens.
        seqused_k: int32 [num_seqs], keys of each sequence, its query tokens included.
        block_table: int32 [num_seqs, max_blocks_per_seq], page ids; entries past a sequence's keys are
            never read. Its rows may be strided.
        model: the constants of the layers. Only the choice of the config depends on its ``cache_dtype``.
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
    if num_kv_tokens is None:
        num_kv_tokens = num_seqs * max_seq_len
    else:
        checks.check_int("num_kv_tokens", num_kv_tokens, 0)

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

    if config is None:
        if for_capture:
            choose = choose_for_capture(device, device_key)
        else:
            choose = choose_for_device(device) if device_key is None else choose_for_key(device_key)
        config = choose(
            num_seqs=num_seqs,
            num_query_tokens=num_query_tokens,
            num_kv_tokens=num_kv_tokens,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
            num_query_heads=model.num_query_heads,
            num_kv_heads=model.num_kv_heads,
            head_size=model.head_size,
            block_size=model.block_size,
            kv_element_size=model.kv_element_size,
        )
    elif device_key is not None and not complete(config).device_segments:
        raise ValueError(f"device_key is {device_key!r}, but config was given too: only one can choose")
    full_config = _complete_and_checked(config)
    if workspace is not None and workspace.device != device:
        raise ValueError(f"workspace is on {workspace.device}, but cu_seqlens_q is on {device}")
    sizes = ScratchSizes(
        num_seqs,
        num_query_tokens,
        model.num_query_heads,
        head_padded(model.head_size),
        full_config.num_segments,
        full_config.block_m,
        full_config.programs_per_sm,
        full_config.device_segments,
    )
    made = Plan(
        cu_seqlens_q=cu_seqlens_q,
        seqused_k=seqused_k,
        block_table=block_table,
        device=device,
        num_seqs=num_seqs,
        num_query_tokens=num_query_tokens,
        num_kv_tokens=num_kv_tokens,
        max_query_len=max_query_len,
        max_seq_len=max_seq_len,
        model=model,
        config=full_config,
        max_page_id=max_page_id,
        workspace=VARIANTS[full_config.variant].scratch(workspace or Fresh(device), sizes),
        launch_cache=launch_cache_for(full_config, model, device),
        for_capture=for_capture,
        segments_function=segments_function(device, device_key) if full_config.device_segments else None,
    )
    begin(made)
    return made


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
