"""Serve requests with vLLM under memory pressure, abort some, and check every token and the memory.

python -m verification.vllm_faults [--site FOLDER] [--path FOLDER] [--requests 1000] [--mode graphs|eager]

Needs one GPU and vLLM, installed or unpacked in a folder that --site names. Few pages of the cache make vLLM
preempt requests and compute them again. The weights are random. Another process scores the tokens of all
requests that were not aborted: --scorer, one of vLLM's own backends, must find each token almost as likely
as its likeliest. Exits with 1 if a token is wrong, memory is not given back, or nothing was preempted.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from verification.vllm_process import LOADER, MODEL, VOCABULARY, environment

WORK = Path(tempfile.gettempdir()) / "attn_kernels_vllm_faults"
MAX_LEN = 2048  # tokens of a request
OUTSTANDING = 128  # requests at a time
ABORTED = 0.1  # of all requests
MARGIN = 0.3  # between logarithms of probabilities; a token of a wrong context is unlikelier by far
LEAK = 1 << 20  # bytes that memory may differ by


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--site", action="append", default=[], help="a folder that holds an unpacked vLLM")
    parser.add_argument("--path", action="append", default=[], help="a folder that holds attn_kernels")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=900, help="of 16 tokens, in the cache")
    parser.add_argument("--mode", choices=("graphs", "eager"), default="graphs")
    parser.add_argument("--backend", default="CUSTOM")
    parser.add_argument("--scorer", default="FLASH_ATTN")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=500, help="seconds of each process")
    parser.add_argument("--child", choices=("serve", "score"), help=argparse.SUPPRESS)
    return parser.parse_args()


def engine(args: argparse.Namespace, backend: str, **options: Any) -> Any:
    """Start vLLM in this process."""
    from vllm import LLM

    return LLM(
        model=str(WORK / "model"),
        load_format=LOADER,
        skip_tokenizer_init=True,
        generation_config="vllm",
        seed=0,
        attention_config={"backend": backend},
        max_model_len=MAX_LEN,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=4 << 30,  # no memory is measured, as other processes may share the GPU
        enforce_eager=args.mode == "eager",
        disable_log_stats=False,
        **options,
    )


def allocated() -> int:
    """Bytes that this process has on the GPU."""
    import gc

    import torch

    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


def serve(args: argparse.Namespace) -> dict[str, Any]:
    """Serve random requests and abort some; return what was found, with the tokens of those that ended."""
    from vllm import SamplingParams

    llm = engine(
        args,
        args.backend,
        kv_cache_dtype=args.kv_cache_dtype,
        num_gpu_blocks_override=args.pages,
        enable_prefix_caching=True,
    )
    core, draw = llm.llm_engine, random.Random(args.seed)
    shared = [
        draw.randrange(3, VOCABULARY) for _ in range(MAX_LEN)
    ]  # prompts begin alike: prefixes are cached

    def request() -> tuple[list[int], int]:
        length = round(2 ** draw.uniform(0, 10.6))
        alike = draw.choice((0, 0, min(length - 1, 64), length // 2))
        prompt = shared[:alike] + [draw.randrange(3, VOCABULARY) for _ in range(length - alike)]
        return prompt, draw.randint(1, 200)

    def run(count: int, name: str) -> dict[str, tuple[list[int], list[int]]]:
        """Serve so many requests; return prompt and tokens of those that were not aborted."""
        waiting = [(f"{name} {i}", *request()) for i in range(count)]
        prompts: dict[str, list[int]] = {}
        ended: dict[str, tuple[list[int], list[int]]] = {}
        while waiting or core.has_unfinished_requests():
            while waiting and len(prompts) - len(ended) < OUTSTANDING:
                key, prompt, tokens = waiting.pop()
                prompts[key] = prompt
                params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
                core.add_request(key, {"type": "token", "prompt_token_ids": prompt}, params)
                if draw.random() < ABORTED:
                    doomed[key] = draw.randint(0, 60)
            for output in core.step():
                if output.finished and output.request_id in prompts:
                    key = output.request_id
                    ended[key] = (prompts[key], list(output.outputs[0].token_ids))
                    doomed.pop(key, None)
            for key in [key for key, steps in doomed.items() if steps == 0]:
                core.abort_request([key])
                del doomed[key], prompts[key]
                found["aborted"] += 1
            for key in doomed:
                doomed[key] -= 1
        return ended

    doomed: dict[str, int] = {}  # steps until a request is aborted
    found: dict[str, Any] = {"aborted": 0}
    run(OUTSTANDING, "warm")
    before = allocated()
    began = time.monotonic()
    ended = run(args.requests, "request")
    found["seconds"] = time.monotonic() - began
    found["bytes"] = [before, allocated()]
    preempted = [metric.value for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions"]
    return found | {"preempted": sum(preempted), "ended": list(ended.values())}


def score(args: argparse.Namespace) -> dict[str, Any]:
    """Return how much less likely each served token was than the likeliest, by the scorer."""
    from vllm import SamplingParams

    served = json.loads((WORK / "serve.json").read_text())["ended"]
    llm = engine(args, args.scorer, enable_prefix_caching=False)
    prompts = [{"prompt_token_ids": (prompt + tokens)[: MAX_LEN - 1]} for prompt, tokens in served]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    margins = []
    for output, (prompt, tokens) in zip(llm.generate(prompts, params, use_tqdm=False), served, strict=True):
        for place, token in enumerate(tokens, len(prompt)):
            if place < len(output.prompt_logprobs):
                known = output.prompt_logprobs[place]
                margins.append(max(entry.logprob for entry in known.values()) - known[token].logprob)
    return {"margins": margins}


def verdict(served: dict[str, Any], margins: list[float]) -> tuple[list[str], bool]:
    """Return the lines of a report, and whether all is well."""
    before, after = served["bytes"]
    wrong = sum(margin > MARGIN for margin in margins)
    lines = [
        f"{len(served['ended'])} requests ended, {served['aborted']} were aborted, "
        f"{served['preempted']} preemptions, {served['seconds']:.0f} s",
        f"{len(margins)} tokens scored, {wrong} wrong; the least likely is {max(margins, default=0):.3f} "
        f"below the likeliest ({MARGIN} is allowed)",
        f"{before} bytes before, {after} bytes after",
    ]
    right = wrong == 0 and abs(after - before) <= LEAK and served["preempted"] > 0 and len(margins) > 0
    return lines, right


def main() -> int:
    """Run both processes and report."""
    args = arguments()
    if args.child:
        result = (serve if args.child == "serve" else score)(args)
        (WORK / f"{args.child}.json").write_text(json.dumps(result))
        return 0
    (WORK / "model").mkdir(parents=True, exist_ok=True)
    (WORK / "model" / "config.json").write_text(json.dumps(MODEL))
    for child in ("serve", "score"):
        command = [sys.executable, "-m", "verification.vllm_faults", *sys.argv[1:], "--child", child]
        log = WORK / f"{child}.log"
        with log.open("w") as output:
            try:
                done = subprocess.run(
                    command,
                    # Its engine runs in the process itself, whose memory is compared.
                    env=environment(WORK, args.site, args.path) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=args.timeout,
                )
                code: int | str = done.returncode
            except subprocess.TimeoutExpired:
                code = f"none within {args.timeout:.0f} s"
        if code != 0:
            print("\n".join(log.read_text().splitlines()[-30:]))
            print(f"{child}: exit {code}; its log is {log}")
            return 1
    served = json.loads((WORK / "serve.json").read_text())
    lines, right = verdict(served, json.loads((WORK / "score.json").read_text())["margins"])
    print("\n".join(lines))
    compiled = [
        line for line in (WORK / "serve.log").read_text().splitlines() if "JIT compilation during" in line
    ]
    print("\n".join([f"{len(compiled)} kernels compiled while serving", *compiled]))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
