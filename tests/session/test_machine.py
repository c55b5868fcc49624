"""What is called at every transition: what PyTorch's profiler calls, and what holds when something raises."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.capture.session.schedule import Action
from bridge.capture.session.transitions import Machine

NONE, WARMUP, RECORD, SAVE = Action
ACTIONS = list(Action)
WARNED = "warned"

# (before, next) to what happens, in order; None is the end.
TABLE: dict[tuple[Action, Action | None], list[str]] = {
    (NONE, NONE): [],
    (NONE, WARMUP): ["prepare"],
    (NONE, RECORD): ["prepare", "start"],
    (NONE, SAVE): ["prepare", "start"],
    (NONE, None): [],
    (WARMUP, NONE): [WARNED],
    (WARMUP, WARMUP): [],
    (WARMUP, RECORD): ["start"],
    (WARMUP, SAVE): ["start"],
    (WARMUP, None): [],
    (RECORD, NONE): [WARNED, "stop"],
    (RECORD, WARMUP): [WARNED, "stop"],
    (RECORD, RECORD): [],
    (RECORD, SAVE): [],
    (RECORD, None): ["stop", "ready"],
    (SAVE, NONE): ["stop", "ready"],
    (SAVE, WARMUP): ["stop", "ready", "prepare"],
    (SAVE, RECORD): ["stop", "ready", "prepare", "start"],
    (SAVE, SAVE): ["stop", "ready", "prepare", "start"],
    (SAVE, None): ["stop", "ready"],
}
# A capture of nothing, after a warm-up that nothing follows: what PyTorch does, and this does not.
IN_VAIN = ["start", "stop"]
PHASES = ("prepare", "start", "stop", "ready")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


class Phases:
    """Keep what is called; do beside it what a test wants."""

    def __init__(self, **doing: Callable[[], None]) -> None:
        self.calls: list[str] = []
        self.doing = doing

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.doing.get(name, lambda: None)()

    def prepare(self) -> None:
        self._called("prepare")

    def start(self) -> None:
        self._called("start")

    def stop(self) -> None:
        self._called("stop")

    def ready(self) -> None:
        self._called("ready")

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


def observed(do: Callable[[], None], phases: Phases) -> list[str]:
    """Do something; give what was called, after a word for every warning about the schedule."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        do()
    told = [each for each in caught if "ncorrect schedule" in str(each.message)]
    return [WARNED] * len(told) + phases.taken()


def history(actions: list[Action]) -> list[list[str]]:
    """Give what every step of a session calls, and its end."""
    phases = Phases()
    machine = Machine(actions.__getitem__, phases)
    steps = [machine.begin, *[machine.step] * (len(actions) - 1), machine.end]
    return [observed(do, phases) for do in steps]


def history_of_torch(actions: list[Action]) -> list[list[str]]:
    """Give the same of PyTorch's own profiler."""
    from torch.profiler import ProfilerAction, profile
    from torch.profiler.profiler import profile as kind

    phases = Phases()
    names = {"prepare_trace": "prepare", "start_trace": "start", "stop_trace": "stop"}
    hooks = {theirs: lambda _, ours=ours: getattr(phases, ours)() for theirs, ours in names.items()}
    watched = type("Watched", (kind,), {**hooks, "_trace_ready": lambda _: phases.ready()})
    assert issubclass(watched, profile)
    torchs = watched(schedule=lambda step: ProfilerAction[actions[step].name])
    steps = [torchs.start, *[torchs.step] * (len(actions) - 1), torchs.stop]
    found = [observed(do, phases) for do in steps]
    return [calls[: -len(IN_VAIN)] if calls[-2:] == IN_VAIN else calls for calls in found]


@pytest.mark.parametrize(("before", "now"), TABLE)
def test_every_transition_calls_what_the_table_says(before: Action, now: Action | None) -> None:
    actions = [before] if now is None else [before, now]
    begun, then, *_ = history(actions)
    assert begun == TABLE[NONE, before]
    assert then == TABLE[before, now]


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(("before", "now"), TABLE)
def test_the_table_is_that_of_torch(before: Action, now: Action | None) -> None:
    actions = [before] if now is None else [before, now]
    begun, then, *_ = history_of_torch(actions)
    assert begun == TABLE[NONE, before]
    assert then == TABLE[before, now]


@pytest.mark.slow
@needs_torch
@given(actions=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=12))
def test_whole_sessions_are_those_of_torch(actions: list[Action]) -> None:
    assert history(actions) == history_of_torch(actions)


def test_without_a_schedule_every_step_is_recorded() -> None:
    phases = Phases()
    machine = Machine(None, phases)
    machine.begin()
    for _ in range(3):
        machine.step()
    assert (machine.step_number, machine.action, machine.running) == (3, RECORD, True)
    machine.end()
    assert phases.calls == ["prepare", "start", "stop", "ready"]
    assert (machine.step_number, machine.action, machine.running) == (3, NONE, False)


def test_a_second_end_does_nothing_and_a_step_needs_a_beginning() -> None:
    phases = Phases()
    machine = Machine(None, phases)
    with pytest.raises(
        RuntimeError, match="no session is running; start one before the first step"
    ):
        machine.step()
    machine.end()
    assert phases.taken() == []
    machine.begin()
    with pytest.raises(RuntimeError, match="is already running"):
        machine.begin()
    machine.end()
    machine.end()
    assert phases.taken() == ["prepare", "start", "stop", "ready"]
    with pytest.raises(RuntimeError, match="no session is running"):
        machine.step()


def test_it_begins_again_at_step_0() -> None:
    phases = Phases()
    machine = Machine([SAVE, NONE].__getitem__, phases)
    for _ in range(2):
        machine.begin()
        assert (machine.step_number, machine.action) == (0, SAVE)
        machine.step()
        machine.end()
    assert phases.calls == ["prepare", "start", "stop", "ready"] * 2


def fail(what: str) -> Callable[[], None]:
    def failing() -> None:
        raise OSError(what)

    return failing


def test_what_the_user_raises_in_ready_comes_after_the_whole_transition() -> None:
    phases = Phases(ready=fail("no space"))
    machine = Machine([SAVE, RECORD, NONE].__getitem__, phases)
    machine.begin()
    with pytest.raises(OSError, match="no space"):
        machine.step()
    assert phases.taken() == ["prepare", "start", "stop", "ready", "prepare", "start"]
    assert (machine.step_number, machine.action, machine.running) == (1, RECORD, True)
    with pytest.raises(OSError, match="no space"):
        machine.end()
    assert phases.taken() == ["stop", "ready"]
    assert (machine.action, machine.running) == (NONE, False)
    machine.end()
    assert phases.taken() == []
    machine.begin()
    assert phases.taken() == ["prepare", "start"]


@pytest.mark.parametrize("failing", PHASES)
def test_whatever_raises_the_rest_is_called(failing: str) -> None:
    phases = Phases(**{failing: fail(failing)})
    machine = Machine([NONE, SAVE, SAVE].__getitem__, phases)
    machine.begin()
    for number in (1, 2):
        raises = pytest.raises(OSError, match=failing)
        if failing in TABLE[ACTIONS[0] if number == 1 else SAVE, SAVE]:
            with raises:
                machine.step()
        else:
            machine.step()
        assert (machine.step_number, machine.action) == (number, SAVE)
    assert phases.calls == ["prepare", "start", "stop", "ready", "prepare", "start"]


def test_a_warning_that_is_an_error_stops_no_call() -> None:
    phases = Phases()
    machine = Machine([RECORD, NONE].__getitem__, phases)
    machine.begin()
    with pytest.raises(RuntimeWarning, match="NONE follows RECORD"):
        machine.step()  # the tests' own filter makes it an error
    assert phases.calls == ["prepare", "start", "stop"]
    assert machine.action is NONE


def test_the_warning_is_of_the_line_that_steps() -> None:
    class Session:
        def __init__(self) -> None:
            self.machine = Machine([RECORD, WARMUP].__getitem__, Phases())

        def step(self) -> None:
            self.machine.step()

    session = Session()
    session.machine.begin()
    with pytest.warns(
        RuntimeWarning, match="^bridge: incorrect schedule: WARMUP follows RECORD"
    ) as told:
        session.step()
    assert linecache.getline(told[0].filename, told[0].lineno).strip() == "session.step()"


@pytest.mark.parametrize("bad", ["nonsense", None, 2])
def test_a_schedule_of_nonsense_leaves_the_machine_where_it_was(bad: object) -> None:
    phases = Phases()
    machine = Machine([RECORD, bad, SAVE].__getitem__, phases)
    machine.begin()
    for _ in range(2):
        with pytest.raises(ValueError, match="for step 1, not one of NONE, WARMUP"):
            machine.step()
        assert (machine.step_number, machine.action) == (0, RECORD)
    machine.end()
    assert phases.calls == ["prepare", "start", "stop", "ready"]
    broken = Machine(lambda _: bad, phases)
    with pytest.raises(ValueError, match="step 0"):
        broken.begin()
    assert not broken.running


@pytest.mark.parametrize("call", ["begin", "step", "end"])
def test_a_transition_is_not_begun_within_another(call: str) -> None:
    phases = Phases()
    machine = Machine([SAVE, SAVE].__getitem__, phases)
    phases.doing["ready"] = getattr(machine, call)
    machine.begin()
    with pytest.raises(RuntimeError, match=f"do not {call} it from a callback"):
        machine.step()
    assert phases.calls == ["prepare", "start", "stop", "ready", "prepare", "start"]
    del phases.doing["ready"]
    machine.end()
    assert phases.calls[-2:] == ["stop", "ready"]
