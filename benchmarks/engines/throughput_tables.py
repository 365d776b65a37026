"""The table and the plot of throughputs."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.table import figure
from benchmarks.engines.command import OURS
from benchmarks.engines.latency_tables import COLOURS
from benchmarks.engines.results import Row, backends_in, latest, markdown, middle, spread

HEADS = (
    "mode, budget",
    "backend",
    "requests",
    "seconds (spread)",
    "tokens/s",
    "generated/s",
    "first token, s: median",
    "p99",
    "per token, ms: median",
    "p99",
)


def throughput_lines(rows: Sequence[Row]) -> list[str]:
    """Return the table as Markdown, with the ratio of each backend's throughput."""
    backends = backends_in(rows, "throughput")
    ours = OURS if OURS in backends else backends[0]
    found = latest(rows, "throughput", ("mode", "budget"))
    places = sorted({key[1:] for key in found}, key=lambda place: (place[0] != "graphs", place[1]))
    lines = list(dict.fromkeys(row["text"] for row in rows if row["kind"] == "host"))
    lines += [
        "",
        "All requests arrive at once, so the time to the first token is mostly waiting. Figures are medians "
        f"of the repeats; the last column is the throughput of {ours} over the row's.",
        "",
    ]
    table = []
    for place in places:
        mine = middle(found.get((ours, *place)))
        for name in backends:
            row = found.get((name, *place))
            if row is None:
                continue
            seconds = statistics.median(row["seconds"])
            times = [statistics.median(row[f"first_token_{which}"]) for which in ("median", "p99")]
            per_token = [1e3 * statistics.median(row[f"per_token_{which}"]) for which in ("median", "p99")]
            table.append(
                [
                    f"{place[0]}, {place[1]}",
                    name,
                    str(row["requests"]),
                    f"{seconds:.2f} ({100 * spread(row['seconds']):.0f}%)",
                    f"{(row['prompt_tokens'] + row['output_tokens']) / seconds:.0f}",
                    f"{row['output_tokens'] / seconds:.0f}",
                    *(f"{value:.2f}" for value in times),
                    *(f"{value:.2f}" for value in per_token),
                    figure(None if mine is None else seconds / mine, ".3f"),
                ]
            )
    return [*lines, *markdown([*HEADS, f"{ours} faster by"], table)]


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw a bar of tokens a second for each backend and budget; without matplotlib, nothing."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    backends = backends_in(rows, "throughput")
    found = latest(rows, "throughput", ("mode", "budget"))
    places = sorted({key[1:] for key in found}, key=lambda place: (place[0] != "graphs", place[1]))
    drawn, axis = pyplot.subplots(figsize=(1.5 + 2.0 * len(places), 3))
    width = 0.8 / len(backends)
    for i, name in enumerate(backends):
        bars = [
            (j + i * width, (row["prompt_tokens"] + row["output_tokens"]) / statistics.median(row["seconds"]))
            for j, place in enumerate(places)
            if (row := found.get((name, *place)))
        ]
        axis.bar(*zip(*bars, strict=True), width, label=name, color=COLOURS.get(name), align="edge")
    axis.set_xticks([j + 0.4 for j in range(len(places))], [f"{mode}, {budget}" for mode, budget in places])
    axis.set_ylabel("tokens/s")
    axis.legend(fontsize=7)
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)
    pyplot.close(drawn)
