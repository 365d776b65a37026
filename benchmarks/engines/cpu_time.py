"""CPU time of an engine's processes, from Linux' /proc."""

import os
from pathlib import Path

PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that these started."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            children.setdefault(int(_fields(folder / "stat")[1]), []).append(int(folder.name))
        except OSError:  # it has ended
            continue
    found, todo = [], [pid]
    while todo:
        todo = [child for parent in todo for child in children.get(parent, [])]
        found += todo
    return found


def main_threads_s(pid: int) -> float:
    """Return the CPU seconds of all descendants' main threads, where vLLM's engine plans and launches."""
    total = 0
    for child in descendants(pid):
        try:
            fields = _fields(PROC / str(child) / "task" / str(child) / "stat")
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _fields(path: Path) -> list[str]:
    """The fields of a stat file behind the name, which may hold spaces; the first is the state."""
    return path.read_text().rpartition(")")[2].split()
