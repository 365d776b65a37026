"""Draw the times of attention kernels beside FlashAttention-3's, with a panel for each run of `compare`.

python -m benchmarks.attention.plot results/h100 results/h200 --out docs/attention.svg

A bar is a geometric mean over batches, and a dot is a batch. Below 1, a kernel takes less time.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.common.environment import parser_of, pyplot_or_stop, stop

# Colours that colour-blind readers tell apart (Okabe and Ito).
Kernels = Mapping[str, tuple[str, str]]  # label and colour
KERNELS: Kernels = {
    "ours": ("attn_kernels", "#56b4e9"),
    "fa3": ("FlashAttention-3", "#999999"),
    "vllm": ("vLLM's Triton kernel", "#e69f00"),
}
KINDS = {"decode": "decode", "prefill": "prompts", "mixed": "mixed", "": "all"}
LOOK = {
    "font.family": "sans-serif",
    "font.size": 11,
    "svg.fonttype": "none",
    "svg.hashsalt": "attention",  # ids that are random otherwise
}


HIGHEST = 2.0  # of the axis, which cuts higher bars: those of vLLM's kernel for prompts are at 6.8

Ratios = Mapping[tuple[str, str], Sequence[float]]  # of batches, by kind and kernel


def ratios(document: dict[str, Any], kernels: Kernels = KERNELS) -> Ratios:
    """Times over FlashAttention-3's by kind and kernel, of the batches that all kernels computed right."""
    batches: dict[tuple[str, ...], dict[str, float]] = {}
    for record in document["results"]:
        if record["implementation"] in kernels and record["ok"] and record["time_us"]:
            batch = tuple(str(record[key]) for key in ("kind", "batch", "layout", "block_size", "dtype"))
            batches.setdefault(batch, {})[record["implementation"]] = record["time_us"]
    by_group: dict[tuple[str, str], list[float]] = {}
    for (kind, *_), times in batches.items():
        if len(times) == len(kernels):
            for group in (kind, ""):
                for name, time in times.items():
                    by_group.setdefault((group, name), []).append(time / times["fa3"])
    return by_group


def read_runs(paths: Sequence[Path], kernels: Kernels = KERNELS) -> list[tuple[str, Ratios]]:
    """The GPU and the ratios of each result; one that cannot be drawn is wrong use."""
    runs = []
    for path in paths:
        try:
            document = json.loads(path.read_text())
            runs.append((document["environment"]["device"], ratios(document, kernels)))
        except (OSError, ValueError) as error:
            stop(f"{path}: {error}")
        except (KeyError, TypeError) as error:
            stop(f"{path}: not what this command reads: {error}")
        if not runs[-1][1]:
            stop(f"{path}: no batch with right times of {', '.join(label for label, _ in kernels.values())}")
    return runs


def draw(
    runs: Sequence[tuple[str, Ratios]],
    path: Path,
    kernels: Kernels = KERNELS,
    lines: Mapping[str, float] | None = None,
) -> None:
    """Write the picture of GPUs and their ratios; without matplotlib, this is wrong use.

    lines: times over FlashAttention-3's that others state, by label; the scale is logarithmic with them.
    """
    pyplot = pyplot_or_stop()
    with pyplot.rc_context(LOOK):
        many = len(kernels) > 4
        size = (11.0, 3.8 * len(runs)) if many else (4.9 * len(runs), 3.4)
        shape = (len(runs), 1) if many else (1, len(runs))
        figure, panels = pyplot.subplots(*shape, figsize=size, squeeze=False, sharey=True)
        for axes, (gpu, by_group) in zip(panels.flat, runs, strict=True):
            width, text = 0.9 / len(kernels), {"ha": "center", "rotation": 90 if many else 0, "fontsize": 10}
            kinds = [kind for kind in KINDS if (kind, "ours") in by_group]
            for k, (name, (label, colour)) in enumerate(kernels.items()):
                for place, kind in enumerate(kinds):
                    x, values = place + width * (k - (len(kernels) - 1) / 2), by_group[kind, name]
                    mean = geometric_mean(values)
                    axes.bar(x, mean, 0.97 * width, color=colour, label=label if place == 0 else None)
                    if name != "fa3":
                        axes.text(x, 0.02, f"{mean:.2f}", transform=axes.get_xaxis_transform(), **text)
                        axes.scatter([x] * len(values), values, s=7, color="black", alpha=0.45, linewidths=0)
            axes.axhline(1, color="black", linewidth=0.8)
            for label, ratio in (lines or {}).items():
                axes.axhline(ratio, color="black", linewidth=0.8, linestyle=":", label=label)
            ticks = [f"{KINDS[kind]}\n({len(by_group[kind, 'ours'])})" for kind in kinds]
            axes.set_xticks(range(len(kinds)), ticks)
            axes.set_title(gpu, fontsize=11)
            axes.spines[["top", "right"]].set_visible(False)
        if lines:
            panels[0][0].set_yscale("log")
        else:
            panels[0][0].set_ylim(0, HIGHEST)
        panels[0][0].set_ylabel("time / FlashAttention-3's")
        handles = panels[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="lower center", ncols=4 if many else len(kernels), frameon=False)
        figure.tight_layout(rect=(0, 0.27 / len(runs) if many else 0.09, 1, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=160)
        pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; a run that cannot be drawn is wrong use, which exits with 2."""
    parser = parser_of(__doc__, "benchmarks.attention.plot")
    parser.add_argument("runs", nargs="+", type=Path, help="folders that `compare --out` wrote")
    parser.add_argument("--out", type=Path, required=True, help="the picture, .svg or .png")
    args = parser.parse_args(arguments)
    if args.out.suffix not in (".svg", ".png"):
        stop(f"--out {args.out}: .svg or .png is needed")
    draw(read_runs([run / "compare.json" for run in args.runs]), args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
