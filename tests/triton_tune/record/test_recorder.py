"""What is noted of a launch, and what another process reads of it."""

import contextlib
import importlib
import json
import re
import shlex
import subprocess
import sys

import pytest
import small_package
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import REPOSITORY

from triton_tune.bench import pool
from triton_tune.cli import many
from triton_tune.cli.main import main
from triton_tune.core.errors import TuningError
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import make, result_of
from triton_tune.kernel.recorded import Replay, load_recorded
from triton_tune.launch import install
from triton_tune.record.lines import read_record
from triton_tune.record.recorder import Recorder

DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "complex64", "int64", "int32", "uint8", "bool"]
LAYOUTS = {
    "as it is": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.T if tensor.dim() == 2 else tensor,
    "every second": lambda tensor: tensor[::2] if tensor.dim() else tensor,
    "from the second on": lambda tensor: tensor[1:] if tensor.dim() else tensor,
    "repeated": lambda tensor: tensor.expand(3, *tensor.shape),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    small_package.write(folder)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("small")
    sys.path.remove(str(folder))
    del sys.modules["small"]


def all_of(small):
    return small.scale_in_place, small.sum_in_parts.fn, small.gather, small.sums_of_blocks, small.overruns


@pytest.fixture
def seen(small, tmp_path):
    """A record of three steps of two sizes."""
    with recording(tmp_path / "seen", *all_of(small)) as folder:
        for size in (20, 30, 20):
            small.step(size)
    yield folder
    load_recorded.cache_clear()


@contextlib.contextmanager
def recording(folder, *tuners):
    """Records these autotuners' launches in a folder, as one process."""
    folder.mkdir(exist_ok=True)
    recorder = Recorder(folder)
    for tuner in tuners:
        tuner.run = recorder.wrap(tuner)
    yield folder
    recorder.flush()
    for tuner in tuners:
        del tuner.run, tuner.fn.run


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    numbers = torch.randint(draw(st.sampled_from([0, 1])), 100, shape, generator=seed)
    tensor = numbers.to(getattr(torch, draw(st.sampled_from(DTYPES))))
    return LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))](tensor)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)


def bits(value):
    """What two equal arguments have in common, also where tensors do not know `==`."""
    if not isinstance(value, torch.Tensor):
        return type(value), repr(value)
    flat = value.flatten().clone(memory_format=torch.contiguous_format)
    held = tuple(flat.view(torch.uint8).tolist()) if value.numel() else ()
    return value.dtype, value.shape, value.stride(), value.data_ptr() % 16 if held else 0, held


@settings(max_examples=150)
@given(launches=st.lists(st.tuples(*[tensors() | SCALARS] * 3), min_size=1, max_size=4))
def test_a_launch_is_made_again_with_the_arguments_that_were_noted(small, tmp_path_factory, launches):
    folder = tmp_path_factory.mktemp("seen")
    kernel = small.gather
    kernel.fn.run = lambda *args, **kwargs: None
    with recording(folder, kernel):
        for arguments in launches:
            kernel[(2,)](*arguments, 16, rows=8)
    (recorded,) = (record := read_record(folder)).kernels.values()
    assert sum(launch.count for launch in recorded.launches) == len(launches)
    made = []
    replay = Replay(record, recorded)
    with AutotunedKernel(kernel).launched_by(made.append):
        for number in range(len(recorded.launches)):
            replay.call(**replay.arguments(number))
    noted = {tuple(map(bits, (*launch, 16, 8))) for launch in launches}
    assert {tuple(map(bits, (*launch.args, *launch.kwargs.values()))) for launch in made} <= noted


def test_a_record_that_is_damaged_anywhere_is_read_or_refused_in_one_line(seen):
    (file,) = seen.iterdir()
    whole = file.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]

    def read(damaged):
        file.write_bytes(damaged)
        try:
            return read_record(seen)
        except TuningError as error:
            assert "\n" not in str(error)
            return None

    @settings(max_examples=200)
    @given(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=3))
    def damage(place, text):
        read(whole[:place] + text + whole[place + len(text) :])
        cut = read(whole[:place])
        complete = [end for end in ends if end < place]
        assert cut == read(whole[: complete[-1] + 1] if complete else b"")  # a cut line does not count

    damage()
    assert read(whole) is not None


def test_launches_below_the_autotuner_and_of_operators_are_noted(small, tmp_path):
    kernel = small.scale_in_place

    @torch.library.triton_op("tests::scale_in_place", mutates_args={"x"})
    def operator(x: torch.Tensor) -> None:
        torch.library.wrap_triton(kernel)[small.blocks(len(x))](x, len(x), 3.0)

    x, y = torch.ones(20), torch.ones(40)
    with recording(tmp_path / "seen", kernel) as folder:
        operator(x)
        kernel.fn[small.blocks(40)](y, 40, 2.0, BLOCK=64, num_warps=4)
    assert torch.equal(x, torch.full((20,), 3.0)) and torch.equal(y, torch.full((40,), 2.0))
    (recorded,) = read_record(folder).kernels.values()
    assert [set(launch.arguments) for launch in recorded.launches] == [{"x_ptr", "size", "factor"}] * 2
    assert [launch.arguments["size"] for launch in recorded.launches] == [20, 40]


def test_launches_are_made_that_cannot_be_described_or_written(small, tmp_path):
    x = torch.arange(20.0)
    with recording(tmp_path / "seen", small.scale_in_place), pytest.warns(UserWarning):
        for _ in range(2):  # with a grid for the config that is launched alone
            small.scale_in_place[lambda arguments: ({16: 2}[arguments["BLOCK"]],)](x, 20, 2.0)
    assert torch.equal(x, 4.0 * torch.arange(20))
    with recording(tmp_path / "gone", *all_of(small)):
        (tmp_path / "gone").rmdir()
        with pytest.warns(UserWarning):
            x, *_ = small.step(20)
    assert torch.equal(x, 2.0 * torch.arange(20))


OWNED = """
import enum
import triton
import triton.language as tl

class Mode(enum.IntEnum):
    ADD = 1

class Kind(str, enum.Enum):
    FULL = "full"

CONFIGS = [triton.Config({"BLOCK": block}) for block in (16, 64)]

@triton.jit
def copied(x_ptr, size, BLOCK: tl.constexpr):
    tl.store(x_ptr, size)

copied_once = triton.autotune(configs=CONFIGS, key=["size"])(copied)
copied_again = triton.autotune(configs=CONFIGS[:1] + [triton.Config({"BLOCK": 32})], key=["size"])(copied)

@triton.autotune(configs=CONFIGS, key=["size"])
@triton.jit
def sum(x_ptr, size, BLOCK: tl.constexpr):
    tl.store(x_ptr, size)

@triton.autotune(configs=[triton.Config({"index": index}) for index in (1, 2)], key=["size"])
@triton.jit
def at(x_ptr, size, index: tl.constexpr):
    tl.store(x_ptr, size)

class Owner:
    @triton.autotune(configs=CONFIGS, key=["size"])
    @triton.jit
    def fill(x_ptr, size, MODE: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, MODE, mask=at < size)

def make():
    @triton.autotune(configs=CONFIGS, key=["size"])
    @triton.jit
    def fill(x_ptr, size, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, 1.0, mask=at < size)
    return fill

made = make()
"""


def test_kernels_of_any_name_are_kept_unless_no_module_could_serve_them(tmp_path, monkeypatch):
    (tmp_path / "owned.py").write_text(OWNED)
    monkeypatch.syspath_prepend(tmp_path)
    owned = importlib.import_module("owned")
    x, kernels = torch.zeros(9), (owned.made, owned.sum, owned.at, owned.copied_once)
    with recording(tmp_path / "seen", owned.Owner.fill, *kernels) as folder:
        owned.Owner.fill[(1,)](x, 9, owned.Mode.ADD, owned.Kind.FULL)
        for kernel in kernels:
            kernel[(1,)](x, 9)
    found, refused = many.workloads_of(folder, torch.device("cpu"))
    assert set(found) == {"owner_fill", "sum_kernel"}
    assert set(refused) == {"owned:make.<locals>.fill", "owned:at", "owned:copied"}
    tuning, kernel = load_recorded(folder).tunings["owner_fill"], AutotunedKernel(owned.Owner.fill)
    call = make(tuning, tuning.shapes[0], torch.device("cpu"))
    assert torch.equal(result_of(kernel, call, owned.CONFIGS[1])["x_ptr"], torch.ones(9))
    (launch,) = read_record(folder).kernels["owned:Owner.fill"].launches
    assert [launch.arguments[name] for name in ("size", "MODE", "KIND")] == [9, 1, "full"]


def test_no_kernel_searches_while_a_graph_is_captured(small, monkeypatch):
    kernel, timed, captured = small.unrecorded, [], [False]
    monkeypatch.setattr(install, "capturing", lambda: captured[0])
    monkeypatch.setattr(kernel, "run", install.serve(kernel, {}), raising=False)

    def bench(*args, config, **kwargs):
        timed.append(config)
        return [float(len(kernel.configs) - kernel.configs.index(config))] * 3  # the last one is best

    monkeypatch.setattr(kernel, "_bench", bench, raising=False)

    def launch(size):
        x = torch.zeros(size)
        kernel[small.blocks(size)](x, size)
        assert torch.equal(x, torch.arange(size).float())
        return kernel.best_config

    first, last = kernel.configs[0], kernel.configs[-1]
    with pytest.warns(UserWarning):
        assert launch(16) == last
    captured[0], searched = True, len(timed)
    assert [launch(16), launch(32)] == [last, first] and len(timed) == searched
    captured[0] = False
    assert launch(32) == last and len(timed) > searched


@pytest.fixture
def tune(seen, capsys, monkeypatch):
    """A function that tunes what was seen within a budget, and returns the exit code and what it prints."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    command = [str(seen), "--out", str(seen.parent / "all tables"), "--gpus", "cpu", "--compile-workers", "0"]
    return lambda budget: (main([*command, "--budget", str(budget)]), capsys.readouterr().out)


def test_a_run_that_measures_no_kernel_fails_and_names_no_next_command(seen, tune):
    (file,) = seen.iterdir()
    file.write_text(re.sub('"bytes": "[^"]*"', '"bytes": "AAAA"', file.read_text()))
    code, printed = tune(10)
    assert code == 1 and printed.endswith("0 kernels measured, 0 not yet, 5 left out\n")
    assert not list((seen.parent / "all tables").glob("*"))


def test_the_next_command_names_no_table_that_a_build_would_refuse(seen, tune, monkeypatch):
    monkeypatch.setattr(many, "fails", lambda problem, times: problem.scenarios[0].startswith("gather"))
    tables, (code, printed) = seen.parent / "all tables", tune(60)
    assert code == 1
    named = shlex.split(printed.splitlines()[-1].partition("treegen init ")[2].partition(" --spec")[0])
    device = "cpu_triton_interpreter"
    assert {*named} == {str(tables / name / device) for name in ("scale_in_place", "sum_in_parts")}


def test_the_next_commands_work_with_a_spec_and_without_one(seen, tune):
    for number_of_commands in (2, 1):
        code, printed = tune(60)
        commands = printed.splitlines()[-1].partition("next: ")[2]
        assert code == 0 and len(commands.split(" && ")) == number_of_commands
        in_a_shell = commands.replace("treegen ", f"{shlex.quote(sys.executable)} -m treegen ")
        subprocess.run(in_a_shell, shell=True, check=True, cwd=REPOSITORY)


def test_a_kernel_that_had_no_turn_before_the_budget_ended_is_not_left_out(seen, tune):
    tables = seen.parent / "all tables"
    assert tune(60)[0] == 0
    for run in tables.glob("*/*/run.yaml"):
        run.write_text(re.sub("seconds: .*", "seconds: 9.0", run.read_text()))
    (times,) = tables.glob("gather/*/times.csv")
    times.write_text(times.read_text().partition("\n")[0] + "\n")  # as if killed before its first row
    code, printed = tune(1)
    assert code == 0 and "2 kernels measured, 3 not yet, 0 left out; next: " in printed


@pytest.mark.parametrize("reason", ["memory", "version"])
def test_a_kernel_of_another_version_or_whose_tensors_exceed_the_memory_is_left_out_by_name(
    seen, capsys, monkeypatch, reason
):
    if reason == "memory":
        monkeypatch.setattr(many, "memory_bytes", lambda device: 200)  # `gather` has two tensors and an index
    else:
        (file,) = seen.iterdir()
        lines = list(map(json.loads, file.read_text().splitlines()))
        for line in lines:
            line |= {"source_hash": "0"} if line.get("function") == "small:gather" else {}
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found, refused = many.workloads_of(seen, torch.device("cpu"))
    assert set(found) == {"scale_in_place", "sum_in_parts", "sums_of_blocks", "overruns"}
    assert set(refused) == {"small:gather"}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out: ")]
    assert "small:gather" in line


OTHER = '{"format": 1}\n{"function": "small:gather", "source_hash": "0"}\n'
WRONG = {
    "empty": lambda file: file.unlink(),
    "of another format": lambda file: file.write_text('{"format": 99}\n'),
    "two versions": lambda file: file.with_name("0-0.jsonl").write_text(OTHER),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_record_is_one_line(seen, capsys, what):
    (file,) = seen.iterdir()
    WRONG[what](file)
    assert main([str(seen), "--dry-run"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_wrong_use_is_refused_in_one_line(seen, capsys):
    file, tables = seen / "file", str(seen)
    file.touch()
    for words in (
        ["--record", str(file), "--", "true"],
        ["--record", "/proc/record", "--", "true"],
        ["--record", tables, "--", "no_such_command"],
        ["--use", "nothing_here", tables],
        ["--use", ".", tables],
        [tables, "--shard", "1/2"],
        [tables, "--kernel", "gather"],
        ["--record", tables],
        [],
    ):
        try:
            code = main(words)
        except SystemExit as ended:  # of the parser
            code = ended.code
        assert code == 2 and len(capsys.readouterr().err.splitlines()) == 1, words
