"""What `--deep` measures: held against a plain walk over the launches of programs of our own making."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import two_runs
from hypothesis import assume, given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, thread

import bridge
from bridge.analyze.checks import deep
from bridge.analyze.core.table import Table

ALL = 99
OPS, FUNCTIONS = ("a", "b", "c"), ("gemm", "add", "ncclDevKernel_AllReduce")


def loaded(path, launches):
    return bridge.load(two_runs.timeline(path, launches)).attributed


def advised(*findings: tuple[str, list[tuple[str, str]]]):
    """Give advice with these findings: a rule, and ops and kernels as its evidence."""

    def one(rule, rows):
        ops, names = zip(*rows, strict=True)
        table = Table({"op": np.array(ops, object), "activity": np.array(names, object)})
        return SimpleNamespace(
            rule=SimpleNamespace(name=rule), finding=SimpleNamespace(evidence=table)
        )

    return SimpleNamespace(advice=[one(*finding) for finding in findings])


# -- By hand


def counted(launches):
    """Give the launches with their numbers, without those that communicate."""
    seen, result = {}, []
    for place, one in enumerate(launches):
        seen[one["mangled"]] = seen.get(one["mangled"], 0) + 1
        if "nccl" not in one["name"]:
            result.append({**one, "place": place, "number": seen[one["mangled"]]})
    return result


def form_of(one):
    return (one["op"], one["name"], one["grid"][0])


def usable(launches, steps):
    """Give the launches of each form that may be measured."""
    result = {}
    for form in {form_of(one) for one in launches}:
        own = [one for one in launches if form_of(one) == form]
        steady = [one for one in own if one["step"] in steps]
        result[form] = steady or own[1:] or own
    return result


def by_hand(launches, steps, targets, forms):
    """Give ops and kernels, the functions, the numbers, and the places of the launches that these select."""
    own = counted(launches)
    steady = [one for one in own if one["step"] in steps] or own
    spent = {}
    for one in steady:
        key = one["op"] or "(no op)", one["name"]
        spent[key] = spent.get(key, 0) + one["us"]
    least = sum(spent.values()) / 100
    chosen = [k for k in sorted(spent, key=lambda k: -spent[k]) if spent[k] >= least][:targets]
    assume(len(set(spent.values())) == len(spent))
    measured = {}
    may_be = usable(own, steps)
    for op, name in chosen:
        times = {
            form: sum(one["us"] for one in ones)
            for form, ones in may_be.items()
            if (form[0] or "(no op)", form[1]) == (op, name)
        }
        assume(len(set(times.values())) == len(times))
        for form in sorted(times, key=lambda f: -times[f])[:forms]:
            measured[form] = {one["number"] for one in may_be[form]}
    numbers, left = [], dict(measured)
    while left:
        every = sorted({number for own in left.values() for number in own})
        best = max(every, key=lambda n: sum(n in own for own in left.values()))
        numbers.append(best)
        left = {form: own for form, own in left.items() if best not in own}
    functions = {form[1] for form in measured}
    places = [o["place"] for o in own if o["name"] in functions and o["number"] in numbers]
    return chosen, functions, sorted(numbers), places


WORK = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from(FUNCTIONS), st.sampled_from([4, 8, 16])),
    min_size=1,
    max_size=6,
)


@given(work=WORK, steps=st.integers(1, 5), targets=st.integers(1, 4), forms=st.integers(1, 3))
def test_the_choice_is_the_one_made_by_hand(tmp_path_factory, work, steps, targets, forms):
    times = [90, 131, 177, 223, 310, 401]
    launches = two_runs.launches(steps, tuple((*w, us) for w, us in zip(work, times, strict=False)))
    attributed = loaded(tmp_path_factory.mktemp("chosen") / "t.sqlite", launches)
    warm = max((loop.warm_up for loop in attributed.loops.iterations), default=0)
    found = len(attributed.iterations)
    steady = set(range(max(warm, 1 if found > 1 else 0), steps)) if found else set()
    assume(found in {0, steps})
    names, functions, numbers, places = by_hand(launches, steady, targets, forms)
    candidates = deep.candidates(attributed, advised(), targets)
    choice = candidates.first(ALL, forms)
    assert [(one.op, one.kernel) for one in choice.targets] == names
    symbols = {f"_Z{len(name)}{name}Pf" for name in functions}
    assert (set(choice.functions), choice.base) == (symbols, "mangled")
    assert list(choice.numbers) == numbers
    order = attributed.capture.activities.start.argsort().argsort()
    assert sorted(order[choice.rows].tolist()) == places
    assert choice.ns == sum(launches[place]["us"] for place in places) * two_runs.US


# -- Rules


@pytest.fixture
def usual(tmp_path):
    return loaded(tmp_path / "t.sqlite", two_runs.launches())


def named(candidates):
    return [(one.op, one.kernel, one.rule) for one in candidates.targets]


def test_kernels_of_findings_come_first_and_two_of_each(usual):
    said = advised(
        ("host-bound", [("sync", "nccl AllReduce")]),
        ("small-grids", [("head", "gemm"), ("norm", "add"), ("linear", "gemm")]),
        ("kernel-hotspot", [("linear", "gemm"), ("nowhere", "gemm")]),
    )
    first = [("head", "gemm", "small-grids"), ("norm", "add", "small-grids")]
    rest = [("linear", "gemm", "kernel-hotspot")]
    assert named(deep.candidates(usual, said, 5)) == first + rest
    assert named(deep.candidates(usual, said, 2)) == first
    assert named(deep.candidates(usual, advised(), 5)) == [
        ("linear", "gemm", ""),
        ("norm", "add", ""),
        ("head", "gemm", ""),
    ]


def test_evidence_about_something_else_than_activities_is_passed_over(usual):
    table = Table({"op": np.array(["head"], object), "path": np.array(["head"], object)})
    said = advised(("casts", [("norm", "add")]))
    odd = SimpleNamespace(
        rule=SimpleNamespace(name="casts"), finding=SimpleNamespace(evidence=table)
    )
    said.advice.insert(0, odd)
    assert named(deep.candidates(usual, said, 1)) == [("norm", "add", "casts")]


def test_ops_that_were_asked_for_are_alone(usual):
    said = advised(("kernel-hotspot", [("linear", "gemm")]))
    assert named(deep.candidates(usual, said, 5, ["head", "sync"])) == [("head", "gemm", "")]
    assert not deep.candidates(usual, said, 5, ["nothing"]).targets
    assert not list(deep.candidates(usual, said, 5, ["nothing"]).choices())


def test_ops_that_differ_in_a_number_are_one(tmp_path):
    launches = two_runs.launches(
        4, (*((f"layer {n}", "gemm", 8, 50) for n in range(9)), ("x", "add", 8, 60))
    )
    found = deep.candidates(loaded(tmp_path / "t.sqlite", launches), advised(), 5)
    assert named(found) == [("layer *", "gemm", ""), ("x", "add", "")]


def test_without_symbols_functions_are_known_by_their_short_names(tmp_path):
    launches = [{**one, "mangled": ""} for one in two_runs.launches()]
    choice = deep.candidates(loaded(tmp_path / "t.sqlite", launches), advised(), 5).first(1, 1)
    assert (choice.functions, choice.base) == (("gemm",), "function")


def test_choices_get_smaller(usual):
    sizes = [
        (len(one.targets), len(one.rows)) for one in deep.candidates(usual, advised(), 5).choices()
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1][0] == 1
    assert {targets for targets, _ in sizes} == {1, 2, 3}


def test_of_several_processes_that_with_most_kernel_time_decides(tmp_path):
    made = Made()
    for pid, ns in ((100, 50), (200, 90)):
        made.names_of(pid)
        for n in range(3):
            at = 1_000 * (n + 1) + pid
            made.annotation(PUSH_POP, at, at + 50, text=f"op{pid}", thread=thread(pid))
            made.kernel(f"k{pid}", at + 10, pid, at + 20, at + 20 + ns)
            made.kernel("both", at + 15, pid, at + 200, at + 210)
    attributed = bridge.load(made.written(tmp_path / "t.sqlite")).attributed
    choice = deep.candidates(attributed, advised(), 1).first(1, 1)
    assert [(one.op, one.kernel) for one in choice.targets] == [("op200", "k200")]
    every = deep.candidates(attributed, advised(), 5, ["op200"]).first(5, 1)
    assert len(every.functions) == 2
    process = attributed.capture.activities.process[every.rows]
    assert len(set(process.tolist())) == 2  # ncu numbers the launches of each process alike


def test_how_busy_the_gpu_is_counts_iterations_without_warm_up(tmp_path, usual):
    assert deep.busy_share(usual) > 0.95
    work = (("a", "k", 8, 3), ("b", "k2", 8, 1))
    idle = loaded(tmp_path / "i.sqlite", two_runs.launches(6, work))
    activities = idle.capture.activities
    rows = np.flatnonzero(deep.is_steady(idle))
    first, last = activities.start[rows].min(), activities.end[rows].max()
    busy = sum(int(activities.end[n] - activities.start[n]) for n in rows.tolist())
    assert deep.busy_share(idle) == pytest.approx(busy / (last - first))
    assert deep.busy_share(idle) < 0.5
    nothing = Made()
    nothing.annotation(PUSH_POP, 1_000, 2_000, text="a", thread=thread(100))
    empty = bridge.load(nothing.written(tmp_path / "e.sqlite")).attributed
    assert deep.busy_share(empty) == 0.0
    assert not deep.candidates(empty, advised(), 5).targets


def test_memory_in_use_is_known_only_if_it_was_recorded(tmp_path, usual):
    assert deep.most_memory(usual) == -1
    made = Made()
    made.names_of(100)
    made.kernel("k", 500, 100, 510, 520)
    for n, (size, operation) in enumerate([(3_000, 0), (4_000, 0), (4_000, 1)]):
        where = {"device": 0, "context": 1, "stream": 7, "process": thread(100) & ~0xFFFFFF}
        at = {"time": 1_000 * (n + 1), "bytes": size, "operation": operation, "kind": 2}
        made.tables["memory"].append(
            {**where, **at, "address": 1 << (40 + size // 1_000), "correlation": n}
        )
    report = bridge.load(made.written(tmp_path / "m.sqlite"))
    assert deep.most_memory(report.attributed) == 7_000


def test_the_first_iteration_is_skipped_even_if_it_is_as_fast(usual):
    steady = deep.is_steady(usual)
    steps = usual.activity_iteration[usual.capture.activities.start.argsort()]
    steady = steady[usual.capture.activities.start.argsort()]
    assert not steady[steps <= 0].any()
    assert steady[steps == len(usual.iterations) - 1].all()


def test_few_numbers_serve_all_forms(usual):
    form, number = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 5, 7, 2, 5, 9])
    assert deep.serving(form, number) == [5, 9]
    assert deep.serving(form[:0], number[:0]) == []
    assert deep.candidates(usual, advised(), 5).first(3, 1).numbers == (4, 6)


def test_kernels_that_take_next_to_nothing_are_left_out_unless_their_op_was_asked_for(tmp_path):
    work = (("a", "gemm", 8, 2_000), ("b", "add", 8, 15))
    attributed = loaded(tmp_path / "t.sqlite", two_runs.launches(3, work))
    assert named(deep.candidates(attributed, advised(), 5)) == [("a", "gemm", "")]
    assert named(deep.candidates(attributed, advised(), 5, ["b"])) == [("b", "add", "")]
