"""From a torch device to the generated function that chooses its configs."""

from collections.abc import Callable
from functools import cache
from types import ModuleType

import torch

from attn_kernels.config import Config, LaunchConfig, complete

Choose = Callable[..., LaunchConfig]


def describe_device(device: torch.device) -> tuple[str, str, str]:
    """``(name, arch, vendor)``, e.g. ``("NVIDIA H100 80GB HBM3", "sm_90", "nvidia")`` or ``("AMD Instinct
    MI300X", "gfx942", "amd")``. The CPU, on which Triton's interpreter runs kernels, is ``("cpu",) * 3``.
    """
    if device.type == "cpu":
        return "cpu", "cpu", "cpu"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.name, properties.gcnArchName.split(":")[0], "amd"
    return properties.name, f"sm_{properties.major}{properties.minor}", "nvidia"


@cache
def choose_for_device(device: torch.device) -> Choose:
    """The ``choose`` of the generated module nearest to ``device``; asked once a device."""
    # Imported late, so that whichever `generated` is first on sys.path at the first plan is used.
    from generated import unified_attention

    choose: Choose = unified_attention.for_device(*describe_device(device))
    return choose


def configs_of(module: ModuleType) -> list[Config]:
    """What a generated module can choose: its config constants, each once."""
    constants = vars(module).items()
    found = [value for name, value in constants if name.isupper() and hasattr(value, "variant")]
    return list(dict.fromkeys(map(complete, found)))


def choose_for_key(device_key: str) -> Choose:
    """The ``choose`` of the generated module of this name, whatever the device. Raises ValueError."""
    from generated import unified_attention

    try:
        choose: Choose = unified_attention.MODULES[device_key].choose
    except KeyError:
        known = ", ".join(sorted(unified_attention.MODULES))
        raise ValueError(f"device_key is {device_key!r}, but the generated modules are: {known}") from None
    return choose
