"""Compiled code computes what it did, from as many graphs, and a compiled module has its ranges."""

from __future__ import annotations

import copy
import shutil
from itertools import product

import pytest
from real_parts import NIGHT
from small import VERSION, from_torch, identical, loss_of, mlp, nn, torch, train, transformer
from torch._dynamo.utils import counters

import bridge
import bridge.torch
from bridge.annotate import emit, emitter
from bridge.frameworks.torch.composite import Compiler

pytestmark = pytest.mark.filterwarnings("ignore")  # the compiler's own

# With a mode for ops older ones compile nothing, or compile again at each call.
CAN_RECORD_OPS = VERSION >= (2, 7)
CHOICES = [*product(["eager", "aot_eager"], ["wrapped", "in place"], [False, True])]
PAIRS = [CHOICES[n] for n in (0, 3, 5, 6)]  # every two choices together once


@pytest.fixture(autouse=True)
def _afresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    Compiler.has_run = False  # of a process, and other tests compile nothing


def compiled(model, how: str, backend: str):
    if how == "wrapped":
        return torch.compile(model, backend=backend)
    model.compile(backend=backend)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "how", "ops"), CHOICES if NIGHT else PAIRS)
def test_a_compiled_model_has_its_ranges(tool, backend, how, ops):
    if ops and not CAN_RECORD_OPS:
        pytest.skip("before PyTorch 2.7 a mode for ops and torch.compile do not go together")
    alone = train(transformer())
    model = compiled(transformer(), how, backend)
    with bridge.torch.auto(model, ops=ops):
        annotated = train(model)
    assert identical(alone, annotated)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert Compiler.has_run == ops
    calls = tool.calls()
    assert calls["module:Transformer"] == calls["backward:Transformer"] == 3
    assert calls["Optimizer.step#SGD.step"] == 3
    assert (calls["aten::addmm"] > 0) == ops
    assert {name for name in calls if name.startswith("module:")} == {"module:Transformer"}


@pytest.mark.slow
@from_torch(2, 5)  # older ones compile each instance of a class
@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_a_model_compiled_later_computes_the_same_from_one_graph(tool, how):
    alone = train(transformer())
    model = transformer()
    with bridge.torch.auto(model):
        annotated = train(compiled(model, how, "aot_eager"))
    again = train(compiled(transformer(), how, "aot_eager"))
    assert identical(alone, annotated)
    assert identical(alone, again)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_what_comes_and_goes_compiles_nothing_again(tool, how):
    model = compiled(transformer(), how, "aot_eager")
    with bridge.torch.auto(model):
        train(model, 1)
        emit.use(emitter.NullEmitter())
        train(model, 1)
        emit.use(tool)
        train(model, 1)
    train(model, 1)
    with bridge.torch.auto(model):
        train(model, 1)
    assert counters["stats"]["unique_graphs"] == 1
    assert tool.calls()["module:Transformer"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_undoing_restores_a_compiled_model(tool, how):
    model = compiled(transformer(), how, "eager")
    before = [copy.copy(vars(one)) for one in model.modules()]
    with bridge.torch.annotate(model), bridge.torch.annotate(model, name="again"):
        loss_of(model)[1].backward()
    assert [vars(one) for one in model.modules()] == before
    assert tool.calls() == {"module:Transformer": 1, "backward:Transformer": 1}


@pytest.mark.slow
def test_compiled_parts(tool):
    model = nn.Sequential(torch.compile(mlp(), backend="aot_eager"), mlp())
    model[1][2] = torch.compile(model[1][2], backend="aot_eager")
    with bridge.torch.annotate(model, name="net"):
        model(torch.ones(2, 4)).sum().backward()
    for path in ("net", "net.0", "net.1", "net.1.0", "net.1.2"):
        assert tool.calls()[f"module:{path}"] == tool.calls()[f"backward:{path}"] == 1
    assert "module:net.0.0" not in tool.names()


def test_a_compiled_model_that_fails(tool):
    model = compiled(mlp(), "in place", "eager")
    with bridge.torch.annotate(model), pytest.raises(Exception, match=r"fake tensor|shapes"):
        model(torch.ones(2, 5))
    assert tool.all_closed()


@pytest.mark.slow
def test_a_broken_graph_is_not_broken_further(tool):
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = mlp(), nn.Linear(4, 4)

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.last(x)

    def graphs(annotated: bool) -> int:
        torch._dynamo.reset()
        counters.clear()
        model = torch.compile(Broken(), backend="aot_eager")
        annotation = bridge.torch.annotate(model)
        if not annotated:
            annotation.remove()
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
        annotation.remove()
        return counters["stats"]["unique_graphs"]

    assert graphs(annotated=True) == graphs(annotated=False) == 2
    assert tool.calls()["module:Broken"] == 3


@pytest.mark.slow
@pytest.mark.skipif(not NIGHT, reason="at night: inductor compiles C++ for half a minute")
def test_inductor(tool):
    """The compiler that is the default: the same to the bit as without annotation."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler: inductor cannot compile for the CPU")
    alone, annotated = (torch.compile(mlp()) for _ in range(2))
    batch = torch.linspace(-1, 1, 8).view(2, 4)
    expected = alone(batch)
    expected.sum().backward()
    with bridge.torch.auto(annotated, ops=True):
        found = annotated(batch)
        found.sum().backward()
    gradients = [[p.grad for p in model.parameters()] for model in (alone, annotated)]
    assert identical([expected, *gradients[0]], [found, *gradients[1]])
    assert tool.calls()["module:Sequential"] == tool.calls()["backward:Sequential"] == 1


def test_scripted_parts_have_ranges(tool):
    model = nn.Sequential(torch.jit.script(mlp()), torch.jit.trace(mlp(), torch.ones(2, 4)))
    with bridge.torch.annotate(model, name="net"):
        model(torch.ones(2, 4)).sum().backward()
    assert set(tool.calls()) == {
        f"{way}:{path}" for way in ("module", "backward") for path in ("net", "net.0", "net.1")
    }


def test_exported_and_traced(tool):
    model, batch = mlp(), torch.ones(2, 4)
    with bridge.torch.annotate(model):
        exported = torch.export.export(model, (batch,)).module()
        traced = torch.fx.symbolic_trace(model)
    tool.slices.clear()
    assert torch.equal(exported(batch), model(batch))
    assert torch.equal(traced(batch), model(batch))
    assert not tool.slices
    with bridge.torch.annotate(traced, name="traced"):
        traced(batch).sum().backward()
    assert tool.calls()["backward:traced.0"] == 1


# -- @nvtx_op and blocks in code that is compiled, traced or scripted, as docs/torch.md describes


@bridge.nvtx_op("op")
def op(x):
    return x.relu()


def calls_op(x):
    return op(x + 1) * 2


def has_block(x):
    with bridge.nvtx_op("block"):
        y = x + 1
    return y * 2


def calls_op_in_block(x):
    with bridge.nvtx_op("block"):
        y = op(x + 1)
    return y * 2


ANNOTATED = {  # function: its ranges per call, its graphs under a profiler, and the breaks between them
    calls_op: (["op"], 3, 2),  # before, in and after the op
    has_block: (["block"], 0, 0),
    calls_op_in_block: (["block", "op"], 1, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("function", ANNOTATED, ids=lambda function: function.__name__)
def test_annotated_code_is_compiled_in_parts_under_a_profiler(tool, function):
    names, graphs, breaks = ANNOTATED[function]
    batch = torch.linspace(-1, 1, 8)
    found = torch._dynamo.explain(function)(batch)
    assert (found.graph_count, max(found.graph_break_count, 0)) == (graphs, breaks)
    torch._dynamo.reset()
    fast = torch.compile(function, backend="eager")
    assert torch.equal(fast(batch), function(batch))
    tool.slices.clear()
    fast(batch), fast(batch)
    assert tool.names() == names * 2
    assert tool.all_closed()
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(function, backend="eager", fullgraph=True)(batch)
    assert tool.all_closed()


@pytest.mark.slow
@from_torch(2, 7)
@pytest.mark.parametrize("function", ANNOTATED, ids=lambda function: function.__name__)
def test_annotated_code_is_one_graph_without_a_profiler(tool, function):
    emit.use(emitter.NullEmitter())
    batch = torch.linspace(-1, 1, 8)
    found = torch._dynamo.explain(function)(batch)
    assert (found.graph_count, found.graph_break_count) == (1, 0)
    torch._dynamo.reset()
    fast = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(fast(batch), function(batch))


@pytest.mark.slow
@pytest.mark.parametrize("profiled", [True, False])
@pytest.mark.parametrize("outer", [op, *ANNOTATED], ids=lambda function: function.__name__)
def test_annotated_code_is_traced_and_scripted_without_its_ranges(tool, outer, profiled):
    if not profiled:
        emit.use(emitter.NullEmitter())
    batch = torch.linspace(-1, 1, 8)
    expected, made = outer(batch), [torch.jit.trace(outer, batch)]
    if outer in (op, calls_op):
        made.append(torch.jit.script(outer))
    else:
        with pytest.raises(torch.jit.frontend.NotSupportedError):
            torch.jit.script(outer)
    tool.slices.clear()
    for function in made:
        assert torch.equal(function(batch), expected)
    assert not tool.slices
    assert tool.all_closed()
