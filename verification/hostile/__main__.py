"""Does treegen survive hostile input? Damage a small project in thousands of ways, and kill builds of it.

    python -m verification.hostile --inputs 10000 --kills 200 --jobs 2 --seed 0

Every damaged input must end in success or in one clear line and exit 2, with nothing else changed. After
each kill all files must be whole, the modules must work, and the next build must mend the rest. Exit codes: 0
fine, 1 a failure, 2 wrong use. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from verification.hostile import case, kills
from verification.hostile.case import BUILT, FAILED, REFUSED
from verification.hostile.damage import KINDS
from verification.hostile.workers import judged


def main() -> int:
    """Run both parts; prints a table of each."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.hostile", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--inputs", type=int, default=10_000, metavar="N", help="damaged inputs (default: 10000)"
    )
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="killed builds (default: 200)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument("--only", type=int, metavar="N", help="run the input of this number alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="with --only: write it there and leave it")
    options = parser.parse_args()
    if options.only is not None:
        return _one(options.seed, options.only, options.keep)
    failed = _inputs(options.seed, options.inputs, options.jobs) if options.inputs else 0
    failed += kills.run(options.seed, options.kills, options.jobs) if options.kills else 0
    return 1 if failed else 0


def _one(seed: int, number: int, keep: Path | None) -> int:
    outcome = case.run(seed, number, keep)
    print(f"{outcome.kind}: treegen {outcome.command}: {outcome.result} {outcome.why}")
    return 1 if outcome.result == FAILED else 0


def _inputs(seed: int, count: int, jobs: int) -> int:
    """Judge the inputs and print how they ended by kind; returns how many failed."""
    start = time.monotonic()
    tally: Counter[tuple[str, str]] = Counter()
    slowest = 0.0
    for number, outcome, seconds in judged(seed, range(count), jobs):
        tally[outcome.kind, outcome.result] += 1
        slowest = max(slowest, seconds)
        if outcome.result == FAILED:
            print(f"FAILED: {outcome.kind}: treegen {outcome.command}: {outcome.why}")
            print(
                f"  again: python -m verification.hostile --seed {seed} --only {number} --keep DIR",
                flush=True,
            )
        if (done := sum(tally.values())) % 500 == 0:
            print(f"{done} of {count}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"{'damage':34}" + "".join(f"{result:>10}" for result in (BUILT, REFUSED, FAILED)))
    for kind in KINDS:
        print(f"{kind:34}" + "".join(f"{tally[kind, result]:10}" for result in (BUILT, REFUSED, FAILED)))
    totals = [sum(tally[kind, result] for kind in KINDS) for result in (BUILT, REFUSED, FAILED)]
    print(f"{'all':34}" + "".join(f"{total:10}" for total in totals))
    print(f"{count} inputs, {time.monotonic() - start:.0f} s in {jobs} processes, slowest {slowest:.1f} s\n")
    return totals[-1]


if __name__ == "__main__":
    sys.exit(main())
