"""Serve prompts with kinds of models in vLLM, and let one of its own backends score every token.

python -m benchmarks.engines.check_vllm [--vllm FOLDER] [--cases llama window faults] [--planted]

Needs one GPU, two for the cases `two_gpus` and `shared_keys`, and vLLM, installed or in the folder of --vllm.
Models are small, with random weights; each case has other heads, options or caches. All requests are served
twice, so the second time finds prefixes cached. A token is wrong if the scorer finds it far less likely than
the likeliest.

The cases `faults` and `faults_eager` serve --requests requests of random lengths in a cache that is too small
for them, so vLLM preempts some and computes them again. One in ten is aborted. They also compare the memory
before and after. With --planted, the backend has a fault, which the check must find: no query sees its own
key. Exits with 1 if anything is wrong, or if the planted fault is not found.
"""

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.environment import parser_of
from benchmarks.engines.plugins import SMALL, start_vllm
from benchmarks.engines.vllm_folder import (
    LLAMA_3_8B,
    OURS,
    PLUGIN,
    TMP,
    VLLM_HELP,
    environment,
    write_model,
    write_plugins,
)

PLANTED = "benchmarks.engines.plugins:register_planted_fault"
VOCABULARY = 32000
MODEL = LLAMA_3_8B | {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LENGTHS = [*range(3, 60, 5), 100, 300, 700, 1500]  # of prompts
NEW = 24  # tokens
MARGIN = 0.3  # between logarithms of probabilities; a token of a wrong context is unlikelier by far
FP8_MARGIN = 1.0  # against a scorer whose cache is not rounded
MAX_LEN = 2048
OUTSTANDING = 128  # requests at a time in `faults`
PAGES = 900  # of 16 tokens, in its cache
ABORTED = 0.1  # of its requests
LEAK = 1 << 20  # bytes that memory may differ by
Served = list[tuple[list[int], list[int]]]  # prompts and tokens


@dataclass(frozen=True)
class Case:
    """A model, how it is served, and who scores."""

    model: dict[str, Any] = field(default_factory=dict)  # changes to MODEL
    engine: dict[str, Any] = field(default_factory=dict)  # arguments of vLLM's LLM
    overrides: dict[str, Any] = field(default_factory=dict)  # of what transformers makes of the model
    scorer: str = "FLASH_ATTN"
    margin: float = MARGIN
    graphs: bool = False
    repetitive: bool = False  # prompts repeat themselves, so that drafts are made of them
    gpus: int = 1  # that share the heads (tensor parallelism)
    invariant: bool = False  # the second time, tokens must be the same


GEMMA_2 = {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 256,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}
# Like Gemma 4's E4B, smaller: two head sizes, embeddings of each layer, and layers that share a cache.
GEMMA_4 = {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 64,
    "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 2,
    "sliding_window": 256,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "final_logit_softcapping": 30.0,
    "use_bidirectional_attention": None,
    "tie_word_embeddings": False,
}
# vLLM 0.24 reads both head sizes of the whole model, where transformers 5.17 has one of each layer.
TWO_HEADS = {"allow_global_per_layer_attribute_access": True, "global_head_dim": 512}
# Like gpt-oss, smaller: sinks, a window in every other layer, and experts of bf16. All experts are used,
# because otherwise rounding changes which are.
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 1024,
    "num_local_experts": 4,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
}
BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "n_layer": 6,
    "n_head": 8,
    "num_attention_heads": 8,
    "tie_word_embeddings": True,
}
DRAFTS = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
FP8 = {"kv_cache_dtype": "fp8"}
CASES = {
    "llama": Case(graphs=True),
    "fp8": Case(engine=FP8, margin=FP8_MARGIN, graphs=True),
    "window": Case({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 256}),
    "gemma2": Case(GEMMA_2, graphs=True),
    "gemma4": Case(GEMMA_4, overrides=TWO_HEADS, scorer="TRITON_ATTN", graphs=True),
    "gemma4_fp8": Case(GEMMA_4, FP8, TWO_HEADS, "TRITON_ATTN", FP8_MARGIN),
    "gpt_oss": Case(GPT_OSS, graphs=True),
    "one_of_two_gpus": Case({"num_attention_heads": 4, "num_key_value_heads": 1}),
    "two_gpus": Case(gpus=2, graphs=True),
    "shared_keys": Case({"num_key_value_heads": 1}, {"decode_context_parallel_size": 2}, gpus=2, graphs=True),
    "invariant": Case(graphs=True, invariant=True),
    "head64": Case({"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}),
    "head512": Case({"num_attention_heads": 4, "head_dim": 512}, scorer="TRITON_ATTN", graphs=True),
    "pages": Case(engine={"block_size": 64}),
    "drafts": Case(engine={"speculative_config": DRAFTS}, repetitive=True),
    "alibi": Case(BLOOM, scorer="TRITON_ATTN"),
    "faults": Case(graphs=True),
    "faults_eager": Case(),
}


def prompts_of(case: Case) -> list[list[int]]:
    """Random prompts that begin alike, the same in every run."""
    draw = random.Random(0)
    shared = [draw.randrange(3, VOCABULARY) for _ in range(64)]
    prompts = []
    for length in LENGTHS:
        own = [draw.randrange(3, VOCABULARY) for _ in range(length)]
        if case.repetitive:
            own = [own[i % 7] for i in range(length)] if length > 7 else own
        prompts.append((shared + own)[:length] if length > 100 else own)
    return prompts


def start(case: Case, model: Path, backend: str, **options: Any) -> Any:
    """Start an engine."""
    arguments: dict[str, Any] = {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 512,  # so that long prompts are served in parts, beside decodes
        "gpu_memory_utilization": 0.02,
        "kv_cache_memory_bytes": 2 << 30,  # no memory is measured, as other processes may share the GPU
        "tensor_parallel_size": case.gpus,
        "disable_custom_all_reduce": case.gpus > 1,  # NCCL's is on every machine
        "hf_overrides": case.overrides,
    }
    return start_vllm(model, SMALL, backend, max_model_len=MAX_LEN, **(arguments | options))


def serve(case: Case, model: Path) -> dict[str, Any]:
    """Greedy tokens of each prompt, of two rounds one after the other; returns what was found."""
    from vllm import SamplingParams

    options = dict(case.engine)
    if case.graphs:
        options["compilation_config"] = {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 128]}
    llm = start(case, model, OURS, enforce_eager=not case.graphs, enable_prefix_caching=True, **options)
    params = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True, detokenize=False)
    prompts = prompts_of(case)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = [output for _ in range(2) for output in llm.generate(asked, params, use_tqdm=False)]
    llm.llm_engine.engine_core.shutdown()  # ends its process, which frees the memory
    tokens, half = [list(output.outputs[0].token_ids) for output in outputs], len(prompts)
    again = sum(one == other for one, other in zip(tokens[:half], tokens[half:], strict=True))
    note = f"{again} of {half} prompts the same with cached prefixes"
    problems = ["other tokens with cached prefixes"] if case.invariant and again < half else []
    served = list(zip(prompts * 2, tokens, strict=True))
    return {"served": served, "notes": [note], "problems": problems}


def score(case: Case, model: Path, served: Served) -> list[list[float]]:
    """How much less likely each served token was than the likeliest, by the scorer."""
    from vllm import SamplingParams

    llm = start(case, model, case.scorer, enforce_eager=True, enable_prefix_caching=False)
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    asked = [{"prompt_token_ids": (prompt + tokens)[: MAX_LEN - 1]} for prompt, tokens in served]
    margins = []
    for output, (prompt, tokens) in zip(llm.generate(asked, params, use_tqdm=False), served, strict=True):
        row = []
        for place, token in enumerate(tokens, len(prompt)):
            if place < len(output.prompt_logprobs):
                likelihoods = output.prompt_logprobs[place]
                row.append(max(entry.logprob for entry in likelihoods.values()) - likelihoods[token].logprob)
        margins.append(row)
    llm.llm_engine.engine_core.shutdown()
    return margins


def allocated() -> int:
    """Bytes that this process has on the GPU."""
    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


class FaultyTraffic:
    """Random requests, of which some are aborted, for an engine that runs in this process."""

    def __init__(self, llm: Any) -> None:
        self._core, self._draw = llm.llm_engine, random.Random(0)
        self._shared = [self._draw.randrange(3, VOCABULARY) for _ in range(MAX_LEN)]  # prefixes are cached
        self.aborted = 0

    def _request(self) -> tuple[list[int], int]:
        draw = self._draw
        length = round(2 ** draw.uniform(0, 10.6))
        alike = draw.choice((0, 0, min(length - 1, 64), length // 2))
        prompt = self._shared[:alike] + [draw.randrange(3, VOCABULARY) for _ in range(length - alike)]
        return prompt, draw.randint(1, 200)

    def run(self, count: int, name: str) -> Served:
        """Serve this many requests; returns prompts and tokens of those that were not aborted."""
        from vllm import SamplingParams

        waiting = [(f"{name} {i}", *self._request()) for i in range(count)]
        prompts: dict[str, list[int]] = {}
        ended: dict[str, list[int]] = {}
        doomed: dict[str, int] = {}  # steps until a request is aborted
        while waiting or self._core.has_unfinished_requests():
            while waiting and len(prompts) - len(ended) < OUTSTANDING:
                key, prompt, tokens = waiting.pop()
                prompts[key] = prompt
                params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
                self._core.add_request(key, {"type": "token", "prompt_token_ids": prompt}, params)
                if self._draw.random() < ABORTED:
                    doomed[key] = self._draw.randint(0, 60)
            for output in self._core.step():
                if output.finished and output.request_id in prompts:
                    ended[output.request_id] = list(output.outputs[0].token_ids)
                    doomed.pop(output.request_id, None)
            for key in [key for key, steps in doomed.items() if steps == 0]:
                self._core.abort_request([key])
                del doomed[key], prompts[key]
                self.aborted += 1
            for key in doomed:
                doomed[key] -= 1
        return [(prompts[key], tokens) for key, tokens in ended.items()]


def serve_faults(case: Case, model: Path, requests: int) -> dict[str, Any]:
    """Serve under memory pressure and abort some; returns what was found, with all that ended."""
    llm = start(
        case,
        model,
        OURS,
        enforce_eager=not case.graphs,
        enable_prefix_caching=True,
        num_gpu_blocks_override=PAGES,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=4 << 30,
        disable_log_stats=False,
    )
    traffic = FaultyTraffic(llm)
    traffic.run(OUTSTANDING, "warm")
    before, began = allocated(), time.monotonic()
    served = traffic.run(requests, "request")
    seconds, after = time.monotonic() - began, allocated()
    metrics = llm.get_metrics()
    preempted = sum(metric.value for metric in metrics if metric.name == "vllm:num_preemptions")
    problems = [f"{after - before} bytes are not given back"] if abs(after - before) > LEAK else []
    problems += [] if preempted else ["nothing was preempted"]
    note = f"{len(served)} ended, {traffic.aborted} were aborted, {preempted} preemptions, {seconds:.0f} s"
    return {"served": served, "notes": [note], "problems": problems}


def verdict(name: str, result: dict[str, Any]) -> tuple[str, bool]:
    """A line of a report, and whether no token is wrong and no problem was found."""
    if "margins" not in result:
        return f"{name:16} {result.get('error', 'not finished')}", False
    case = CASES[name]
    margins = [margin for row in result["margins"] for margin in row]
    wrong = sum(not margin <= case.margin for margin in margins)  # NaN is wrong too
    first = sum(row[0] == 0 for row in result["margins"] if row)
    facts = [
        f"{wrong} of {len(margins)} tokens wrong",
        f"the least likely is {max(margins, default=0.0):.3f} below the likeliest of {case.scorer} "
        f"({case.margin} is allowed)",
        f"{first} of {len(result['margins'])} first tokens the same",
        *result["notes"],
        *(f"WRONG: {problem}" for problem in result["problems"]),
    ]
    right = wrong == 0 and bool(margins) and not result["problems"]
    return f"{name:16} {'; '.join(facts)}", right


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__, "benchmarks.engines.check_vllm")
    add = parser.add_argument
    add("--vllm", type=Path, help=VLLM_HELP)
    here = [name for name, case in CASES.items() if case.gpus <= max(1, torch.cuda.device_count())]
    add("--cases", nargs="+", choices=CASES, default=here, metavar="CASE", help=f"default: {' '.join(here)}")
    add("--requests", type=int, default=1000, help="of `faults`; default: %(default)s")
    add("--planted", action="store_true", help="expect each case to be found wrong")
    add("--timeout", type=float, default=900, help="seconds of each process")
    add("--out", type=Path, help="folder for logs and what was found; default: in /tmp")
    add("--child", choices=("serve", "score"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def child(options: argparse.Namespace) -> int:
    """Serve or score the cases one after the other, in a process of vLLM; a file of JSON each."""
    for name in options.cases:
        case, model, path = CASES[name], options.out / name, options.out / f"{name}.json"
        try:
            if options.child == "serve":
                faults = name.startswith("faults")
                found = serve_faults(case, model, options.requests) if faults else serve(case, model)
            else:
                found = read_found(path)
                if "served" in found:
                    found["margins"] = score(case, model, found["served"])
        except Exception as error:
            print(f"{name}: {error!r}", flush=True)
            found = {"error": " ".join(str(error).split())[:300]}
        path.write_text(json.dumps(found))
    return 0


def read_found(path: Path) -> dict[str, Any]:
    """What was found of a case; nothing if its process ended before."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def run_child(options: argparse.Namespace, out: Path, kind: str, names: list[str]) -> str:
    """Serve or score cases in a process of its own, and return its log."""
    plugins = write_plugins(out / "plugins", PLANTED if options.planted else PLUGIN)
    values = environment(options.vllm, plugins)
    if kind == "serve" and names[0].startswith("faults"):
        # The engine runs in the process whose memory is compared.
        values["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if CASES[names[0]].invariant:
        values["VLLM_BATCH_INVARIANT"] = "1"
    command = [sys.executable, "-m", "benchmarks.engines.check_vllm", "--child", kind, "--out", str(out)]
    command += ["--cases", *names, "--requests", str(options.requests)]
    log = out / f"log_{kind}_{names[0]}.txt"
    with log.open("w") as file:
        try:
            subprocess.run(command, env=values, stdout=file, stderr=file, timeout=options.timeout)
        except subprocess.TimeoutExpired:
            print(f"stopped after {options.timeout:.0f} s")
    return log.read_text(errors="replace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run processes for all cases and report."""
    options = parse_arguments(arguments)
    if options.child is not None:
        return child(options)
    out = (options.out or TMP / f"check_vllm_{os.getpid()}").resolve()
    names = options.cases
    for name in names:
        write_model(out / name, MODEL | CASES[name].model)
        (out / f"{name}.json").unlink(missing_ok=True)
    alone = [name for name in names if CASES[name].invariant or name.startswith("faults")]
    groups = [[name for name in names if name not in alone], *([name] for name in alone)]
    logs = [run_child(options, out, kind, names) for names in groups if names for kind in ("serve", "score")]
    fine = True
    for name in names:
        found = read_found(out / f"{name}.json")
        line, right = verdict(name, found)
        fine &= right is not options.planted and "margins" in found
        print(("planted: " if options.planted else "") + line, flush=True)
    printed = "\n".join(logs).splitlines()
    compiled = {line.split("inference: ")[-1] for line in printed if "JIT compilation dur" in line}
    print("\n".join([f"{len(compiled)} kernels compiled while serving or scoring", *sorted(compiled)]))
    print(f"logs and what was found: {out}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
