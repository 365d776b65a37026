"""Check our kernel against a float64 reference at real sizes on a real device.

python -m benchmarks.verify [--quick] [--random 40] [--seed 0]; README.md beside this file says more.
"""

import argparse
import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks import configs, environment
from benchmarks.checking import Check, check, expect
from benchmarks.implementations import PEERS_FOLDER, Ours, brief
from benchmarks.tensors import materialise
from benchmarks.verify_cases import CASE_SETS, Case
from benchmarks.warm import Job, compile_ahead


@dataclass
class Group:
    """The worst of several checks."""

    name: str
    launches: int = 0
    failures: int = 0
    worst: Check | None = None
    worst_case: str = ""
    worst_head: float = 0.0

    def add(self, found: Check, case: Case) -> None:
        self.launches += 1
        self.failures += not found.ok
        if not found.worst_head <= self.worst_head:
            self.worst_head = found.worst_head
        if self.worst is None or not found.error <= self.worst.error:
            self.worst, self.worst_case = found, f"{case.batch} seed {case.seed}"

    def line(self) -> str:
        limit = self.worst.tolerance if self.worst else float("nan")
        error = self.worst.error if self.worst else float("nan")
        verdict = f"{self.failures} WRONG" if self.failures else "ok"
        figures = f"{self.launches:>5} {error:>9.1e} {limit:>7.0e} {self.worst_head:>10.1e}"
        return f"{self.name:48} {figures}  {verdict:8} {self.worst_case}"


@dataclass
class Tally:
    """Everything a run found."""

    groups: dict[str, Group] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    unfit: Counter[str] = field(default_factory=Counter)
    chosen: Counter[str] = field(default_factory=Counter)

    def run(self, case: Case, device: torch.device) -> None:
        """Launch a case with each of its configs on poisoned outputs and compare with one reference."""
        tensors = materialise(
            case.batch, device, seed=case.seed, query_scale=case.query_scale, nan_padding=True
        )
        expected = expect(tensors, seed=case.seed)
        for config in case.configs:
            group = self.groups.setdefault(case.group(config), Group(case.group(config)))
            tensors.sets[0].out.fill_(torch.nan)
            try:
                prepared = Ours(config).prepare(tensors)
                prepared.launches[0]()
                found = check(prepared.output(0), expected)
            except Exception as error:
                if config is not None and configs.exceeds_device(error):
                    self.unfit[case.group(config)] += 1
                    continue
                if device.type == "cuda":
                    torch.cuda.synchronize()  # raises again if the device is lost
                group.launches += 1
                group.failures += 1
                self.failures.append(f"{case.batch} config {config}: {brief(error)}")
                continue
            if config is None:
                self.chosen[prepared.config] += 1
            group.add(found, case)
            if not found.ok:
                origin = f"seed {case.seed}, query scale {case.query_scale}"
                self.failures.append(f"{case.batch} ({origin}) config {prepared.config}: {found}")

    def lines(self) -> list[str]:
        titles = f"{'runs':>5} {'error':>9} {'limit':>7} {'worst head':>10}"
        head = f"{'group':48} {titles}  {'verdict':8} worst batch"
        body = [group.line() for group in self.groups.values() if group.launches]
        lines = [head, *body]
        if self.unfit:
            lines.append(
                "too large for this device: " + ", ".join(f"{name} ({n})" for name, n in self.unfit.items())
            )
        lines.append(
            "chosen by the heuristic: " + ", ".join(f"{name} ({n})" for name, n in self.chosen.most_common())
        )
        shown = self.failures[:20]
        lines += [f"FAILED {failure}" for failure in shown]
        if len(self.failures) > len(shown):
            lines.append(f"... and {len(self.failures) - len(shown)} more failures")
        return lines


def compile_jobs(cases: Sequence[Case]) -> list[Job]:
    return [Job(case.batch, config) for case in cases for config in case.configs]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.verify", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few, smaller batches")
    parser.add_argument("--random", type=int, default=40, help="how many random batches (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the random batches")
    parser.add_argument(
        "--only", default="", help="keep cases whose text contains this, e.g. 'real size' or '28/4'"
    )
    parser.add_argument(
        "--config", action="append", default=[], help="launch every case with this config as well"
    )
    environment.add_device_options(parser)
    return parser.parse_args()


def with_configs(case: Case, extra: Sequence[Any]) -> Case:
    return dataclasses.replace(case, configs=(*case.configs, *extra))


def main() -> int:
    """Returns 0, or 1 when any output was wrong; 2 is wrong use."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from(args.device)
    try:
        extra = [configs.parse(text) for text in args.config]
    except ValueError as error:
        environment.stop(str(error))
    name = "cpu" if device.type == "cpu" else "quick" if args.quick else "full"
    cases = [with_configs(case, extra) for case in CASE_SETS[name](args.random, args.seed)]
    cases = [case for case in cases if args.only in f"{case.part} {case.batch}"]
    print(environment.headline(environment.describe(device)))
    print(compile_ahead(compile_jobs(cases), device, PEERS_FOLDER, args.compile_workers), flush=True)

    tally = Tally()
    slowest = 0.0
    done = 0
    for case in cases:
        before = time.monotonic()
        if args.seconds_budget and before - started + slowest > args.seconds_budget:
            break
        try:
            tally.run(case, device)
        except Exception as error:
            tally.failures.append(f"{case.batch}: broke off: {brief(error)}")
            if device.type == "cuda":
                torch.cuda.synchronize()  # raises again if the device is lost
        done += 1
        slowest = max(slowest, time.monotonic() - before)
    print("\n".join(tally.lines()))
    left_out = f", {len(cases) - done} left out at {args.seconds_budget:.0f} s" if done < len(cases) else ""
    launches = sum(group.launches for group in tally.groups.values())
    verdict = f"{len(tally.failures)} failed" if tally.failures else "all right"
    print(f"{done} batches, {launches} launches in {time.monotonic() - started:.0f} s{left_out}: {verdict}")
    return 1 if tally.failures or not launches else 0


if __name__ == "__main__":
    raise SystemExit(main())
