"""benchmarks.engines without an engine: measurements, rows, tables and the commands."""

import itertools

import pytest

from benchmarks.engines import check_vllm, latency
from benchmarks.engines.tables import latency_lines
from benchmarks.engines.turns import read


def rows_of(backend, factor):
    head, rows = {"kind": "latency", "backend": backend}, []
    for batch, prompt, output in itertools.product((1, 2), (500, 8000), (1, 128, 512)):
        seconds = [factor * (0.1 + 0.005 * output), factor * (0.2 + 0.005 * output), 99.0]
        sizes = {"batch": batch, "prompt": prompt, "output": output}
        rows.append({**head, **sizes, "seconds": seconds})
    return rows


def test_latency_table_has_ratios_and_decode_steps():
    old = [{**row, "seconds": [1e9] * 3} for row in rows_of("CUSTOM", 1.0)]
    theirs = [row for row in rows_of("FLASH_ATTN", 1.5) if row["batch"] == 2]
    text = "\n".join(latency_lines([*old, *rows_of("CUSTOM", 1.0), *theirs]))
    assert "| 2 x 8000 | 128 | 1.2600 (" in text and "| 1.500 |" in text
    assert "| 1 x 500 | 1 | - | 0.2050 (" in text
    assert "| 2 x 500 | 7.50 | 5.00 | 1.500 |" in text


FAKE_VLLM = """
import time
class SamplingParams:
    def __init__(self, **options):
        self.count = options["max_tokens"]
class LLM:
    def __init__(self, **options):
        if options["attention_config"] == {"backend": "BROKEN"}:
            raise ValueError("no such backend")
        if options["attention_config"] == {"backend": "HANGS"}:
            time.sleep(1000)
        assert options["kv_cache_memory_bytes"] == 2 << 30 and options["window"] == 7
    def generate(self, prompts, params, use_tqdm):
        made = []
        for prompt, param in zip(prompts, params):
            tokens = type("Completion", (), {"token_ids": prompt["prompt_token_ids"][:1] * param.count})
            made.append(type("Output", (), {"outputs": [tokens]}))
        return made
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    (tmp_path / "folder" / "vllm").mkdir(parents=True)
    (tmp_path / "folder" / "vllm" / "__init__.py").write_text(FAKE_VLLM)
    monkeypatch.chdir(tmp_path)
    words = (
        "--vllm folder --out out --cache cache --kv-gib 2 --batches 1 --prompts 5 --outputs 1 2 --repeats 2"
    )
    return f"{words} --engine-arg window=7".split()


def latencies(folder):
    rows = [row for row in read(folder / "out") if row["kind"] == "latency"]
    return [(row["output"], row["backend"], len(row["seconds"])) for row in rows]


def test_each_engine_runs_in_its_process(tmp_path, capsys, command):
    backends = ["--backends", "CUSTOM", "BROKEN", "HANGS", "OTHER", "--answer-seconds", "5"]
    assert latency.main([*command, *backends]) == 1
    printed = capsys.readouterr().out
    for text in ("CUSTOM: exit 0", "ValueError: no such backend", "HANGS: exit none"):
        assert text in printed
    turns = itertools.product((1, 2), (1, 2), ("CUSTOM", "OTHER"))
    assert latencies(tmp_path) == [(output, backend, repeats) for repeats, output, backend in turns]
    assert (tmp_path / "out" / "latency.md").exists()
    assert latency.main([*command, "--backends", "CUSTOM", "--seconds-budget", "0"]) == 1


@pytest.mark.parametrize(("case", "margins", "problems", "right"), [
    ("llama", [0.0, check_vllm.MARGIN], [], True),
    ("llama", [0.0, check_vllm.MARGIN + 0.01], [], False),
    ("llama", [float("nan")], [], False),
    ("fp8", [check_vllm.FP8_MARGIN], [], True),
    ("fp8", [check_vllm.FP8_MARGIN + 0.01], [], False),
    ("faults", [], [], False),
    ("faults", [0.0], ["nothing was preempted"], False),
])  # fmt: skip
def test_verdict_on_tokens(case, margins, problems, right):
    line, fine = check_vllm.verdict(case, {"margins": [margins], "notes": [], "problems": problems})
    assert fine is right
    assert all(problem in line for problem in problems)
