"""What tests on a GPU share: `python -m pytest -m gpu tests/gpu`, in a process of their own.

All other tests run kernels in Triton's interpreter. Triton reads TRITON_INTERPRET when it is imported.
"""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALONE = "triton" not in sys.modules

if ALONE:
    os.environ.pop("TRITON_INTERPRET", None)

import torch  # noqa: E402

if ALONE and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from triton_tune.processes.compile_ahead import compile_in_parallel  # noqa: E402


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="needs a GPU and a process without Triton's interpreter")
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(skip)


def pytest_runtest_teardown(item):
    """End the run where a launch made the whole device unusable."""
    if HERE in item.path.parents and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            pytest.exit(f"{item.name} lost the GPU: {error}", returncode=1)


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture(scope="module")
def compiled(request, device):
    """Compile in parallel what the chosen tests of a module launch; their parameter `case` has `jobs()`."""
    items = (item for item in request.session.items if getattr(item, "module", None) is request.module)
    drawn = (item.callspec.params for item in items if hasattr(item, "callspec"))
    cases = [params["case"] for params in drawn if "case" in params]
    print(compile_in_parallel([job for case in cases for job in case.jobs()], device))
