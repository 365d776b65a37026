"""A committed module and the table that it was built from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError, shown
from treegen.core.problem import UNTIMED, Problem
from treegen.core.spec import Config, KernelSpec, Spec
from treegen.core.table import Cells
from treegen.read.build_problem import spec_problem
from treegen.read.spec_file import find_spec, read_spec
from treegen.read.table_file import read_table
from treegen.review.modules import Module, read_trees


@dataclass(frozen=True)
class TunedModule:
    """A module and its table."""

    spec: Spec
    module: Module
    other_devices: tuple[str, ...]  # of the kernel, with a module and a table
    problem: Problem
    # [scenarios, configs] medians in microseconds; NaN where a config is untimed, failed or forbidden
    times: npt.NDArray[np.float64]

    @property
    def kernel(self) -> KernelSpec:
        return self.module.kernel

    @property
    def knows_times(self) -> bool:
        """Return whether the table holds more than each scenario's winner."""
        return self.problem.table.cells is Cells.MEASURED

    def column(self, config: Config) -> int | None:
        """The problem's column of a config; None if the table does not hold it."""
        return self.problem.configs.index(config) if config in self.problem.configs else None

    def short(self, path: Path) -> str:
        """A path relative to the spec's folder, the same on every machine."""
        return Path(os.path.relpath(path, self.spec.path.resolve().parent)).as_posix()


def read_tuned_module(spec_path: Path | None, kernel_name: str, device: str | None) -> TunedModule:
    """Read a kernel's module and table; without a device, of the first that has both. Raises InputError."""
    spec = read_spec(find_spec(spec_path))
    (kernel,) = spec.selected(kernel_name)
    if device is not None and device not in kernel.tables:
        what = f"names no table of {kernel.name} for the device {shown(device)}"
        raise InputError(spec.path, f"{what}; there are: {', '.join(kernel.tables)}")
    modules = read_trees(spec)
    ready = [device for device in kernel.tables if (kernel.name, device) in modules]
    key = device or next(iter(ready), next(iter(kernel.tables), None))
    if key is None:
        raise InputError(spec.path, f"names no table of {kernel.name}")
    if key not in ready:
        missing = spec.output / kernel.name / f"{key}.py"
        raise InputError(missing, "no such module; `treegen build` writes it")
    others = tuple(device for device in ready if device != key)
    problem = spec_problem(kernel, spec.devices[key], read_table(kernel.tables[key]))
    return with_times(spec, modules[kernel.name, key], others, problem)


def with_times(spec: Spec, module: Module, others: tuple[str, ...], problem: Problem) -> TunedModule:
    """A module with the times of a problem's table."""
    times = np.where(problem.cost < UNTIMED, problem.times(), np.nan)
    return TunedModule(spec, module, others, problem, times)
