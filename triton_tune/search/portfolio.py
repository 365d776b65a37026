"""Choose a few configs of which the best is nearly optimal in every swept scenario, greedily."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The slowdown of a config without a time in a scenario (it failed, cannot run or was not tried). Greater
# slowdowns count as this one.
ABSENT = 4.0


def cover(
    slowdowns: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    *,
    start: Sequence[int] = (),
    loss: float,
    most: int,
) -> tuple[int, ...]:
    """Start with `start` and add the config that helps most, until there are `most` configs.

    Args:
        slowdowns: [scenario, config].
        weights: [scenario].
        start: columns, as are the configs that are returned.
        loss: stop once the best of the chosen configs loses at most this, in the weighted geometric mean.

    The greedy choice reaches at least 1 - 1/e of the greatest gain that as many configs can have: Nemhauser,
    Wolsey, Fisher, Mathematical Programming 14, 1978.
    """
    logs = np.log(np.minimum(slowdowns, ABSENT))
    chosen = list(start)
    lost = logs[:, chosen].min(axis=1, initial=math.log(ABSENT))
    enough = math.log1p(loss) * weights.sum()
    while len(chosen) < most and weights @ lost > enough:
        gains = weights @ np.maximum(0.0, lost[:, None] - logs)
        best = int(gains.argmax()) if gains.size else -1
        if best < 0 or gains[best] <= 0:
            break
        chosen.append(best)
        lost = np.minimum(lost, logs[:, best])
    return tuple(chosen)
