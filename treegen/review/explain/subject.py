"""The module that production launches by, and the table behind it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError, shown
from treegen.core.problem import UNMEASURED, Problem
from treegen.core.spec import Config, KernelSpec, Spec
from treegen.core.table import Cells
from treegen.read.build_problem import build_problem
from treegen.read.spec_file import find_spec, read_spec
from treegen.read.table_file import read_table
from treegen.review.compiled_trees import Module, read_trees
from treegen.review.explain.request import Request


@dataclass(frozen=True)
class Subject:
    """others: further devices of the kernel that can be explained. times: [scenarios, configs] float64,
    medians in microseconds; NaN where a config was not measured, failed or may not be launched."""

    spec: Spec
    module: Module
    others: tuple[str, ...]
    problem: Problem
    times: npt.NDArray[np.float64]

    @property
    def kernel(self) -> KernelSpec:
        return self.module.kernel

    @property
    def knows_times(self) -> bool:
        """Whether the table does not hold winners only."""
        return self.problem.table.cells is Cells.MEASURED

    def column(self, config: Config) -> int | None:
        """The problem's column of a config; None if the table does not hold it."""
        return self.problem.configs.index(config) if config in self.problem.configs else None

    def short(self, path: Path) -> str:
        """A path as seen from the spec's folder, the same on every machine."""
        return Path(os.path.relpath(path, self.spec.path.resolve().parent)).as_posix()


def read_subject(request: Request) -> Subject:
    """Spec, module and table of the request. Raises InputError."""
    spec = read_spec(find_spec(request.spec))
    if request.kernel not in spec.kernels:
        raise InputError(
            spec.path, f"has no kernel {shown(request.kernel)}; it has {', '.join(spec.kernels)}"
        )
    kernel = spec.kernels[request.kernel]
    if request.device is not None and request.device not in kernel.tables:
        what = f"names no table of {kernel.name} for the device {shown(request.device)}"
        raise InputError(spec.path, f"{what}; there are: {', '.join(kernel.tables)}")
    modules = read_trees(spec)
    ready = [device for device in kernel.tables if (kernel.name, device) in modules]
    wanted = request.device or next(iter(ready), next(iter(kernel.tables), None))
    if wanted is None:
        raise InputError(spec.path, f"names no table of {kernel.name}")
    if wanted not in ready:
        missing = spec.output / kernel.name / f"{wanted}.py"
        raise InputError(missing, "no such module; `treegen build` writes it")
    others = tuple(device for device in ready if device != wanted)
    problem = build_problem(kernel, spec.devices[wanted], read_table(kernel.tables[wanted]))
    return subject_of(spec, modules[kernel.name, wanted], others, problem)


def subject_of(spec: Spec, module: Module, others: tuple[str, ...], problem: Problem) -> Subject:
    """The subject of a module and a posed table."""
    times = np.where(problem.cost < UNMEASURED, problem.times(), np.nan)
    return Subject(spec, module, others, problem, times)
