"""Tiny random models of transformers, against their copies in float32 with eager attention."""

import copy
from functools import partial

import pytest
import torch

transformers = pytest.importorskip("transformers", minversion="5.17")

from transformers import masking_utils as masking  # noqa: E402
from transformers_models import KINDS, SIZES, TINY, make  # noqa: E402

from attn_kernels import Model  # noqa: E402
from attn_kernels.engines import transformers as engine  # noqa: E402
from attn_kernels.engines import transformers_sequences  # noqa: E402
from attn_kernels.engines.transformers_masks import image_ranges, read_rule  # noqa: E402

PROMPT, NEW = 27, 4
PADDING = {"plain": (0, 0), "padded": (19, 3)}


def prompts(padding, length=PROMPT):
    ids = torch.randint(1, 97, (len(padding), length), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    for i, count in enumerate(padding):
        ids[i, :count] = 0
        mask[i, :count] = 0
    return ids, mask


def both(model, call):
    """What `call` returns for the model, and for its copy in float32 with eager attention."""
    copied = copy.deepcopy(model).float()
    copied.set_attn_implementation("eager")
    with torch.no_grad():
        return call(model), call(copied)


def assert_close(got, expected):
    """Assert that logits are as close as roundings of a whole model allow."""
    assert torch.isfinite(got).all()
    scale = expected.std().item()
    error = (got.float() - expected).abs().max().item()
    assert error <= (0.05 if got.dtype == torch.float16 else 0.4) * scale, (error, scale)


def generate(model, ids, mask, cache, new=NEW, **given):
    return model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=new,
        do_sample=False,
        cache_implementation=cache,
        output_logits=True,
        return_dict_in_generate=True,
        **given,
    )


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize("name", TINY)
def test_generate_returns_the_logits_of_eager_attention(name, padding, cache):
    """As long as both choose the same tokens: rounding decides between two that are as likely."""
    inputs = prompts(padding)
    got, expected = both(make(name), lambda model: generate(model, *inputs, cache))
    same = torch.ones(len(padding), dtype=torch.bool)
    for i, (logits, wanted) in enumerate(zip(got.logits, expected.logits, strict=True)):
        assert_close(logits[same], wanted[same].float())
        same &= got.sequences[:, PROMPT + i] == expected.sequences[:, PROMPT + i]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", TINY)
def test_a_forward_pass_without_a_cache(name, dtype):
    model = make(name, dtype)
    ids, mask = prompts((5, 0, 0))
    mask[1, -4:] = 0  # padding on the right
    got, expected = both(model, lambda model: model(ids, attention_mask=mask, use_cache=False).logits)
    assert_close(got[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize(
    ("name", "chunks", "slots"),
    [
        ("llama", [19, 7, 1], 48),  # as views
        ("llama", [19, 7, 1], 45),  # as copies
        *(("gemma2", chunks, slots) for chunks in ([6, 20, 16, 1], [17, *[1] * 5, 21]) for slots in (0, 48)),
    ],
)
def test_steps_of_several_tokens(name, chunks, slots):
    """Past a window, after padding; without padding, only the device knows a static cache's length."""
    model, padded = make(name), name == "gemma2"
    ids, mask = prompts((9 if padded else 0, 0), sum(chunks))

    def steps(model):
        cache = transformers.DynamicCache(config=model.config)
        if slots:
            cache = transformers.StaticCache(config=model.config, max_cache_len=slots)
        out, stop = [], 0
        for chunk in ids.split(chunks, 1):  # one of 6 holds nothing but padding of sequence 0
            stop += chunk.shape[1]
            given = {"attention_mask": mask[:, :stop]} if padded else {}
            out.append(model(chunk, past_key_values=cache, **given).logits)
        return torch.cat(out, 1)

    got, expected = both(model, steps)
    assert_close(got[mask.bool()], expected[mask.bool()])


def test_a_compiled_model_breaks_its_graph_at_the_attention():
    model = make("gemma2")
    ids, mask = prompts((11, 0))
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        expected, got = (call(ids, attention_mask=mask, use_cache=False).logits for call in (model, compiled))
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_layers_of_one_kind_share_a_plan(monkeypatch):
    plans, plan = [], engine.plan
    for module in (engine, transformers_sequences):
        monkeypatch.setattr(module, "plan", lambda *args, **kwargs: plans.append(1) or plan(*args, **kwargs))
    ids, mask = prompts((3, 0))
    with torch.no_grad():
        make("llama")(ids, attention_mask=mask)
        make("llama")(ids)
    assert len(plans) == 2


def test_caches_are_viewed_unless_their_strides_cannot_divide():
    viewed = [torch.zeros(num_seqs, 32, 2, 8).transpose(1, 2) for num_seqs in (1, 3)]
    assert all(engine._pages_apart(keys) for keys in (*viewed, *map(torch.Tensor.contiguous, viewed)))
    copied = (
        torch.zeros(2, 2, 33, 8),
        torch.zeros(2, 2, 8, 32).transpose(2, 3),
        torch.zeros(1, 2, 32, 8).expand(2, -1, -1, -1),
        torch.zeros(2, 1, 32, 8).expand(-1, 2, -1, -1),
        torch.zeros(2, 2, 40, 8)[:, :, :33],
    )
    assert [engine._pages_apart(keys) for keys in copied] == [0] * len(copied)


@pytest.mark.parametrize("end", [33, torch.tensor(30)], ids=["known", "on the device"])
def test_rows_without_padding_are_planned_without_copies_from_the_host(end, monkeypatch):
    """Such a copy waits for the GPU, and no graph can capture it."""
    query, key = torch.zeros(2, 4, 5, 16, dtype=torch.float16), torch.zeros(2, 2, 33, 16, dtype=torch.float16)
    rows = engine.Step(2, 5, 33, end, None).whole_rows
    monkeypatch.setattr(torch, "tensor", None)
    made = rows._plan(Model(4, 2, 16, engine.PAGE_SIZE, torch.float16), query, key)
    monkeypatch.undo()
    assert made.plan.batch.cu_seqlens_q.tolist() == [0, 5, 10]
    assert made.plan.batch.seqused_k.tolist() == [int(end)] * 2
    # Whole pages of each row's 33 keys, whose last one fills the last page.
    assert made.slots[:96].tolist() == [row * 33 + min(slot, 32) for row in (0, 1) for slot in range(48)]


def test_other_masks_gradients_and_float32_are_refused():
    ids, mask = prompts((0, 0))
    holes = mask.clone()
    holes[1, 4] = 0
    for given, error, named in (
        (mask[:, None, None].half(), NotImplementedError, "attention_mask is a tensor of shape"),
        (holes, NotImplementedError, "zeros behind tokens of sequence 1"),
        (mask[:, :5], ValueError, "a column for each token so far"),
    ):
        with torch.no_grad(), pytest.raises(error, match=named):
            make("llama")(ids, attention_mask=given)
    with pytest.raises(NotImplementedError, match="no_grad"):
        make("llama")(ids)
    with torch.no_grad(), pytest.raises(TypeError, match=r"torch\.float32"):
        make("llama", torch.float32)(ids)


def test_other_patterns_and_arguments_are_refused():
    q = torch.zeros(1, 2, 3, 16, dtype=torch.float16)
    causal = engine.step_mask(1, 3, 3)
    for wrong in (
        {"dropout": 0.1},
        {"is_causal": False},
        {"position_bias": q},
        {"cache": object()},
        {"block_indices": q},
        {"cu_seq_lens_q": torch.tensor([0, 3])},
    ):
        with pytest.raises(NotImplementedError, match=next(iter(wrong))):
            engine.attention(torch.nn.Identity(), q, q, q, causal, **wrong)


def model_of(config):
    torch.manual_seed(7)
    model = transformers.AutoModel.from_config(config, attn_implementation="attn_kernels")
    return model.half().eval()


PARTS = ((0, 11), (11, 12), (12, PROMPT))  # packed sequences


@pytest.mark.parametrize("told", ["starts", "positions", "both"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_packed_sequences_do_not_see_each_other(name, told):
    model = make(name)
    ids, _ = prompts((0,))
    starts = torch.tensor([0, *(stop for _, stop in PARTS)], dtype=torch.int32)
    packed = {}
    if told != "positions":
        packed = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 15, "max_length_k": 15}
    if told != "starts":
        packed["position_ids"] = torch.cat([torch.arange(stop - start) for start, stop in PARTS])[None]
    _, expected = both(model, lambda model: [model(ids[:, slice(*part)]).logits for part in PARTS])
    with torch.no_grad():
        got = model(ids, use_cache=False, **packed).logits
    assert_close(got, torch.cat(expected, 1))


def test_starts_of_packed_sequences_are_read_anew():
    """With other keys, and where their tensor was filled anew; with those that reach too far refused."""
    torch.manual_seed(0)
    query, keys = torch.randn(1, 2, 6, 16).half(), torch.randn(2, 1, 2, 9, 16).half()
    module = torch.nn.Identity()

    def attend(starts_q, starts_k):
        starts = {"cu_seq_lens_q": starts_q, "cu_seq_lens_k": starts_k}
        return engine.attention(module, query, *keys, None, is_causal=False, **starts)[0]

    def starts(*values):
        return torch.tensor(values, dtype=torch.int32)

    kept = starts(0, 3, 6)
    attend(kept, starts(0, 4, 9))
    assert torch.equal(attend(kept, starts(0, 7, 9)), attend(starts(0, 3, 6), starts(0, 7, 9)))
    kept[1] = 1
    assert torch.equal(attend(kept, kept), attend(starts(0, 1, 6), starts(0, 1, 6)))
    for wrong in ((starts(0, 7), starts(0, 9)), (starts(0, 6), starts(0, 10)), (starts(0, 4, 3), kept)):
        with pytest.raises(ValueError, match="sequences"):
            attend(*wrong)


@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize("right", [False, True], ids=["left", "right"])
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_encoders_see_later_tokens(name, right, padding):
    """ModernBERT has windows on both sides."""
    config = transformers.BertConfig(**SIZES)
    if name == "modernbert":
        sizes = {"hidden_size": 64, "local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 0}
        config = transformers.ModernBertConfig(**(SIZES | sizes))
    ids, mask = prompts(padding)
    if right:
        ids, mask = ids.flip(1), mask.flip(1)
    got, expected = both(model_of(config), lambda model: model(ids, attention_mask=mask).last_hidden_state)
    assert_close(got[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("dropped", [0, 3])
@pytest.mark.parametrize("window", [None, 4])
def test_drafts_see_each_other_behind_a_cached_context(window, dropped):
    """Also with a cache that has dropped its first tokens, and padding on the left."""
    torch.manual_seed(0)
    total, count = 20, 5
    query, keys = torch.randn(3, 2, count, 16).half(), torch.randn(2, 3, 2, total - dropped, 16).half()
    mask = torch.arange(total) >= torch.tensor([0, 7, 17])[:, None]
    rule = masking.bidirectional_mask_function
    visible = mask[:, None, dropped:].repeat(1, count, 1)
    if window:
        rule = masking.sliding_window_bidirectional_mask_function(window)
        apart = torch.arange(total - count, total)[:, None] - torch.arange(dropped, total)
        visible &= apart.abs() <= window
    offsets = {"q_offset": total - count, "kv_offset": dropped}
    sizes = (3, count, total - dropped)
    step = engine.step_mask(*sizes, **offsets, mask_function=rule, attention_mask=mask)
    got, _ = engine.attention(torch.nn.Identity(), query, *keys, step)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.double(), *keys.double(), attn_mask=visible[:, None]
    )
    seen = mask[:, -count:]
    torch.testing.assert_close(got[seen].double(), expected.transpose(1, 2)[seen], rtol=0, atol=2e-3)
    if window:  # without offsets, the queries are the first tokens, and most keys lie behind them
        with pytest.raises(NotImplementedError, match="window"):
            engine.step_mask(*sizes, mask_function=rule)


def test_queries_that_see_nothing_give_zeros():
    query = torch.ones(2, 2, 3, 16).half()
    rule, nothing = masking.bidirectional_mask_function, torch.zeros(2, 3)
    step = engine.step_mask(2, 3, 3, mask_function=rule, attention_mask=nothing)
    assert not engine.attention(torch.nn.Identity(), query, query, query, step)[0].any()


@pytest.mark.parametrize("padded", [0, 9])
def test_decoders_see_all_tokens_of_an_encoder(padded):
    config = transformers.BartConfig(
        vocab_size=97,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        pad_token_id=0,
    )
    ids, mask = prompts((0, 0))
    mask[1, PROMPT - padded :] = 0

    def outputs(model):
        given = {"attention_mask": mask, "decoder_input_ids": ids[:, : PROMPT - 4]}
        return model(ids, **given).last_hidden_state

    got, expected = both(model_of(config), outputs)
    assert_close(got, expected)


def test_encoders_of_images_have_no_mask():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.SiglipVisionConfig(**sizes, image_size=28, patch_size=7)
    pixels = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(3))

    def outputs(model):
        return model(pixels.to(model.dtype)).last_hidden_state

    got, expected = both(model_of(config), outputs)
    assert_close(got, expected)


IMAGES = (range(3, 12), range(15, 19))  # in prompts of PROMPT tokens


def gemma3():
    """Gemma 3 with images, whose layers see later keys of an image, both with a window and without one."""
    torch.manual_seed(7)
    text = transformers.Gemma3TextConfig(
        **SIZES, sliding_window=6, layer_types=KINDS, query_pre_attn_scalar=16
    )
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=vision | {"image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_id=96,
    )
    model = transformers.Gemma3ForConditionalGeneration(config).half().eval()
    model.set_attn_implementation("attn_kernels")
    return model


@pytest.mark.parametrize("cache, padding", [("dynamic", (0, 0)), ("static", (3, 0))])
def test_tokens_of_an_image_see_each_other(cache, padding):
    """Images may be longer than the window, which then hides their first tokens."""
    model = gemma3()
    ids, mask = prompts(padding)
    ids[ids == 96] = 1
    images = torch.zeros_like(ids)
    for tokens in IMAGES:
        images[:, tokens] = 1
    images[1, 14] = 1  # the second prompt's second image is longer

    got, expected = both(model, lambda model: generate(model, ids, mask, cache, 3, token_type_ids=images))
    for logits, wanted in zip(got.logits, expected.logits, strict=True):
        assert_close(logits, wanted.float())
    without = generate(model, ids, mask, cache, 1, token_type_ids=torch.zeros_like(ids))
    assert (without.logits[0] - got.logits[0]).abs().max() > 0.1 * got.logits[0].std()


def ranges_of(function, first_query=0):
    ranges = image_ranges(read_rule(function), [0, 2], first_query)
    return None if ranges is None else ranges.tolist()


GROUPS = torch.tensor([[-1, 0, 0, 0, 1, 1, -1], [-1, -1, 5, 5, -1, -1, 2]])
images = masking.blockwise_overlay
window = masking.sliding_window_overlay
causal = masking.causal_mask_function


def test_ranges_count_from_the_first_key_and_leave_out_what_changes_nothing():
    rule = masking.or_masks(causal, images(GROUPS))
    assert ranges_of(rule) == [[[1, 3], [4, 5]], [[0, 1], [0, 0]]]
    assert ranges_of(rule, first_query=3) == [[[4, 5]], [[0, 0]]]
    assert ranges_of(rule, first_query=5) is None
    assert ranges_of(causal) is None
    # A layer with a window takes the images that it holds.
    rule = masking.or_masks(masking.and_masks(window(3), causal), images(GROUPS))
    assert ranges_of(rule) == [[[1, 3], [4, 5]], [[0, 1], [0, 0]]]
    assert read_rule(rule).window == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda *index: causal(*index),
        partial(causal),
        masking.or_masks(causal, window(3)),
        masking.or_masks(causal, images(GROUPS), images(GROUPS)),
        masking.and_masks(causal, images(GROUPS)),
        masking.and_masks(masking.bidirectional_mask_function, images(GROUPS)),
        masking.or_masks(causal, images(GROUPS[:, [0, 1, 4, 2]])),
        masking.or_masks(masking.and_masks(window(2), causal), images(GROUPS)),
    ],
    ids=[
        "another",
        "without code",
        "any window",
        "twice",
        "packed",
        "of both kinds",
        "in two pieces",
        "longer than the window",
    ],
)
def test_other_masks_are_refused(function):
    with pytest.raises(NotImplementedError):
        ranges_of(function)
