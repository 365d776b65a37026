"""Kill builds at random moments: files are whole, packages work or say why not, and the next build mends.

Half of the builds are killed at any moment of their run, imports included. The others write slowly and are
killed while they do, so that many kills land between the first and the last rename, a millisecond otherwise.
"""

from __future__ import annotations

import contextlib
import copy
import io
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from treegen.cli.main import main
from verification.hostile import folder as folders
from verification.hostile.commands import BUILD
from verification.hostile.folder import EMPTY, Entry, Folder
from verification.hostile.judge import judge
from verification.hostile.modules import sandboxed
from verification.hostile.project import BYSTANDERS, OUTPUT, SPEC, project, spec, yaml_bytes
from verification.hostile.total import EXTREMES, features
from verification.hostile.wrong import Wrong

BEFORE, BETWEEN, AFTER = "before the first rename", "between the first and the last", "after the last"
_DEVICES = 5
_SLOW = """
import os, pathlib, sys, time, treegen.cli.main
def slow(real):
    def stand_in(*arguments):
        print(".", file=sys.stderr, flush=True)
        time.sleep(0.01)
        return real(*arguments)
    return stand_in
pathlib.Path.replace = slow(pathlib.Path.replace)
pathlib.Path.unlink = slow(pathlib.Path.unlink)
sys.exit(treegen.cli.main.main(["build"]))
"""
"""Tells of every rename, and takes 10 ms for it."""


@dataclass(frozen=True)
class Landed:
    """Where a kill landed; closed: whether it left a package that cannot be imported. why: of a failure."""

    where: str
    closed: bool = False
    why: str = ""


def run(seed: int, count: int, jobs: int) -> int:
    """Kill so many builds and print where the kills landed; returns how many left something wrong."""
    start = time.monotonic()
    found: Counter[str] = Counter()
    closed = failed = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for number, landed in enumerate(pool.imap(partial(kill, seed), range(count))):
            found[landed.where] += 1
            closed += landed.closed
            if landed.why:
                failed += 1
                print(f"FAILED: kill {number} of seed {seed}, {landed.where}: {landed.why}", flush=True)
    print("killed builds" + " " * 21 + "     kills")
    for where in (BEFORE, BETWEEN, AFTER):
        print(f"{where:34}{found[where]:10}")
    print(f"{'  of them with a closed package':34}{closed:10}\n{'FAILED':34}{failed:10}")
    print(f"{count} kills, {time.monotonic() - start:.0f} s in {jobs} processes")
    return failed


def _table(_: dict[str, Any]) -> None:
    """Only the table is another one."""


def _device(content: dict[str, Any]) -> None:
    content["devices"]["more"] = {"vendor": "more", "limits": {"memory": 2048, "fast": 0}}
    content["kernels"]["scale"]["tables"]["more"] = "tables/measured"


def _default(content: dict[str, Any]) -> None:
    content["kernels"]["scale"]["config"]["parameters"]["parts"]["default"] = 4
    content["kernels"]["scale"]["fallback"]["parts"] = 1


def _fewer(content: dict[str, Any]) -> None:
    del content["kernels"]["scale"]["tables"]["d1"], content["kernels"]["scale"]["config"]["variants"][1]
    del content["kernels"]["scale"]["translate"], content["kernels"]["scale"]["tables"]["other"]


_CHANGES: tuple[Callable[[dict[str, Any]], None], ...] = (_table, _device, _default, _fewer)


@dataclass(frozen=True)
class Change:
    """A project with an older build in it, and its output folder before and after a build. seconds: that a
    process takes for the build."""

    start: Folder
    old: Folder
    new: Folder
    choices: tuple[dict[str, list[object]], dict[str, list[object]]]
    seconds: float


def _large() -> dict[str, Any]:
    """The spec with more devices, so that there is more to write."""
    content = copy.deepcopy(spec())
    for number in range(_DEVICES):
        content["devices"][f"d{number}"] = {"vendor": f"v{number}", "limits": {"memory": 4096, "fast": 1}}
        content["kernels"]["scale"]["tables"][f"d{number}"] = "tables/measured"
    return content


@cache
def change_of(which: int) -> Change:
    """One of the changes between two builds that are to be killed."""
    content = _large()
    with tempfile.TemporaryDirectory(prefix="tmp-hostile") as name:
        root = Path(name)
        judge(root, project(2048) | {SPEC: yaml_bytes(content)}, BUILD, Random(0))
        old, old_choices = _output(root), _choices(root)
        _CHANGES[which](content)
        start = (
            project() | {SPEC: yaml_bytes(content)} | {name: e for name, e in old.items() if e is not EMPTY}
        )
        shutil.rmtree(root)
        folders.write(root, start)
        since = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "treegen", "build"],
            cwd=root / "project",
            env=_environment(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return Change(start, old, _output(root), (old_choices, _choices(root)), time.monotonic() - since)


def _output(root: Path) -> Folder:
    return {name: entry for name, entry in folders.read(root).items() if name.startswith(f"{OUTPUT}/")}


def _environment() -> dict[str, str]:
    repository = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": repository, "PYTHONDONTWRITEBYTECODE": "1"}


def _choices(root: Path) -> dict[str, list[object]]:
    """What each device's module of the package chooses at some points."""
    with sandboxed(root / OUTPUT) as package:
        return {
            key: [module.choose(**point)._asdict() for point in _points(features(module))]
            for key, module in package.scale.MODULES.items()
        }


def _points(names: tuple[str, ...]) -> list[dict[str, int]]:
    random = Random(0)
    values = (*EXTREMES, *(random.randrange(2000) for _ in range(40)))
    return [{name: random.choice(values) for name in names} for _ in range(60)]


def kill(seed: int, number: int) -> Landed:
    """Kill one build and look at what it left."""
    random = Random(f"kill {seed}:{number}")
    change = change_of(number % len(_CHANGES))
    with tempfile.TemporaryDirectory(prefix="tmp-hostile") as name:
        root = Path(name)
        folders.write(root, change.start)
        names = {*change.old, *change.new}
        renames = sum(change.old.get(name) != change.new.get(name) for name in names)
        _killed(root / "project", random, change.seconds, renames, slow=number % 8 >= 4)
        return looked_at(root, change)


def _killed(project: Path, random: Random, seconds: float, renames: int, *, slow: bool) -> None:
    code = ["-c", _SLOW] if slow else ["-m", "treegen", "build"]
    process = subprocess.Popen(
        [sys.executable, *code],
        cwd=project,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    if slow:
        for _ in range(random.randint(1, renames)):
            process.stderr.readline()
        time.sleep(random.uniform(0, 0.01))
    else:
        time.sleep(random.uniform(0, 1.05 * seconds))
    process.send_signal(signal.SIGKILL)
    process.communicate()


def looked_at(root: Path, change: Change) -> Landed:
    """Where a kill landed, by what it left at `root`, and what is wrong with that."""
    found = folders.read(root)
    output = {name: entry for name, entry in found.items() if name.startswith(f"{OUTPUT}/")}
    litter = {name for name in output if "/.treegen-" in name}
    odd = {
        name for name in output if output[name] not in (change.old.get(name), change.new.get(name))
    } - litter
    rest = {name: output.get(name) for name in {*output, *change.old, *change.new} - litter}
    where = BETWEEN
    if all(entry == change.old.get(name) for name, entry in rest.items()):
        where = BEFORE
    elif all(entry == change.new.get(name) for name, entry in rest.items()):
        where = AFTER
    closed = f"{OUTPUT}/scale/config.py" in odd
    try:
        if odd - {f"{OUTPUT}/scale/config.py", f"{OUTPUT}/treegen.lock"}:
            raise Wrong(f"neither old nor new: {sorted(odd)}")
        _others_untouched(found, change)
        _works(root, change, closed=closed)
        _mended(root, change)
    except Wrong as error:
        return Landed(where, closed, str(error))
    return Landed(where, closed)


def _others_untouched(found: Folder, change: Change) -> None:
    def others(folder: Folder) -> dict[str, Entry]:
        return {
            name: entry
            for name, entry in folder.items()
            if entry is not EMPTY and (name in BYSTANDERS or not name.startswith(f"{OUTPUT}/"))
        }

    if others(found) != others(change.start):
        raise Wrong("a file is changed that is none of the build's")


def _works(root: Path, change: Change, *, closed: bool) -> None:
    """Refuse a package that chooses neither as before nor as after, or that fails and is not closed."""
    try:
        choices = _choices(root)
    except Wrong as error:
        if closed and "was cut off; run it again" in str(error):
            return
        raise
    if closed:
        raise Wrong("a closed package can be imported")
    for key, chosen in choices.items():
        if chosen not in [side[key] for side in change.choices if key in side]:
            raise Wrong(f"{key} chooses neither as before nor as after")


def _mended(root: Path, change: Change) -> None:
    with contextlib.chdir(root / "project"), contextlib.redirect_stdout(io.StringIO()):
        if main(["build"]) != 0:
            raise Wrong("the next build fails")
    if (left := _output(root)) != change.new:
        odd = sorted(name for name in {*left, *change.new} if left.get(name) != change.new.get(name))
        raise Wrong(f"the next build leaves another state: {odd}")
