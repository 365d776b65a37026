"""The process of one GPU: it prepares a scenario, and then measures one config after the other."""

import warnings
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from triton.runtime.errors import OutOfResources

from triton_tune.core.errors import TuningWarning, in_one_line
from triton_tune.processes.compile_ahead import follow_parent, load_on
from tuning_table.table import TOO_LARGE, Cell, Failure

DISAGREES = "disagrees with the reference"
OUT_OF_MEMORY = "needs more device memory than is free"

# Makes the tensors and the reference of a scenario, for a repeat on a device. Returns what measures a config
# in microseconds, given the best time so far.
Prepare = Callable[[Any, int, torch.device], Callable[[Any, float], Cell]]


class Begin(NamedTuple):
    """Asks to prepare a scenario; the answer is None, or the Failure of every config."""

    prepare: Prepare
    scenario: Any  # of the bench's workload
    repeat: int


class Try(NamedTuple):
    """Asks to measure a config; the answer is its cell. A text that comes before it is for the user."""

    config: Hashable
    best_us: float


def serve(connection: Connection, device_name: str, load: Callable[[], object]) -> None:
    """Import by `load` what requests need, tell that this is done, and answer them until the parent ends."""
    follow_parent()
    device = torch.device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    load_on(device, load)
    connection.send(None)
    show = warnings.showwarning

    def tell(message: Any, category: type[Warning], *where: Any, **others: Any) -> None:
        if issubclass(category, TuningWarning):
            connection.send(str(message))
        else:
            show(message, category, *where, **others)

    warnings.showwarning = tell
    measure: Callable[[Any, float], Cell] | None = None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        answer: Cell | None = None
        try:
            if isinstance(request, Begin):
                measure = None  # frees the tensors of the scenario before
                measure = request.prepare(request.scenario, request.repeat, device)
            elif measure is not None:
                answer = measure(request.config, request.best_us)
        except Exception as error:
            answer = failure_of(error, device)
        connection.send(answer)


def failure_of(error: Exception, device: torch.device) -> Failure:
    """The failure that an error stands for. Raises errors that leave the device unusable."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # raises again if the device is lost
    if isinstance(error, OutOfResources):
        return Failure(f"{TOO_LARGE}: {error.name}, {error.required} of {error.limit}")
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return Failure(OUT_OF_MEMORY)
    return Failure(f"raised {type(error).__name__}: {in_one_line(error)}")
