"""Work of threads without ranges, given to who waits for it; and the domains whose ranges are ops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.adoption import Adopting
from witness.attribution import Activity, Call, Range

from bridge.analyze.tables.breakdown import by_op
from bridge.join.arrays import NONE
from bridge.join.attribution import ATTRIBUTED
from bridge.join.options import UnknownDomainError
from bridge.report import Report
from join.compare import chain, found_of, keyed, said
from join.programs import DOMAINS, Program, attributed, op_of, programs
from join.trainings import trainings

P, Q = 7 << 24, 8 << 24
MAIN, AUTOGRAD, OTHER = (P | number for number in (1, 2, 3))


def opened(start, end, op, thread=MAIN, **more):
    home = {"report": 0, "process": thread & -(1 << 24), "thread": thread}
    return Range(**{**home, "start": start, "end": end, "op": op, **more})


def program(ranges, *launched):
    """Make a program whose kernels, of 1, 10, 100 … ns, are launched at these (thread, time)."""
    calls = [Call(0, t & -(1 << 24), t, n, at, at + 1) for n, (t, at) in enumerate(launched, 1)]
    kernels = [
        Activity(0, call.process, call.correlation, 1_000, 1_000 + 10**n)
        for n, call in enumerate(calls)
    ]
    return Program(list(ranges), calls, kernels, [one.op for one in ranges])


def adopted(ranges, *launched, working=(MAIN, AUTOGRAD, OTHER)):
    """Return path and rule of each kernel, None for one without an op; these threads launch later too."""
    made = program(ranges, *launched, *((thread, 500) for thread in working))
    joined = attributed(made, adopt=True)
    assert stacks_of(joined) == Adopting(made.profile()).stacks
    table = Report(joined).op_kernels.head(len(launched))
    return [
        (path, rule) if rule else None
        for path, rule in zip(table["path"], table["rule"], strict=True)
    ]


def stacks_of(joined):
    found = joined.attribution
    return [chain(found.nesting, node) for node in found.node]


BACKWARD = opened(0, 100, "step"), opened(10, 90, "loss")


@pytest.mark.slow
def test_what_a_bare_thread_launches_belongs_to_the_range_that_another_waits_in():
    assert adopted(BACKWARD, (AUTOGRAD, 20)) == [("step/loss", "guessed")]
    assert adopted(BACKWARD, (AUTOGRAD, 5)) == [("step", "guessed")]
    assert adopted(BACKWARD, (AUTOGRAD, 10)) == [("step/loss", "guessed")]
    assert adopted(BACKWARD, (AUTOGRAD, 90)) == [("step", "guessed")]
    assert adopted(BACKWARD, (AUTOGRAD, 100), (AUTOGRAD, -1)) == [None, None]
    assert adopted(BACKWARD, (MAIN, 100)) == [None]  # nobody waits for himself
    assert adopted([opened(30, 40, "b", AUTOGRAD), *BACKWARD], (AUTOGRAD, 20)) == [
        ("step/loss", "guessed")
    ]  # that the thread has ranges elsewhere is no hindrance


@pytest.mark.slow
def test_two_threads_that_could_be_waited_in_are_none():
    other = opened(0, 100, "load", OTHER)
    assert adopted([*BACKWARD, other], (AUTOGRAD, 20)) == [None]
    here = ("step/loss", "guessed")
    busy = adopted([*BACKWARD, other], (AUTOGRAD, 20), (OTHER, 20))
    assert busy == [here, ("load", "launch")]
    assert adopted([*BACKWARD, other], (AUTOGRAD, 20), working=[MAIN]) == [here]
    assert adopted([*BACKWARD, other], (AUTOGRAD, 20), working=[OTHER]) == [("load", "guessed")]
    assert adopted([*BACKWARD, other], (AUTOGRAD, 20), working=[]) == [None]
    assert adopted([*BACKWARD, opened(30, 90, "load", OTHER)], (AUTOGRAD, 20)) == [here]


@pytest.mark.slow
def test_who_launches_in_between_waits_for_nobody():
    here, own = ("step/loss", "guessed"), ("step/loss", "launch")
    burst = (AUTOGRAD, 20), (AUTOGRAD, 40)
    assert adopted(BACKWARD, *burst, (MAIN, 30)) == [None, None, own]
    assert adopted(BACKWARD, *burst, (MAIN, 20)) == [None, None, own]
    assert adopted(BACKWARD, *burst, (MAIN, 40)) == [None, None, own]
    assert adopted(BACKWARD, *burst, (MAIN, 19), (MAIN, 41)) == [here, here, own, own]
    # What is between is that of one thread in one range.
    assert adopted(BACKWARD, (AUTOGRAD, 20), (P | 4, 40), (MAIN, 30)) == [here, here, own]
    other = opened(91, 99, "optimizer")
    assert adopted([*BACKWARD, other], *burst, (MAIN, 80), (AUTOGRAD, 95)) == [
        here,
        here,
        own,
        ("step/optimizer", "guessed"),
    ]


def test_a_call_that_issues_nothing_is_no_launch():
    made = program(BACKWARD, (AUTOGRAD, 20), (AUTOGRAD, 40), (MAIN, 99))
    made.calls.append(Call(0, P, MAIN, 77, 30, 60))  # it synchronizes
    rules = Report(attributed(made, adopt=True)).op_kernels["rule"]
    assert rules.tolist() == ["guessed", "guessed", "launch"]


@pytest.mark.slow
def test_nothing_of_another_process_or_report_is_adopted():
    assert adopted(BACKWARD, (Q | 2, 20)) == [None]
    assert adopted([opened(0, 100, "step", report=1)], (AUTOGRAD, 20)) == [None]


def test_an_outermost_range_is_adopted_with_what_is_in_it():
    engine, mm = opened(20, 50, "engine", AUTOGRAD), opened(30, 40, "mm", AUTOGRAD)
    made = program([*BACKWARD, engine, mm], (AUTOGRAD, 25), (AUTOGRAD, 35), (MAIN, 5))
    before, after = (attributed(made, adopt=adopt) for adopt in (False, True))
    table = Report(after).op_kernels
    paths = ["step/loss/engine", "step/loss/engine/mm", "step"]
    assert table["path"].tolist() == paths
    assert table["rule"].tolist() == ["launch"] * 3
    assert table["range"].tolist() == [2, 3, 0]
    ours, alone = keyed(by_op(after), "op"), keyed(by_op(before), "op")
    assert ours["loss",]["gpu_total_ns"] == 11
    for op in ("step", "loss", "engine", "mm"):
        for column in ("calls", "gpu_self_ns", "cpu_self_ns", "cpu_total_ns"):
            assert ours[op,][column] == alone[op,][column]


@pytest.mark.slow
def test_when_an_outermost_range_is_not_adopted():
    around = opened(20, 50, "engine", AUTOGRAD)
    kernel = (AUTOGRAD, 25)
    alone, inside = [("engine", "launch")], [("step/loss/engine", "launch")]
    assert adopted([*BACKWARD, around], kernel) == inside
    assert adopted([*BACKWARD, opened(10, 90, "engine", AUTOGRAD)], kernel) == [
        ("step/engine", "launch")
    ]  # as long as the one, but within the other
    equal = opened(0, 100, "engine", AUTOGRAD), opened(0, 100, "load", OTHER)
    assert adopted([equal[0], BACKWARD[0]], kernel) == alone
    assert adopted([*equal], kernel, (OTHER, 25)) == [*alone, ("load", "launch")]
    assert adopted([*BACKWARD, opened(20, 101, "engine", AUTOGRAD)], kernel) == alone
    assert adopted([*BACKWARD, opened(-1, 50, "engine", AUTOGRAD)], kernel) == alone
    assert adopted([*BACKWARD, around, opened(0, 60, "load", OTHER)], kernel) == alone
    own = ("step/loss", "launch")
    for instant in (20, 30, 50):
        assert adopted([*BACKWARD, around], kernel, (MAIN, instant)) == [*alone, own]
    for instant in (19, 51):
        assert adopted([*BACKWARD, around], kernel, (MAIN, instant)) == [*inside, own]


def test_adoptions_chain():
    """The engine's range is in another thread's, and that in a third's."""
    ranges = opened(0, 100, "step"), opened(10, 90, "b", AUTOGRAD), opened(20, 80, "c", OTHER)
    assert adopted(ranges, (OTHER, 50)) == [("c", "launch")]  # two may be waited in
    launches = (OTHER, 50), (MAIN, 85), (AUTOGRAD, 15)
    assert adopted(ranges, *launches)[0] == ("c", "launch")
    ranges = opened(0, 100, "step"), opened(10, 90, "b", AUTOGRAD), opened(30, 60, "c", OTHER)
    busy = (MAIN, 20), (MAIN, 35)
    assert adopted(ranges, (OTHER, 50), *busy)[0] == ("b/c", "launch")
    assert adopted(ranges, (P | 4, 95)) == [("step", "guessed")]


@pytest.mark.slow
def test_what_was_guessed_is_said():
    ranges = [*BACKWARD, opened(20, 50, "engine", AUTOGRAD)]

    def guessed(*launched):
        made = program(ranges, *launched, (MAIN, 5))
        assert Report(attributed(made, adopt=False)).warnings == ()
        lines = Report(attributed(made, adopt=True)).warnings
        return [line.removeprefix("one: ").split(" by time alone")[0] for line in lines]

    activities = "{} activities have their op from another thread"
    engine = "1 ranges count for a range of another thread"
    assert guessed((AUTOGRAD, 19), (AUTOGRAD, 51)) == [activities.format(2)]
    assert guessed((AUTOGRAD, 20)) == guessed((AUTOGRAD, 49)) == [engine]
    assert guessed((AUTOGRAD, 20), (AUTOGRAD, 50)) == [activities.format(1), engine]
    assert guessed((AUTOGRAD, 50)) == [activities.format(1)]  # in the range nothing is launched
    assert guessed() == []


@pytest.mark.slow
@given(trainings(nested=True))
def test_where_ranges_nest_adoption_is_what_its_rule_says(made):
    assert stacks_of(made.attributed(adopt=True)) == Adopting(made.program.profile()).stacks


@pytest.mark.slow
@given(trainings())
def test_adoption_takes_nothing_from_anybody(made):
    alone, joined = made.attributed(adopt=False), made.attributed(adopt=True)
    before, after = alone.attribution, joined.attribution
    kept = before.node != NONE
    assert (after.range[kept] == before.range[kept]).all()
    assert (after.rule[kept] == before.rule[kept]).all()
    names = Report(joined).op_kernels["rule"].to_numpy()
    assert {*names[~kept & (after.node != NONE)]} <= {"adopted", "guessed"}
    assert ((after.reason == ATTRIBUTED) == (after.node != NONE)).all()
    account = Report(joined).totals
    rest = [share["gpu_ns"] for share in account["unattributed"].values()]
    assert account["attributed_ns"] + sum(rest) == account["gpu_ns"] == joined.duration.sum()
    cpu = ["op", "calls", "cpu_self_ns"]
    assert by_op(joined)[cpu].to_pandas().equals(by_op(alone)[cpu].to_pandas())
    assert_no_cycle(after.nesting.parent)


def assert_no_cycle(parent):
    for node in range(len(parent)):
        above, steps = parent[node], 0
        while above != NONE:
            above, steps = parent[above], steps + 1
            assert steps <= len(parent)


# -- domains

ASKED = {"default": 0, "mine": 1, "nccl": 2, "#3": 3}


@pytest.mark.slow
@given(programs(), st.sets(st.sampled_from([*ASKED, "all"])), st.sets(st.sampled_from([*ASKED])))
def test_the_ops_are_the_ranges_of_the_domains_asked_for(program, domains, without):
    there = {one.domain for one in program.ranges}
    domains, without = (
        {name for name in names if ASKED.get(name, 0) in there or name == "all"}
        for names in (domains, without)
    )
    taken = ASKED.values() if "all" in domains else [ASKED[name] for name in domains]
    left_out = {ASKED[name] for name in without}
    pairs = zip(program.ranges, program.texts, strict=True)
    ops = [op_of(text) if not one.phase else "" for one, text in pairs]
    ops = [
        op if (one.domain in taken if domains else one.op) and one.domain not in left_out else ""
        for op, one in zip(ops, program.ranges, strict=True)
    ]
    joined = attributed(program, domains=[*domains], exclude_domains=[n.upper() for n in without])
    assert [joined.ops[op] if op != NONE else "" for op in joined.op] == ops
    ranges = [opened_as(one, op) for one, op in zip(program.ranges, ops, strict=True)]
    truth = Program(ranges, program.calls, program.activities, program.texts)
    assert list(found_of(joined)) == said(truth.profile())


def opened_as(one, op):
    return Range(
        one.report, one.process, one.thread, one.start, one.end, op, one.domain, phase=one.phase
    )


def ops_of(made, **how):
    joined = attributed(made, **how)
    return [joined.ops[op] for op in joined.op[joined.op != NONE]]


@pytest.mark.slow
def test_a_domain_goes_by_its_name_in_any_case():
    made = program([opened(0, 9, "a"), opened(1, 8, "b", domain=1), opened(2, 7, "c", domain=2)])
    assert DOMAINS[1] == "mine"
    assert ops_of(made, domains=["MINE"]) == ops_of(made, domains=("mine",)) == ["b"]
    assert ops_of(made, domains=["Default", "nccl"]) == ["a", "c"]
    assert ops_of(made) == ["a", "b"]  # a library's own are none unless asked for
    assert ops_of(made, exclude_domains=["mine"]) == ["a"]
    assert ops_of(made, domains=["all"]) == ["a", "b", "c"]
    assert ops_of(made, domains=["ALL"], exclude_domains=["mine"]) == ["a", "c"]
    assert ops_of(made, domains=["mine"], exclude_domains=["mine"]) == []
    assert ops_of(made, raw=True) == ["a", "mine:b", "NCCL:c"]
    assert ops_of(made, raw=True, exclude_domains=["nccl"]) == ["a", "mine:b"]
    assert ops_of(made, raw=True, domains=["nccl"]) == ["NCCL:c"]


def test_a_number_is_one_domain_in_one_process_only():
    """Domain 3 has no name and only a library's texts in the first process, others in the second."""
    made = program([opened(0, 9, "ncclSend", domain=3), opened(0, 9, "mine", Q | 1, domain=3)])
    assert ops_of(made) == ["mine"]
    assert ops_of(made, domains=["#3"]) == ["ncclSend", "mine"]


@pytest.mark.parametrize(
    "how", [{"domains": ["ours"]}, {"exclude_domains": ["all"]}, {"domains": ["3"]}]
)
def test_a_domain_that_is_not_there_is_an_error_that_names_those_that_are(how):
    made = program([opened(0, 9, "a"), opened(1, 8, "b", domain=3)])
    with pytest.raises(
        UnknownDomainError, match=r"no domain in the report '\w+': one of #3, default"
    ):
        attributed(made, **how)
