"""Plans: the batch metadata and the config of one step, made once for all layers."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from attn_kernels.choose.choices import Choices, check_batch_invariant, checked, choices_for
from attn_kernels.choose.mixed import SEPARATE, SINGLE, needs_parts
from attn_kernels.choose.recording import recorder_of_process
from attn_kernels.core.batch import Batch, checked_batch
from attn_kernels.core.config import Config, LaunchConfig
from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.arguments import multiprocessors
from attn_kernels.kernels.hopper_launch import launches
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.splits import find_splits, most_hopper_splits
from attn_kernels.kernels.variant import Scratch
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
    graph (docs/graphs.md). With ``parts``, and for some configs, it launches a small kernel that reads the
    batch once for all layers. Run the layers of one plan one after another: they share its workspace.

    Args:
        cu_seqlens_q: int32 [num_seqs + 1], where each sequence's query tokens begin; ends at
            ``num_query_tokens``. Sequences may have no query tokens.
        seqused_k: int32 [num_seqs], keys of each sequence, its query tokens included.
        block_table: int32 [num_seqs, max_blocks_per_seq], page ids; entries past a sequence's keys are
            never read. Its rows may be strided.
        model: the constants of the layers. Its ``cache_dtype`` and ``sliding_window`` only affect the choice
            of the config, and ``causal`` only the order of the work. So layers with other windows, or of the
            other kind of attention, may share the plan; pass their own values to ``run``.
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
    if not isinstance(model, Model):
        raise TypeError(f"model is a {type(model).__name__}, but an attn_kernels.Model is needed")
    index, lengths = (cu_seqlens_q, seqused_k, block_table), (num_query_tokens, max_query_len, max_seq_len)
    batch = checked_batch(
        index, model, *lengths, num_kv_tokens, parts=parts, for_capture=for_capture, contents=check
    )
    device = batch.device
    if workspace is not None and not isinstance(workspace, Workspace):
        raise TypeError(f"workspace is a {type(workspace).__name__}, but an attn_kernels.Workspace is needed")
    if workspace is not None and workspace.device != device:
        raise ValueError(f"workspace is on {workspace.device}, but cu_seqlens_q is on {device}")
    planning = Planning(batch, choices_for(model, device, device_key), workspace or Scratch(device))
    if config is None:
        made = planning.chosen_to_fit()
        recorder = recorder_of_process()
        if recorder is not None:
            recorder.record(model, batch.lengths, batch.parts, batch.for_capture)
    else:
        config = checked(config)
        check_batch_invariant(model, "config", config)
        if needs_parts(config):
            made = planning.chosen(config)
        elif device_key is None:
            made = planning.one(batch.lengths, config)
        else:
            raise ValueError(f"device_key is {device_key!r}, but config was given too: only one can choose")
    begin(made)
    take_handle(made)
    return made


class Planning(NamedTuple):
    """Makes plans of a batch, from what chooses for it and a source of scratch memory."""

    batch: Batch
    choices: Choices
    scratch: Scratch

    def chosen_to_fit(self) -> Plan:
        """Plan with chosen configs, and plan again with others if one turns out not to fit the device."""

        def again(config: Config, error: Exception) -> Plan:
            self.choices.step_down(config, error)
            following = self.chosen_to_fit()
            if config in (following.config, *(part.config for part in following.parts)):  # the fallback
                raise error
            begin(following)
            return following

        made = self.chosen()
        made.again = again
        return made

    def chosen(self, way: Config | None = None) -> Plan:
        """Plan with choices for all that is not given.

        Args:
            way: how to compute a mixed batch; the choice for its parts if None.
        """
        parts = self.batch.parts
        if parts is None and way is not None:
            raise ValueError(f"config is {way}, but it needs parts")
        if parts is not None and parts.decodes.num_query_tokens and parts.prompts.num_query_tokens:
            way = way or self.choices.way(parts)
            if way != SINGLE:
                configs = [self._choose(part) for part in parts]
                return self.in_parts(configs, None if way == SEPARATE else way)
        return self.one(self.batch.lengths, self._choose(self.batch.lengths))

    def _choose(self, lengths: Lengths) -> Config:
        """Choose a config; of a graph's prompts by half the longest context, which few of its steps reach."""
        if self.batch.for_capture and lengths.max_query_len > MAX_DRAFT:
            lengths = lengths._replace(max_seq_len=lengths.max_seq_len // 2)
        return self.choices.config(lengths)

    def one(
        self, lengths: Lengths, config: Config, cu_seqlens_q: Tensor | None = None, part: int = 0
    ) -> Plan:
        """Plan the batch with one config, or one of its parts, which has other ``cu_seqlens_q``."""
        batch, choices, scratch = self
        model, device, variant = choices.model, choices.device, VARIANTS[config.variant]
        made = Plan(
            batch,
            model,
            device,
            config,
            lengths,
            batch.cu_seqlens_q if cu_seqlens_q is None else cu_seqlens_q,
            choices.launch_cache(config, batch.for_capture),
            part,
        )
        by_hopper = launches(config, device)
        if not by_hopper or config.variant == "qblock":
            find = most_hopper_splits if by_hopper else variant.find_splits or find_splits
            room = scratch.max_partials
            made.num_splits, made.split_keys = find(config, model, lengths, multiprocessors(device), room)
        made.workspace = variant.scratch(scratch, made)
        return made

    def in_parts(self, configs: Sequence[Config], fused: Config | None = None) -> Plan:
        """Plan the batch in two parts, each with a config of its own.

        No length that the host states decides which part computes a token. ``divide_kernel`` finds the
        boundary on the device, and the launches of the prompts are large enough for all tokens. So a wrong
        length costs time, but every result is right.

        Args:
            configs: of the decodes and of the prompts.
            fused: the config of one launch for both parts; None to launch one after the other.

        Returns:
            A plan of the whole batch, with ``fused`` or the config of the prompts, and those of the parts.
        """
        batch, choices, scratch = self
        assert batch.parts is not None
        num_seqs, num_query_tokens, max_query_len, _, _ = batch.lengths
        decodes, prompts = batch.parts
        # The prompts' launches also cover the leading sequences that turn out to be no decodes.
        prompts = Lengths(num_seqs, num_query_tokens, max_query_len, *prompts[3:])
        cu_decodes, cu_prompts = scratch.cu_parts(num_seqs)
        plan_of_decodes = self.one(decodes, configs[0], cu_decodes)
        plan_of_prompts = self.one(prompts, configs[1], cu_prompts, part=1)
        plan_of_both = None
        if fused is not None:
            plan_of_both = self.one(batch.lengths, fused, cu_prompts, part=BOTH)
            plan_of_both.workspace += (cu_decodes,)
        return Plan(
            batch,
            choices.model,
            choices.device,
            fused or configs[1],
            batch.lengths,
            batch.cu_seqlens_q,
            plan_of_prompts.launch_cache,
            parts=(plan_of_decodes, plan_of_prompts),
            fused=plan_of_both,
        )
