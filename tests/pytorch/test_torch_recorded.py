"""Optimizers' steps and waits for data have ranges; afterwards PyTorch is as it was."""

from __future__ import annotations

from collections import Counter

import pytest
from small import mlp, nn, torch
from torch.autograd.profiler import record_function
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import bridge.torch
from bridge.annotate import emit, emitter
from bridge.join.grammar import parse

METHODS = dict(vars(record_function))


@pytest.fixture(autouse=True)
def _as_before():
    yield
    assert dict(vars(record_function)) == METHODS


def test_steps_of_all_optimizers(tool):
    model = mlp()
    kinds = (torch.optim.SGD, torch.optim.AdamW)
    optimizers = [kind(model.parameters(), lr=0.1) for kind in kinds]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizers[0], 1)
    with bridge.torch.optimizer_steps():
        for optimizer in optimizers:
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
    optimizers[0].step()
    assert tool.calls() == Counter(
        f"Optimizer.{what}#{kind.__name__}.{what}"
        for kind in kinds
        for what in ("step", "zero_grad")
    )
    label = parse("Optimizer.step#SGD.step")
    assert (label.kind, dict(label.arguments)) == ("optimizer", {"optimizer": "SGD"})


def test_names_are_those_of_pytorchs_profiler(tool):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.arange(4)), batch_size=2)
    with torch.profiler.profile() as profiler, bridge.torch.auto():
        for _ in data:
            optimizer.zero_grad()
        optimizer.step()
    assert set(tool.names()) <= {event.name for event in profiler.events()}
    assert len(tool.names()) == 6


def test_the_model_is_called_within_a_step(tool):
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).pow(2).sum()
        loss.backward()
        return loss

    with bridge.torch.auto(model):
        optimizer.step(closure)
    assert tool.parents("module:Sequential") == {("Optimizer.step#LBFGS.step",)}
    assert tool.parents("backward:Sequential") == {("Optimizer.step#LBFGS.step",)}


def test_a_step_that_fails_is_closed(tool):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        raise KeyboardInterrupt

    with bridge.torch.optimizer_steps():
        with pytest.raises(KeyboardInterrupt):
            optimizer.step(closure)
        assert tool.all_closed()


def test_waits_for_data(tool):
    data = TensorDataset(torch.arange(6))
    before = DataLoader(data, batch_size=2)
    with bridge.torch.dataloader_waits():
        assert len(list(before)) == 3
        for _ in DataLoader(data, batch_size=3):
            assert tool.all_closed()
    list(before)
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert tool.calls() == {name: 4 + 3}  # the last call of each finds nothing more
    assert parse(name).kind == "dataloader"


@pytest.mark.slow
def test_waits_for_other_processes(tool):
    with bridge.torch.dataloader_waits():
        batches = list(DataLoader(TensorDataset(torch.arange(4)), batch_size=2, num_workers=1))
    assert len(batches) == 2
    assert tool.calls() == {"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": 3}


def test_data_that_cannot_be_had(tool):
    class Broken(IterableDataset):
        def __iter__(self):
            raise ValueError("data")

    with bridge.torch.dataloader_waits():
        with pytest.raises(ValueError, match="data"):
            next(iter(DataLoader(Broken())))
        assert tool.all_closed()


def test_only_what_is_wanted(tool):
    optimizer = torch.optim.SGD(mlp().parameters(), lr=0.1)
    with bridge.torch.auto(optimizer=False), record_function("mine"):
        optimizer.step()
    assert not tool.names()


def test_one_within_another(tool):
    optimizer = torch.optim.SGD(mlp().parameters(), lr=0.1)
    with bridge.torch.optimizer_steps(), bridge.torch.auto():
        optimizer.step()
    outer, inner = bridge.torch.optimizer_steps(), bridge.torch.dataloader_waits()
    outer.enable()
    inner.enable()
    outer.disable()
    optimizer.step()
    inner.disable()
    inner.disable()
    assert tool.names() == ["Optimizer.step#SGD.step"]


def test_a_block_that_is_open_at_the_end(tool):
    steps = bridge.torch.optimizer_steps().__enter__()
    with record_function("Optimizer.step#Mine.step") as block:
        assert not tool.all_closed()
        before = set(vars(block))
        steps.disable()
        assert tool.all_closed()
    assert set(vars(block)) == before


def test_without_a_tool():
    previous = emit.use(emitter.NullEmitter())
    with bridge.torch.auto():
        torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1).step()
    emit.use(previous)
