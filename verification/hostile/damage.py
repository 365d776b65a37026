"""Every kind of damage by its name, and one random case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from verification.hostile import bytewise, nested, places, rows, words, yamltricks, yesterday
from verification.hostile.folder import Folder
from verification.hostile.project import CACHE, CSV_FILES, LOCK, MODULES, SPEC, YAML_FILES

Damage = Callable[[Random, Folder], None]
_RUNS = YAML_FILES[1:]


def _of(damage: Callable[[Random, Folder, str], None], *names: str) -> Damage:
    return lambda random, folder: damage(random, folder, random.choice(names))


def _one_of(*damages: Callable[[Random, Folder, str], None]) -> Callable[[Random, Folder, str], None]:
    return lambda random, folder, name: random.choice(damages)(random, folder, name)


_SHAPES = tuple(nested.yaml_damage(change) for change in (nested.value, nested.key, nested.shape))

KINDS: dict[str, Damage] = {
    "bytes of the spec": _of(bytewise.damage, SPEC),
    "bytes of run.yaml": _of(bytewise.damage, *_RUNS),
    "bytes of a CSV file": _of(bytewise.damage, *CSV_FILES),
    "bytes of a cache": _of(bytewise.damage, CACHE),
    "bytes of modules, lock": _of(bytewise.damage, *MODULES, LOCK),
    "YAML tricks": _of(yamltricks.damage, *YAML_FILES),
    "spec: values, keys, shape": _of(_one_of(*_SHAPES), SPEC),
    "spec: numbers": _of(nested.yaml_damage(nested.number), SPEC),
    "spec: texts": _of(nested.yaml_damage(nested.text), SPEC),
    "spec: expressions": _of(nested.yaml_damage(nested.expression), SPEC),
    "spec: paths": _of(nested.yaml_damage(nested.path), SPEC),
    "run.yaml: values, keys, shape": _of(_one_of(*_SHAPES), *_RUNS),
    "run.yaml: numbers, texts": _of(
        _one_of(nested.yaml_damage(nested.number), nested.yaml_damage(nested.text)), *_RUNS
    ),
    "tables: rows, columns, cells": _of(rows.damage, *CSV_FILES),
    "a name everywhere": words.damage,
    "cache: values, keys, shape": _of(
        _one_of(*(nested.json_damage(change) for change in (nested.value, nested.key, nested.shape))), CACHE
    ),
    "cache: numbers, texts": _of(
        _one_of(nested.json_damage(nested.number), nested.json_damage(nested.text)), CACHE
    ),
    "links, pipes, folders": places.damage,
    "yesterday's modules": yesterday.module,
    "yesterday's lock": yesterday.lock,
}


@dataclass(frozen=True)
class Case:
    """A damaged folder. kind: the first of the kinds of damage that it took."""

    kind: str
    folder: Folder


def damaged(random: Random, folder: Folder, kind: str | None = None) -> Case:
    """The folder with damage of one kind, or of up to three."""
    kind = kind or random.choice(list(KINDS))
    hurt = dict(folder)
    KINDS[kind](random, hurt)
    for _ in range(random.choice((0, 0, 0, 0, 1, 2))):
        KINDS[random.choice(list(KINDS))](random, hurt)
    return Case(kind, hurt)
