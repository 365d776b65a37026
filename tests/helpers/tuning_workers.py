"""Processes in place of those that measure."""

import contextlib
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from triton_tune.bench.worker import Begin

# Called with a scenario's id and the config that is asked for; None: the scenario is to be prepared.
Act = Callable[[str, Any], None]


def stub(act: Act, load: Callable[[], object] = bool) -> Callable[[Connection, str, object], None]:
    """A process that gives every config 7 us, after `act` did with it what it likes."""

    def serve(connection: Connection, device: str, _: object) -> None:
        load()
        connection.send(None)
        scenario = ""
        with contextlib.suppress(EOFError):
            while True:
                request = connection.recv()
                if isinstance(request, Begin):
                    scenario = request.scenario.name
                    act(scenario, None)
                    connection.send(None)
                else:
                    act(scenario, request.config)
                    connection.send(7.0)

    return serve
