"""How regions of the shape space and configs read."""

from __future__ import annotations

from treegen.core.spec import Config, KernelSpec
from treegen.core.tree import Region

EVERYTHING = "all shapes"


def region_words(region: Region, kernel: KernelSpec) -> str:
    """A region as a person says it: `decode, batch 17 to 64, longest context over 4,096`.

    First the regimes that hold, then features in the spec's order, each by its word.
    """
    order = [*kernel.features, *kernel.derived]
    names: list[str] = []
    bounds: list[str] = []
    for feature in sorted(region, key=lambda name: order.index(name) if name in order else len(order)):
        held, rest = _feature(feature, *region[feature], kernel)
        names += held
        bounds += [rest] if rest else []
    return ", ".join([*names, *bounds]) or EVERYTHING


def range_words(least: int | None, greatest: int | None) -> str:
    """`17 to 64`, `up to 64`, `over 16`, `17`, or nothing where there is no bound."""
    if least is None:
        return "" if greatest is None else f"up to {greatest:,}"
    if greatest is None:
        return f"over {least - 1:,}"
    return f"{least:,}" if least == greatest else f"{least:,} to {greatest:,}"


def change_words(old: Config, new: Config, kernel: KernelSpec) -> str:
    """What a launch changes, by `kernel`'s words: `split -> segmented, 1 -> 32 segments`."""
    before, after = dict(old.parameters), dict(new.parameters)
    parts = [f"{old.variant} -> {new.variant}"] if old.variant != new.variant else []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            values = (str(side.get(name, "none")) for side in (before, after))
            parts.append(f"{' -> '.join(values)} {kernel.words.get(name, name)}")
    return ", ".join(parts)


def _feature(
    feature: str, least: int | None, greatest: int | None, kernel: KernelSpec
) -> tuple[list[str], str]:
    """The regimes that a feature's bounds lie in, and in words those bounds that these do not say."""
    names = []
    for name, regime in kernel.regimes.items():
        if regime.feature != feature:
            continue
        if regime.least is not None and least is not None and least >= regime.least:
            names.append(name)
            least = None if least == regime.least else least
        elif regime.greatest is not None and greatest is not None and greatest <= regime.greatest:
            names.append(name)
            greatest = None if greatest == regime.greatest else greatest
    bounds = range_words(least, greatest)
    return names, f"{kernel.words.get(feature, feature)} {bounds}" if bounds else ""
