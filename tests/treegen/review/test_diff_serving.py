"""A GPU without a module is served as `for_device` of the generated package serves it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import KERNEL, as_h100, imported, spec, write_project, write_spec
from treegen_diffs import NARROW, write_modules

from treegen.read.spec_file import read_spec
from treegen.review.diff.compare import serving_module
from treegen.review.diff.snapshots import Snapshot, read_snapshot
from treegen.review.modules import Module

SERVING: dict[str, dict[str, Any]] = {
    "second": {"names": ["GPU X"], "arch": "a2", "vendor": "v1"},
    "exact": {"names": ["GPU X Large"], "arch": "a3", "vendor": "v1"},
    "first": {"names": ["GPU Y"], "arch": "a2", "vendor": "v2"},
    "by_arch": {"arch": "a4", "vendor": "v2"},
    "family": {"vendor": "v1"},
    "untabled": {"names": ["GPU Q"], "arch": "a5", "vendor": "v3"},
}
TABLED = ["first", "exact", "second", "family", "by_arch"]  # another order than the devices'
GPUS = {
    f"gpu{i}": {"names": [name], "arch": arch, "vendor": vendor}
    for i, (name, arch, vendor) in enumerate(
        product(
            ["GPU X Large 80GB", "GPU X-2", "GPU Y", "GPU Q", "GPU"],
            ["a2", "a3", "a4", "a5"],
            ["v1", "v2", "v3"],
        )
    )
}


def _content(devices: dict[str, dict[str, Any]], tabled: list[str]) -> dict[str, Any]:
    content = spec(constraints=[], tables={key: as_h100() for key in tabled})
    return {**content, "devices": devices}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Snapshot]:
    folder = tmp_path_factory.mktemp("serving")
    spec_path = write_project(folder, _content(SERVING, TABLED))
    write_modules(spec_path, {(KERNEL, key): NARROW for key in TABLED})
    with ExitStack() as stack:
        return folder, read_snapshot(str(folder), None, stack)


def test_serving_agrees_with_the_generated_package(serving: tuple[Path, Snapshot], tmp_path: Path) -> None:
    folder, snapshot = serving
    found = {}
    for key, device in GPUS.items():
        # Each device alone, as no two of a spec may share a name.
        other = replace(snapshot, spec=read_spec(write_spec(tmp_path, _content({key: device}, [key]))))
        module, served = serving_module(snapshot, other, (KERNEL, key))
        assert isinstance(module, Module) and module is snapshot.modules[KERNEL, served or ""]
        found[key] = served
    with imported(folder) as generated:
        keys = {module.choose: key for key, module in generated.scale.MODULES.items()}
        for key, device in GPUS.items():
            expected = keys[generated.scale.for_device(device["names"][0], device["arch"], device["vendor"])]
            assert found[key] == expected
    assert set(found.values()) == {"exact", "second", "first", "by_arch", "family", "default"}
