"""Change one thing in nested data, as YAML and JSON hold it."""

from __future__ import annotations

import contextlib
import copy
import csv
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import yaml

from verification.hostile.bytewise import content
from verification.hostile.folder import CASE, Folder
from verification.hostile.payloads import CODE, EXPRESSIONS, NAMES, NUMBERS, PATHS
from verification.hostile.project import yaml_bytes

Place = tuple[Any, Any]
"""A mapping or list, and the key or index in it."""


NOTHING_LEFT = (
    *(yaml.YAMLError, csv.Error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    RecursionError,
)
"""What is raised where an earlier change left nothing to change."""


def parsed_yaml(text: bytes) -> Any:
    """The data of a YAML file without aliases, which may stand for more than there is memory."""
    if b"&" in text:
        raise ValueError("aliases")
    return yaml.safe_load(text)


def places(data: Any) -> Iterator[Place]:
    """Every place in nested data, outermost first."""
    if isinstance(data, dict | list):
        for key in list(data) if isinstance(data, dict) else range(len(data)):
            yield data, key
            yield from places(data[key])


def texts(data: Any) -> Iterator[Place]:
    """The places that hold a text."""
    return ((holder, key) for holder, key in places(data) if isinstance(holder[key], str))


def yaml_damage(change: Callable[[Random, Any], None]) -> Callable[[Random, Folder, str], None]:
    """The damage that `change` does to the data of a YAML file."""

    def damage(random: Random, folder: Folder, name: str) -> None:
        with contextlib.suppress(*NOTHING_LEFT):
            data = parsed_yaml(content(folder, name))
            change(random, data)
            folder[name] = yaml_bytes(data)

    return damage


def json_damage(change: Callable[[Random, Any], None]) -> Callable[[Random, Folder, str], None]:
    """The same for JSON."""

    def damage(random: Random, folder: Folder, name: str) -> None:
        with contextlib.suppress(*NOTHING_LEFT):
            data = json.loads(content(folder, name))
            change(random, data)
            folder[name] = json.dumps(data, indent=random.choice((None, 1))).encode()

    return damage


def value(random: Random, data: Any) -> None:
    """Another value in any place."""
    holder, key = random.choice(list(places(data)))
    holder[key] = random.choice((*NUMBERS, *NAMES, *CODE, [], {}, [[]], {"a": {}}, [None], "x" * 300_000))


def number(random: Random, data: Any) -> None:
    """Another number in the place of one."""
    numbers = [(holder, key) for holder, key in places(data) if isinstance(holder[key], int | float)]
    holder, key = random.choice(numbers)
    holder[key] = random.choice(NUMBERS)


def text(random: Random, data: Any) -> None:
    """Code or markup in the place of a text."""
    holder, key = random.choice(list(texts(data)))
    holder[key] = random.choice(CODE)


def key(random: Random, data: Any) -> None:
    """Another key, in the same position."""
    holder, old = random.choice([(holder, key) for holder, key in places(data) if isinstance(holder, dict)])
    new = random.choice((*NAMES, *CODE[:-1]))
    items = [(new if name == old else name, inner) for name, inner in holder.items()]
    holder.clear()
    holder.update(items)


def shape(random: Random, data: Any) -> None:
    """Something left out, moved, doubled, wrapped or multiplied."""
    every = list(places(data))
    (holder, where), (donor, source) = random.choice(every), random.choice(every)
    match random.randrange(6):
        case 0:
            del holder[where]
        case 1:
            holder[where], donor[source] = copy.deepcopy((donor[source], holder[where]))
        case 2:
            holder[where] = copy.deepcopy(donor[source])
        case 3:
            holder[where] = random.choice(([holder[where]], {"a": holder[where]}, {where: holder[where]}))
        case 4 if isinstance(holder, list):
            holder[where:where] = copy.deepcopy([holder[where]] * random.choice((1, 2, 3000)))
        case _ if isinstance(holder, dict):
            holder |= {
                f"{where}{k}": copy.deepcopy(holder[where]) for k in range(random.choice((1, 40, 2000)))
            }


def path(random: Random, data: Any) -> None:
    """Another folder."""
    tables = data["kernels"]["scale"]["tables"]
    holder, where = random.choice([(data, "output"), *((tables, device) for device in tables)])
    holder[where] = random.choice((*PATHS, f"{CASE}/project/generated", f"{CASE}/outside"))


def expression(random: Random, data: Any) -> None:
    """Another expression, perhaps under derived features that grow and grow."""
    kernel = data["kernels"]["scale"]
    found = random.choice(EXPRESSIONS)
    match random.randrange(5):
        case 0:
            kernel["derived"][random.choice(("area", "share", "more"))] = found
        case 1:
            kernel["constraints"][random.randrange(len(kernel["constraints"]))] = found
        case 2:
            kernel["objective"]["weight"] = found
        case 3:
            kernel["regimes"][random.choice(("decode", "large"))] = f"{found} <= 4"
        case _:
            _explode(random, kernel)


def _explode(random: Random, kernel: dict[str, Any]) -> None:
    operator, count = random.choice(("*", "*", "+", "-", ",")), random.choice((1, 2, 4, 60))
    last = random.choice(("rows", "columns", "memory", "4611686018427387903"))
    for step in range(random.choice((1, 3, 8, 40, 200, 2000))):
        inner = operator.join([last] * count)[:280].rstrip("*+-,") if count > 1 else f"{last} - 1"
        inner = f"max({inner}, 1)" if operator == "," else inner
        kernel["derived"][last := f"d{step}"] = inner
    kernel["split_on"] = [last, *kernel["split_on"]]
    if random.random() < 0.5:
        kernel["constraints"].append(f"{last} <= 4000000000000")
