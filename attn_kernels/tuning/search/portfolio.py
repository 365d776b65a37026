"""A few configs that together lose little: greedy cover of the scenarios that were swept."""

import math
from collections.abc import Mapping

# What a config's time over the best is taken to be where it has none: it failed, cannot run there, or was
# given up. To be slower still loses no more.
ABSENT = 4.0


def cover(
    slowdowns: Mapping[str, Mapping[str, float]],
    weights: Mapping[str, float],
    *,
    start: tuple[str, ...] = (),
    loss: float,
    most: int,
) -> tuple[str, ...]:
    """`start`, then the config that helps most, again and again, at most `most` in all.

    Args:
        slowdowns: by scenario and config, time over the best time. weights: of the scenarios.
        loss: stop once the best of the configs loses no more than this, on the geometric mean.

    Greedy is within 1 - 1/e of the best gain that as many configs can have: Nemhauser, Wolsey, Fisher,
    Mathematical Programming 14, 1978.
    """
    logs = {s: {c: math.log(min(x, ABSENT)) for c, x in row.items()} for s, row in slowdowns.items()}
    configs = dict.fromkeys(config for row in logs.values() for config in row)
    chosen = list(start)
    worst = math.log(ABSENT)
    now = {s: min((row[c] for c in chosen if c in row), default=worst) for s, row in logs.items()}
    total = sum(weights[s] for s in logs)
    while len(chosen) < most and sum(weights[s] * lost for s, lost in now.items()) > math.log1p(loss) * total:
        gains = {
            config: sum(
                weights[s] * max(0.0, now[s] - row[config]) for s, row in logs.items() if config in row
            )
            for config in configs
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= 0:
            break
        chosen.append(best)
        now = {s: min(lost, logs[s].get(best, worst)) for s, lost in now.items()}
    return tuple(chosen)
