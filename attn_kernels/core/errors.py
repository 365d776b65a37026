"""Errors of launches."""


def brief(error: BaseException) -> str:
    """The error's type and the first line of its text."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"
