"""Score the choices of the generated modules by measured tables, without a GPU.

    python -m benchmarks.trees.tuned --out results/

For each device it reads the table that its module is compiled from. Where they exist, it also reads the full
sweep of scenarios that were not tuned (`untuned_DEVICE`) and a second run (`DEVICE_second`). `treegen eval`
scores fresh trees on held-out scenarios; this scores the committed modules.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.environment import stop, write_atomically
from benchmarks.trees import tuned_plots
from benchmarks.trees.score_choices import CommittedTrees
from benchmarks.trees.tuned_lines import lines
from benchmarks.trees.tuned_results import TunedResults, read_tables, results_of
from treegen.core.errors import InputError
from treegen.read.spec import find_spec, read_spec
from treegen.review.modules import read_trees
from triton_tune.core.errors import TuningError

DEVICES = "nvidia_h100,nvidia_h200"


def write(out: Path, results: TunedResults) -> str:
    """Write tuned.json and draw it; returns a line that names the files."""
    source = out / "tuned.json"
    write_atomically(source, json.dumps(dataclasses.asdict(results), indent=1, allow_nan=False) + "\n")
    try:
        return f"wrote {source} {' '.join(map(str, tuned_plots.draw(source)))}"
    except ImportError:
        return f"wrote {source}; no matplotlib, no plots; later: python -m benchmarks.trees.tuned_plots"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.trees.tuned",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tables", type=Path, default=Path("tuning_data/unified_attention"), help="folder of the tables")
    add("--devices", default=DEVICES, help=f"device keys, with commas between (default {DEVICES})")
    add("--worst", type=int, default=5, help="how many of the worst choices of a table to list (default 5)")
    add("--out", type=Path, help="folder for tuned.json and plots")
    args = parser.parse_args(arguments)
    devices = list(dict.fromkeys(name for name in args.devices.split(",") if name))
    if not devices or args.worst < 0:
        stop("--devices needs a device key, --worst a count")
    try:
        spec = read_spec(find_spec(None))
        trees = CommittedTrees(spec, read_trees(spec))
        tables, missing = read_tables(args.tables, devices, trees)
        results = results_of(tables, devices, trees)
    except (InputError, TuningError, ValueError) as error:
        stop(str(error))
    for line in [*missing, *lines(results, args.worst)]:
        print(line)
    if args.out:
        try:
            print(write(args.out, results))
        except OSError as error:
            stop(f"{args.out}: cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
