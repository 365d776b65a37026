"""How configs are chosen on one device: by a module of the generated package, or as a variable says."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources, PTXASError

# A config that raises one of these cannot run here. Triton's autotuner passes over it, too.
DOES_NOT_FIT = (OutOfResources, PTXASError, CompileTimeAssertionFailure)
DEVICE = "TRITON_TUNE_DEVICE"
CONFIG = "TRITON_TUNE_CONFIG"
LOG = "TRITON_TUNE_LOG"
AUTOTUNE = "autotune"
OWN = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # parameters of Triton's

_PARAMETER = re.compile(r"([A-Za-z_]\w*)=([0-9]{1,10})")
_FORM = "expected kernel:BLOCK_M=64,num_warps=4 or kernel:autotune; several are separated by ;"


def current_device() -> tuple[str, str, str]:
    """`(name, arch, vendor)` as `key_for` of a generated package takes them; without torch, no name."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu", "cpu", "cpu"
    target = driver.active.get_current_target()
    torch = sys.modules.get("torch")  # which is not imported here
    name = str(torch.cuda.get_device_properties(torch.cuda.current_device()).name) if torch else ""
    if target.backend == "hip":
        return name, str(target.arch).split(":")[0], "amd"
    return name, f"sm_{target.arch}", "nvidia"


def device_number() -> int:
    """The number of the device that launches go to now."""
    return 0 if os.environ.get("TRITON_INTERPRET") == "1" else int(driver.active.get_current_device())


@dataclass(frozen=True)
class Overrides:
    """The variables' values for one kernel."""

    device_key: str | None = None  # the generated module that chooses, whatever the GPU
    config: dict[str, int] | None = None  # the launch parameters of every launch
    autotune: bool = False  # whether Triton's autotuner chooses
    log: bool = False  # whether each distinct choice is printed to stderr


def read_overrides(kernel: str) -> Overrides:
    """Read the variables for a generated package; an empty one counts as unset. Raises ValueError."""
    log = os.environ.get(LOG, "")
    if log not in ("", "0", "1"):
        raise ValueError(f"{LOG} is {log!r}, but 0 or 1 is needed")
    config, autotune = None, False
    text = os.environ.get(CONFIG, "")
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, colon, choice = (part.strip() for part in entry.partition(":"))
        parameters = [_PARAMETER.fullmatch(part.strip()) for part in choice.split(",")]
        if not colon or not name or (name == kernel and choice != AUTOTUNE and not all(parameters)):
            raise ValueError(f"{CONFIG} is {text!r}: {_FORM}")
        if name == kernel:
            autotune = choice == AUTOTUNE
            config = None if autotune else {match[1]: int(match[2]) for match in parameters if match}
    return Overrides(os.environ.get(DEVICE) or None, config, autotune, log == "1")


Choose = Callable[..., Any]


@dataclass(frozen=True)
class ConfigLaunch:
    """What a config adds to a launch."""

    keywords: dict[str, Any]
    config: Any  # the same as a triton.Config, with its hook
    autotuner: Any = None  # what chooses instead, except while a graph is captured


@dataclass
class Choosing:
    """How a device's launches are chosen, and what was chosen so far."""

    choose: Choose  # from features to a generated config
    module: Any  # of the generated package; None if a config is forced
    not_tuned: str | None  # in words, if the GPU was not
    fallback_is_untuned: bool  # whether no row of the module has the fallback
    launches: dict[tuple[Any, ...], ConfigLaunch] = field(default_factory=dict)  # by the features' values
    failed: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)  # what did not fit, likewise


def logged(kernel: str, choose: Choose) -> Choose:
    """The same choice, which prints each distinct config to stderr."""
    seen: set[Any] = set()

    def choose_and_log(**features: int) -> Any:
        config = choose(**features)
        if config not in seen:
            seen.add(config)
            values = " ".join(f"{name}={value}" for name, value in features.items())
            print(f"triton_tune: {kernel} launches {config} for {values}", file=sys.stderr)
        return config

    return choose_and_log
