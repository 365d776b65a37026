"""Whether a table's header is that of the run that wants to go on in it."""

from pathlib import Path

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import ConfigEntry, Header

_WORDS = {
    "kernel": "kernel",
    "source_hash": "kernel source",
    "torch": "torch",
    "triton": "Triton",
    "driver": "driver",
    "timing": "timing",
    "scenario_set": "scenario set",
    "scenarios_digest": "scenarios of digest",
    "seed": "seed",
    "strategy": "strategy",
    "features": "features",
}


def check_same_run(folder: Path, theirs: Header, ours: Header) -> None:
    """Raise TuningError naming the first thing in which the folder's header, `theirs`, is not `ours`."""
    difference = _device(theirs, ours) or _field(theirs, ours) or _configs(theirs.configs, ours.configs)
    if difference is not None:
        raise TuningError(f"{folder} holds {difference}: choose another --out, or remove the folder")


def _device(theirs: Header, ours: Header) -> str | None:
    if theirs.device.get("name") != ours.device.get("name"):
        return f"a run on {theirs.device.get('name')}, but this GPU is {ours.device.get('name')}"
    for key in {**theirs.device, **ours.device}:
        have, need = theirs.device.get(key), ours.device.get(key)
        if have != need:
            return f"a run on a GPU with {key} {have}, but this GPU has {need}"
    return None


def _field(theirs: Header, ours: Header) -> str | None:
    for key, word in _WORDS.items():
        have, need = getattr(theirs, key), getattr(ours, key)
        if have != need:
            return f"a run with {word} {_shown(have)}, but this run has {_shown(need)}"
    return None


def _configs(theirs: tuple[ConfigEntry, ...], ours: tuple[ConfigEntry, ...]) -> str | None:
    for position, (have, need) in enumerate(zip(theirs, ours, strict=False), start=1):
        if have.id != need.id:
            return f"a run whose config {position} is {have.id}, but this run has {need.id}"
        if have != need:
            return f"a run whose {have.id} is {_parameters(have)}, but this run has {_parameters(need)}"
    if len(theirs) != len(ours):
        return f"a run of {len(theirs)} configs, but this run has {len(ours)}"
    return None


def _parameters(config: ConfigEntry) -> str:
    return " ".join([config.variant, *(f"{name}={value}" for name, value in config.parameters.items())])


def _shown(value: object) -> str:
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    text = " ".join(text.split())  # a message has one line
    return text if len(text) <= 200 else f"{text[:197]}..."
