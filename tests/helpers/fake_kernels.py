"""Stands for kernels that processes compile; each leaves a line in a file."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class FakeKernel:
    """Stands for a ``NeededKernel``: it takes a while, fails, or ends its process."""

    key: str
    file: str
    cost: int = 1
    deed: str = ""  # "fail", "die", "nap", "stay" or "tell"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.key})

    def prepare(self) -> None:
        """Do what forks share."""

    def run(self, device: torch.device) -> None:
        with Path(self.file).open("a") as file:
            file.write(f"{self.key} {os.getpid()} {device}\n")
            if self.deed == "tell":
                file.write(f"{os.environ.get('OF_NOW')} {os.environ.get('TRITON_PTXAS_PATH')}\n")
        if self.deed == "fail":
            raise RuntimeError("no such instruction")
        if self.deed == "die":
            os.abort()
        if self.deed == "nap":
            time.sleep(0.05)
        if self.deed == "stay":
            time.sleep(100)
