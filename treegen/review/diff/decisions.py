"""What a module of one spec launches in the scenarios of a table that another spec reads."""

from __future__ import annotations

from dataclasses import replace

from treegen.core import expr
from treegen.core.heuristic import Choice, Heuristic, choose
from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.review.modules import Module

Choices = tuple[Choice | None, ...]
"""The choice in each scenario; None if the table lacks a feature that the module asks about."""


def choices_in(module: Module, problem: Problem) -> Choices:
    """The module's choices in the problem's scenarios, with the parameters of the problem's kernel.

    A feature that the problem's spec has dropped comes from the table's column. A derived feature that the
    two specs define differently is computed by the definition of the module's spec.
    """
    kernel, table = module.kernel, problem.table
    heuristic = in_parameters_of(problem.kernel, module)
    reader = replace(
        kernel, parameters=problem.kernel.parameters, fallback=translated(kernel.fallback, problem.kernel)
    )
    own = kernel.derived.keys() - _defined_alike(module, problem.kernel, problem.device)
    row_of = {scenario: row for row, scenario in enumerate(table.scenarios)}
    found: list[Choice | None] = []
    for scenario, features in zip(problem.scenarios, problem.features.tolist(), strict=True):
        raw = dict(zip(table.feature_names, table.features[row_of[scenario]].tolist(), strict=True))
        known = {**raw, **dict(zip(problem.names, features, strict=True))}
        try:
            values = {name: value for name, value in known.items() if name not in own}
            found.append(choose(heuristic, reader, module.device.limits, values))
        except KeyError:
            found.append(None)
    return tuple(found)


def in_parameters_of(kernel: KernelSpec, module: Module) -> Heuristic:
    """The module's heuristic with the parameters of another spec's kernel.

    A parameter unknown there is dropped; a missing one gets its default.
    """
    if module.kernel.parameters == kernel.parameters:
        return module.heuristic

    def of(config: Config) -> Config:
        return translated(config, kernel)

    return Heuristic(
        tuple(
            replace(
                regime,
                rows=tuple(
                    replace(
                        row,
                        config=of(row.config),
                        others={name: of(config) for name, config in row.others.items()},
                        then=tuple(map(of, row.then)),
                    )
                    for row in regime.rows
                ),
            )
            for regime in module.heuristic.regimes
        )
    )


def translated(config: Config, kernel: KernelSpec) -> Config:
    """A config of another spec with a kernel's parameters."""
    stated = dict(config.parameters)
    values = {name: stated.get(name, known.default) for name, known in kernel.parameters.items()}
    return replace(config, parameters=tuple((n, v) for n, v in values.items() if v is not None))


def _defined_alike(module: Module, kernel: KernelSpec, device: DeviceSpec) -> set[str]:
    """The derived features of a module that another spec writes alike, with the devices' limits inserted."""
    alike: set[str] = set()
    for name, written in module.kernel.derived.items():  # a definition may use those before it
        mine, other = expr.substitute(written, module.device.limits), kernel.derived.get(name)
        uses = expr.names(mine) & module.kernel.derived.keys()
        if other is not None and mine == expr.substitute(other, device.limits) and uses <= alike:
            alike.add(name)
    return alike
