"""Damage to what an earlier build left in the output folder: its modules and its lock."""

from __future__ import annotations

import hashlib
import json
import re
from random import Random

from verification.hostile import bytewise
from verification.hostile.folder import Folder
from verification.hostile.nested import json_damage, key, number, shape, text, value
from verification.hostile.project import LOCK, MODULES

_CODE = (
    'import os\nos.system("touch pwned")\n',
    '__import__("os").system("touch pwned")',
    'PLAIN_B16_W2 = Config(__import__("os").system("touch pwned"))',
    "    while True:\n        pass",
    "    return rows",
    "    if rows <= 9**9**9:\n        return PLAIN_B16_W2",
    "    if rows <= 0x" + "f" * 5000 + ":\n        return PLAIN_B16_W2",
    "    rows = 5",
    "    area = rows * rows",
    "    if rows <= " + "(" * 300 + "1" + ")" * 300 + ":",
    "    if " * 200,
    "# comment",
    "class Config: pass",
    "from os import *",
)


def module(random: Random, folder: Folder) -> None:
    """A module that was edited, half of the time with a lock that knows of it."""
    name = random.choice(MODULES)
    old = bytewise.content(folder, name)
    match random.randrange(4):
        case 0:
            bytewise.damage(random, folder, name)
        case 1:
            lines = old.splitlines(keepends=True) or [b""]
            lines[(place := random.randrange(len(lines))) : place] = [random.choice(_CODE).encode() + b"\n"]
            folder[name] = b"".join(lines)
        case 2:
            folder[name] = _other_number(random, old)
        case _:
            folder[name] = bytewise.content(folder, random.choice(MODULES))
    if random.random() < 0.7:
        was, now = (
            hashlib.sha256(text).hexdigest().encode() for text in (old, bytewise.content(folder, name))
        )
        folder[LOCK] = bytewise.content(folder, LOCK).replace(was, now)


def _other_number(random: Random, text: bytes) -> bytes:
    places = list(re.finditer(rb"(?<=[= ])-?[0-9_]+", text))
    if not places:
        return text
    place = random.choice(places)
    new = random.choice((b"0", b"-1", b"7", b"10_000", b"1" + b"0" * 30, b"9" * 4000, b"1e3", b"rows"))
    return text[: place.start()] + new + text[place.end() :]


def lock(random: Random, folder: Folder) -> None:
    """A lock that is none, or that lies."""
    if random.random() < 0.3:
        bytewise.damage(random, folder, LOCK)
        return
    json_damage(random.choice((value, number, key, shape, text)))(random, folder, LOCK)
    if random.random() < 0.1:
        folder[LOCK] = b'{"heuristics": ' + json.dumps({"scale": {"first": []}}).encode() * 2 + b"[" * 10_000
