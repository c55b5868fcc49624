"""Programs: the same from the same seed; a remedy changes what it is about, and no number of other events."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from itertools import pairwise

import pytest

from simulated import KINDS, Plan, Program, Result, Truth, draw, program, simulate
from simulated.causes import idle_pieces
from simulated.host import Cause
from simulated.span import run_span, states, works_of
from simulated.truth import collective_waits, iterations

SEEDS = range(80)
NOISE = 0.02  # of the run: other orders of the same work on engines and locks
PLANS = [Plan.draw(seed) for seed in SEEDS]


def work_of(plan: Plan) -> int:
    """Return about how many kernels a program has."""
    parts = plan.micro_batches if plan.base == "pipeline" else plan.stages
    ops = len(plan.forward) + len(plan.backward)
    return plan.iterations * ops * plan.ranks * parts


def small(name: str, count: int) -> list[Program]:
    """Return the smallest of some programs with ranges and one trouble."""
    kind = KINDS[name]
    fitting = [seed for seed in SEEDS if kind.fits(PLANS[seed]) and PLANS[seed].annotated]
    size = {seed: work_of(PLANS[seed]) for seed in fitting}
    seeds = sorted(fitting, key=lambda seed: size[seed])[:count]
    return [program(seed, PLANS[seed], name) for seed in seeds]


@lru_cache(maxsize=2)
def both(name: str, number: int = 0) -> tuple[Result, Result]:
    """Return the runs of one of the small programs of a kind, with the trouble and remedied."""
    made = small(name, number + 1)[number]
    return simulate(made), simulate(made, frozenset([name]))


@pytest.fixture(scope="module", params=sorted(KINDS))
def name(request: pytest.FixtureRequest) -> str:
    """Give each kind of trouble; pytest runs the tests of one kind together, which share its runs."""
    return str(request.param)


def rows(result: Result) -> list[object]:
    machine = result.machine
    host = [(*row[:3], row[3].id) for row in (*machine.calls, *machine.ranges, *machine.os_calls)]
    works = [(w.start, w.end, w.name, w.stream.number, w.correlation) for w in machine.works()]
    return [host, works, [row[:2] for row in machine.syncs]]


def length(result: Result) -> int:
    start, end = run_span(result.machine)
    return end - start


def test_there_are_kinds_enough_and_each_fits_a_program_that_is_drawn():
    assert len(KINDS) >= 25
    for kind in KINDS.values():
        assert any(kind.fits(plan) for plan in PLANS), kind.name


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_gives_the_same_run_again(seed):
    assert rows(simulate(draw(seed))) == rows(simulate(draw(seed)))


def test_seeds_give_different_programs():
    drawn = [draw(seed) for seed in range(100)]
    assert len({p.plan.base for p in drawn}) == 5
    healthy = sum(not p.troubles for p in drawn)
    assert 5 <= healthy <= 30
    assert max(len(p.troubles) for p in drawn) == 3


# -- Remedies


def test_a_remedy_changes_no_number_of_other_events(name):
    before, behind = both(name)
    about = KINDS[name].about(before.plan)
    ours = ("fused_update_kernel", "[prefetch]", "other_kernel", *about.kernels, *about.ops)
    if name != "pipeline_bubble":  # whose kernels are others: parts
        assert_same(durations_of_work(before, ours), durations_of_work(behind, ours))
    if name not in {
        "launch_bound",
        "pipeline_bubble",
    }:  # of which the ops themselves go or multiply
        ops = (*about.ops, "write checkpoint", "barrier")
        assert_same(lengths_of_host_code(before, ops), lengths_of_host_code(behind, ops))


def assert_same(one: dict[object, list[int]], other: dict[object, list[int]]) -> None:
    """Events that both have, the same number of times, are of the same lengths; most are."""
    keys = [key for key in one if len(one[key]) == len(other.get(key, ()))]
    assert keys
    assert [key for key in keys if one[key] != other[key]] == []


def durations_of_work(result: Result, without: tuple[str, ...]) -> dict[object, list[int]]:
    """Return the drawn durations of work by GPU, step and name, in order of issue."""
    found: dict[object, list[int]] = defaultdict(list)
    for gpu in result.machine.gpus:
        for work in gpu.works:
            if not {work.name, work.op} & set(without) and not work.name.startswith("[page"):
                name = f"{work.name} {work.bytes}"
                found[gpu.number, work.step, name].append(work.duration)
    return found


def lengths_of_host_code(result: Result, without: tuple[str, ...]) -> dict[object, list[int]]:
    """Return the lengths of host code in ops by thread and op."""
    found: dict[object, list[int]] = defaultdict(list)
    for process in result.machine.processes:
        for thread in process.threads:
            for segment in thread.timeline:
                if segment.cause is Cause.OP and segment.name not in without:
                    key = (process.name, thread.name, segment.name)  # "step 7" is an op too
                    found[key].append(segment.end - segment.start)
    return found


def test_a_remedy_makes_no_program_longer(name):
    before, behind = map(length, both(name))
    assert behind <= before * (1 + NOISE)
    if KINDS[name].healthy:
        assert behind == before


def test_a_remedy_saves_time_in_some_program(name):
    if not KINDS[name].healthy:
        runs = (map(length, both(name, number)) for number in range(6))
        assert any(behind < before * 0.985 for before, behind in runs)


def test_the_names_that_a_trouble_is_about_are_in_the_run(name):
    result = both(name)[0]
    about, machine = KINDS[name].about(result.plan), result.machine
    ranges = {row[2].partition(", seq")[0] for row in machine.ranges}
    assert set(about.ops) <= ranges
    assert set(about.calls) <= {row[2] for row in machine.calls}
    assert set(about.kernels) <= {work.name for work in machine.works()}
    assert set(about.os_calls) <= {row[2] for row in machine.os_calls}
    assert set(about.overhead) <= {row[2] for row in machine.overhead}
    assert set(about.gpus) <= {gpu.number for gpu in machine.gpus}
    assert about.outside_ops or any(
        (about.ops, about.calls, about.kernels, about.os_calls, about.overhead)
    )


def test_programs_without_ranges_have_troubles_without_ops():
    made = next(p for p in map(draw, SEEDS) if not p.plan.annotated and p.troubles)
    assert all(trouble.about.ops == () for trouble in Truth.of(made).troubles)


# -- Truth


@pytest.fixture(scope="module", params=[3, 9, 22, 51, 76])
def truth(request: pytest.FixtureRequest) -> Truth:
    return Truth.of(draw(request.param))


def test_states_add_up_to_the_run(truth):
    for by_state in truth.states.values():
        assert sum(by_state.values()) == truth.length_ns
        assert min(by_state.values()) >= 0


def test_states_are_those_of_a_brute_force_over_instants(truth):
    """Each interval between two edges has the first state that applies."""
    order = ["compute", "communication", "copy", "other"]
    for gpu in truth.result.machine.gpus:
        if not (works := works_of(gpu)):
            continue
        works = works[:400]
        span = works[0].start - 100, max(work.end for work in works) + 100
        edges = sorted({*span, *(w.start for w in works), *(w.end for w in works)})
        expected = dict.fromkeys([*order, "graph", "idle"], 0)
        for first, last in pairwise(edges):
            running = [w.kind.value for w in works if w.start <= first and w.end >= last]
            state = min(running, key=order.index, default="idle")
            expected[state] += last - first
        assert states(works, span) == expected


def test_every_idle_instant_has_one_cause(truth):
    for gpu in truth.result.machine.gpus:
        if works_of(gpu):
            pieces = idle_pieces(truth.result.machine, gpu)
            assert pieces == truth.idle[gpu.number]
            assert all(a.end <= b.start for a, b in pairwise(pieces))
            idle = truth.states[gpu.number]["idle"]
            assert sum(piece.end - piece.start for piece in pieces) == idle
            for work in works_of(gpu)[:50]:
                assert not any(p.start < work.end and work.start < p.end for p in pieces)


def test_iterations_are_those_of_the_plan_and_hold_their_work(truth):
    steps = iterations(truth.result)
    plan = truth.result.plan
    assert [(s.rank, s.number) for s in steps] == [
        (rank, number) for rank in range(plan.ranks) for number in range(1, plan.iterations + 1)
    ]
    for step in steps:
        assert all(start >= step.start for start, _ in step.work.values())


def test_validation_is_no_iteration():
    plan = next(p for p in PLANS if p.validate_every)
    result = simulate(program(0, plan))
    assert max(step.number for step in iterations(result)) == plan.iterations
    in_steps = {(w.step, w.op) for w in result.machine.works()}
    assert any(step < 0 for step, _ in in_steps)


def test_some_programs_are_graphs():
    plan = next(p for p in PLANS if p.graph)
    result = simulate(program(0, plan))
    launches = sum(row[2].startswith("cudaGraphLaunch") for row in result.machine.calls)
    assert launches == plan.iterations
    assert {work.graph for work in result.machine.works() if work.kind.value == "compute"} == {1}


def test_calls_of_the_system_alone_do_not_stretch_the_run():
    result = simulate(program(0, PLANS[0]))
    machine, span = result.machine, run_span(result.machine)
    stranger = machine.process("shell").thread("main")
    machine.os_calls.append((0, span[1] + 1_000, "wait4", stranger))
    assert run_span(machine) == span


def test_collectives_are_waiting_and_transfer(truth):
    for wait in collective_waits(truth.result):
        assert wait.waiting_ns + wait.transfer_ns == wait.end - wait.start
        assert wait.waiting_ns >= 0
        assert wait.waiting_ns == 0 or wait.gpu != wait.late_gpu


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("slow_loader", Cause.LOADING),
        ("terminal", Cause.INPUT),
        ("checkpoint", Cause.OS),
        ("first_calls", Cause.API),
        ("jit", Cause.OP),
        ("pipeline_bubble", Cause.WORK_ELSEWHERE),
        ("launch_bound", Cause.OP),
        ("profiler_overhead", Cause.PROFILER),
        ("python_lock", Cause.PYTHON_LOCK),
        ("garbage_collection", Cause.HOST),
        ("file_in_step", Cause.OS),
        ("needless_sync", Cause.API),
    ],
)
def test_a_trouble_is_a_cause_of_idle_time(kind, cause):
    def idle(result: Result) -> int:
        gpus = [gpu for gpu in result.machine.gpus if works_of(gpu)]
        pieces = (piece for gpu in gpus for piece in idle_pieces(result.machine, gpu))
        return sum(piece.end - piece.start for piece in pieces if piece.cause is cause)

    runs = (both(kind, number) for number in range(4))
    assert any(idle(before) > idle(behind) + length(before) // 500 for before, behind in runs)
