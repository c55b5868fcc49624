"""With nothing attached an annotated model costs next to nothing; generous limits, for busy machines."""

from __future__ import annotations

from timeit import Timer

import pytest
from small import nn, torch

import bridge.torch

pytestmark = pytest.mark.slow


def chain():
    return nn.Sequential(*[nn.ReLU() for _ in range(100)])


def hooked():
    model = chain()
    for module in model.modules():
        module.register_forward_pre_hook(lambda *_: None)
        module.register_forward_hook(lambda *_: None, always_call=True)
    return model


@pytest.mark.usefixtures("detached")
def test_it_costs_about_as_much_as_hooks_that_do_nothing():
    batch = torch.ones(2, requires_grad=True)
    bare, annotated = hooked(), chain()
    bridge.torch.annotate(annotated)
    timers = [Timer(lambda model=model: model(batch)) for model in (bare, annotated)]
    pairs = [[timer.timeit(10) for timer in timers] for _ in range(20)]
    assert min(cost for _, cost in pairs) <= 2 * min(cost for cost, _ in pairs)
