"""Calls that end otherwise, graphs of other kinds, outputs of other kinds: every range is closed."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from threading import Thread

import pytest
from small import VERSION, Pair, identical, loss_of, mlp, nn, torch, train, transformer
from torch.utils.checkpoint import checkpoint

import bridge.torch


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("forward")


class Interrupted(nn.Module):
    def forward(self, x):
        raise KeyboardInterrupt


class Unkind(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("backward")


class FailsBackward(nn.Module):
    def forward(self, x):
        return Unkind.apply(x)


class Does(nn.Module):
    """A module that does what it is told."""

    def __init__(self, does, **modules) -> None:
        super().__init__()
        self.does = does
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args, **kwargs):
        return self.does(self, *args, **kwargs)


def x(*, needs_grad: bool = False):
    return torch.ones(2, 4, requires_grad=needs_grad)


def run(tool, model, *args, loss=lambda out: out.sum()) -> Counter[str]:
    """Count the calls of one forward and backward pass."""
    with bridge.torch.annotate(model, name="net"):
        loss(model(*(args or (x(),)))).backward()
        assert tool.all_closed()
    return tool.calls()


# -- exceptions


def test_an_exception_in_forward_closes_all(tool):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Fails()))
    with bridge.torch.annotate(model, name="net"):
        with pytest.raises(ValueError, match="forward"):
            model(x())
        assert tool.all_closed()
    assert tool.calls() == Counter(["module:net", "module:net.0", "module:net.1", "module:net.1.0"])


def test_what_is_no_exception_is_closed_by_the_next_of_those_around(tool):
    inner = nn.Sequential(Interrupted())

    def swallow(self, batch):
        with suppress(KeyboardInterrupt):
            self.inner(batch)
        return self.last(batch)

    model = Does(swallow, inner=inner, last=nn.Linear(4, 4))
    with bridge.torch.annotate(model, name="net"):
        model(x())
        assert tool.all_closed()
        with pytest.raises(KeyboardInterrupt):
            inner(x())
    assert tool.all_closed(), "closed at the end of the annotation"


def test_an_exception_in_backward_closes_all(tool):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(FailsBackward()), nn.ReLU())
    with bridge.torch.annotate(model, name="net"):
        out = model(x()).sum()
        with pytest.raises(ValueError, match="backward"):
            out.backward()
        assert tool.all_closed(), "before anything else is annotated"
        model[1] = nn.Identity()
        model(x()).sum().backward()
    assert tool.calls()["backward:net.1.0"] == 1
    assert tool.calls()["backward:net.0"] == 1
    assert tool.parents("backward:net.0") == {("backward:net",)}


def test_an_exception_of_anothers_hook_closes_all(tool):
    model = mlp()

    def hook(*_):
        raise ValueError("hook")

    model[1].register_forward_pre_hook(hook)
    with bridge.torch.annotate(model), pytest.raises(ValueError, match="hook"):
        model(x())


# -- with no gradients, or not all of them


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_no_backward(tool, context):
    model = transformer()
    with bridge.torch.annotate(model), context():
        loss_of(model)
    assert all(name.startswith("module:") for name in tool.names())


def test_frozen_parameters(tool):
    model = mlp()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    forward = ["module:net", "module:net.0", "module:net.1", "module:net.2"]
    # What comes before the last has nothing to learn.
    assert run(tool, model) == Counter([*forward, "backward:net", "backward:net.2"])


def test_an_input_that_needs_a_gradient(tool):
    batch = x(needs_grad=True)
    assert run(tool, mlp(), batch)["backward:net.0"] == 1
    assert batch.grad is not None


def test_the_gradient_of_one_module_alone(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="net"):
        middle = model[1](model[0](x()))
        torch.autograd.grad(model[2](middle).sum(), middle)
        assert tool.all_closed()
    assert {name for name in tool.names() if "backward" in name} == {"backward:net.2"}


def test_gradients_of_a_parameter_alone(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="net"):
        torch.autograd.grad(model(x()).sum(), list(model[0].parameters()))
        assert tool.all_closed()
    assert tool.calls()["backward:net.0"] == 1


def test_backward_that_does_not_reach_all(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="net"):
        middle = model[1](model[0](x()))
        model[2](middle).sum().backward(inputs=[middle])
        assert tool.all_closed()
    assert tool.calls()["backward:net.0"] == 0


# -- graphs


@pytest.mark.filterwarnings("ignore:.*autocast:FutureWarning")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(tool, reentrant):
    def checkpointed(self, batch):
        return self.last(checkpoint(self.block, self.first(batch), use_reentrant=reentrant))

    def made():
        torch.manual_seed(0)
        return Does(checkpointed, first=nn.Linear(4, 4), block=mlp(), last=nn.Linear(4, 4))

    alone, model = made(), made()
    alone(x()).sum().backward()
    calls = run(tool, model)
    assert calls["module:net.block.0"] == 2
    assert {calls[f"backward:net.block.{n}"] for n in range(3)} == {1}
    assert calls["backward:net.block"] == calls["backward:net"] == 1
    again = tool.parents("module:net.block")
    assert ("module:net",) in again
    assert any(parents[:1] == ("backward:net",) for parents in again)
    gradients = [[p.grad for p in one.parameters()] for one in (alone, model)]
    assert identical(*gradients)


def test_a_module_called_several_times(tool):
    def thrice(self, batch):
        for _ in range(3):
            batch = self.shared(batch)
        return batch

    calls = run(tool, Does(thrice, shared=nn.Linear(4, 4)))
    assert calls["module:net.shared"] == calls["backward:net.shared"] == 3


def test_a_module_with_two_names_has_the_first(tool):
    shared = nn.Linear(4, 4)
    calls = run(tool, nn.Sequential(shared, nn.ReLU(), shared))
    assert calls["module:net.0"] == calls["backward:net.0"] == 2
    assert calls["module:net.2"] == 0


def test_tied_weights_leave_their_modules_apart(tool):
    model = mlp()
    model[2].weight = model[0].weight
    run(tool, model)
    assert tool.names()[4:] == ["backward:net", *(f"backward:net.{n}" for n in (2, 1, 0))]
    assert len(tool.slices) == tool.calls().total()


def test_a_module_that_calls_itself(tool):
    def deeper(self, batch, depth=3):
        return self.linear(self(batch, depth - 1)) if depth else batch

    calls = run(tool, Does(deeper, linear=nn.Linear(4, 4)))
    assert calls["module:net"] == 4
    assert calls["backward:net"] == 3  # the innermost returns its input


def test_in_place_ops_on_an_output(tool):
    def doubled(self, batch):
        out = self.first(batch)
        out.mul_(2)
        out = self.relu(out)
        return self.last(out).exp_()

    modules = {"first": nn.Linear(4, 4), "relu": nn.ReLU(inplace=True), "last": nn.Linear(4, 4)}
    calls = run(tool, Does(doubled, **modules))
    assert {calls[f"backward:net.{name}"] for name in modules} == {1}


def test_in_place_ops_on_a_view_of_an_output(tool):
    def part(self, batch):
        out = self.first(batch)
        out[:, :2].zero_()
        return self.last(out.view(4, 2)).view(2, 4)[0]

    modules = {"first": nn.Linear(4, 4), "last": nn.Linear(2, 2)}
    assert run(tool, Does(part, **modules))["backward:net.first"] == 1


def test_a_graph_that_is_retained_is_counted_at_each_pass(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="net"):
        out = model(x()).sum()
        out.backward(retain_graph=True)
        out.backward()
    assert tool.calls()["backward:net.0"] == tool.calls()["backward:net"] == 2
    assert tool.calls()["module:net"] == 1


def test_double_backward(tool):
    def penalty(model):
        batch = x(needs_grad=True)
        out = model(batch).pow(2).sum()
        [gradient] = torch.autograd.grad(out, batch, create_graph=True)
        (out + gradient.pow(2).sum()).backward()
        return [batch.grad, *(parameter.grad for parameter in model.parameters())]

    alone, model = mlp(), mlp()
    expected = penalty(alone)
    with bridge.torch.annotate(model, name="net"):
        assert identical(expected, penalty(model))
        assert tool.all_closed()
    assert tool.calls()["backward:net.0"] == 2


def test_a_backward_pass_within_forward(tool):
    def force(self, batch):
        batch = batch.detach().requires_grad_()
        [found] = torch.autograd.grad(self.energy(batch).sum(), batch, create_graph=True)
        return found

    calls = run(tool, Does(force, energy=mlp()))
    assert calls["module:net"] == 1
    assert ("module:net", "backward:net") in tool.parents("backward:net.energy")


def test_two_losses_of_one_model(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="net"):
        one, other = model(x()).sum(), model(x()).sum()
        (one + other).backward()
    assert tool.calls()["backward:net"] == tool.calls()["backward:net.0"] == 2
    assert len(tool.slices) == tool.calls().total()


def test_parts_that_join_again(tool):
    def branches(self, batch):
        return self.left(batch) + self.right(batch)

    calls = run(tool, Does(branches, left=mlp(), right=mlp()))
    assert {calls[f"backward:net.{side}.{n}"] for side in ("left", "right") for n in range(3)} == {
        1
    }
    assert tool.parents("backward:net.left.0") == {("backward:net", "backward:net.left")}
    assert len(tool.slices) == tool.calls().total()


def test_an_early_input_that_is_used_late(tool):
    """Work between two modules belongs to neither, though the second has an input made before both."""
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, batch):
            return batch * 2

        @staticmethod
        def backward(ctx, gradient):
            seen.append(tool.open())
            return gradient

    def late(self, batch):
        early = batch.exp()
        between = Watched.apply(self.first(early))
        return self.second(early) + between

    run(tool, Does(late, first=nn.Linear(4, 4), second=nn.Linear(4, 4)), x(needs_grad=True))
    assert seen == [("backward:net",)]


# -- outputs

OUTPUTS = {
    "tuple": (lambda a, b: (a, [b]), lambda out: (out[0] + out[1][0]).sum()),
    "dict": (lambda a, b: {"a": a, "b": {"c": b}}, lambda out: (out["a"] + out["b"]["c"]).sum()),
    "dataclass": (Pair, lambda out: (out.left + out.right).sum()),
    "one of two": (lambda a, b: (a, b, None, 3), lambda out: out[0].sum()),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_of_other_kinds(tool, kind):
    pack, loss = OUTPUTS[kind]
    model = Does(
        lambda self, batch: pack(self.left(batch), self.right(batch)),
        left=nn.Linear(4, 4),
        right=nn.Linear(4, 4),
    )
    calls = run(tool, model, loss=loss)
    assert calls["backward:net"] == calls["backward:net.left"] == 1
    assert calls["backward:net.right"] == (kind != "one of two")
    assert len(tool.slices) == calls.total()


def test_a_module_without_an_output(tool):
    kept = []
    model = Does(lambda self, batch: kept.append(self.linear(batch)), linear=nn.Linear(4, 4))
    with bridge.torch.annotate(model, name="net"):
        model(x())
        kept.pop().sum().backward()
    assert tool.parents("backward:net.linear") == {("backward:net",)}


def test_an_output_in_itself(tool):
    endless: list = []
    endless.append(endless)
    with bridge.torch.annotate(Does(lambda self: endless)) as annotation:
        annotation.remove()
    model = Does(lambda self: endless)
    with bridge.torch.annotate(model):
        model()


def test_recurrent_modules(tool):
    model = nn.LSTM(4, 4, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 4), [3, 2], batch_first=True)
    calls = run(tool, model, packed, loss=lambda out: out[0].data.sum())
    assert calls == Counter(["module:net", "backward:net"])


# -- threads


@pytest.mark.slow
def test_models_on_two_threads(tool):
    models = {name: transformer() for name in ("one", "other")}
    alone = train(transformer())
    found = {}

    def work(name):
        found[name] = train(models[name])

    with bridge.torch.auto(models):
        threads = [Thread(target=work, args=(name,)) for name in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in models:
        assert identical(alone, found[name])
        pieces = [piece for piece in tool.slices if f":{name}" in piece.label.name]
        assert len({piece.thread for piece in pieces}) == 1
        assert all(f":{name}" in parent for piece in pieces for parent in piece.parents)
        assert tool.calls()[f"module:{name}"] == tool.calls()[f"backward:{name}"] == 3


def test_one_model_on_two_threads(tool):
    model = mlp()

    def work():
        for _ in range(20):
            model(x()).sum().backward()

    with bridge.torch.annotate(model, name="net"):
        threads = [Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tool.all_closed()
    assert set(tool.calls().values()) == {40}


def test_calls_of_other_threads_than_that_of_the_pass_have_no_backward_range(tool):
    model = mlp()
    outputs = []
    with bridge.torch.annotate(model, name="net"):
        threads = [Thread(target=lambda: outputs.append(model(x()).sum())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sum(outputs).backward()
        assert tool.all_closed()
    assert tool.calls()["module:net"] == 2
    assert not any(name.startswith("backward:") for name in tool.names())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


@pytest.mark.filterwarnings("error")
def test_custom_operators_have_their_ranges(tool):
    """From PyTorch 2.14 on `apply` is written in C++."""
    x = torch.ones(2, requires_grad=True)
    with bridge.torch.custom_ops():
        Doubled.apply(x).sum().backward()
    Doubled.apply(x).sum().backward()
    assert tool.names() == ["Doubled", "DoubledBackward"][VERSION >= (2, 14) :]
    assert x.grad.tolist() == [4, 4]
