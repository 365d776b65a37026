"""Errors of launches."""

from triton.runtime.errors import OutOfResources


def exceeds_device(error: BaseException) -> bool:
    """Return whether a launch failed because the device lacks shared memory or registers for the config."""
    return isinstance(error, OutOfResources)


def brief(error: BaseException) -> str:
    """The error's type and the first line of its text."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"
