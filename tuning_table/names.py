"""Which words may name features, parameters, scenarios and configs."""

import builtins
import keyword
import re

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,127}")


def problem_with_name(name: object) -> str | None:
    """Say why `name` cannot be an identifier of generated Python; None if it can."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        return "is not a plain name (letters, digits and underscores, at most 64)"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "is a word of Python"
    if hasattr(builtins, name):
        return "is a builtin of Python"
    if name.startswith("__"):
        return "starts with two underscores"
    return None


def is_id(text: str) -> bool:
    """Whether `text` can be the id of a scenario or config, which CSV files hold without quotes."""
    return _ID.fullmatch(text) is not None
