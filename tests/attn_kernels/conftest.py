"""Fixtures of all tests of kernels."""

import logging

import pytest


@pytest.fixture
def many_splits(monkeypatch):
    """Let each tile of short contexts be a split."""
    from attn_kernels.kernels import splits

    monkeypatch.setattr(splits, "ROW_COST", 0.001)


@pytest.fixture(params=["whole contexts", "many splits"])
def whole_and_split(request):
    if request.param == "many splits":
        request.getfixturevalue("many_splits")


@pytest.fixture
def new_process(monkeypatch):
    """Forget all choices, warnings and log lines of this process, and unset the variables."""
    from kernel_cases import forget_choices

    from attn_kernels.choose import overrides
    from attn_kernels.core import errors

    for name in ("DEVICE", "CONFIG", "LOG", "RECORD"):
        monkeypatch.delenv(f"ATTN_KERNELS_{name}", raising=False)
    monkeypatch.setattr(errors, "_warned", {})
    monkeypatch.setattr(overrides, "_logged", {})
    logger = logging.getLogger("attn_kernels")
    level, handlers = logger.level, logger.handlers[:]
    forget_choices()
    yield
    forget_choices()
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def recorder(monkeypatch):
    """What would have been launched on a Hopper GPU."""
    from launch_recorder import recording

    with recording(monkeypatch) as found:
        yield found


@pytest.fixture(params=["default", "nvidia_h200"])
def module(request, monkeypatch):
    """Choose as on this GPU; its configs with descriptors launch the kernels with pointers here."""
    from kernel_cases import forget_choices

    monkeypatch.setenv("ATTN_KERNELS_DEVICE", request.param)
    forget_choices()
    yield request.param
    forget_choices()
