"""Choose a few configs of which the best is nearly optimal in every swept scenario, greedily."""

import math
from collections.abc import Mapping

# The slowdown of a config without a time in a scenario (it failed, cannot run or was not tried). Greater
# slowdowns count as this one.
ABSENT = 4.0


def cover(
    slowdowns: Mapping[str, Mapping[str, float]],
    weights: Mapping[str, float],
    *,
    start: tuple[str, ...] = (),
    loss: float,
    most: int,
) -> tuple[str, ...]:
    """Start with `start` and add the config that helps most, until there are `most` configs.

    Args:
        slowdowns: by scenario and config.
        weights: of the scenarios.
        loss: stop once the best of the chosen configs loses at most this, in the weighted geometric mean.

    The greedy choice reaches at least 1 - 1/e of the greatest gain that as many configs can have: Nemhauser,
    Wolsey, Fisher, Mathematical Programming 14, 1978.
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
