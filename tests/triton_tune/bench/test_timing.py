"""When a config's first time is believed, although it is far from the best."""

import pytest

from triton_tune.bench.timing import first_time

BEST_US = 8.0
LAUNCHES = 64


@pytest.mark.parametrize(("times", "expected"), [
    ([9.0], (9.0, False)),
    ([13.0], (13.0, False)),  # far slower, but quick to measure again
    ([164.0, 8.5], (8.5, False)),  # the GPU stalled for 10 ms
    ([164.0, 150.0], (150.0, True)),
    ([900.0], (900.0, True)),  # 58 ms are no stall
])  # fmt: skip
def test_a_stall_does_not_pass_for_a_slow_config(times: list[float], expected: tuple[float, bool]) -> None:
    left = iter(times)
    assert first_time(lambda: next(left), LAUNCHES, BEST_US) == expected
    assert next(left, None) is None
