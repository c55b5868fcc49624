"""Every op has a range with PyTorch's own name, and if asked with the sizes of its inputs."""

from __future__ import annotations

import copy
import json
import threading

import pytest
from small import loss_of, mlp, nn, torch, transformer
from torch.utils._python_dispatch import _get_current_dispatch_mode

import bridge.torch
from bridge.annotate import emit, emitter
from bridge.frameworks.torch.sizes import MAX_BYTES, with_sizes
from bridge.importers.range_texts import name_lengths
from bridge.importers.texts import Texts
from bridge.join.grammar import parse, written


def test_ops_have_the_names_of_pytorchs_profiler(tool):
    model = transformer()
    with bridge.torch.ops():
        loss_of(model)[1].backward()
    with torch.profiler.profile() as profiler:
        loss_of(model)[1].backward()
    names = set(tool.names())
    assert {"aten::addmm", "aten::mm", "aten::native_layer_norm", "aten::gelu_backward"} <= names
    # Under a dispatch mode PyTorch hands out aliases of what it saves.
    assert names - {"aten::detach"} <= {event.name for event in profiler.events()}


def test_an_op_that_fails_is_closed(tool):
    with bridge.torch.ops():
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        assert tool.all_closed()
    assert tool.names()[-1] == "aten::mm"


def test_sizes(tool):
    with bridge.torch.ops(shapes="text"):
        made = torch.mm(torch.ones(2, 3), torch.ones(3, 4))
        torch.cat([made, made], dim=1)
        torch.sum(torch.tensor(1.0))
    assert "aten::mm, sizes = [[2, 3], [3, 4]]" in tool.names()
    assert "aten::cat, sizes = [[2, 4], [2, 4], []]" in tool.names()
    assert "aten::sum, sizes = [[]]" in tool.names()


def test_the_importer_reads_what_is_written(tool):
    with bridge.torch.ops(shapes="text"):
        loss_of(transformer())[1].backward()
    names = sorted(
        name for name in set(tool.names()) if "Backward0" not in name and "Grad" not in name
    )
    texts = Texts.of(names)
    for text, length in zip(names, name_lengths(texts), strict=True):
        label = parse(text)
        assert label.op == text[:length] == text.partition(", sizes = ")[0]
        assert written(label) == text
        assert label.kind == "operator"
        [sizes] = [value for key, value in label.arguments if key == "sizes"]
        assert all(isinstance(length, int) for size in sizes for length in size)
    assert dict(parse("aten::mm, sizes = [[2, 3], [3, 4]]").arguments)["sizes"] == ((2, 3), (3, 4))


@pytest.mark.parametrize("count", [0, 1, 100, 127, 128, 129, 5000])
def test_a_text_stays_short_and_well_formed(count):
    text = with_sizes("aten::cat", [[torch.empty(10, 20)] * count, 0])
    assert len(text) <= MAX_BYTES
    sizes = dict(parse(text).arguments)["sizes"]
    assert sizes[:1] == (((10, 20),) if count else ((),))
    assert len(sizes) == count + (1 if count else 2) - (
        0 if count < 120 else count - len(sizes) + 1
    )
    assert written(parse(text)) == text


def test_sizes_of_what_has_none():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert with_sizes("f", [nested, None, "text", [1, 2], []]) == "f, sizes = [[], [], [], [], []]"


def test_no_op_has_two_ranges(tool):
    with bridge.torch.ops(), bridge.torch.ops(shapes=True), bridge.torch.ops():
        torch.zeros(2).add(1)
    assert tool.names() == ["aten::zeros", "aten::add"]


def test_by_hand(tool):
    ops = bridge.torch.ops()
    ops.disable()
    ops.enable()
    ops.enable()
    torch.zeros(2)
    ops.disable()
    torch.zeros(2)
    assert tool.names() == ["aten::zeros"]


def test_other_modes_are_left_first(tool):
    from torch.utils.flop_counter import FlopCounterMode

    ops = bridge.torch.ops()
    ops.enable()
    with FlopCounterMode(display=False) as flops:
        with pytest.raises(RuntimeError, match="leave the dispatch modes"):
            ops.disable()
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    ops.disable()
    assert flops.get_total_flops() == 48
    assert "aten::mm" in tool.names()


def test_without_a_tool_there_is_no_mode():
    previous = emit.use(emitter.NullEmitter())
    with bridge.torch.ops():
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    emit.use(previous)


def test_a_tool_that_goes_leaves_ops_as_they_are(tool):
    with bridge.torch.ops():
        emit.use(emitter.NullEmitter())
        assert torch.ones(2).add(1).tolist() == [2, 2]
        emit.use(tool)
    assert not tool.names()


def test_ops_of_other_libraries(tool):
    with torch.library._scoped_library("bridge_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        with bridge.torch.ops():
            assert torch.ops.bridge_test.twice(torch.ones(1)).item() == 2
    assert "bridge_test::twice" in tool.names()
    assert parse("bridge_test::twice").kind == "operator"


def test_ops_are_in_their_modules(tool):
    model = mlp()
    with bridge.torch.auto(model, ops=True):
        copy.deepcopy(model)
        model(torch.ones(2, 4)).sum().backward()
    assert ("module:Sequential", "module:Sequential.0", "aten::linear") in tool.parents(
        "aten::addmm"
    )
    backward = ("backward:Sequential", "backward:Sequential.2", "AddmmBackward0")
    assert backward in tool.parents("aten::mm")
    backward = ("backward:Sequential", "backward:Sequential.1", "ReluBackward0")
    assert backward in tool.parents("aten::threshold_backward")


def test_under_vmap_and_grad(tool):
    linear = nn.Linear(4, 4)

    def loss(weight, row):
        return torch.func.functional_call(linear, {"weight": weight}, (row,)).sum()

    batch = torch.ones(3, 4)
    expected = torch.vmap(torch.func.grad(loss), (None, 0))(linear.weight, batch)
    with bridge.torch.auto(linear, ops=True, shapes="text"):
        found = torch.vmap(torch.func.grad(loss), (None, 0))(linear.weight, batch)
    assert torch.equal(expected, found)
    assert tool.all_closed()


# -- details, which go to a session's recording


def details(session, name: str) -> list[dict]:
    ranges = session.report.capture.ranges
    return [json.loads(text) for text in ranges.json[ranges.name == name]]


def test_details_of_every_call():
    with bridge.profile(level=0) as session, bridge.torch.ops(shapes=True):
        made = torch.mm(torch.ones(2, 3), torch.ones(3, 4, dtype=torch.float32))
        torch.cat([made, made], dim=1)
        torch.mm(torch.ones(5, 3), torch.ones(3, 4))
        torch.ones(3, dtype=torch.float64).sum()
    first, second = details(session, "aten::mm")
    assert (first["shapes"], second["shapes"]) == ([[2, 3], [3, 4]], [[5, 3], [3, 4]])
    assert first["output_shapes"] == [[2, 4]]
    assert first["bytes"] == 4 * (6 + 12 + 8)
    [joined] = details(session, "aten::cat")
    assert joined["shapes"][:2] == [[2, 4], [2, 4]]
    [summed] = details(session, "aten::sum")
    assert (summed["shapes"][0], summed["dtypes"][0]) == ([3], "float64")


@pytest.mark.parametrize("flops", [None, "auto"])
def test_flops_are_counted_where_they_are_wanted(flops):
    with bridge.profile(level=0) as session, bridge.torch.ops(shapes=True, flops=flops):
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    [found] = details(session, "aten::mm")
    assert found.get("flops") == (2 * 2 * 3 * 4 if flops else None)


def test_without_shapes_nothing_is_described():
    with bridge.profile(level=0) as session, bridge.torch.ops():
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    assert set(session.report.capture.ranges.json) == {""}


def test_a_call_that_fails_says_what_it_was_given():
    with (
        bridge.profile(level=0) as session,
        bridge.torch.ops(shapes=True),
        pytest.raises(RuntimeError, match="mat1 and mat2"),
    ):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    [found] = details(session, "aten::mm")
    assert found["shapes"] == [[2, 3], [2, 3]]
    assert not found.get("output_shapes")


def test_what_is_changed_in_place_is_described_as_it_was():
    with bridge.profile(level=0) as session, bridge.torch.ops(shapes=True):
        torch.ones(2, 3).resize_(4)
    [found] = details(session, "aten::resize_")
    assert found["shapes"][0] == [2, 3]
    assert found["output_shapes"] == [[4]]


@pytest.mark.slow
def test_details_hold_no_tensor():
    import gc
    import weakref

    with bridge.profile(level=0), bridge.torch.ops(shapes=True):
        tensor = torch.ones(3)
        tensor.neg()
        alive = weakref.ref(tensor)
        del tensor
        gc.collect()
        assert alive() is None


def test_another_text_is_refused():
    with pytest.raises(ValueError, match="shapes is True, False or 'text', not 'yes'"):
        bridge.torch.ops(shapes="yes")


def test_what_another_thread_ends_is_silent_and_begins_again(tool):
    first = bridge.torch.ops()
    first.enable()
    ending = threading.Thread(target=first.disable)
    ending.start()
    ending.join()
    torch.ones(2)
    assert tool.names() == []
    with bridge.torch.ops():
        torch.ones(2)
    assert tool.names() == ["aten::ones"]
    torch.ones(2)
    assert tool.names() == ["aten::ones"]
    assert _get_current_dispatch_mode() is None
