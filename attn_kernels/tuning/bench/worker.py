"""The process of one GPU: it receives visits and sends back cells.

A launch that ends its process costs one cell: the parent knows the config that was tried last, and starts
another process.
"""

from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from attn_kernels.core.config import Config
from attn_kernels.measure.device import device_facts
from attn_kernels.tuning.bench.gpu import measure
from attn_kernels.tuning.scenarios.scenario import Scenario
from attn_kernels.warmup.processes import follow_parent
from tuning_table.table import Cell


@dataclass(frozen=True)
class Order:
    """A visit to measure."""

    scenario: Scenario
    repeat: int
    configs: tuple[tuple[str, Config], ...]


@dataclass(frozen=True)
class WorkerReady:
    """The worker has its device."""

    facts: dict[str, str | int]  # `device` of run.yaml


@dataclass(frozen=True)
class MeasuredCell:
    """One cell, or the end of the visit."""

    config: str | None  # None ends the visit
    cell: Cell | None = None


@dataclass(frozen=True)
class Trying:
    """The config that is launched next."""

    config: str


def serve(connection: Connection, device_name: str) -> None:
    """Measure visits until the connection closes or the parent ends."""
    follow_parent()
    device = torch.device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    connection.send(WorkerReady(device_facts(device)))
    while True:
        try:
            order = connection.recv()
        except EOFError:
            return
        _visit(connection, order, device)


def _visit(connection: Connection, order: Order, device: torch.device) -> None:
    ids = {config: name for name, config in order.configs}

    def trying(config: Config) -> None:
        connection.send(Trying(ids[config]))

    for config, cell in measure(order.scenario, list(ids), order.repeat, device, trying):
        connection.send(MeasuredCell(ids[config], cell))
    connection.send(MeasuredCell(None))
