"""Serve prompts with kinds of models in vLLM, and let one of its own backends score every token.

python -m verification.vllm_tokens [--site FOLDER] [--path FOLDER] [--cases llama,window] [--planted]

Needs one GPU, two for the case `two_gpus`, and vLLM, installed or unpacked in a folder that --site names.
Models are small, with random weights; each case has other heads, options or caches. All requests are served
twice, so the second time finds prefixes cached. A token is wrong if the scorer finds it much less likely than
its likeliest. Also printed: how many first tokens are the scorer's, and which kernels compiled while serving.
With --planted, the backend has a fault, which the check must find: no query sees its own key. Exits with 1 if
anything is wrong, or if the planted fault is not found.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from verification.vllm_process import LOADER, MODEL, PLUGIN, VOCABULARY, environment

LENGTHS = [*range(3, 60, 5), 100, 300, 700, 1500]  # of prompts
NEW = 24  # tokens
MARGIN = 0.3  # between logarithms of probabilities; a token of a wrong context is unlikelier by far
FP8_MARGIN = 1.0  # against a scorer whose cache is not rounded
MAX_LEN = 2048


@dataclass(frozen=True)
class Case:
    """A model, how it is served, and who scores."""

    model: dict[str, Any] = field(default_factory=dict)  # changes to MODEL
    engine: dict[str, Any] = field(default_factory=dict)  # arguments of vLLM's LLM
    scorer: str = "FLASH_ATTN"
    margin: float = MARGIN
    graphs: bool = False
    repetitive: bool = False  # prompts repeat themselves, so that drafts are made of them
    gpus: int = 1  # that share the heads (tensor parallelism)


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
BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "n_layer": 6,
    "n_head": 8,
    "num_attention_heads": 8,
    "tie_word_embeddings": True,
}
CASES = {
    "llama": Case(graphs=True),
    "fp8": Case(engine={"kv_cache_dtype": "fp8"}, margin=FP8_MARGIN, graphs=True),
    "window": Case({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 256}),
    "gemma2": Case(GEMMA_2, graphs=True),
    "one_of_two_gpus": Case({"num_attention_heads": 4, "num_key_value_heads": 1}),
    "two_gpus": Case(gpus=2, graphs=True),
    "head64": Case({"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}),
    "pages": Case(engine={"block_size": 64}),
    "drafts": Case(
        engine={
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 4,
                "prompt_lookup_max": 3,
                "prompt_lookup_min": 1,
            }
        },
        repetitive=True,
    ),
    "alibi": Case(BLOOM, scorer="TRITON_ATTN"),
}


def prompts_of(case: Case) -> list[list[int]]:
    """Return random prompts that begin alike, the same in every run."""
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
    """Start an engine; ``stop`` ends it."""
    from vllm import LLM

    return LLM(
        model=str(model),
        load_format=LOADER,
        skip_tokenizer_init=True,
        generation_config="vllm",
        dtype="bfloat16",
        seed=0,
        attention_config={"backend": backend},
        max_model_len=MAX_LEN,
        max_num_seqs=32,
        max_num_batched_tokens=512,  # so that long prompts are served in parts, beside decodes
        gpu_memory_utilization=0.02,
        kv_cache_memory_bytes=2 << 30,  # no memory is measured, as other processes may share the GPU
        tensor_parallel_size=case.gpus,
        disable_custom_all_reduce=case.gpus > 1,  # NCCL's is on every machine
        **options,
    )


def stop(llm: Any) -> None:
    """End an engine's process, which frees its memory."""
    llm.llm_engine.engine_core.shutdown()


def serve(case: Case, model: Path) -> list[list[int]]:
    """Return the greedy tokens of each prompt, of two rounds one after the other."""
    from vllm import SamplingParams

    sizes = {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 128]}}
    llm = start(
        case,
        model,
        "CUSTOM",
        enforce_eager=not case.graphs,
        enable_prefix_caching=True,
        **(sizes if case.graphs else {}),
        **case.engine,
    )
    params = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True, detokenize=False)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts_of(case)]
    found = [output for _ in range(2) for output in llm.generate(asked, params, use_tqdm=False)]
    stop(llm)
    return [list(output.outputs[0].token_ids) for output in found]


def score(case: Case, model: Path, prompts: list[list[int]], served: list[list[int]]) -> list[list[float]]:
    """Return how much less likely each served token was than the likeliest, by the scorer."""
    from vllm import SamplingParams

    llm = start(case, model, case.scorer, enforce_eager=True, enable_prefix_caching=False)
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    asked = [{"prompt_token_ids": prompt + tokens} for prompt, tokens in zip(prompts, served, strict=True)]
    margins = []
    for output, prompt, tokens in zip(
        llm.generate(asked, params, use_tqdm=False), prompts, served, strict=True
    ):
        row = []
        for place, token in enumerate(tokens, len(prompt)):
            known = output.prompt_logprobs[place]
            row.append(max(entry.logprob for entry in known.values()) - known[token].logprob)
        margins.append(row)
    stop(llm)
    return margins


def check(name: str, work: Path) -> dict[str, Any]:
    """Serve and score one case; return what was found."""
    case = CASES[name]
    model = work / f"model_{name}"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL | case.model))
    began = time.monotonic()
    served = serve(case, model)
    served_s = time.monotonic() - began
    margins = score(case, model, prompts_of(case) * 2, served)
    return {
        "case": name,
        "margins": margins,
        "again": sum(a == b for a, b in zip(served[: len(LENGTHS)], served[len(LENGTHS) :], strict=True)),
        "seconds": [served_s, time.monotonic() - began - served_s],
    }


def verdict(found: dict[str, Any]) -> tuple[str, bool]:
    """Return a line of a report, and whether no token is wrong."""
    case = CASES[found["case"]]
    margins = [margin for row in found["margins"] for margin in row]
    wrong = sum(not margin <= case.margin for margin in margins)  # NaN is wrong too
    first = sum(row[0] == 0 for row in found["margins"])
    total = len(found["margins"])
    line = (
        f"{found['case']:16} {wrong} of {len(margins)} tokens wrong; the least likely is {max(margins):.3f} "
        f"below the likeliest of {case.scorer} ({case.margin} is allowed); {first} of {total} first tokens "
        f"the same; {found['again']} of {len(LENGTHS)} prompts the same with cached prefixes"
    )
    return line, wrong == 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--site", action="append", default=[], help="a folder that holds an unpacked vLLM")
    parser.add_argument("--path", action="append", default=[], help="a folder that holds attn_kernels")
    here = [name for name, case in CASES.items() if case.gpus <= max(1, torch.cuda.device_count())]
    parser.add_argument("--cases", default=",".join(here), help="default: %(default)s")
    parser.add_argument("--planted", action="store_true", help="expect each case to be found wrong")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of all cases")
    parser.add_argument("--out", type=Path, help="folder for a log and the figures")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.cases.split(",") if name not in CASES]
    if unknown:
        parser.error(f"--cases {unknown[0]!r:.40}: not one of {', '.join(CASES)}")
    return options


def child(names: list[str], work: Path) -> int:
    """Check the cases one after the other; a line of JSON each."""
    with (work / "found.jsonl").open("a", buffering=1) as file:
        for name in names:
            try:
                found = check(name, work)
            except Exception as error:
                print(f"{name}: {error!r}", flush=True)
                found = {"case": name, "error": " ".join(str(error).split())[:300]}
            file.write(json.dumps(found) + "\n")
    return 0


def main() -> int:
    """Run a process for all cases and report."""
    options = arguments()
    names = options.cases.split(",")
    if options.child is not None:
        return child(names, options.child)
    work = Path(tempfile.gettempdir()) / f"attn_kernels_vllm_tokens_{os.getpid()}"
    work.mkdir(parents=True)
    out = options.out or work
    out.mkdir(parents=True, exist_ok=True)
    log = out / f"log_{'planted' if options.planted else names[0]}.txt"
    plugin = "verification.vllm_planted:register" if options.planted else PLUGIN
    command = [sys.executable, "-m", "verification.vllm_tokens", "--cases", options.cases]
    with log.open("w") as file:
        try:
            subprocess.run(
                [*command, "--child", str(work)],
                env=environment(work, options.site, options.path, plugin),
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=options.timeout,
            )
        except subprocess.TimeoutExpired:
            print(f"stopped after {options.timeout:.0f} s")
    lines = (work / "found.jsonl").read_text().splitlines() if (work / "found.jsonl").exists() else []
    found = {row["case"]: row for row in map(json.loads, lines)}
    if options.out is not None:
        with (out / "tokens.jsonl").open("a") as file:
            file.writelines(json.dumps(row | {"planted": options.planted}) + "\n" for row in found.values())
    fine = True
    for name in names:
        row = found.get(name, {"error": "not finished"})
        line, right = (f"{name:16} {row['error']}", None) if "error" in row else verdict(row)
        fine &= right is (not options.planted)
        print(("planted: " if options.planted else "") + line, flush=True)
    text = log.read_text(errors="replace")
    compiled = sorted(
        {line.split("inference: ")[-1] for line in text.splitlines() if "JIT compilation dur" in line}
    )
    print("\n".join([f"{len(compiled)} kernels compiled while serving or scoring", *compiled, f"log: {log}"]))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
