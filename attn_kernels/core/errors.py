"""Errors in one line, and the warning about a GPU that was not tuned."""

import inspect
import warnings
from collections.abc import Callable

_warned: dict[tuple[str, str, str], object] = {}


def brief(error: BaseException) -> str:
    """The error's type and the first line of its text."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


class AttnKernelsWarning(UserWarning):
    """The kernels work, but not as well as they could."""


def warn_if_untuned(described: tuple[str, str, str], key_for: Callable[[str, str, str], str]) -> None:
    """Warn, once per process and GPU model, where a module of another device serves this one.

    Args:
        described: name, architecture and vendor.
        key_for: the generated function; here it is called with each of the three words alone, too.
    """
    name, arch, vendor = described
    key, default = key_for(*described), key_for("", "", "")
    if key_for(name, "", "") != default:
        return
    ticket = object()
    # setdefault lets one of several threads in, without a lock that a fork could copy while it is held.
    if _warned.setdefault(described, ticket) is not ticket:
        return
    if key_for("", arch, "") != default:
        serving = f"{key}, of the same architecture ({arch}), chooses its configs"
    elif key_for("", "", vendor) != default:
        serving = f"{key}, which stands in for GPUs of that vendor, chooses its configs"
    else:
        serving = f"{key} chooses its configs, the same one for every batch"
    warn_user(
        f"{name} has no heuristic of its own: {serving}. To tune it, run 'attn-tune --budget 600', then "
        "'treegen build' (docs/tuning.md)."
    )


def warn_user(message: str) -> None:
    """Warn of the line outside of these packages that led here."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "attn_kernels":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, AttnKernelsWarning, stacklevel=level + 1)
