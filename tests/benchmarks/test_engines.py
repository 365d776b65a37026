"""Benchmarks of engines, without an engine: lengths, processes, rows, tables, plots and the commands."""

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.engines import command, latency, processes, throughput, turns, vllm_folder
from benchmarks.engines.cpu_time import descendants, main_threads_s
from benchmarks.engines.engine_process import Job, percentiles
from benchmarks.engines.engine_process import latency as measure_latency
from benchmarks.engines.engine_process import throughput as measure_throughput
from benchmarks.engines.latency_tables import decode_steps, latency_lines
from benchmarks.engines.request_mix import CODE, CONVERSATION, OUTPUTS, PROMPTS, draw_requests, tokens_of
from benchmarks.engines.results import latest, read
from benchmarks.engines.throughput_tables import throughput_lines
from benchmarks.engines.turns import gather

ROOT = Path(__file__).parents[2]


def test_lengths_are_those_of_the_declared_mix() -> None:
    requests = draw_requests(4000, 0)
    assert requests[:512] == draw_requests(512, 0) != draw_requests(512, 1)
    for kind in (CONVERSATION, CODE):
        drawn = [r for r in requests if r.kind == kind.name]
        assert 1800 < len(drawn) < 2200
        assert statistics.median(r.prompt for r in drawn) == pytest.approx(kind.median_prompt, rel=0.1)
        assert statistics.median(r.output for r in drawn) == pytest.approx(kind.median_output, rel=0.1)
    assert all(PROMPTS[0] <= r.prompt <= PROMPTS[1] for r in requests)
    assert all(OUTPUTS[0] <= r.output <= OUTPUTS[1] for r in requests)


def test_tokens_depend_on_the_name_alone() -> None:
    assert [len(prompt) for prompt in tokens_of([3, 0, 5], "a")] == [3, 0, 5]
    assert tokens_of([3, 9], "a") == tokens_of([3, 9], "a") != tokens_of([3, 9], "b")
    assert tokens_of([9, 9], "a")[0] != tokens_of([9, 9], "a")[1]


class Output:
    """What vLLM returns for a request."""

    def __init__(self, tokens: list[int], start: float) -> None:
        logprobs = [
            {token + 1: SimpleNamespace(logprob=-2.5), token: SimpleNamespace(logprob=-2.0)}
            for token in tokens
        ]
        self.outputs = [type("Completion", (), {"token_ids": tokens, "logprobs": logprobs})]
        self.metrics = type(
            "Stats",
            (),
            {
                "first_token_latency": start,
                "first_token_ts": 5.0,
                "last_token_ts": 5.0 + 0.01 * (len(tokens) - 1),
            },
        )


class StandIn:
    """An engine whose tokens and times are known."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], list[int]]] = []
        self.warm: set[tuple[int, ...]] = set()

    def generate(
        self, prompts: list[list[int]], outputs: list[int], logprobs: int | None = None
    ) -> tuple[float, list[Output]]:
        self.calls.append(([len(prompt) for prompt in prompts], list(outputs)))
        made = [
            Output([prompt[0]] * count, 0.1 * i)
            for i, (prompt, count) in enumerate(zip(prompts, outputs, strict=True))
        ]
        return 0.5 + 0.002 * max(outputs), made


def test_a_latency() -> None:
    engine = StandIn()
    first, second = (measure_latency(engine, 2, 5, output) for output in (1, 128))
    assert engine.calls == [([5, 5], [2, 2]), ([5, 5], [1, 1]), ([5, 5], [128, 128])]  # warmed up once
    assert (first["seconds"], second["seconds"]) == (0.502, 0.756)
    tokens = [prompt[0] for prompt in tokens_of([5, 5], "latency/2/5")]
    assert first["likeliest"] == [[(token, -2.0), (token + 1, -2.5)] for token in tokens]
    assert "likeliest" not in second


def test_a_throughput() -> None:
    engine = StandIn()
    found = [measure_throughput(engine, 80, 0) for _ in range(2)][1]
    requests = draw_requests(80, 0)
    assert [len(prompts) for prompts, _ in engine.calls] == [64, 80, 80]
    assert found["prompt_tokens"] == sum(r.prompt for r in requests)
    assert found["output_tokens"] == sum(r.output for r in requests)
    assert found["first_token_median"] == pytest.approx(3.95)
    assert found["first_token_p99"] == pytest.approx(7.9)
    assert found["per_token_median"] == pytest.approx(0.01)


def test_a_row_gathers_figures_of_all_repeats() -> None:
    row: dict[str, Any] = {}
    for figure in (1.0, 2.0):
        gather(row, {"seconds": figure, "likeliest": [int(figure)], "prompt_tokens": 5})
    assert row == {"seconds": [1.0, 2.0], "likeliest": [2], "prompt_tokens": 5}


def test_percentiles() -> None:
    assert percentiles([float(i) for i in range(1, 101)]) == (50.5, 99.0)
    assert percentiles([7.0]) == (7.0, 7.0)
    assert all(map(math.isnan, percentiles([])))


def test_cpu_time_is_that_of_the_main_threads_of_all_descendants() -> None:
    busy = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\n"
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy + 'time.sleep(99)'!r}])"
    with subprocess.Popen([sys.executable, "-c", nested], start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 60
            while main_threads_s(os.getpid()) < 0.5 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert process.pid in descendants(os.getpid())
            assert len(descendants(process.pid)) == 1
            assert main_threads_s(os.getpid()) >= 0.5
        finally:
            processes.stop_all(process)


def likeliest_of(backend: str) -> list[list[list[float]]]:
    """The likeliest first tokens of two prompts, of which CUSTOM's second differs."""
    second = [[2, -1.0], [3, -1.0]] if backend == "CUSTOM" else [[3, -1.0], [2, -1.25]]
    return [[[1, -0.5], [4, -2.0]], second]


def rows_of(backend: str, mode: str, factor: float) -> list[dict[str, Any]]:
    return [
        {
            "kind": "latency",
            "backend": backend,
            "mode": mode,
            "batch": batch,
            "prompt": prompt,
            "output": output,
            "seconds": [factor * (0.1 + 0.005 * output), factor * (0.2 + 0.005 * output), 99.0],
            "cpu_seconds": [factor * 0.004 * output] * 3,
            **({"likeliest": likeliest_of(backend)[:batch]} if output == 1 else {}),
        }
        for batch in (1, 2)
        for prompt in (500, 8000)
        for output in (1, 128, 512)
    ]


def write(folder: Path, rows: list[dict[str, Any]], end: str = "") -> Path:
    folder.mkdir()
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + end)
    return folder


def test_the_latency_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    host = {"kind": "host", "text": "a GPU"}
    old = [{**row, "seconds": [1e9] * 3} for row in rows_of("CUSTOM", "graphs", 1.0)]
    ours = write(
        tmp_path / "a", [host, *old, *rows_of("CUSTOM", "graphs", 1.0), *rows_of("CUSTOM", "eager", 1)]
    )
    theirs = write(tmp_path / "b", [host, *rows_of("FLASH_ATTN", "graphs", 1.5)], end='{"kind": "lat')
    merged = tmp_path / "merged"
    arguments = ["latency", "--merge", str(ours), str(theirs), "--out", str(merged)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert latency.main() == 0
    printed = capsys.readouterr().out
    assert f"{theirs}/results.jsonl: skipped a line" in printed
    text = (merged / "latency.md").read_text()
    assert text.strip() in printed and text.startswith("a GPU\n\nSeconds")
    assert "| graphs | 2 x 8000 | 128 | 1.2600 (" in text and "| 1.500 |" in text
    assert "| eager | 1 x 500 | 1 | - | 0.2050 (" in text
    assert "| graphs | 1 x 500 | 7.50 | 5.00 | 1.500 |" in text
    assert "| eager | 1 x 500 | - | 4.00 | - |" in text
    for row in ("all rows", "prompts of 8000", "the worst row", "decode steps"):
        assert f"| graphs, {row} | 1.500 |" in text
    assert (
        "4 of 6 first tokens of CUSTOM are the likeliest of FLASH_ATTN; the others are at most 0.25 below"
        in text
    )
    assert (merged / "latency.png").stat().st_size > 1000
    assert read([merged])[0] == host


def test_decode_steps_need_two_outputs() -> None:
    rows = [row for row in rows_of("CUSTOM", "graphs", 1.0) if row["output"] < 512]
    assert (
        decode_steps(latest(rows, "latency", ("mode", "batch", "prompt", "output")), "CUSTOM", "seconds")
        == {}
    )
    assert "Milliseconds" not in "\n".join(latency_lines(rows))


def test_the_throughput_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    rows = [
        {
            "kind": "throughput",
            "backend": backend,
            "mode": "graphs",
            "budget": budget,
            "requests": 512,
            "prompt_tokens": 9000,
            "output_tokens": 1000,
            "seconds": [factor, 2 * factor, factor],
            **{
                f"{what}_{which}": [0.25]
                for what in ("first_token", "per_token")
                for which in ("median", "p99")
            },
        }
        for backend, factor in (("FLASH_ATTN", 12.0), ("CUSTOM", 10.0))
        for budget in (2048, 8192)
    ]
    folder = write(tmp_path / "a", rows)
    monkeypatch.setattr(sys, "argv", ["throughput", "--merge", str(folder), "--out", str(folder)])
    assert throughput.main() == 0
    row = "| FLASH_ATTN | 512 | 12.00 (100%) | 833 | 83 | 0.25 | 0.25 | 250.00 | 250.00 | 1.200 |"
    assert row in (folder / "throughput.md").read_text() and row in capsys.readouterr().out
    assert len(throughput_lines(rows)) == 9
    assert (folder / "throughput.png").stat().st_size > 1000
    assert len(read([folder])) == 4  # merged into itself, nothing is doubled


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (latency, ["--modes", "fast"], "--modes 'fast': not one of graphs, eager"),
        (latency, ["--vllm", "nowhere"], "--vllm nowhere: holds neither vllm.tar.xz nor a package vllm"),
        (latency, ["--merge", "nowhere"], "nowhere/results.jsonl: cannot be read: No such file or directory"),
        (latency, ["--outputs", "1,x"], "positive integers, separated by commas, are needed"),
        (throughput, ["--engine-arg", "block_size"], "name=value is needed"),
    ],
)
def test_wrong_use(tmp_path: Path, capsys, monkeypatch, module, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["command", *arguments])
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_settings() -> None:
    assert command.setting("window=[1, null]") == ("window", [1, None])
    assert command.setting("kv_cache_dtype=fp8") == ("kv_cache_dtype", "fp8")


def test_a_packed_folder_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_folder, "TMP", tmp_path)
    packed = tmp_path / "packed"
    packed.mkdir()
    source = tmp_path / "source" / "vllm"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    with tarfile.open(packed / "vllm.tar.xz", "w:xz") as tar:
        tar.add(source, "vllm")
    site = vllm_folder.site_of(packed)
    assert (site / "vllm" / "__init__.py").exists()
    (site / "mark").touch()
    assert (vllm_folder.site_of(packed) / "mark").exists()
    assert vllm_folder.site_of(source.parent) == source.parent


def test_plugins_are_entry_points(tmp_path: Path) -> None:
    for plugin, names in ((None, ["random_weights"]), ("m", ["custom_backend", "random_weights"])):
        folder = vllm_folder.write_plugins(tmp_path / str(plugin), plugin)
        program = (
            "from importlib.metadata import entry_points\n"
            "points = entry_points(group='vllm.general_plugins')\n"
            "print(sorted((p.name, p.value) for p in points))"
        )
        values = os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
        out = subprocess.run([sys.executable, "-c", program], env=values, capture_output=True, text=True)
        found = dict(eval(out.stdout))
        assert [name for name in names if name in found] == names
        assert found.get("custom_backend") == (None if plugin is None else "m:register")


FAKE_VLLM = """
import json, os, time
class Logprob:
    logprob = -1.0
class SamplingParams:
    def __init__(self, **options):
        self.count = options["max_tokens"]
        self.logprobs = options["logprobs"]
class LLM:
    def __init__(self, **options):
        if options["attention_config"] == {"backend": "BROKEN"}:
            raise ValueError("no such backend")
        if options["attention_config"] == {"backend": "HANGS"}:
            time.sleep(1000)
        assert options["enforce_eager"] == ("compilation_config" not in options)
        assert options.get("window") == 7 and os.environ["CUDA_VISIBLE_DEVICES"] == "3"
        assert os.environ["ATTN_KERNELS_RECORD"].endswith("/steps.jsonl")
        if "kv_cache_memory_bytes" in options:
            assert options["kv_cache_memory_bytes"] == 2 << 30 and options["gpu_memory_utilization"] == 0.1
        self.backend = options["attention_config"]["backend"]
        self.profile = options.get("profiler_config")
    def start_profile(self):
        assert self.profile["profiler"] == "torch" and self.profile["torch_profiler_dir"].startswith("/")
        print("profiling", flush=True)
    def stop_profile(self):
        print("profiled", flush=True)
    def generate(self, prompts, params, use_tqdm):
        start = time.time()
        time.sleep(0.02)
        made = []
        for prompt, param in zip(prompts, params):
            tokens = type("Completion", (), {"token_ids": prompt["prompt_token_ids"][:1] * param.count})
            tokens.logprobs = [{7: Logprob}] * param.count if param.logprobs else None
            made.append(type("Output", (), {"outputs": [tokens]}))
        line = json.dumps({"backend": self.backend, "start": start, "end": time.time()})
        with open("calls.jsonl", "a") as file:
            file.write(line + chr(10))
        if self.backend == "FAILS":
            raise RuntimeError("the GPU is gone")
        return made
"""


def test_the_command_runs_each_engine_in_its_process(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "folder" / "vllm").mkdir(parents=True)
    (tmp_path / "folder" / "vllm" / "__init__.py").write_text(FAKE_VLLM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    words = (
        "--vllm folder --backends CUSTOM,BROKEN,HANGS --modes eager,graphs --out out --gpu 3 --cache cache"
    )
    words += " --batches 1 --prompts 5 --outputs 1,2 --repeats 2 --engine-arg window=7 --record steps.jsonl"
    monkeypatch.setattr(sys, "argv", ["latency", *words.split(), "--process-seconds", "8"])
    assert latency.main() == 1
    printed = capsys.readouterr().out
    assert "CUSTOM_eager: exit 0" in printed and "ValueError: no such backend" in printed
    assert "HANGS_graphs: exit none after 8 s, so it was stopped" in printed
    rows = [row for row in read([tmp_path / "out"]) if row["kind"] == "latency"]
    assert [(r["backend"], r["mode"], r["output"], len(r["seconds"])) for r in rows] == [
        ("CUSTOM", mode, output, repeats)
        for mode in ("eager", "graphs")
        for repeats in (1, 6)
        for output in (1, 2)
    ]
    assert (tmp_path / "out" / "latency.md").exists() and (tmp_path / "out" / "log_CUSTOM_eager.txt").exists()
    words = words.replace("CUSTOM,BROKEN,HANGS", "CUSTOM").replace(
        "--out out", "--out out --seconds-budget 0"
    )
    monkeypatch.setattr(sys, "argv", ["latency", *words.split()])
    assert latency.main() == 1
    assert "CUSTOM_eager: left out, the time is up" in capsys.readouterr().out


def test_engines_that_share_a_gpu_take_turns(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "folder" / "vllm").mkdir(parents=True)
    (tmp_path / "folder" / "vllm" / "__init__.py").write_text(FAKE_VLLM)
    monkeypatch.chdir(tmp_path)
    words = "--vllm folder --backends ONE,BROKEN,CUSTOM,FAILS --modes graphs --out out --gpu 3 --cache cache"
    words += " --batches 1 --prompts 5 --outputs 1,2 --repeats 2 --engine-arg window=7 --record steps.jsonl"
    monkeypatch.setattr(sys, "argv", ["latency", *words.split(), "--together", "--kv-gib", "2", "--profile"])
    assert latency.main() == 1
    printed = capsys.readouterr().out
    assert "ONE_graphs: exit 0" in printed and "BROKEN_graphs: exit 1" in printed
    assert "the GPU is gone" in printed
    rows = [row for row in read([tmp_path / "out"]) if row["kind"] == "latency"]
    assert [(r["output"], r["backend"], len(r["seconds"])) for r in rows] == [
        (output, backend, repeats) for repeats in (1, 6) for output in (1, 2) for backend in ("ONE", "CUSTOM")
    ]
    log = (tmp_path / "out" / "log_CUSTOM_graphs.txt").read_text()
    assert log.count("profiling\nprofiled\n") == 2 and "profile of 1 x 5, 33 tokens" in log
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert all(before["end"] <= after["start"] for before, after in itertools.pairwise(calls))
    assert {call["backend"] for call in calls} == {"ONE", "CUSTOM", "FAILS"}


def test_a_measurement_that_is_too_long_for_the_time_left_does_not_begin(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    class Slow:
        def __init__(self, job: Job, environment: Any, out: Path) -> None:
            self.job, self.started = job, clock[0]

        def answer(self, until: float) -> dict[str, Any]:
            return {"seconds": 1.0}

        def ask(self, task: dict[str, Any], until: float) -> dict[str, Any]:
            clock[0] += 40.0
            return {"seconds": 40.0}

        def close(self, failure: str | None) -> bool:
            return failure is None

        def stop(self) -> None:
            pass

    clock = [1000.0]
    monkeypatch.setattr(turns, "EngineProcess", Slow)
    monkeypatch.setattr(turns, "time", SimpleNamespace(time=lambda: clock[0]))
    job = Job("CUSTOM", "graphs", {})
    limits = turns.Limits(4, [], 900.0, 900.0, 1100.0)
    assert not turns.Turns(tmp_path, limits).run([job], {}, [{"kind": "latency", "batch": 1}])
    assert "2 measurements were left out" in capsys.readouterr().out
    assert read([tmp_path])[-1]["seconds"] == [40.0, 40.0]
