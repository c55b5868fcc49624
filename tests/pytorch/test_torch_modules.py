"""Every module has its ranges, forward and backward, nested as the modules are; the training is the same."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from collections import Counter
from pathlib import Path

import pytest
from real_parts import NIGHT
from small import (
    WITH_NODES,
    WITHOUT_NODES,
    Transformer,
    identical,
    loss_of,
    mlp,
    nn,
    torch,
    train,
    transformer,
    words,
)

import bridge.torch
from bridge.annotate import emit, emitter
from bridge.annotate.cost import cost
from bridge.join.grammar import parse

FORWARD = [f"module:{path}" for path in [*WITH_NODES, *WITHOUT_NODES]]
BACKWARD = [f"backward:{path}" for path in WITH_NODES]


def dictionaries(model):
    """Copy the attributes of every module, and the dictionaries of hooks among them."""
    return [
        {key: dict(value) if isinstance(value, dict) else value for key, value in vars(one).items()}
        for one in model.modules()
    ]


def test_every_module_is_counted_once_per_step(tool):
    model = transformer()
    cost.clear()
    with bridge.torch.annotate(model):
        train(model)
    assert tool.calls() == Counter(dict.fromkeys([*FORWARD, *BACKWARD], 3))
    assert cost.ranges == tool.calls().total()
    assert cost.ns >= 1_000 * cost.ranges
    assert len(tool.slices) == tool.calls().total(), "a range in pieces"


def test_ranges_nest_as_modules_do(tool):
    model = transformer()
    with bridge.torch.annotate(model):
        train(model)
    assert len(tool.slices) == 3 * len([*FORWARD, *BACKWARD])
    for piece in tool.slices:
        direction, path = piece.label.name.split(":")
        names = path.split(".")
        around = (".".join(names[:length]) for length in range(1, len(names)))
        # nn.ModuleList is never called.
        expected = tuple(f"{direction}:{outer}" for outer in around if not outer.endswith("layers"))
        assert piece.parents == expected
        assert piece.label.category == "module"


def test_backward_runs_in_the_other_order(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="net"):
        model(torch.ones(2, 4)).sum().backward()
    assert tool.names() == [
        *("module:net", "module:net.0", "module:net.1", "module:net.2"),
        *("backward:net", "backward:net.2", "backward:net.1", "backward:net.0"),
    ]


def test_names_are_read_as_modules(tool):
    model = nn.Sequential()
    model.add_module("a layer", nn.Linear(2, 2))
    with bridge.torch.annotate(model, name=": my net"):
        model(torch.ones(1, 2)).sum().backward()
    assert len(tool.names()) == 4, tool.names()
    for name in tool.names():
        label = parse(name)
        assert (label.kind, label.backward) == ("module", name.startswith("backward:"))


def test_without_backward(tool):
    model = mlp()
    with bridge.torch.annotate(model, backward=False):
        model(torch.ones(2, 4)).sum().backward()
    assert len(tool.names()) == 4  # the model and its three layers
    assert all(name.startswith("module:") for name in tool.names())


WAYS = {
    "annotate": bridge.torch.annotate,
    "ops": lambda model: bridge.torch.ops(),
    "sizes": lambda model: bridge.torch.ops(shapes=True),
    "all": lambda model: bridge.torch.auto(model, ops=True, shapes=True),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_training_is_the_same_to_the_bit(tool, way):
    alone = train(transformer())
    model = transformer()
    with way(model):
        annotated = train(model)
    assert tool.slices
    assert identical(alone, annotated)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_without_a_tool_nothing_is_changed(way):
    previous = emit.use(emitter.NullEmitter())
    alone = train(transformer())
    model = transformer()
    with way(model):
        annotated = train(model)
    emit.use(previous)
    assert identical(alone, annotated)


def test_nothing_is_put_into_a_model(tool):
    model = transformer()
    before = dictionaries(model)
    with bridge.torch.annotate(model):
        train(model, 1)
        model.zero_grad()
        assert dictionaries(model) == before
    assert tool.slices
    tool.slices.clear()
    train(model, 1)
    assert not tool.slices


def test_a_second_removal_does_nothing(tool):
    annotation = bridge.torch.annotate(mlp())
    annotation.remove()
    annotation.remove()


def test_what_is_annotated_already_is_left_alone(tool):
    model = mlp()
    with bridge.torch.annotate(model, name="first"), bridge.torch.annotate(model, name="second"):
        model(torch.ones(2, 4)).sum().backward()
    assert set(tool.calls().values()) == {1}
    assert all("first" in name for name in tool.names())
    with bridge.torch.annotate(model, name="third"):
        model(torch.ones(2, 4))
    assert "module:third.2" in tool.names()


def test_a_graph_outlives_the_annotation(tool):
    model = mlp()
    with bridge.torch.annotate(model):
        loss = model(torch.ones(2, 4)).sum()
    tool.slices.clear()
    loss.backward()
    assert not tool.slices


def test_a_removal_in_the_midst_of_a_call_closes_it(tool):
    model = mlp()
    annotation = bridge.torch.annotate(model)
    model[1].register_forward_hook(lambda *_: annotation.remove())
    model(torch.ones(2, 4))
    assert tool.all_closed()


def test_copies_of_an_annotated_model_have_no_ranges(tool):
    model = mlp()
    with bridge.torch.annotate(model):
        copied = copy.deepcopy(model)
        read = pickle.loads(pickle.dumps(model))
        copied(torch.ones(2, 4)).sum().backward()
        read(torch.ones(2, 4)).sum().backward()
    assert not tool.slices


def test_only_modules_are_annotated():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        bridge.torch.annotate(print)


def test_hooks_of_others_run_within_the_range(tool):
    model = nn.Linear(2, 2)
    seen = []
    model.register_forward_pre_hook(lambda *_: seen.append(tool.open()))
    with bridge.torch.annotate(model):
        model(torch.ones(1, 2))
    assert seen == [("module:Linear",)]


def test_gradients_added_to_parameters_belong_to_their_module(tool):
    model = mlp()
    seen = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: seen.update({name: tool.open()})
        )
    with bridge.torch.annotate(model, name="net"):
        model(torch.ones(2, 4)).sum().backward()
    assert seen == {
        f"{number}.{kind}": ("backward:net", f"backward:net.{number}")
        for number in (0, 2)
        for kind in ("weight", "bias")
    }


def test_several_models(tool):
    with bridge.torch.auto({"one": mlp(), "other": mlp()}), bridge.torch.auto([transformer()]):
        pass
    first, second = mlp(), mlp()
    with bridge.torch.auto({"one": first, "other": second}):
        second(first(torch.ones(2, 4))).sum().backward()
    assert {name.split(":")[1].split(".")[0] for name in tool.names()} == {"one", "other"}
    assert tool.parents("backward:one") == {()}


class Nowhere(emitter.NullEmitter):
    """A tool that keeps nothing, so that what grows is ours; not silent to those who ask."""


def memory() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_thousands_of_steps_leave_nothing_behind():
    previous = emit.use(Nowhere())
    emit.state.idle = False
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(2, 4)

    def steps(count: int) -> tuple[int, int]:
        for _ in range(count):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        gc.collect()
        return len(gc.get_objects()), memory()

    with bridge.torch.auto(model):
        objects, size = steps(300)
        more_objects, more_size = steps(10_000 if NIGHT else 1_500)
    emit.use(previous)
    assert more_objects - objects < 100  # less than one in fifteen steps
    assert more_size - size < 4 << 20


@pytest.mark.slow
def test_an_annotated_model_frees_its_graph_at_once(tool):
    model = transformer()
    gc.collect()
    gc.disable()
    with bridge.torch.annotate(model):
        logits, loss = loss_of(model)
        alive = torch.autograd.graph.get_gradient_edge(logits).node
        dropped = []
        alive.metadata["tell"] = Told(dropped)
        del alive, logits, loss
    gc.enable()
    assert dropped == ["gone"]


class Told:
    def __init__(self, to: list) -> None:
        self.to = to

    def __del__(self) -> None:
        self.to.append("gone")


def test_the_class_is_the_name(tool):
    with bridge.torch.annotate(Transformer()) as annotation:
        assert isinstance(annotation, bridge.torch.Annotation)
    model = Transformer()
    with bridge.torch.annotate(model), torch.no_grad():
        model(words(0))
    assert tool.names()[0] == "module:Transformer"
