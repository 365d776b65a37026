"""`@tuned`: a generated package, an environment variable or the autotuner chooses the config of a launch."""

import sys
import types
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from triton_tune.launch import tuned as module
from triton_tune.launch.choosing import CONFIG, DEVICE, LOG
from triton_tune.launch.tuned import tuned


class Config(NamedTuple):
    variant: str
    BLOCK: int
    num_warps: int
    maxnreg: int = 0


SMALL, LARGE = Config("doubled", 16, 1), Config("doubled", 64, 2)
FALLBACK = Config("doubled", 32, 4)
VALUES = {
    "x_ptr_dtype": {"float32": 7},
    "seen_ptr_dtype": {"none": 0, "int32": 1},
    "MODE": {"none": 0, "twice": 1},
}


def by_length(*, N):
    return SMALL if N <= 20 else LARGE


def by_words(*, N, x_ptr_dtype, MODE):
    assert x_ptr_dtype == 7
    return SMALL if MODE else LARGE


def package(choose, name="made.doubled"):
    """A package as treegen generates it, for the CPU."""
    names = choose.__code__.co_varnames[: choose.__code__.co_kwonlyargcount]
    scope = {"FALLBACK": FALLBACK}
    exec(f"def choose(*, {', '.join(names)}): return FALLBACK", scope)
    made = types.ModuleType(name)
    made.MODULES = {
        "cpu": types.SimpleNamespace(choose=choose),
        "default": types.SimpleNamespace(choose=scope["choose"]),
    }
    made.VALUES = VALUES
    made.key_for = lambda name, arch, vendor: "cpu" if name == "cpu" else "default"
    return made


def doubled(x_ptr, y_ptr, seen_ptr, N, BLOCK: tl.constexpr, MODE: tl.constexpr = "none"):
    """y = 2 x; the block of the launch goes to `seen`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < N), mask=at < N)
    tl.store(seen_ptr, BLOCK)


hooked = []
CONFIGS = [
    triton.Config({"BLOCK": 16}, num_warps=1, pre_hook=hooked.append),
    triton.Config({"BLOCK": 256}, num_warps=8),
]
PLAIN = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((16, 1), (64, 2), (32, 4))]


def launch(kernel, length, dtype=torch.float32, **keywords):
    """Launch, check the result, and return the block that was launched."""
    x = torch.arange(length, dtype=dtype)
    y, seen = torch.full_like(x, torch.nan), torch.zeros(1, dtype=torch.int32)
    kernel[lambda meta: (triton.cdiv(length, meta["BLOCK"]),)](x, y, seen, N=length, **keywords)
    assert torch.equal(y, 2 * x)
    return int(seen)


def block(config):
    (value,) = config.kwargs.values()
    return int(value)


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in (CONFIG, DEVICE, LOG):
        monkeypatch.delenv(name, raising=False)
    yield
    hooked.clear()


def jitted():
    return triton.jit(doubled)


def autotuned():
    return triton.autotune(configs=CONFIGS, key=["N"])(jitted())


def pruned(rule, choose):
    """A kernel whose autotuner leaves out configs by a rule."""
    options = {"configs": [*PLAIN], "key": ["N"], "prune_configs_by": {"early_config_prune": rule}}
    return tuned(package(choose))(triton.autotune(**options)(jitted()))


def test_the_module_chooses_by_the_arguments_with_three_python_calls_beside_the_kernels_own():
    """What launches on a grid, the launch, and what reads the features, which were seen before."""
    kernel = tuned(package(by_length))(jitted())
    assert [launch(kernel, length) for length in (5, 20, 21, 200)] == [16, 16, 64, 64]
    assert block(kernel.chosen(None, None, None, 20)) == 16 == block(kernel.chosen(None, None, None, N=20))
    kernel = tuned(package(by_length), features={"N": "min(N, 99)"})(jitted())
    launch(kernel, 5)
    kernel.fn = types.SimpleNamespace(run=lambda *args, **keywords: None)
    calls = []
    sys.setprofile(lambda frame, event, argument: event == "call" and calls.append(frame.f_code.co_name))
    try:
        kernel[(1,)](None, None, None, 5)
    finally:
        sys.setprofile(None)
    assert calls == ["__getitem__", "run", "<lambda>", "<lambda>"]  # the last is the kernel's own


class Worded(NamedTuple):
    variant: str
    BLOCK: int
    num_warps: int
    MODE: int = 0  # 0: absent, 1: tf32, 2: none, 3: false, 4: 2


LITERALS = {"MODE": {0: ..., 1: "tf32", 2: None, 3: False, 5: "2"}}


@pytest.mark.parametrize(
    ("number", "launched"),
    [(0, {}), *((n, {"MODE": v}) for n, v in ((1, "tf32"), (2, None), (3, False), (4, 4), (5, "2")))],
)
def test_a_launch_gets_what_integers_stand_for(number, launched):
    config = Worded("doubled", 64, 8, number)
    made = package(lambda *, N: config)
    made.LITERALS = LITERALS
    own = triton.Config({"BLOCK": 64, **launched}, num_warps=8)
    kernels = [jitted(), triton.autotune(configs=[*PLAIN, own], key=["N"])(jitted())]
    for kernel in [tuned(made)(kernel) for kernel in kernels]:
        assert launch(kernel, 9) == 64
        kwargs = kernel.best_config.kwargs
        assert kwargs == {"BLOCK": 64, **launched}
        assert [type(value) for value in kwargs.values()] == [int, *map(type, launched.values())]
    assert kernels[1].configs[-1] is kernel.best_config


def test_words_are_given_their_integers_and_unknown_ones_the_fallback_and_defaults_are_read():
    kernel = tuned(package(by_words))(jitted())
    assert launch(kernel, 9, MODE="none") == 64
    assert launch(kernel, 9, MODE="twice") == 16
    with pytest.warns(UserWarning, match="MODE is thrice") as caught:
        assert launch(kernel, 9, MODE="thrice") == FALLBACK.BLOCK
    assert caught[0].filename == __file__  # of the line that launches
    with pytest.warns(UserWarning, match=r"x_ptr_dtype is torch\.float64"):
        assert launch(kernel, 9, torch.float64, MODE="none") == FALLBACK.BLOCK
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch(kernel, 9, MODE="thrice") == FALLBACK.BLOCK
    assert launch(kernel, 9) == 64  # what a launch leaves out has the kernel's default
    read = tuned(package(by_words), features={"MODE": lambda args: args["MODE"]})(jitted())
    assert launch(read, 9) == 64
    with pytest.raises(TypeError, match="'N'"):
        kernel[(1,)](torch.zeros(1), torch.zeros(1), torch.zeros(1))
    kernel = tuned(package(lambda *, seen_ptr_dtype: SMALL if seen_ptr_dtype else LARGE))(jitted())
    assert block(kernel.chosen(None, None, None, 5)) == 64 == block(kernel.chosen(None, N=5))
    assert block(kernel.chosen(None, None, torch.zeros(1, dtype=torch.int32), 5)) == 16


def test_features_can_be_functions_and_expressions():
    def choose(*, halves):
        return SMALL if halves == 10 else LARGE

    for halves in (lambda args: args["N"] // 2, "x_ptr.shape[0] // 2 + len(MODE) - 4"):
        kernel = tuned(package(choose), features={"halves": halves})(jitted())
        assert launch(kernel, 21) == 16 and launch(kernel, 22) == 64
    with pytest.raises(TypeError, match="'x_ptr'"):
        kernel[(1,)](N=3)
    with pytest.raises(ValueError, match="halves"):
        launch(tuned(package(choose))(jitted()), 21)


def test_above_an_autotuner_it_decides_and_keeps_the_configs_hook():
    kernel = tuned(package(by_length))(autotuned())
    assert launch(kernel, 5) == 16 and len(hooked) == 1 and hooked[0]["BLOCK"] == 16
    assert kernel.best_config is CONFIGS[0]
    with pytest.raises(ValueError, match="BLOCK=64"):
        launch(kernel, 30)
    kernel.fn = types.SimpleNamespace(run=lambda *args, **keywords: None)
    kernel.run(None, None, None, 5, grid=(1,), warmup=True)  # compiling alone calls no hook
    assert len(hooked) == 1
    kernel.run(None, None, None, tl.constexpr(5), grid=(1,))
    assert len(hooked) == 2
    kernel = tuned(package(by_length))(triton.autotune(configs=CONFIGS[1:], key=["N"])(jitted()))
    assert launch(kernel, 30) == 64  # another config, where none has a hook
    assert kernel.best_config.kwargs == {"BLOCK": 64} and kernel.best_config.num_warps == 2


@pytest.mark.parametrize(
    ("most", "launched"), [(64, [16, 64]), (32, [16, 32]), (16, [16, 16]), (0, [16, 64])]
)
def test_pruned_configs_do_not_run(monkeypatch, most, launched):
    """The fallback is launched instead, or the first that is kept; a rule that keeps none is ignored."""
    asked = []

    def small(configs, given, **others):
        asked.append(others["N"])
        return [config for config in configs if config.kwargs["BLOCK"] <= most]

    kernel = pruned(small, by_length)
    for _ in range(2):
        assert [launch(kernel, length) for length in (5, 30)] == launched
    assert asked == [5, 30]
    monkeypatch.setattr(module, "_MOST_KEPT", 2)  # answers do not fill the memory
    for length in range(1, 6):
        launch(kernel, length)
    assert len(kernel._choosing_here().launches) <= 2


def test_a_rule_is_asked_again_for_another_element_type_and_for_unknown_words():
    def by_type(configs, given, **others):
        small = given["x_ptr"].dtype == torch.float64 or others.get("MODE") == "thrice"
        return [config for config in configs if (config.kwargs["BLOCK"] == 16) == small]

    kernel = pruned(by_type, by_length)
    assert [launch(kernel, 30, dtype) for dtype in (torch.float32, torch.float64)] == [64, 16]
    with pytest.warns(UserWarning, match="MODE is thrice"):
        assert launch(pruned(by_type, by_words), 30, MODE="thrice") == 16


def test_variables_overrule_all_that_chooses(monkeypatch):
    monkeypatch.setenv(CONFIG, "other:BLOCK=2; doubled: BLOCK=128, num_warps=2")
    assert launch(tuned(package(by_length, "made.third"))(jitted()), 5) == 16
    assert launch(pruned(lambda configs, given, **others: configs[:1], by_length), 5) == 128
    assert launch(tuned(package(by_words))(jitted()), 5, MODE="thrice") == 128
    monkeypatch.setenv(CONFIG, "doubled:autotune")
    kernel = tuned(package(by_length))(autotuned())
    kernel._do_bench = lambda call, quantiles: (call(), [1.0])[1]
    assert launch(kernel, 5) in (16, 256)
    monkeypatch.delenv(CONFIG)
    monkeypatch.setenv(DEVICE, "default")
    assert launch(tuned(package(by_length))(jitted()), 5) == FALLBACK.BLOCK


def timed(kernel, fastest):
    """Let this block be the fastest; the blocks that are timed from now on."""
    blocks = []

    def bench(call, quantiles):
        call()
        block = int(seen_by[-1]["BLOCK"])
        blocks.append(block)
        return [float(block != fastest)]

    below, seen_by = kernel.fn.run, []
    kernel.fn = types.SimpleNamespace(run=lambda *args, **kw: (seen_by.append(kw), below(*args, **kw))[1])
    kernel._do_bench = bench
    if kernel.autotuner is not None:
        kernel.autotuner.fn, kernel.autotuner._do_bench = kernel.fn, bench
    return blocks


def ranked(choose):
    """A package that knows of the fallback as the second best, and of a third."""
    made = package(choose)
    others = (FALLBACK, LARGE)
    made.MODULES["cpu"].candidates = lambda most, **features: (choose(**features), *others)[:most]
    return made


def test_the_autotuner_tries_the_best_configs_once_per_shape(monkeypatch):
    """But not while a graph is captured, nor in a launch that only compiles."""
    kernel = tuned(ranked(by_length), autotune=2)(triton.autotune(configs=[*PLAIN], key=[])(jitted()))
    blocks = timed(kernel, fastest=32)
    with monkeypatch.context() as capture:
        capture.setattr(module, "capturing", lambda: True)
        assert launch(kernel, 5) == 16
    x = torch.zeros(5)
    kernel.run(x, x, torch.zeros(1, dtype=torch.int32), 5, grid=(1,), warmup=True)
    assert not blocks
    assert [launch(kernel, length) for length in (5, 5, 6)] == [32, 32, 32]
    assert blocks == [16, 32, 16, 32]
    assert block(kernel.best_config) == 32 and block(kernel.chosen(None, None, None, 5)) == 16


def left_to_the_autotuner(choose, **options):
    configs = triton.autotune(configs=[*PLAIN[1:], triton.Config({"BLOCK": 128})], key=["N"])
    kernel = tuned(package(choose), unknown="autotune", **options)(configs(jitted()))
    return kernel, timed(kernel, fastest=128)


def test_what_was_not_tuned_can_be_left_to_the_kernels_own_autotuner(monkeypatch):
    """That is a GPU of which only the vendor is known, a word, and what gets the fallback alone."""

    def choose(*, N, MODE):
        return FALLBACK if N > 20 else LARGE

    kernel, blocks = left_to_the_autotuner(choose)
    assert launch(kernel, 5) == 64 and not blocks
    with pytest.warns(UserWarning, match="MODE is thrice") as caught:
        assert launch(kernel, 5, MODE="thrice") == 128 and blocks == [64, 32, 128]
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="doubled"):
        assert launch(kernel, 21) == 128
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [launch(kernel, 22), launch(kernel, 6, MODE="thrice"), launch(kernel, 6)] == [128, 128, 64]

    monkeypatch.setattr("triton_tune.launch.tuned.current_device", lambda: ("Some GPU", "sm_1", "nvidia"))
    kernel, blocks = left_to_the_autotuner(choose)
    with pytest.warns(UserWarning, match="Some GPU"):
        assert launch(kernel, 5) == 128 and len(blocks) == 3
    monkeypatch.setattr(module, "capturing", lambda: True)
    assert launch(kernel, 6) == FALLBACK.BLOCK and len(blocks) == 3


def too_large_for(kernel, *blocks):
    """Let launches with these blocks fail for lack of shared memory; the blocks that are tried."""
    tried, below = [], kernel.fn.run

    def run(*args, **keywords):
        tried.append(keywords["BLOCK"])
        if keywords["BLOCK"] in blocks:
            raise OutOfResources(300_000, 232_448, "shared memory")
        return below(*args, **keywords)

    kernel.fn = types.SimpleNamespace(run=run)
    return tried


def test_a_config_that_does_not_fit_steps_down_to_the_next_with_one_warning():
    kernel = tuned(ranked(by_length))(jitted())
    tried = too_large_for(kernel, 16)
    with pytest.warns(UserWarning, match="shared memory") as caught:
        assert launch(kernel, 5) == FALLBACK.BLOCK == kernel.best_config.kwargs["BLOCK"]
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [launch(kernel, length) for length in (5, 6, 30)] == [32, 32, 64]
    assert tried == [16, 32, 32, 16, 32, 64]  # once for each set of features


def test_the_fallback_is_tried_last_and_a_forced_config_alone(monkeypatch):
    made = ranked(by_length)
    made.MODULES["cpu"].candidates = lambda most, **features: (SMALL, LARGE)[:most]
    kernel = tuned(made)(jitted())
    tried = too_large_for(kernel, 16, 64)
    with pytest.warns(UserWarning) as caught:
        assert launch(kernel, 5) == FALLBACK.BLOCK
    assert len(caught) == 2 and tried == [16, 64, 32]
    kernel = tuned(made)(jitted())
    too_large_for(kernel, 16, 32, 64)
    with pytest.warns(UserWarning), pytest.raises(OutOfResources):
        launch(kernel, 5)
    monkeypatch.setenv(CONFIG, "doubled:BLOCK=128")
    forced = tuned(made)(jitted())
    assert too_large_for(forced, 128) == []
    with pytest.raises(OutOfResources):
        launch(forced, 5)


@pytest.mark.parametrize("below", [jitted, autotuned])
def test_operators_that_wrap_the_kernel_launch_what_the_module_chooses(below: Callable[[], object]) -> None:
    kernel = tuned(package(by_length))(below())

    @torch.library.triton_op(f"tests::doubled_{below.__name__}", mutates_args={"y", "seen"})
    def operator(x: torch.Tensor, y: torch.Tensor, seen: torch.Tensor) -> None:
        assert torch.library.wrap_triton(kernel) is kernel
        kernel[(4,)](x, y, seen, N=len(x))

    x, seen = torch.ones(15), torch.zeros(1, dtype=torch.int32)
    operator(x, y := torch.zeros(15), seen)
    assert torch.equal(y, 2 * x) and int(seen) == 16


OPTIONS = [
    *(("autotune", {"autotune": most}) for most in (-1, True)),
    *(("unknown", {"unknown": text}) for text in ("best", "autotune")),  # without an autotuner
    *(("halves", {"features": {"halves": text}}) for text in ("x_ptr.shape[", "M // 2", "", "N = 2", 3)),
]


@pytest.mark.parametrize(("named", "options"), OPTIONS)
def test_a_wrong_option_is_named_by_the_decorator(named, options):
    with pytest.raises(ValueError, match=named):
        tuned(package(by_length), **options)(jitted())


def test_without_the_package_the_autotuner_decides(tmp_path, monkeypatch):
    kernel = tuned("no_such_package.doubled")(autotuned())
    kernel._do_bench = lambda call, quantiles: (call(), [1.0])[1]
    with pytest.warns(UserWarning, match=r"no_such_package\.doubled") as caught:
        assert launch(kernel, 5) in (16, 256)
    assert caught[0].filename == __file__ and kernel.best_config in CONFIGS
    with pytest.raises(ModuleNotFoundError):
        launch(tuned("no_such_package.doubled")(jitted()), 5)
    (tmp_path / "broken_package.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):  # it is there, but broken
        launch(tuned("broken_package")(autotuned()), 5)


def test_tuned_stands_directly_above_autotune():
    between = triton.heuristics({"MODE": lambda args: "none"})
    with pytest.raises(TypeError, match="autotune"):
        tuned("any")(between(autotuned()))
    with pytest.raises(TypeError, match="autotune"):
        tuned("any")(tuned("any")(autotuned()))
    with pytest.raises(TypeError, match="and 3 is none"):
        tuned("any")(3)
    kernel = between(tuned(package(by_length))(autotuned()))
    assert launch(kernel, 5) == launch(kernel, 20) == 16
    below = tuned(package(by_length))(between(jitted()))
    assert launch(below, 5) == 16


WRONG = [(CONFIG, "doubled:BLOCKS=2"), (CONFIG, "BLOCK=2"), (CONFIG, "doubled:BLOCK")]
WRONG += [(CONFIG, "doubled:autotune"), (DEVICE, "h100"), (LOG, "yes")]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_variable_is_named(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        launch(tuned(package(by_length))(jitted()), 5)
