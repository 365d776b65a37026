"""One name replaced everywhere at once, so that nothing but the name itself can be wrong."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from verification.hostile.bytewise import content
from verification.hostile.folder import Folder
from verification.hostile.nested import NOTHING_LEFT, parsed_yaml
from verification.hostile.payloads import NAMES
from verification.hostile.project import CACHE, CSV_FILES, WORDS, YAML_FILES, csv_bytes, yaml_bytes


def damage(random: Random, folder: Folder) -> None:
    """Another word for one of WORDS in the spec, the tables and the cache."""
    old, new = random.choice(WORDS), random.choice(NAMES)

    def said(text: str) -> str:
        return new if text == old else re.sub(rf"\b{old}\b", lambda _: new, text)

    with contextlib.suppress(*NOTHING_LEFT):
        for name in YAML_FILES:
            folder[name] = yaml_bytes(_renamed(parsed_yaml(content(folder, name)), said))
        for name in CSV_FILES:
            rows = csv.reader(io.StringIO(content(folder, name).decode(), newline=""))
            folder[name] = csv_bytes([[said(cell) for cell in row] for row in rows])
        folder[CACHE] = json.dumps(_renamed(json.loads(content(folder, CACHE)), said)).encode()


def _renamed(data: Any, said: Callable[[str], str]) -> Any:
    if isinstance(data, dict):
        return {said(str(name)): _renamed(inner, said) for name, inner in data.items()}
    if isinstance(data, list):
        return [_renamed(inner, said) for inner in data]
    return said(data) if isinstance(data, str) else data
