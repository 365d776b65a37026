"""Batches launch only kernels that ``compile_ahead`` compiled.

Keys are those that Triton's dispatch computes, for the choices of committed modules.
"""

import random
from dataclasses import dataclass
from itertools import accumulate, product

import pytest
import torch
from kernel_cases import FP8, record_launches, shifted
from launch_recorder import key

import attn_kernels
from attn_kernels import Model, Parts
from attn_kernels.choose import choices
from attn_kernels.choose.choices import choices_for
from attn_kernels.kernels import qblock
from attn_kernels.launch import direct
from attn_kernels.warmup.compile_ahead import compile_ahead
from attn_kernels.warmup.dummy_launch import LARGE

BF16 = torch.bfloat16
MOST_TOKENS = 32 * 1024
LAYOUTS = ((8, 2, 64), (14, 2, 128), (4, 2, 256), (34, 1, 64))  # the last is beyond the trees' guards
PAGES = (16, 32)
MODELS = [Model(*heads, page, BF16, cache) for heads, page, cache in product(LAYOUTS, PAGES, (None, FP8))]
PLAIN = [Model(*heads, 16, BF16) for heads in LAYOUTS]
KINDS = ((), ("window", "softcap", "sinks", "lse"), ("scales", "alibi", "float32_sinks", "ranges"))


def indices(values, offset):
    """An index tensor that begins ``offset`` elements into its memory."""
    return torch.tensor([0] * offset + list(values), dtype=torch.int32)[offset:]


@dataclass(frozen=True)
class Step:
    """Lengths of a batch, and what its plan and its tensors are like."""

    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    model: Model

    @property
    def parts(self):
        return Parts.of(self.query_lens, self.context_lens)

    def plan(self, **how):
        """The index tensors begin anywhere, and the table's rows are as far apart as it comes."""
        chance = random.Random(str(self))
        width = -(-max(self.context_lens) // self.model.block_size) + chance.choice((0, 1, 7, 16))
        rows, pitch = len(self.query_lens), width + chance.randrange(3)
        table = indices([0] * (rows * pitch), chance.randrange(4)).view(rows, pitch)[:, :width]
        return attn_kernels.plan(
            indices([0, *accumulate(self.query_lens)], chance.randrange(4)),
            indices(self.context_lens, chance.randrange(4)),
            table,
            self.model,
            num_query_tokens=sum(self.query_lens),
            num_kv_tokens=chance.choice((None, sum(self.context_lens))),
            max_query_len=max(self.query_lens),
            max_seq_len=max(self.context_lens),
            check=False,
            **how,
        )


def steps(count, models, seed=0):
    """Random steps of a server: decodes, drafts, chunks, prompts and their mixtures, of all sizes."""
    chance = random.Random(seed)
    for _ in range(count):
        num_seqs = chance.choice((1, 1, 2, 3, 8, 16, 17, 64, 256))
        longest = min(chance.choice((1, 1, 1, 2, 4, 8, 64, 1024)), MOST_TOKENS // num_seqs)
        past = chance.choice((0, 1, 100, 1000, 10_000, 100_000))
        query_lens = [chance.randint(0 if num_seqs > 1 else 1, longest) for _ in range(num_seqs)]
        query_lens[0] = max(1, query_lens[0])
        context_lens = tuple(length + chance.randint(past // 2, past) for length in query_lens)
        yield Step(tuple(query_lens), context_lens, chance.choice(models))


@pytest.fixture
def as_vendor(monkeypatch):
    """A function that makes launches those of a vendor's GPU. What was bound before was another's."""

    def become(vendor):
        monkeypatch.setattr(torch.version, "hip", "7.0" if vendor == "amd" else None)
        direct.forget()

    yield become
    direct.forget()


def keys(launches, vendor):
    return {key(launch, vendor) for launch in launches}


@pytest.fixture(scope="module")
def memory():
    """As large as any step's queries."""
    return torch.zeros(MOST_TOKENS * 18 * 128, dtype=BF16)


def layer(step, memory, chance):
    """Queries and caches in the layouts of servers.

    Queries are alone or beside keys and values. Caches are in one tensor, side by side, one behind the other,
    or have slots behind heads; or each lies in an untouched tensor of over 2 GiB.
    """
    model, dtype = step.model, step.model.cache_dtype or BF16
    width = model.num_query_heads + 2 * model.num_kv_heads * chance.randrange(2)
    tokens, size = sum(step.query_lens), model.head_size
    q = memory[: tokens * width * size].view(tokens, width, size)[:, : model.num_query_heads]
    shape = (4, 2, model.block_size, model.num_kv_heads, size)
    pages = LARGE // (dtype.itemsize * model.block_size * model.num_kv_heads * size) + 1
    caches = chance.choice(
        (
            lambda: torch.zeros(shape, dtype=dtype).unbind(1),
            lambda: torch.zeros(shape, dtype=dtype).transpose(0, 1).contiguous().unbind(),
            lambda: torch.zeros(shape, dtype=dtype).transpose(2, 3).contiguous().transpose(2, 3).unbind(1),
            lambda: [torch.empty(pages, *shape[2:], dtype=dtype) for _ in range(2)],
        )
    )()
    return q, *caches


def options_of(kind, step, chance):
    """Numbers, tensors and windows of a kind of layers, some at odd addresses."""
    heads, number = step.model.num_query_heads, chance.choice((0.5, 1, 2.0, 16, 100))
    ranges = (len(step.query_lens), chance.choice((1, 2, 9)), 2)
    per_head, moved = torch.zeros(heads), chance.choice((shifted, torch.clone))
    given = {
        "window": {"sliding_window": chance.choice((1, 2, 16, 1000, 2**30))},
        "softcap": {"softcap": number},
        "sinks": {"sinks": per_head.to(BF16)},
        "float32_sinks": {"sinks": per_head},
        "alibi": {"alibi_slopes": moved(per_head)},
        "lse": {"lse": torch.zeros(heads, sum(step.query_lens))},
        "scales": {"k_scale": torch.ones(1), "v_scale": moved(torch.ones(1))},
        "ranges": {"bidirectional_ranges": moved(torch.zeros(ranges).int())},
    }
    options = {"softmax_scale": number, "k_scale": number, "v_scale": number} if not kind else {}
    return options | {name: value for feature in kind for name, value in given[feature].items()}


@pytest.mark.parametrize(
    "device_key, vendor, models, count",
    [
        ("nvidia_h100", "nvidia", MODELS, 250),
        ("amd_mi300x", "amd", MODELS, 250),
        (None, "nvidia", PLAIN, 60),  # in graphs, and chosen for as on a Hopper GPU
        ("nvidia_h200", "nvidia", PLAIN, 60),
    ],
)
def test_random_batches_launch_only_what_was_compiled(
    device_key, vendor, models, count, as_vendor, new_process, memory, monkeypatch
):
    """In graphs, too, with the kernels that look at the batch for all layers."""
    monkeypatch.setattr(choices, "describe_device", lambda device: ("NVIDIA H100", "sm_90", "nvidia"))
    monkeypatch.setattr(qblock, "L2_BYTES", 2**16)  # the heads of long contexts run one after the other
    graphs = models is PLAIN
    launches = record_launches(monkeypatch, execute=False, once_a_plan=graphs)
    as_vendor(vendor)
    done = compile_ahead("cpu", models, features=KINDS, device_key=device_key, for_capture=graphs)
    assert not done.failures
    ready = keys(launches, vendor)
    launches.clear()
    chance, chosen, met = random.Random(1), set(), set()
    for step in steps(count, models):
        how = {"for_capture": graphs}
        if graphs and chance.random() < 0.5:
            step = Step((1, *step.query_lens, 700, 9), (50, *step.context_lens, 900, 4000), step.model)
            how = {"for_capture": chance.random() < 0.5, "parts": step.parts}
        plan = step.plan(device_key=device_key, **how)
        q, k_cache, v_cache = layer(step, memory, chance)
        options = options_of(chance.choice(KINDS), step, chance)
        if "lse" in options:
            attn_kernels.merge_attention_states(q, options["lse"], q, options["lse"])
        attn_kernels.run(plan, q, k_cache, v_cache, **options)
        chosen.add((plan.config, step.model.num_query_heads))
        met |= keys(launches, vendor)
        launches.clear()
    assert met <= ready, sorted(met - ready, key=str)[:1]
    if graphs:
        expected = {"qblock_kernel", "split_keys_kernel", "reduce_kernel", "divide_kernel"}
        assert expected <= {name for name, *_ in met}
        return
    # Nor is much compiled for nothing: nearly all that the tree can return was met.
    compiled = {
        (config, model.num_query_heads)
        for model in models
        for config in choices_for(model, torch.device("cpu"), device_key).possible()
    }
    assert compiled >= chosen
    assert len(chosen) >= 0.8 * len(compiled)
