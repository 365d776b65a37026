"""The process of one GPU: it receives visits and sends back cells.

A launch that ends its process costs one cell: the parent knows the config that was tried last, and starts
another process.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from triton_tune.core.device import device_facts, worker_name
from triton_tune.processes.compile_ahead import follow_parent
from tuning_table.table import Cell


@dataclass(frozen=True)
class Order:
    """A visit to measure."""

    scenario: Any  # of the bench's subject
    repeat: int
    configs: tuple[tuple[str, Hashable], ...]


@dataclass(frozen=True)
class WorkerReady:
    """The worker has its device."""

    facts: dict[str, str | int]  # `device` of run.yaml
    name: str = ""  # of the host and the device


@dataclass(frozen=True)
class MeasuredCell:
    """One cell, or the end of the visit."""

    config: str | None  # None ends the visit
    cell: Cell | None = None


@dataclass(frozen=True)
class Trying:
    """The config that is launched next."""

    config: str


# Called with a scenario, configs, the repeat, the device, and what is called with each config before its
# launch. Yields each config with its cell; raises errors that leave the device unusable.
Measure = Callable[
    [Any, Sequence[Any], int, torch.device, Callable[[Any], None]], Iterator[tuple[Hashable, Cell]]
]


def serve(connection: Connection, device_name: str, measure: Measure) -> None:
    """Measure visits until the connection closes or the parent ends."""
    follow_parent()
    device = torch.device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    connection.send(WorkerReady(device_facts(device), worker_name(device)))
    while True:
        try:
            order = connection.recv()
        except EOFError:
            return
        _visit(connection, order, device, measure)


def _visit(connection: Connection, order: Order, device: torch.device, measure: Measure) -> None:
    ids = {config: name for name, config in order.configs}

    def trying(config: Hashable) -> None:
        connection.send(Trying(ids[config]))

    for config, cell in measure(order.scenario, list(ids), order.repeat, device, trying):
        connection.send(MeasuredCell(ids[config], cell))
    connection.send(MeasuredCell(None))
