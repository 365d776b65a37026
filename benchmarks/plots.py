"""Draw a comparison: `python -m benchmarks.plots FOLDER/compare.json` writes PNGs beside the file."""

import argparse
import json
from pathlib import Path
from typing import Any

COLOURS = {"ours": "#0072b2", "best": "#56b4e9", "fa3": "#d55e00", "vllm": "#009e73", "sdpa": "#999999"}


def draw(source: Path) -> list[Path]:
    """Write compare_roofline.png and compare_rates.png; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = json.loads(source.read_text())
    records: list[dict[str, Any]] = [
        record for record in data["results"] if record["time_us"] and record["ok"]
    ]
    labels = list(dict.fromkeys(label(record) for record in records))
    names = [name for name in COLOURS if any(record["implementation"] == name for record in records)]
    charts = {"roofline": ("roofline_share", "share of roofline"), "rates": ("tflops", "TFLOP/s")}
    written = []
    for chart, (column, title) in charts.items():
        figure, axes = plt.subplots(figsize=(10, 1.2 + 0.16 * len(labels) * max(1, len(names))))
        height = 0.8 / max(1, len(names))
        for offset, name in enumerate(names):
            own = [record for record in records if record["implementation"] == name]
            places = [
                labels.index(label(record)) + (offset - (len(names) - 1) / 2) * height for record in own
            ]
            axes.barh(places, [record[column] for record in own], height, label=name, color=COLOURS[name])
        axes.set_yticks(range(len(labels)), labels, fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel(title)
        axes.set_title(f"{data['environment']['device']}, {data['environment']['date'][:10]}", fontsize=9)
        axes.grid(axis="x", alpha=0.3)
        axes.legend(loc="lower right", fontsize=8)
        figure.tight_layout()
        written.append(source.with_name(f"compare_{chart}.png"))
        figure.savefig(written[-1], dpi=130)
        plt.close(figure)
    return written


def label(record: dict[str, Any]) -> str:
    return f"{record['batch']}  {record['layout']}  page {record['block_size']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="compare.json of a run")
    for path in draw(parser.parse_args().source):
        print(path)


if __name__ == "__main__":
    main()
