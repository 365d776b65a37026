"""What tests of engines share."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_cases import forget_choices


@pytest.fixture(params=["default", "nvidia_h200"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Choose as on this GPU; its configs with descriptors launch the kernels with pointers here."""
    monkeypatch.setenv("ATTN_KERNELS_DEVICE", request.param)
    forget_choices()
    yield request.param
    forget_choices()
