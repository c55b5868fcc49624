"""A session of a PyTorch program: what its levels record, and that nothing of what is computed changes."""

from __future__ import annotations

import copy
import json
import time
import warnings

import pytest
from small import LAYER, from_torch, identical, loss_of, mlp, nn, torch, train, transformer
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.flop_counter import FlopCounterMode

import bridge
import bridge.torch

STEPS = 3
ALL = {"level": 2, "record_shapes": True, "with_flops": True, "with_modules": True}


def names(session: bridge.Session) -> list[str]:
    return session.report.capture.ranges.name.tolist()


def calls(session: bridge.Session) -> dict[str, int]:
    return session.by("op").set_index("op")["calls"].to_dict()


def hooks() -> list[object]:
    """Give what of PyTorch's own a session may change."""
    module = nn.modules.module
    record = torch.autograd.profiler.record_function
    return [
        _get_current_dispatch_mode(),
        dict(module._global_forward_hooks),
        dict(module._global_forward_pre_hooks),
        record.__enter__,
        record.__exit__,
    ]


@pytest.fixture(autouse=True)
def _all_as_before():
    before = hooks()
    yield
    assert hooks() == before


# -- levels


def test_level_0_records_ones_own_ranges_alone():
    with bridge.profile(level=0) as session:
        assert _get_current_dispatch_mode() is None
        with bridge.nvtx_op("mine"):
            train(transformer(), 1)
    assert names(session) == ["mine"]


def test_level_1_records_modules_and_optimizers():
    with bridge.profile() as session:
        train(transformer(), STEPS)
        assert _get_current_dispatch_mode() is None
    found = calls(session)
    assert found["module:Transformer"] == found["backward:Transformer"] == STEPS
    assert found["Optimizer.step#SGD.step"] == STEPS
    assert not [name for name in found if name.startswith(("aten::", "gc "))]


def test_ops_are_recorded_on_request():
    with bridge.profile(ops=True, with_modules=False) as session:
        train(transformer(), STEPS)
    found = calls(session)
    assert found["aten::addmm"] == STEPS * (2 * 4 + 1)
    assert not [name for name in found if name.startswith("module:")]


@pytest.mark.slow
def test_level_2_records_collections_as_well():
    import gc

    with bridge.profile(level=2) as session:
        train(transformer(), 1)
        gc.collect()
    assert {"aten::addmm", "gc generation 2"} <= set(calls(session))


def test_waits_for_data_are_ranges():
    data = torch.utils.data.DataLoader(list(range(6)), batch_size=2)
    with bridge.profile(ops=True) as session:
        for _ in data:
            pass
    loader = [name for name in names(session) if name.startswith("enumerate(DataLoader)#")]
    assert len(loader) == 4


# -- details


def arguments(session: bridge.Session, op: str) -> list[dict[str, object]]:
    ranges = session.report.capture.ranges
    return [json.loads(text) for text in ranges.json[ranges.name == op]]


def test_shapes_dtypes_and_bytes():
    with bridge.profile(ops=True, record_shapes=True) as session:
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    [details] = arguments(session, "aten::mm")
    assert details["shapes"] == [[2, 3], [3, 4]]
    assert details["dtypes"] == ["float32", "float32"]
    assert details["output_shapes"] == [[2, 4]]
    assert details["bytes"] == 4 * (6 + 12 + 8)
    assert "flops" not in details
    table = session.by("range", arguments=True).set_index("name")
    row = table.loc["aten::mm"].to_dict()
    assert "[2, 3]" in " ".join(str(value) for value in row.values())


def test_without_details_nothing_is_described():
    with bridge.profile(ops=True) as session:
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    assert set(session.report.capture.ranges.json) == {""}


def counted(session: bridge.Session) -> int:
    """Give the FLOPs of matrix products, as the recording has them."""
    ops = (
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::convolution",
        "aten::convolution_backward",
    )
    ranges = session.report.capture.ranges
    told = ranges.json[ranges.name.among(*ops)]
    return sum(json.loads(text)["flops"] for text in told)


@pytest.mark.parametrize("model", ["mlp", "transformer", "convolution"])
def test_flops_are_those_of_pytorchs_own_counter(model):
    if model == "convolution":
        net = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Conv2d(6, 2, 1))

        def run() -> None:
            net(torch.ones(2, 4, 9, 9, requires_grad=True)).sum().backward()

    elif model == "mlp":
        net = mlp(8)

        def run() -> None:
            net(torch.ones(5, 8)).sum().backward()

    else:
        net = transformer()

        def run() -> None:
            loss_of(net)[1].backward()

    with FlopCounterMode(display=False) as counter:
        run()
    known = {"mm", "addmm", "bmm", "convolution", "convolution_backward"}
    of_ops = counter.get_flop_counts()["Global"]
    expected = sum(number for op, number in of_ops.items() if op.__name__ in known)
    with bridge.profile(with_flops=True) as session:
        run()
    assert counted(session) == expected > 0


def test_flops_of_a_convolution_in_groups():
    """PyTorch's own counter takes the gradient of such a weight for one without groups."""
    net = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
    with bridge.profile(with_flops=True) as session:
        net(torch.ones(2, 4, 9, 9, requires_grad=True)).sum().backward()
    forward = 2 * (2 * 6 * 5 * 5) * (4 // 2 * 3 * 3)
    assert counted(session) == 3 * forward


def test_modules_forward_and_backward():
    model = transformer()
    with bridge.profile(ops=True, with_modules=True) as session:
        train(model, STEPS)
    found = calls(session)
    for part in ("", ".head", *(f".layers.1{path}" for path in LAYER if path != ".mlp.3")):
        assert found[f"module:Transformer{part}"] == STEPS
        assert found[f"backward:Transformer{part}"] == STEPS
    train(model, 1)
    assert calls(session) == found


def test_a_session_that_ends_within_a_forward_leaves_no_module_open():
    session = bridge.profile(ops=True, with_modules=True)

    class Stopping(nn.Module):
        def forward(self, x):
            session.stop()
            return x + 1

    model = nn.Sequential(nn.Linear(2, 2), Stopping(), nn.Linear(2, 2))
    session.start()
    model(torch.ones(2, 2)).sum().backward()
    assert calls(session)["module:Sequential.1"] == 1
    with session:
        mlp()(torch.ones(2, 4)).sum().backward()
    assert calls(session)["backward:Sequential.2"] == 1
    assert "module:Sequential.1" in calls(session)


# -- nothing changes


@pytest.mark.parametrize("options", [{}, {"level": 0}, ALL])
def test_results_are_the_same_to_the_bit(options):
    expected = train(transformer(), STEPS)
    with bridge.profile(ops=True, **options) as session:
        found = train(transformer(), STEPS)
    assert identical(expected, found)
    assert identical(expected, train(transformer(), STEPS))
    if options is ALL:
        assert "backward:Transformer.head" in calls(session)


def test_models_are_copied_and_saved_as_before(tmp_path):
    model = transformer()
    before = set(vars(model))
    with bridge.profile(ops=True, **ALL):
        loss_of(model)[1].backward()
        copied = copy.deepcopy(model)
        torch.save(model.state_dict(), tmp_path / "state.pt")
    assert set(vars(model)) == before == set(vars(copied))
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


# What PyTorch says of the hooks on all modules, when it calls a compiled one.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using .torch.compile.module:UserWarning")
@pytest.mark.parametrize("options", [ALL, ALL | {"with_modules": False}])
def test_a_compiled_model(options):
    torch._dynamo.reset()
    model = mlp()
    compiled = torch.compile(model, backend="aot_eager")
    batch = torch.ones(2, 4)
    expected = model(batch)
    with bridge.profile(ops=True, **options) as session:
        for _ in range(STEPS):
            found = compiled(batch)
            found.sum().backward()
            session.step()
    assert identical([expected], [found])
    assert {"aten::addmm", "aten::mm"} <= set(calls(session))
    compiled(batch).sum().backward()


# -- other modes


def test_within_another_mode_and_around_one():
    run = torch.ones(2, 3), torch.ones(3, 4)
    with FlopCounterMode(display=False) as around, bridge.profile(ops=True) as session:
        torch.mm(*run)
        with FlopCounterMode(display=False) as inside:
            torch.mm(*run)
        torch.mm(*run)
    assert (around.get_total_flops(), inside.get_total_flops()) == (3 * 48, 48)
    assert calls(session)["aten::mm"] == 3


def test_cycles_within_another_mode():
    schedule = bridge.schedule(wait=1, warmup=0, active=1)
    cycles = bridge.profile(ops=True, schedule=schedule)
    with FlopCounterMode(display=False) as counter, cycles as session:
        for _ in range(4):
            torch.mm(torch.ones(2, 3), torch.ones(3, 4))
            session.step()
    assert counter.get_total_flops() == 4 * 48


def test_pause_and_resume_around_ops():
    with bridge.profile(ops=True) as session:
        torch.zeros(1)
        session.pause()
        assert _get_current_dispatch_mode() is None
        torch.ones(1)
        session.resume()
        torch.arange(3)
    assert set(calls(session)) == {"aten::zeros", "aten::arange"}


# -- as torch.profiler


@from_torch(2, 6)
@pytest.mark.parametrize(
    "numbers",
    [
        {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1},
        {"wait": 0, "warmup": 1, "active": 1},
        {"wait": 2, "warmup": 1, "active": 3, "skip_first_wait": 1},
    ],
)
def test_cycles_and_steps_are_those_of_torch_profiler(numbers):
    def run(session) -> None:
        with session:
            for _ in range(10):
                torch.mm(torch.ones(2, 2), torch.ones(2, 2))
                session.step()

    ours, theirs = [], []

    def counted(number: int, found: list[str]) -> tuple[int, int, int]:
        steps = [name for name in found if name.startswith("ProfilerStep")]
        return number, len(steps), found.count("aten::mm")

    def of_theirs(profiler) -> None:
        found = [event.name for event in profiler.events()]
        theirs.append(counted(profiler.step_num, found))

    def of_ours(session) -> None:
        ours.append(counted(session.step_num, names(session)))

    run(bridge.profile(ops=True, schedule=bridge.schedule(**numbers), on_trace_ready=of_ours))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as an error, what it says of itself ends in a crash
        run(
            torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(**numbers),
                on_trace_ready=of_theirs,
            )
        )
    assert ours == theirs
    again, ours = ours, []
    run(
        bridge.profile(
            ops=True, schedule=torch.profiler.schedule(**numbers), on_trace_ready=of_ours
        )
    )
    assert ours == again


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_what_an_op_costs(capsys):
    """Generous, for busy machines; the figures are printed."""
    some = torch.ones(2)

    def cost(**options: object) -> float:
        best = float("inf")
        for _ in range(5):
            with bridge.profile(ops=True, **options):
                begun = time.perf_counter()
                for _ in range(500):
                    some.neg()
                best = min(best, (time.perf_counter() - begun) / 500)
        return best * 1e6

    found = {
        "level 0": cost(level=0),
        "level 1": cost(),
        "shapes": cost(record_shapes=True),
        "shapes and FLOPs": cost(record_shapes=True, with_flops=True),
    }
    with capsys.disabled():
        print("\nµs per op:", {name: round(us, 1) for name, us in found.items()})  # noqa: T201
    assert found["level 1"] < 200
    assert found["shapes and FLOPs"] < 400


# -- Several requests of one thread: what any of them asks for is recorded


def linear():
    nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))


def details_of(session, op="aten::addmm"):
    """Give the names of the details of each call of an op."""
    ranges = session.report.capture.ranges
    texts = ranges["json"][ranges["name"] == op].tolist()
    return [set(json.loads(text)) if text else set() for text in texts]


def test_a_session_within_ops_records_what_they_ask_for():
    with bridge.torch.ops(strides=True, stacks=True), bridge.profile(ops=True) as session:
        linear()
    for op in ("aten::mm", "aten::linear"):
        [found] = details_of(session, op)
        assert {"shapes", "strides", "stack"} <= found


def test_ops_within_a_session_add_to_it_until_they_end():
    with bridge.profile(ops=True) as session:
        linear()
        with bridge.torch.ops(strides=True, stacks=True):
            linear()
        linear()
    first, second, third = details_of(session, "aten::mm")
    assert first == third == set()
    assert {"shapes", "strides", "stack"} <= second
    assert session.by("op").set_index("op").loc["aten::mm", "calls"] == 3


def test_each_of_two_requests_gets_its_details():
    with bridge.torch.ops(stacks=2), bridge.profile(record_shapes=True, with_flops=True) as session:
        linear()
        with bridge.torch.ops(strides=True):
            linear()
    first, second = details_of(session, "aten::mm")
    assert second - first == {"strides"}
    assert {"shapes", "flops", "stack"} <= first


def test_ops_that_outlive_a_session_end_by_themselves():
    extra = bridge.torch.ops(stacks=True)
    session = bridge.profile(ops=True)
    session.start()
    extra.enable()
    session.stop()
    assert _get_current_dispatch_mode() is not None
    extra.disable()
    assert _get_current_dispatch_mode() is None


def test_ops_alone_ask_nothing_of_a_session_without_ops():
    with bridge.torch.ops(strides=True), bridge.profile(level=0) as session, bridge.nvtx_op("mine"):
        linear()
    assert session.by("op")["op"].tolist() == ["mine"]
    with bridge.profile(ops=True) as later:
        linear()
    assert details_of(later, "aten::mm") == [set()]
