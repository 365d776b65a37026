"""Launchers of another shape than those that are known: whatever Triton makes of them, it launches itself."""

import pytest
from kernel_cases import make_config
from launch_recorder import Launcher, Recorder, batch_of, layer_of, recording, run


class Scratch(Launcher):
    def __init__(self, launch, nested):
        super().__init__(launch, nested)
        self.global_scratch_size = 128


class Keywords(Launcher):
    def __call__(self, *arguments):
        self.launch(arguments=arguments)


class Shuffled(Launcher):
    def __call__(self, x, y, z, stream, *rest):
        super().__call__(stream, x, y, z, *rest)


class Twice(Launcher):
    def __call__(self, *arguments):
        super().__call__(*arguments)
        super().__call__(*arguments)


class Longer(Launcher):
    def __call__(self, *arguments):
        super().__call__(*arguments, "more")


class Packed(Launcher):
    def __call__(self, x, y, z, stream, function, *rest):
        super().__call__(x, y, z, stream, (function,), *rest)


class Without(Launcher):
    def __init__(self, launch, nested):
        super().__init__(launch, nested)
        del self.profile_scratch_size


class Stubborn:
    __slots__ = ("launch",)

    def __init__(self, launch, nested):
        self.launch = None


@pytest.mark.parametrize(
    "launcher",
    [Scratch, Keywords, Shuffled, Twice, Longer, Packed, Without, Stubborn],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_launcher_of_another_shape_is_left_to_triton(launcher, nested, monkeypatch):
    with recording(monkeypatch, Recorder(nested, launcher)) as recorder:
        batch = batch_of()
        plan = batch.plan(config=make_config("segmented"))
        for _ in range(3):
            run(plan, layer_of(batch))
        assert len(recorder.public) == 6
        assert not recorder.direct
