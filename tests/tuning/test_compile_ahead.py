"""Processes that compile ahead, of which one may die."""

from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

import pytest
import torch

from attn_kernels.measure import warm
from attn_kernels.measure.warm import CompileAhead

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sum:
    """A job that is done at once."""

    needs: frozenset[Hashable] = frozenset({"a sum"})
    cost: int = 1
    group: Hashable = None

    def run(self, device: torch.device) -> None:
        pass


class Threads(ThreadPoolExecutor):
    """A pool without processes."""

    _processes: Mapping[int, object] = MappingProxyType({})

    def __init__(self, workers: int, *_: object, initializer: object) -> None:
        super().__init__(workers)


class Died(Threads):
    """A pool of which a process has died while nobody waited."""

    def submit(self, *_: object) -> NoReturn:
        raise BrokenProcessPool("a process died")


def test_compiling_goes_on_after_a_process_died_between_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileAhead, "_idle", False)
    monkeypatch.setattr(warm, "ProcessPoolExecutor", Threads)
    with CompileAhead(CPU, 1) as processes:
        monkeypatch.setattr(processes, "_pool", Died(1, initializer=None))
        assert not processes.has(Sum())
        assert processes.compile([Sum()]).jobs == 1
        assert processes.has(Sum())
