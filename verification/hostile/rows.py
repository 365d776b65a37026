"""Change one thing in a table's rows."""

from __future__ import annotations

import contextlib
import csv
import io
from random import Random

from verification.hostile.bytewise import content
from verification.hostile.folder import Folder
from verification.hostile.nested import NOTHING_LEFT
from verification.hostile.payloads import CELLS, CODE, NAMES
from verification.hostile.project import csv_bytes


def damage(random: Random, folder: Folder, name: str) -> None:
    """A cell, column, row or id changed, moved, doubled or left out."""
    with contextlib.suppress(*NOTHING_LEFT):
        rows = list(csv.reader(io.StringIO(content(folder, name).decode(), newline="")))
        _change(random, rows)
        folder[name] = csv_bytes(rows)


def _change(random: Random, rows: list[list[str]]) -> None:
    row = random.choice(rows[1:] or rows)
    one, two = (random.randrange(len(rows[0])) for _ in range(2))
    match random.randrange(11):
        case 0:
            _set(row, one, random.choice(CELLS))
        case 1:
            _set(row, 0, random.choice((*NAMES, *CODE[:-1])))
        case 2:
            _set(rows[0], one, random.choice((*NAMES, *CELLS)))
        case 3:  # with its head, which changes nothing, or without
            for line in rows if random.random() < 0.4 else rows[1:]:
                if max(one, two) < len(line):
                    line[one], line[two] = line[two], line[one]
        case 4:
            rows[0][one] = rows[0][two]
        case 5:
            rows.insert(random.randrange(len(rows)), list(row))
        case 6:
            rows.remove(row)
        case 7:
            row[one : one + 1] = [] if random.random() < 0.5 else [row[0], row[-1]]
        case 8:
            random.shuffle(rows)
        case 9:
            cell = random.choice(CELLS)
            for line in rows[1:]:
                _set(line, one, cell)
        case _:
            rows.extend([f"x{k}", *row[1:]] for k in range(random.choice((1, 100, 2000))))


def _set(row: list[str], column: int, cell: str) -> None:
    if column < len(row):
        row[column] = cell
