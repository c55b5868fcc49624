"""A valid program runs to its end under every annotation, whatever a hook of ours meets."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from importlib import import_module

import pytest
from small import mlp, nn, torch

import bridge.torch

# By these names, because `bridge.frameworks.torch` has functions called so.
blocks, calls, composite, functions, modules, ops, tensors = (
    import_module(f"bridge.frameworks.torch.{name}")
    for name in ("blocks", "calls", "composite", "functions", "modules", "ops", "tensors")
)


class Views(nn.Module):
    """Returns views whose base it changes in place; PyTorch then refuses to tell their node."""

    def forward(self, x):
        views = x.unbind()
        x += 1
        return views if self.training else views[0]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.views = nn.Linear(3, 3), Views()

    def forward(self, x):
        hidden = self.linear(x)
        self.views(hidden.clone())
        return hidden.sum()


@pytest.mark.parametrize("training", [True, False])
def test_a_view_whose_base_was_changed_in_place(tool, training):
    net = Net().train(training)
    with warnings.catch_warnings(), bridge.torch.auto(net):
        warnings.simplefilter("error")
        net(torch.ones(2, 3)).backward()
    assert tool.calls()["module:Net.views"] == 1
    assert tool.calls()["backward:Net.linear"] == 1


def fails(*_: object, **__: object) -> None:
    raise LookupError("ours")


PLACES = {  # what a hook uses, by the guard that takes its error
    "before forward": (calls, "next_number", calls.MODULES),
    "before a pass": (modules, "begin_pass", calls.MODULES),
    "gradient": (calls, "current", calls.MODULES),
    "after a pass": (modules, "end_pass", calls.MODULES),
    "any module": (modules, "begin_call", calls.MODULES),
    "name of a module": (modules, "_class_name", calls.MODULES),
    "op": (ops, "op_name", ops.OPS),
    "node": (ops, "node_entry", ops.OPS),
    "details of an op": (ops, "_observer", ops.OPS),
    "composite op": (composite, "composite_name", composite.COMPOSITE_OPS),
    "function": (functions, "resolve_name", functions.CALLS),
    "block": (blocks, "Label", blocks.BLOCKS),
}


def trained() -> list[float]:
    """Return the losses of a small training."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for batch in torch.utils.data.DataLoader(torch.arange(12.0).view(3, 4)):
        loss = net(batch).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_a_hook_is_one_warning(tool, monkeypatch, place):
    expected = trained()
    owner, name, guard = PLACES[place]
    monkeypatch.setattr(guard, "broken", False)
    monkeypatch.setattr(owner, name, fails)
    switches = [
        bridge.torch.optimizer_steps(),
        bridge.torch.dataloader_waits(),
        bridge.torch.every_module(),
        bridge.torch.api_calls(),
        bridge.torch.ops(shapes=True),
    ]
    with ExitStack() as stack:
        warned = stack.enter_context(pytest.warns(RuntimeWarning))
        for switch in switches:
            stack.enter_context(switch)
        assert trained() == expected
    (text,) = [str(one.message) for one in warned]
    assert f"{guard.kind} are no longer recorded: LookupError: ours (bridge/frameworks/" in text
    assert guard.broken


@pytest.mark.parametrize("place", PLACES)
def test_hooks_that_are_enabled_anew_record_again(tool, monkeypatch, place):
    owner, name, guard = PLACES[place]
    monkeypatch.setattr(guard, "broken", False)

    def ranges() -> set[str]:
        tool.slices.clear()
        with (
            bridge.torch.optimizer_steps(),
            bridge.torch.dataloader_waits(),
            bridge.torch.every_module(),
            bridge.torch.api_calls(),
            bridge.torch.ops(shapes=True),
        ):
            trained()
        return {one.label.name for one in tool.slices}

    def failing() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fails)
            ranges()

    expected = ranges()
    with pytest.warns(RuntimeWarning):
        failing()
    assert ranges() == expected
    with pytest.warns(RuntimeWarning):
        failing()


@pytest.mark.parametrize("name", ["_frames", "_tensors", "op_name"])
def test_an_error_of_the_watch_of_tensors_is_one_warning(monkeypatch, name):
    watch = tensors.TensorWatch(stacks=True)
    watch.begin()
    monkeypatch.setattr(tensors, name, fails)
    try:
        with pytest.warns(RuntimeWarning) as warned:
            total = [torch.ones(2).sum().item() for _ in range(2)]
    finally:
        watch.finish()
    assert total == [2, 2]
    (text,) = [str(one.message) for one in warned]
    assert "tensors of PyTorch are no longer recorded: LookupError: ours (bridge/" in text


def test_an_interrupt_while_the_cost_is_measured_leaves_no_range_open(tool, monkeypatch):
    def interrupted() -> int:
        times.append(0)
        if len(times) == 2:
            raise KeyboardInterrupt
        return 0

    model, times = mlp(), []
    monkeypatch.setattr(modules, "perf_counter_ns", interrupted)
    with bridge.torch.annotate(model):
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2, 4))
        assert tool.all_closed()
        model(torch.ones(2, 4))
    assert calls._here.call is None
