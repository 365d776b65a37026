"""A random case from its number, and what became of it. The same seed and number give the same case."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from verification.hostile import folder as folders
from verification.hostile.commands import BUILD, Command, command_for
from verification.hostile.damage import Case, damaged
from verification.hostile.folder import Folder
from verification.hostile.judge import judge
from verification.hostile.project import OUTPUT, project
from verification.hostile.wrong import Wrong

BUILT, REFUSED, FAILED = "accepted", "refused", "FAILED"


@dataclass(frozen=True)
class Outcome:
    """kind: of damage. result: BUILT (exit 0 or 1), REFUSED (exit 2) or FAILED; why: of a failure."""

    kind: str
    command: str
    result: str
    why: str = ""


@cache
def built_project() -> Folder:
    """The project after a build of an older table, so that another build changes its modules."""
    with tempfile.TemporaryDirectory(prefix="tmp-hostile") as name:
        root = Path(name)
        older = project(best_up_to=2048)
        judge(root, older, BUILD, Random(0))
        found = folders.read(root)
    files = {name: entry for name, entry in found.items() if isinstance(entry, bytes)}
    output = {name: entry for name, entry in files.items() if name.startswith(f"{OUTPUT}/")}
    before = {f"older/{name.removeprefix('project/')}": entry for name, entry in files.items()}
    return project() | output | {name: entry for name, entry in before.items() if "caches" not in name}


def case(seed: int, number: int) -> tuple[Case, Command, Random]:
    """A damaged folder, the command to run over it, and where further random numbers come from."""
    random = Random(f"{seed}:{number}")
    found = damaged(random, project() if random.random() < 0.3 else built_project())
    return found, command_for(random, found.kind), random


def run(seed: int, number: int, keep: Path | None = None) -> Outcome:
    """Judge one case in a folder for temporary files, or in `keep`, where it stays."""
    found, command, random = case(seed, number)
    root = Path(tempfile.mkdtemp(prefix="tmp-hostile")) if keep is None else keep
    try:
        status = judge(root, found.folder, command, random)
    except Wrong as error:
        return Outcome(found.kind, command.words[0], FAILED, str(error))
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)
    return Outcome(found.kind, command.words[0], REFUSED if status == 2 else BUILT)
