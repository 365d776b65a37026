"""The formats that `treegen import` reads: for each, which files it has and what reads one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from treegen.core.errors import Mistakes
from treegen.importers import aiter, caches, long_csv, tuned_json
from treegen.importers.sources import ImportOptions, Measurements, files_of
from treegen.importers.tables import merged


class Format(NamedTuple):
    tool: str
    pattern: str  # of its files' names in a folder
    read: Callable[[Path, ImportOptions], Iterable[Measurements]]
    select: Callable[[list[Path], ImportOptions], list[Path]] = lambda paths, options: paths
    merges: bool = True  # whether a table may come from several files


FORMATS: Mapping[str, Format] = {
    "triton": Format(caches.TRITON, "*.autotune.json", caches.read_triton, caches.of_kernel),
    "csv": Format("the CSV import", "*.csv", long_csv.read),
    "dejavu": Format(caches.DEJAVU, "cache.json", caches.read_dejavu, merges=False),
    "vllm": Format("vLLM", "*=*.json", partial(tuned_json.read, "vLLM")),
    "sglang": Format("SGLang", "*=*.json", partial(tuned_json.read, "SGLang")),
    "aiter": Format(aiter.TOOL, "*.*", aiter.read, aiter.tuned),
    "fla": Format("fla", "*.json", caches.read_fla),
    "kernel-tuner": Format("Kernel Tuner", "*.json", caches.read_kernel_tuner),
    "gemlite": Format("gemlite", "*.json", caches.read_gemlite),
}


def read(format_name: str, source: Path, options: ImportOptions) -> list[Measurements]:
    """What a format's files at or below `source` hold.

    Raises one InputError with a line for each file that is refused.
    """
    form = FORMATS[format_name]
    found: list[Measurements] = []
    mistakes = Mistakes()
    for path in form.select(files_of(source, form.pattern, form.tool), options):
        with mistakes.collect():
            found += form.read(path, options)
    mistakes.refuse()
    return merged(found) if form.merges else found
