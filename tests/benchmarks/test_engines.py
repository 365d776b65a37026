"""benchmarks.engines without an engine: measurements, rows, tables and the commands."""

import itertools
import json
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engines import check_vllm, latency, vllm_folder
from benchmarks.engines.tables import latency_lines
from benchmarks.engines.turns import read


def rows_of(backend: str, mode: str, factor: float) -> list[dict[str, Any]]:
    head, rows = {"kind": "latency", "backend": backend, "mode": mode}, []
    for batch, prompt, output in itertools.product((1, 2), (500, 8000), (1, 128, 512)):
        seconds = [factor * (0.1 + 0.005 * output), factor * (0.2 + 0.005 * output), 99.0]
        sizes = {"batch": batch, "prompt": prompt, "output": output}
        rows.append({**head, **sizes, "seconds": seconds})
    return rows


def test_latency_table_has_ratios_and_decode_steps() -> None:
    old = [{**row, "seconds": [1e9] * 3} for row in rows_of("CUSTOM", "graphs", 1.0)]
    rows = [*old, *rows_of("CUSTOM", "graphs", 1.0), *rows_of("CUSTOM", "eager", 1)]
    rows += rows_of("FLASH_ATTN", "graphs", 1.5)
    text = "\n".join(latency_lines(rows))
    assert "| graphs | 2 x 8000 | 128 | 1.2600 (" in text and "| 1.500 |" in text
    assert "| eager | 1 x 500 | 1 | - | 0.2050 (" in text
    assert "| graphs | 1 x 500 | 7.50 | 5.00 | 1.500 |" in text


@pytest.mark.parametrize("backend", [None, "module:register"])
def test_plugins_are_entry_points(tmp_path: Path, backend: str | None) -> None:
    (found,) = distributions(path=[str(vllm_folder.write_plugins(tmp_path, backend))])
    points = {point.name: point.value for point in found.entry_points}
    assert "random_weights" in points and points.get("custom_backend") == backend


FAKE_VLLM = """
import json, time
class SamplingParams:
    def __init__(self, **options):
        self.count = options["max_tokens"]
class LLM:
    def __init__(self, **options):
        if options["attention_config"] == {"backend": "BROKEN"}:
            raise ValueError("no such backend")
        if options["attention_config"] == {"backend": "HANGS"}:
            time.sleep(1000)
        assert options["enforce_eager"] == ("compilation_config" not in options)
        assert options.get("window") == 7
        if "kv_cache_memory_bytes" in options:
            assert options["kv_cache_memory_bytes"] == 2 << 30 and options["gpu_memory_utilization"] == 0.1
        self.backend = options["attention_config"]["backend"]
    def generate(self, prompts, params, use_tqdm):
        start = time.time()
        time.sleep(0.02)
        made = []
        for prompt, param in zip(prompts, params):
            tokens = type("Completion", (), {"token_ids": prompt["prompt_token_ids"][:1] * param.count})
            made.append(type("Output", (), {"outputs": [tokens]}))
        line = json.dumps({"backend": self.backend, "start": start, "end": time.time()})
        with open("calls.jsonl", "a") as file:
            file.write(line + chr(10))
        if self.backend == "FAILS":
            raise RuntimeError("the GPU is gone")
        return made
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "folder" / "vllm").mkdir(parents=True)
    (tmp_path / "folder" / "vllm" / "__init__.py").write_text(FAKE_VLLM)
    monkeypatch.chdir(tmp_path)
    words = "--vllm folder --out out --cache cache --batches 1 --prompts 5 --outputs 1,2 --repeats 2"
    return f"{words} --engine-arg window=7".split()


def latencies(folder: Path) -> list[tuple[int, str, int]]:
    rows = [row for row in read(folder / "out") if row["kind"] == "latency"]
    return [(row["output"], row["backend"], len(row["seconds"])) for row in rows]


def test_each_engine_runs_in_its_process(tmp_path: Path, capsys, command: list[str]) -> None:
    backends = ["--backends", "CUSTOM,BROKEN,HANGS", "--modes", "graphs", "--process-seconds", "5"]
    assert latency.main([*command, *backends]) == 1
    printed = capsys.readouterr().out
    for text in ("CUSTOM_graphs: exit 0", "ValueError: no such backend", "HANGS_graphs: exit none"):
        assert text in printed
    assert latencies(tmp_path) == [(output, "CUSTOM", repeats) for repeats in (1, 2) for output in (1, 2)]
    assert (tmp_path / "out" / "latency.md").exists()
    assert latency.main([*command, "--backends", "CUSTOM", "--seconds-budget", "0"]) == 1


def test_engines_that_share_a_gpu_take_turns(tmp_path: Path, capsys, command: list[str]) -> None:
    backends = ["--backends", "ONE,BROKEN,CUSTOM,FAILS", "--modes", "graphs", "--together", "--kv-gib", "2"]
    assert latency.main([*command, *backends]) == 1
    printed = capsys.readouterr().out
    for text in ("ONE_graphs: exit 0", "BROKEN_graphs: exit 1", "the GPU is gone"):
        assert text in printed
    cells = itertools.product((1, 2), (1, 2), ("ONE", "CUSTOM"))
    assert latencies(tmp_path) == [(output, backend, repeats) for repeats, output, backend in cells]
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert all(before["end"] <= after["start"] for before, after in itertools.pairwise(calls))
    assert {call["backend"] for call in calls} == {"ONE", "CUSTOM", "FAILS"}


@pytest.mark.parametrize(("case", "margins", "problems", "right"), [
    ("llama", [0.0, check_vllm.MARGIN], [], True),
    ("llama", [0.0, check_vllm.MARGIN + 0.01], [], False),
    ("llama", [float("nan")], [], False),
    ("fp8", [check_vllm.FP8_MARGIN], [], True),
    ("fp8", [check_vllm.FP8_MARGIN + 0.01], [], False),
    ("faults", [], [], False),
    ("faults", [0.0], ["nothing was preempted"], False),
])  # fmt: skip
def test_verdict_on_tokens(case: str, margins: list[float], problems: list[str], right: bool) -> None:
    line, fine = check_vllm.verdict(case, {"margins": [margins], "notes": [], "problems": problems})
    assert fine is right
    assert all(problem in line for problem in problems)
