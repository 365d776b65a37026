"""Errors of launches."""

from triton_tune.core.device import exceeds_device

__all__ = ["brief", "exceeds_device"]


def brief(error: BaseException) -> str:
    """The error's type and the first line of its text."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"
