"""Launches with any option over poisoned tensors, compared with float64, for tests on a GPU.

Whatever a launch must not read holds NaN: unused slots of a cache, and keys and pages before all windows.
Unused entries of a block table lie far outside the cache. Outputs and workspaces hold NaN before each launch.

What a launch has beyond a plain causal softmax over contiguous tensors is a text of words: those of
``kernel_cases.scores``; ``fp8`` caches; ``lse``; ``images=4``, at most so many in a sequence, whose tokens
see each other; and ``strides`` of q and out: ``fused`` slices of a QKV product, ``odd`` gaps of 3 elements,
or one element ``off``.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from kernel_cases import FP8, scores, shifted, strided, words_of
from torch import Tensor
from triton.runtime.errors import OutOfResources

import attn_kernels
from attn_kernels import Config, Lengths, Parts
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core.errors import brief
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import FP8_TOLERANCE, TOLERANCE, Expected, check
from attn_kernels.measure.tensors import launches_of, plan_for, stand_in
from attn_kernels.testing.poisoned import GARBAGE_PAGE, PoisonedBatch, make_batch, poison_workspace

FP8_NAN = 0x7F
LSE_TOLERANCE = 2e-3
CAPPED_TOLERANCE = 3e-2  # of a cap of 30, whose tangent is approximated
FALLBACK = Config("qblock", 64, 32)  # of both parts, where one kernel cannot compute them


def draw_words(rng: random.Random, *, fp8: bool) -> str:
    """Draw each option in about a third of the calls, none in a sixth; scales need an fp8 cache."""
    words = ["fp8"] if fp8 else []
    if rng.random() >= 1 / 6:
        drawn = (
            (0.33, [f"window={window}" for window in (1, 17, 128, 1000)]),
            (0.25, ["softcap=5", "softcap=30"]),
            (0.25, ["alibi"]),
            (0.33, ["sinks", "sinks=half"]),
            (0.75 if fp8 else 0.0, ["scales", "scales=tensor", "scales=tensor"]),
            (0.33, ["strides=fused", "strides=odd", "strides=off"]),
            (0.33, ["noncausal"]),
        )
        words += [rng.choice(choices) for share, choices in drawn if rng.random() < share]
    return " ".join(words)


class PartConfigs(NamedTuple):
    """The configs of a mixed batch's parts."""

    decodes: Config
    prompts: Config

    def __str__(self) -> str:
        return f"{self.decodes} then {self.prompts}"


Launched = Config | PartConfigs | None  # None: what the generated modules choose


@dataclass(frozen=True)
class LaunchCase:
    """A batch, the configs to launch it with, and the words of its options."""

    seed: int
    batch: Batch
    configs: tuple[Config | None, ...]
    words: str = ""
    query_scale: float = 1.0
    in_pairs: bool = False  # also launch it in parts, each config for one part and the next for the other

    def __str__(self) -> str:
        return f"{self.seed}: {self.batch}, {self.words or 'no option'}"

    def launches(self) -> Iterator[Launched]:
        """All that the batch is launched with."""
        yield from self.configs
        if self.in_pairs and self.batch.lengths.num_seqs > 1:
            configs = [config for config in self.configs if config is not None and not needs_parts(config)]
            yield from map(PartConfigs, configs, [*configs[1:], *configs[:1]])

    def jobs(self) -> Iterator[CompileJob]:
        """Jobs that compile what the case launches."""
        return (CompileJob(dataclasses.replace(self, configs=()), config) for config in self.configs)

    def failures(self, device: torch.device) -> list[str]:
        """A line for each launch that is wrong or raises; configs that exceed the device are left out."""
        loaded = Poisoned.of(self, device)
        expected = loaded.expect()
        lse = loaded.options["lse"].clone() if "lse" in loaded.options else None
        lines = []
        for config in self.launches():
            try:
                out, launched = loaded.launch(config)
                verdict = check(out, expected)
            except Exception as error:
                if config is not None and isinstance(error, OutOfResources):
                    continue
                lines.append(f"{self} {config or 'chosen config'}: {brief(error)}")
            else:
                if not verdict.ok:
                    lines.append(f"{self} {launched}: {verdict}")
                if lse is not None:
                    lines += loaded.wrong_lse(lse, launched)
        return lines


@dataclass(frozen=True)
class CompileJob:
    """A launch of one config that compiles all that the case needs of it."""

    case: LaunchCase
    config: Config | None

    @property
    def needs(self) -> frozenset[Hashable]:
        if self.config is None:  # only `plan` knows what it chooses
            return frozenset({self.case})
        batch, layout = self.case.batch, self.case.batch.layout
        group = layout.num_query_heads // layout.num_kv_heads
        shape = (group, layout.head_size, batch.block_size, batch.dtype)
        # Compiled kernels depend on no number of an option.
        return frozenset({(self.config, shape, re.sub(r"( after)?=[\d.]+", "", self.case.words))})

    @property
    def cost(self) -> int:
        config = self.config or FALLBACK
        return config.block_m * config.tile_size * self.case.batch.layout.head_size

    def run(self, device: torch.device) -> None:
        """Launch a given config on at most three tokens, because no length is compiled into a kernel."""
        batch = self.case.batch
        if self.config is None and not self.case.words:
            tensors = stand_in(batch, device)
            launches_of(plan_for(tensors, in_parts=True), tensors)[0]()
            return
        if self.config is not None:
            lens = (1,) * (1 in batch.query_lens) + (2,) * (batch.lengths.max_query_len > 1)
            batch = dataclasses.replace(batch, name="small", kind="", query_lens=lens, context_lens=lens)
        Poisoned.of(dataclasses.replace(self.case, batch=batch), device).launch(self.config)


@dataclass(frozen=True, eq=False)
class Poisoned:
    """A case's tensors and score options."""

    case: LaunchCase
    tensors: PoisonedBatch
    options: dict[str, Any]
    whole: PoisonedBatch  # `tensors` with the keys before all windows

    @classmethod
    def of(cls, case: LaunchCase, device: torch.device) -> Poisoned:
        batch, words = case.batch, words_of(case.words)
        tensors = make_tensors(batch, device, case.seed, FP8 if "fp8" in words else None)
        q = with_strides(tensors.q * case.query_scale, words.get("strides", ""))
        whole = tensors = dataclasses.replace(tensors, q=q)
        options = scores(q.shape[1], case.words, batch.dtype, device)
        if "window" in words:
            tensors = hide(whole, options["sliding_window"])
            if device.type == "cpu":  # where a page id far outside would end the process
                tensors = dataclasses.replace(tensors, block_table=whole.block_table)
        if "lse" in words:
            options["lse"] = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=device)
        if "images" in words:
            ranges = image_ranges(batch, int(words["images"]), case.seed)
            options["bidirectional_ranges"] = ranges.to(device)
        return cls(case, tensors, options, whole)

    def expect(self) -> Expected:
        """The float64 reference of every row; it also writes the log-sum-exp of the options."""
        batch = self.case.batch
        rows = torch.arange(batch.lengths.num_query_tokens, device=self.tensors.q.device)
        tolerance = FP8_TOLERANCE if "fp8" in self.case.words else TOLERANCE[batch.dtype]
        return Expected(rows, self.whole.reference(**self.options), tolerance)

    def launch(self, config: Launched) -> tuple[Tensor, Launched]:
        """Launch with an output and a workspace of NaN; return the output and what was launched.

        Triton's dispatch makes the first launch of a kind, and the second is direct. Their bits are the same,
        but for prompts of the Hopper kernel ("One maximum per row" in docs/kernels.md).
        """
        used, batch = self.tensors, self.case.batch
        if isinstance(config, PartConfigs):
            plan = used.plan_in_parts(*config, parts_of(batch))
        elif config is not None and needs_parts(config):
            plan = used.plan_in_parts(FALLBACK, FALLBACK, parts_of(batch), config)
        else:
            parts = None if config else batch.parts
            # Half of the plans of other layers count causal ones. More queries than keys are not refused.
            causal = "noncausal" not in self.case.words or bool(self.case.seed // 2 % 2)
            causal = causal and all(map(int.__le__, used.query_lens, used.context_lens))
            window = self.options.get("sliding_window")
            model = dataclasses.replace(used.model, sliding_window=window, causal=causal)
            graph = bool(self.case.seed % 2)  # whose splits the GPU finds
            plan = used.plan(config=config, parts=parts, model=model, for_capture=graph)
        outs = []
        for _ in range(2):
            poison_workspace(plan)
            if "lse" in self.options:
                self.options["lse"].fill_(torch.nan)
            out = torch.full_like(used.q, torch.nan, memory_format=torch.contiguous_format)
            outs.append(out := with_strides(out, words_of(self.case.words).get("strides", "")))
            attn_kernels.run(plan, used.q, used.k_cache, used.v_cache, out=out, **self.options)
        launched = [plan.config, *(part.config for part in plan.parts)]
        repeatable = not any(needs_parts(one) or (one.tma and one.variant == "qblock") for one in launched)
        if repeatable and not torch.equal(*(out.view(torch.int16) for out in outs)):
            raise ArithmeticError("a direct launch has other bits than that of Triton's dispatch")
        in_series = plan.parts and plan.fused is None
        return out, PartConfigs(*(part.config for part in plan.parts)) if in_series else plan.config

    def wrong_lse(self, expected: Tensor, launched: Launched) -> list[str]:
        """A line if the log-sum-exp that was launched is not as expected."""
        tolerance = CAPPED_TOLERANCE if "softcap" in self.case.words else LSE_TOLERANCE
        lse = self.options["lse"]
        if torch.allclose(lse, expected, rtol=tolerance, atol=tolerance):
            return []
        error = (lse - expected).abs().nan_to_num(torch.inf).max().item()
        return [f"{self.case} {launched}: log-sum-exp off by {error:.1e}"]


def image_ranges(batch: Batch, most: int, seed: int) -> Tensor:
    """Random ranges of positions, most of a few hundred; some overlap, and some end past a sequence."""
    rng = random.Random(f"images/{seed}")
    ranges = torch.zeros(batch.lengths.num_seqs, most, 2, dtype=torch.int32)
    for own, context in zip(ranges, batch.context_lens, strict=True):
        for place in range(rng.randint(0, most)):
            start = rng.randint(0, context)
            own[place] = torch.tensor([start, start + rng.choice((3, 63, 255, 255, 2000))])
    return ranges


def parts_of(batch: Batch) -> Parts:
    """The batch's parts; wrong ones, of half the sequences each, where one would be empty."""
    parts = batch.parts
    if all(part.num_query_tokens for part in parts):
        return parts
    half = batch.lengths.num_seqs // 2
    decodes, prompts = (
        Lengths.of(batch.query_lens[part], batch.context_lens[part])
        for part in (slice(half), slice(half, None))
    )
    return Parts(decodes._replace(max_query_len=min(decodes.max_query_len, MAX_DRAFT)), prompts)


def make_tensors(
    batch: Batch, device: torch.device, seed: int, cache_dtype: torch.dtype | None = None
) -> PoisonedBatch:
    """Poisoned tensors of a batch; ``cache_dtype`` as ``make_batch`` takes it."""
    return make_batch(
        batch.query_lens,
        batch.context_lens,
        **dataclasses.asdict(batch.layout),
        block_size=batch.block_size,
        dtype=batch.dtype,
        cache_dtype=cache_dtype,
        device=device,
        seed=seed,
    )


def with_strides(tensor: Tensor, strides: str) -> Tensor:
    """The same values at other strides, with NaN in the gaps."""
    match strides:
        case "fused":
            return strided(tensor, 1, 2)
        case "odd":
            return strided(tensor, 2, 3)
        case "off":
            return shifted(tensor)
    return tensor


def hide(tensors: PoisonedBatch, window: int) -> PoisonedBatch:
    """Put NaN on all keys before a sequence's first window, and a wrong id on pages of such keys alone."""
    k_cache, v_cache, table = (
        tensor.clone() for tensor in (tensors.k_cache, tensors.v_cache, tensors.block_table)
    )
    block_size = k_cache.shape[1]
    as_bytes = k_cache.element_size() == 1
    for seq, (queries, context) in enumerate(zip(tensors.query_lens, tensors.context_lens, strict=True)):
        first = max(0, context - queries - window + 1) if queries else 0
        keys = torch.arange(first, device=table.device)
        pages = table[seq, keys // block_size].long()
        for cache in (k_cache, v_cache):
            if as_bytes:
                cache.view(torch.uint8)[pages, keys % block_size] = FP8_NAN
            else:
                cache[pages, keys % block_size] = torch.nan
        table[seq, : first // block_size] = GARBAGE_PAGE
    return dataclasses.replace(tensors, k_cache=k_cache, v_cache=v_cache, block_table=table)
