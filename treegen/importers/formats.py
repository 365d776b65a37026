"""The formats that `treegen import` reads: for each a function from a source to measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from treegen.importers import caches
from treegen.importers.aiter import read_aiter
from treegen.importers.dejavu import read_dejavu
from treegen.importers.long_csv import read_long_csv
from treegen.importers.sources import ImportOptions, Measurements
from treegen.importers.triton_cache import read_triton
from treegen.importers.tuned_json import reader_of

READERS: Mapping[str, Callable[[Path, ImportOptions], list[Measurements]]] = {
    "triton": read_triton,
    "csv": read_long_csv,
    "dejavu": read_dejavu,
    "vllm": reader_of("vllm", "vLLM"),
    "sglang": reader_of("sglang", "SGLang"),
    "aiter": read_aiter,
    "fla": caches.reader_of("fla", caches.read_fla),
    "kernel-tuner": caches.reader_of("Kernel Tuner", caches.read_kernel_tuner),
    "gemlite": caches.reader_of("gemlite", caches.read_gemlite),
}
