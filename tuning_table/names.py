"""Rules for the names in a table: features, parameters, ids and devices."""

import builtins
import keyword
import re
from collections.abc import Container, Iterable, Mapping
from itertools import count, product
from string import ascii_uppercase
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Whether a text can be the id of a scenario or config, which CSV files hold without quotes; a variant of a
# spec, which becomes part of constants' names; a word for an integer, which no page takes for markup.
is_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,127}").fullmatch
is_variant = re.compile(r"[a-z][a-z0-9_]{0,63}").fullmatch
is_word = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9 _.%/+-]{0,198}[A-Za-z0-9%]|[A-Za-z0-9]|-[0-9]{1,9}").fullmatch
IN_KERNEL = "in_kernel"  # the folder of a generated package with device functions for its Triton code
# What generated packages call their own.
_TAKEN = {"choose", "config", "default", "for_device", "key_for", IN_KERNEL, "variant", "count", "index"}
_TAKEN |= {"Config", "LITERALS", "MODULES", "VALUES"}
_LITERALS = {"absent": ..., "none": None, "false": False, "true": True}
_VENDORS = {"nvidia", "amd", "intel"}
_NOISE = {"instinct", "geforce", "radeon", "tesla", "graphics", "gpu"}


def problem_with_name(name: object) -> str | None:
    """Return why `name` cannot be an identifier of generated Python; None if it can."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        return "is not a plain name (letters, digits and underscores, at most 64)"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "is a word of Python"
    if hasattr(builtins, name):
        return "is a builtin of Python"
    if name.startswith("__"):
        return "starts with two underscores"
    return "is a name that the generated package uses itself" if name in _TAKEN else None


def kernel_name(function: str) -> str:
    """The name of a kernel's tables and package, from that of its function.

    >>> kernel_name("_Layer_norm_fwd")
    'layer_norm_fwd'
    """
    return function.strip("_").lower()


def literal(word: str) -> Any:
    """What a parameter's word stands for at a launch; `...` says that the config does not set it.

    >>> [literal(word) for word in ("absent", "none", "true", "0.5", "-1", "tf32", "256")]
    [Ellipsis, None, True, 0.5, -1, 'tf32', '256']
    """
    if re.fullmatch(r"-[0-9]+", word):
        return int(word)
    return float(word) if re.fullmatch(r"[0-9]+\.[0-9]+", word) else _LITERALS.get(word, word)


def word_for(value: Any) -> str:
    """The word of which `literal` makes the value again. Raises ValueError for a text that would be another.

    >>> [word_for(value) for value in (..., None, True, 0.5, "tf32")]
    ['absent', 'none', 'true', '0.5', 'tf32']
    """
    named = (word for word, meaning in _LITERALS.items() if value is meaning)
    word = next(named, str(value))
    if not is_word(word) or type(literal(word)) is not type(value) or literal(word) != value:
        raise ValueError(f"{value!r:.60} cannot be a word of a table")
    return word


def numbered(words: Iterable[str], taken: Container[int] = ()) -> dict[int, str]:
    """The integer that stands for each word: the smallest ones that no other value of the column takes."""
    return dict(zip((n for n in count() if n not in taken), words, strict=False))


def listed(words: Mapping[int, str]) -> list[str] | dict[str, int]:
    """Words as `values` has them: a list for the integers 0, 1, ..., else by word."""
    in_order = [*words] == [*range(len(words))]
    return [*words.values()] if in_order else {word: number for number, word in words.items()}


def device_key(device_name: str) -> str:
    """The key of a GPU, vendor and model, from the name that its driver reports.

    >>> device_key("NVIDIA H100 80GB HBM3"), device_key("AMD Instinct MI300X")
    ('nvidia_h100', 'amd_mi300x')
    """
    words = [word for word in re.split(r"[^a-z0-9]+", device_name.lower()) if word]
    vendor = next((word for word in words if word in _VENDORS), None)
    rest = [word for word in words if word not in _VENDORS and word not in _NOISE]
    numbered = next((i for i, word in enumerate(rest) if re.search(r"[0-9]", word)), None)
    if vendor is None or numbered is None:
        return "_".join(words)[:64] or "unknown"
    return "_".join([vendor, *rest[: numbered + 1]])[:64]


def device_keys(names: Iterable[str]) -> dict[str, str]:
    """The key of each GPU, which is its whole name where two models would share the short one.

    >>> device_keys(["NVIDIA H100", "NVIDIA H100 80GB HBM3"])
    {'NVIDIA H100': 'nvidia_h100', 'NVIDIA H100 80GB HBM3': 'nvidia_h100_80gb_hbm3'}
    """
    short = {name: device_key(name) for name in names}
    shared = [key for key in short.values() if list(short.values()).count(key) > 1]
    whole = {name: "_".join(re.findall("[a-z0-9]+", name.lower()))[:64] for name in short}
    return {name: whole[name] if key in shared else key for name, key in short.items()}


_LETTERS = {"num_warps": "W", "num_stages": "S", "num_ctas": "C", "maxnreg": "R"}
_FILLERS = {"BLOCK", "SIZE", "TILE", "NUM"}


def letters_for(parameters: Iterable[str]) -> dict[str, str]:
    """Capital letters that stand for launch parameters in names of configs, different for each.

    >>> letters_for(["BLOCK_SIZE_M", "GROUP_M", "SPLIT_K", "BV", "num_warps"])
    {'BLOCK_SIZE_M': 'M', 'GROUP_M': 'GM', 'SPLIT_K': 'SK', 'BV': 'BV', 'num_warps': 'W'}
    """
    names = list(parameters)
    letters = {name: _LETTERS[name] for name in names if name in _LETTERS}
    for name in names:
        words = [word for word in re.findall("[A-Z]+", name.upper()) if word not in _FILLERS]
        short = len(words) == 1 and len(words[0]) <= 3  # as BK
        initials = words[0] if short else "".join(word[0] for word in words)[:3] or "B"
        spare = ("".join(letters) for letters in product(ascii_uppercase, repeat=2))
        options = (initials, *(initials + letter for letter in ascii_uppercase), *spare)
        letters.setdefault(name, next(option for option in options if option not in letters.values()))
    return {name: letters[name] for name in names}
