"""A config that does not fit the device at its launch: the next one of the module takes its place."""

import warnings

import pytest
import torch
from triton.runtime.errors import OutOfResources

import attn_kernels
from attn_kernels import AttnKernelsWarning, Config, Lengths, Parts
from attn_kernels.choose.choices import choices_for
from attn_kernels.core.config import complete
from attn_kernels.launch import direct
from attn_kernels.testing.poisoned import make_batch, relative_error
from generated.unified_attention import MODULES

HEADS = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 64, "block_size": 16, "dtype": torch.float16}
FALLBACK = complete(MODULES["default"].QBLOCK_M64_T32_W4_S2)

pytestmark = pytest.mark.usefixtures("new_process")


@pytest.fixture
def failing(monkeypatch):
    """A list of configs that do not fit; those that launches try are added to its attribute."""

    class Failing(list):
        tried = ()

    configs, launch = Failing(), direct.launch_through_triton

    def launch_or_fail(plan, bound, tensors):
        configs.tried += (plan.config,)
        if plan.config in configs:
            raise OutOfResources(300_000, 232_448, "shared memory")
        launch(plan, bound, tensors)

    monkeypatch.setattr(direct, "launch_through_triton", launch_or_fail)
    return configs


def layer(batch, plan):
    """Run a layer, and check its output."""
    out = attn_kernels.run(plan, batch.q, batch.k_cache, batch.v_cache)
    assert relative_error(out, batch.reference()) < 2e-3


def test_all_plans_step_down_with_one_warning(failing):
    batch = make_batch((1, 1), (20, 50), **HEADS)
    first, other = batch.plan(device_key="nvidia_h100"), batch.plan(device_key="nvidia_h100")
    failing.append(first.config)
    with pytest.warns(AttnKernelsWarning, match="shared memory") as caught:
        layer(batch, first)
    ours = [warning.filename for warning in caught if warning.category is AttnKernelsWarning]
    assert ours == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", AttnKernelsWarning)
        for plan in (first, other, batch.plan(device_key="nvidia_h100"), first):
            layer(batch, plan)
    taken = first.replacement.config
    assert failing.tried[:4] == (first.config, taken, taken, first.config)
    assert batch.plan(device_key="nvidia_h100").config == taken != first.config


def test_the_fallback_is_the_last_and_an_error_is_raised_if_it_fails_too(failing):
    batch = make_batch((1, 1), (20, 50), **HEADS)
    possible = choices_for(batch.model, torch.device("cpu"), "nvidia_h100").possible()
    failing.extend(config for config in possible if config != FALLBACK)
    with pytest.warns(AttnKernelsWarning):
        layer(batch, plan := batch.plan(device_key="nvidia_h100"))
    assert batch.plan(device_key="nvidia_h100").config == FALLBACK != plan.config
    failing.append(FALLBACK)
    with pytest.raises(OutOfResources):
        layer(batch, batch.plan(device_key="nvidia_h100"))
    with pytest.raises(OutOfResources):
        layer(batch, batch.plan())  # of the module `default`, which has no other


def test_a_config_that_the_caller_chose_is_not_replaced(failing, monkeypatch):
    batch = make_batch((1, 1), (20, 50), **HEADS)
    failing.append(config := Config("qblock", 32, 64))
    with pytest.raises(OutOfResources):
        layer(batch, batch.plan(config=config))
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", str(config))
    with pytest.raises(OutOfResources):
        layer(batch, batch.plan())


def test_a_part_of_a_mixed_batch_steps_down(failing):
    lens = ((1, 1, 30), (20, 50, 60))
    batch = make_batch(*lens, **HEADS)
    parts = Parts(Lengths.of((1, 1), (20, 50)), Lengths.of((30,), (60,)))
    plan = batch.plan(device_key="nvidia_h100", parts=parts)
    failing.append(plan.config)
    with pytest.warns(AttnKernelsWarning):
        layer(batch, plan)
    following = batch.plan(device_key="nvidia_h100", parts=parts)
    assert plan.config not in (following.config, *(part.config for part in following.parts))
