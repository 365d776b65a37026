"""From a bound launch to one of a plan, and from that to the GPU: what every layer of every step pays for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from attn_kernels.core.structures import Described, Launch, OfLayer, OfPlan, Plan
from attn_kernels.launch.direct import Direct, current_device, current_stream
from attn_kernels.launch.signature import ALIGNMENT

Addresses = tuple[int, ...]

INT32_LIMIT = 2**31
MOST_MAPS = 4096  # caches whose tensor maps one kernel remembers


class Form(NamedTuple):
    """How a compiled kernel is called, whatever the plan.

    Attributes:
        function, fixed, nested: as in ``Direct``.
        leading: how many of the layer's tensors come first among the arguments, in the order of their
            addresses.
        places: where the addresses of others belong behind those, and which they are.
        maps: tensor maps behind those.
    """

    function: Callable[..., None]
    fixed: tuple[Any, ...]
    nested: bool
    leading: int
    places: tuple[tuple[int, int], ...]
    maps: tuple["Maps", ...]


class Ready(NamedTuple):
    """A launch filled in for a plan; only the layer's tensors are missing. ``rest``: what is not leading."""

    form: Form
    grid: tuple[int, int, int]
    rest: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """The tensor maps of a kernel's argument: of all caches of one signature, those at one address have the
    same.

    Attributes:
        place: of the argument behind the leading ones. index: of the cache among the layer's tensors.
    """

    place: int
    index: int
    make: Callable[[Tensor], Any]
    known: dict[int, Any] = field(default_factory=dict)

    def of(self, address: int, cache: Tensor) -> Any:
        found = self.known.get(address)
        if found is None:
            if len(self.known) >= MOST_MAPS:
                self.known.clear()
            found = self.known[address] = self.make(cache)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A launch whose compiled kernel is known, with gaps for what a plan and a layer bring.

    ``of_plan``: where values of the plan belong among ``arguments``, and how they are read.
    """

    launch: Launch
    form: Form
    arguments: tuple[Any, ...]
    of_plan: tuple[tuple[int, Callable[[Plan], Any]], ...]

    @classmethod
    def of(cls, launch: Launch, direct: Direct, names: tuple[str, ...]) -> Self:
        """``names``: of the layer's tensors, in the order of their addresses."""
        named = list(zip(direct.places, launch.arguments, strict=True))
        of_layer = [(place, names.index(one.name)) for place, one in named if isinstance(one, OfLayer)]
        leading = 0
        while leading < len(of_layer) and of_layer[leading] == (leading, leading):
            leading += 1
        places = tuple((place - leading, index) for place, index in of_layer[leading:])
        maps = tuple(
            Maps(place - leading, names.index(one.name), _map_maker(one, direct, place))
            for place, one in named
            if isinstance(one, Described)
        )
        return cls(
            launch,
            Form(direct.function, direct.fixed, direct.nested, leading, places, maps),
            direct.arguments,
            tuple((place, one.value) for place, one in named if isinstance(one, OfPlan)),
        )

    def fill(self, plan: Plan) -> Ready | None:
        """None where the plan has a value that the kernel was not bound for."""
        arguments, values = list(self.arguments), plan.values
        for place, value_of in self.of_plan:
            value = values.get(value_of)
            if value is None:
                value = as_bound(value_of(plan))
                if value is None:
                    return None
                values[value_of] = value
            arguments[place] = value
        x, y, z = (*self.launch.grid(plan), 1, 1)[:3]
        return Ready(self.form, (x, y, z), tuple(arguments[self.form.leading :]))


def _map_maker(described: Described, direct: Direct, place: int) -> Callable[[Tensor], Any]:
    return lambda cache: direct.tensor_map(described.describe(cache), place)


def as_bound(value: Any) -> int | None:
    """A plan's value as the C function takes it; None unless it has 32 bits or is an aligned address."""
    if type(value) is int:
        return value if -INT32_LIMIT <= value < INT32_LIMIT else None
    address: int = value.data_ptr()
    return None if address % ALIGNMENT and value.dtype != torch.int32 else address


def launch_all(
    index: int, launches: tuple[Ready, ...], addresses: Addresses, tensors: Sequence[Tensor]
) -> None:
    """Launch on the current stream of a GPU; never writes to what other threads may use."""
    if current_device() != index:
        with torch.cuda.device(index):
            launch_all(index, launches, addresses, tensors)
        return
    stream = current_stream(index)
    for form, grid, rest in launches:
        function, fixed, nested, leading, places, maps = form
        if places or maps:
            rest = _scatter(form, rest, addresses, tensors)
        if nested:
            function(*grid, stream, *fixed, addresses[:leading] + rest)
        else:
            head = (*grid, stream)
            function(*(head + fixed + addresses[:leading] + rest))


def _scatter(
    form: Form, rest: tuple[Any, ...], addresses: Addresses, tensors: Sequence[Tensor]
) -> tuple[Any, ...]:
    """``rest`` with the addresses and tensor maps that belong there."""
    arguments = list(rest)
    for place, index in form.places:
        arguments[place] = addresses[index]
    for maps in form.maps:
        arguments[maps.place] = maps.of(addresses[maps.index], tensors[maps.index])
    return tuple(arguments)
