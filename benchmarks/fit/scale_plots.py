"""Draw how fitting grows with the table: `python -m benchmarks.fit.scale_plots FOLDER/fit_scale.json`.

One PNG beside the file: seconds of each step, and memory, over the number of cells.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.common.drawing import draw_command

# Colours that colour-blind readers tell apart (Okabe and Ito), and a marker each.
STEPS = {
    "read_s": ("read the files", "#999999", "D"),
    "write_s": ("write the files", "#cc79a7", "v"),
    "problem_s": ("problem", "#56b4e9", "^"),
    "fit_s": ("fit", "#0072b2", "o"),
}
MEMORY = {
    "table_gib": ("the table's times", "#999999", "D"),
    "problem_peak_gib": ("peak before the fit", "#56b4e9", "^"),
    "peak_gib": ("peak when fitted", "#0072b2", "o"),
}


def curves(axes: Any, results: list[dict[str, Any]], styles: dict[str, tuple[str, str, str]]) -> None:
    """A line for each quantity over the number of cells, both logarithmic."""
    for key, (label, colour, marker) in styles.items():
        known = [(r["scenarios"] * r["configs"], r[key]) for r in results if r[key] is not None]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, marker=marker, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(alpha=0.25)
    axes.set_xlabel("cells (scenarios x configs)")
    axes.legend(fontsize=8, frameon=False)


def draw(source: Path) -> list[Path]:
    """Write fit_scale.png; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = json.loads(source.read_text())
    results = sorted(data["results"], key=lambda r: r["scenarios"] * r["configs"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
    curves(left, results, STEPS)
    left.set_ylabel("seconds")
    curves(right, results, MEMORY)
    right.set_ylabel("GiB")
    environment = data["environment"]
    figure.suptitle(
        f"{environment['machine']}, {environment['cores']} cores, {environment['date'][:10]}", fontsize=10
    )
    figure.tight_layout()
    written = source.with_name("fit_scale.png")
    figure.savefig(written, dpi=130)
    plt.close(figure)
    return [written]


if __name__ == "__main__":
    draw_command(draw, __doc__, "fit_scale.json", "benchmarks.fit.scale")
