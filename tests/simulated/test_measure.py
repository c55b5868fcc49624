"""The harness: a perfect answer holds in every respect, and each kind of mistake fails in its own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from simulated import Truth, draw
from simulated.answers import Answer, Found
from simulated.causes import Piece
from simulated.host import Cause
from simulated.matching import NO_OP, Ordinary, about_which, bare
from simulated.measure import (
    AS_GOOD,
    BINDING,
    FLOORS,
    GOALS,
    LARGE,
    RESPECTS,
    WORTH,
    cases,
    compared,
    failed,
    is_wrong,
    judged,
    measure_all,
    share,
)
from simulated.tables import BEGIN, END, into_page, shown, tables
from simulated.troubles import About
from simulated.truth import TroubleTruth

SAMPLE = range(40)
OF_SAMPLE = {**FLOORS, "savings": 0.92, "first": 0.9, "found": 1.0, "healthy": 1.0}
TWO, NONE_AT_ALL = 2, 5  # seeds of programs with two troubles, and with none


@lru_cache
def truth_of(seed: int) -> Truth:
    return Truth.of(draw(seed))


def perfect(truth: Truth) -> Answer:
    """Return what there is to be said, the trouble that costs most first."""
    real = [trouble for trouble in truth.troubles if not trouble.healthy]
    real.sort(key=lambda trouble: -trouble.true_saving_ns)
    findings = tuple(
        Found(
            trouble.name,
            frozenset(
                (*trouble.about.ops, *map(bare, trouble.about.calls), *trouble.about.kernels)
            ),
            trouble.true_saving_ns,
            trouble.true_saving_ns,
            once=trouble.about.once,
        )
        for trouble in real
    )
    return Answer(truth.length_ns, truth.states, truth.idle, findings)


def changed(truth: Truth, saving_ns: int, **changes: object) -> Answer:
    """Return the perfect answer whose first finding is changed."""
    said = perfect(truth)
    first = replace(said.findings[0], saving_ns=saving_ns, **changes)  # type: ignore[arg-type]
    return replace(said, findings=(first, *said.findings[1:]))


def with_savings(truth: Truth, *shares: float) -> Truth:
    """Return a truth whose troubles cost these shares of the run."""
    ns = [round(share * truth.length_ns) for share in shares]
    pairs = zip(truth.troubles, ns, strict=True)
    troubles = tuple(replace(t, true_saving_ns=saving) for t, saving in pairs)
    return replace(truth, troubles=troubles)


# -- Answers


def test_a_perfect_answer_fails_in_nothing():
    for seed in (TWO, NONE_AT_ALL):
        truth = truth_of(seed)
        one = judged(truth, perfect(truth))
        assert failed(one) == []
        assert all(cases("excess", [one]))
    assert cases("all savings", [judged(truth_of(TWO), perfect(truth_of(TWO)))]) == [True, True]
    assert cases("healthy", [judged(truth_of(NONE_AT_ALL), perfect(truth_of(NONE_AT_ALL)))]) == [
        True
    ]


def test_a_wrong_length_and_wrong_states_are_seen():
    truth = truth_of(TWO)
    said = perfect(truth)
    assert failed(judged(truth, replace(said, length_ns=said.length_ns + 1))) == ["length"]
    states = {gpu: {**those, "idle": those["idle"] - 1} for gpu, those in said.states.items()}
    assert failed(judged(truth, replace(said, states=states))) == ["states"]


@pytest.mark.parametrize(
    ("share_of_run", "off_ns_of_run", "holds"),
    [
        (0.04, 0.0049, True),  # half a percent of the run
        (0.04, -0.0049, True),
        (0.04, 0.0051, False),
        (0.04, -0.0051, False),
        (0.30, 0.0299, True),  # a tenth of the saving
        (0.30, -0.0301, False),
    ],
)
def test_an_estimate_may_be_off_by_so_much(share_of_run, off_ns_of_run, holds):
    truth = with_savings(truth_of(TWO), share_of_run, WORTH / 2)
    estimate = round((share_of_run + off_ns_of_run) * truth.length_ns)
    assert cases("savings", [judged(truth, changed(truth, estimate))]) == [holds]


def test_a_limit_alone_is_no_estimate_but_found():
    truth = with_savings(truth_of(TWO), 2 * LARGE, 0)
    one = judged(truth, changed(truth, -1))
    assert cases("savings", [one]) == [False]
    assert cases("found", [one]) == [True]


def test_what_costs_less_is_no_first_finding():
    for second, holds in ((AS_GOOD - 0.01, False), (AS_GOOD + 0.01, True)):
        truth = with_savings(truth_of(TWO), 0.2, 0.2 * second)
        said = perfect(truth)
        said = replace(said, findings=said.findings[::-1])
        assert cases("first", [judged(truth, said)]) == [holds]
    none = replace(perfect(truth), findings=())
    assert cases("first", [judged(truth, none)]) == [False]
    small = with_savings(truth, WORTH / 2, WORTH / 3)
    assert cases("first", [judged(small, none)]) == []


def test_what_healthy_programs_do_too_may_come_first_for_what_it_costs():
    """Nobody planted the fetching of values; but who names it first is right where it costs most."""
    for part, holds in ((AS_GOOD - 0.01, False), (AS_GOOD + 0.01, True)):
        truth = with_savings(truth_of(TWO), 0.2, 0.1)
        [fetching, weights] = truth.habits
        fetching = replace(fetching, true_saving_ns=round(0.2 * part * truth.length_ns))
        truth = replace(truth, habits=(fetching, weights))
        first = Found("numbers-read-back", frozenset(["aten::item"]), fetching.true_saving_ns)
        said = perfect(truth)
        one = judged(truth, replace(said, findings=(first, *said.findings)))
        assert one.about[0] == {"fetching"}
        assert cases("first", [one]) == [holds]
        assert cases("excess", [one]) == [True]


def test_a_kind_without_an_estimate_counts_among_all_alone():
    truth = with_savings(truth_of(TWO), 0.2, 0.1)
    assert truth.troubles[1].name == "slow_kernel"
    one = judged(truth, perfect(truth))
    assert (len(cases("savings", [one])), len(cases("all savings", [one]))) == (1, 2)
    truth = with_savings(truth_of(TWO), 0.1, 0.2)  # the other one comes first
    said = perfect(with_savings(truth_of(TWO), 0.2, 0.1))
    assert cases("first", [judged(truth, said)]) == [True]
    assert cases("all first", [judged(truth, said)]) == [False]


def test_a_large_trouble_is_to_be_found():
    truth = with_savings(truth_of(TWO), LARGE + 0.01, LARGE - 0.01)
    said = perfect(truth)
    assert cases("found", [judged(truth, replace(said, findings=said.findings[:1]))]) == [True]
    assert cases("found", [judged(truth, replace(said, findings=said.findings[1:]))]) == [False]


def test_a_healthy_program_has_no_large_estimate():
    truth = truth_of(NONE_AT_ALL)
    for part, holds in ((0.04, True), (0.06, False)):
        found = Found("host-bound", frozenset(["forward"]), round(part * truth.length_ns))
        one = judged(truth, replace(perfect(truth), findings=(found,)))
        assert cases("healthy", [one]) == [holds]
    assert "healthy" in failed(one)
    assert cases("healthy", [judged(truth_of(TWO), perfect(truth_of(TWO)))]) == []


def test_a_trouble_that_is_none_makes_a_program_no_less_healthy():
    truth = with_savings(truth_of(TWO), 0, 0)
    truth = replace(truth, troubles=tuple(replace(t, healthy=True) for t in truth.troubles))
    found = Found("synchronization", frozenset(truth.troubles[0].about.ops), truth.length_ns // 10)
    one = judged(truth, replace(perfect(truth), findings=(found,)))
    assert one.about == ({truth.troubles[0].name},)
    assert cases("healthy", [one]) == [False]
    assert cases("excess", [one]) == [False]


def test_an_estimate_may_not_promise_too_much_in_degraded_evidence():
    truth = with_savings(truth_of(TWO), 0.3, 0.01)
    less, more = (round(part * truth.length_ns) for part in (0.1, 0.34))
    assert failed(judged(truth, changed(truth, less), "lost_rows")) == []
    assert failed(judged(truth, changed(truth, more), "lost_rows")) == ["excess"]
    stranger = changed(truth, less, names=frozenset(["elsewhere"]))
    assert failed(judged(truth, stranger, "lost_rows")) == ["excess"]


# -- Causes


def test_idle_time_is_compared_piece_by_piece():
    true = [
        Piece(0, 10, Cause.API, "cudaMalloc_v3020"),
        Piece(10, 30, Cause.OP, "forward"),
        Piece(50, 60, Cause.OS, "read"),
    ]
    said = [
        Piece(0, 15, Cause.API, "cudaMalloc"),
        Piece(15, 20, Cause.OP, "backward"),
        Piece(20, 28, Cause.OP, ""),
        Piece(50, 60, Cause.UNKNOWN, ""),
    ]
    assert compared(true, said) == {
        (Cause.API, Cause.API, True): 10,
        (Cause.OP, Cause.API, False): 5,
        (Cause.OP, Cause.OP, False): 5,
        (Cause.OP, Cause.OP, True): 8,
        (Cause.OP, Cause.UNKNOWN, True): 2,
        (Cause.OS, Cause.UNKNOWN, True): 10,
    }
    assert compared(true, []).total() == 40


@pytest.mark.parametrize(
    ("true", "said", "wrong"),
    [
        (Piece(0, 9, Cause.LOADING, "poll"), Piece(0, 9, Cause.OS, "poll"), False),
        (Piece(0, 9, Cause.LOADING, "poll"), Piece(0, 9, Cause.OS, "read"), True),
        (Piece(0, 9, Cause.LOADING, ""), Piece(0, 9, Cause.OS, "poll"), True),
        (Piece(0, 9, Cause.LOADING, ""), Piece(0, 9, Cause.HOST, ""), False),
        (Piece(0, 9, Cause.LOADING, "decode"), Piece(0, 9, Cause.HOST, ""), True),
        (Piece(0, 9, Cause.PYTHON_LOCK, "futex"), Piece(0, 9, Cause.OS, "futex"), False),
        (Piece(0, 9, Cause.HOST, "poll"), Piece(0, 9, Cause.OS, "poll"), True),
        (Piece(0, 9, Cause.OP, "step#3"), Piece(0, 9, Cause.OP, "step"), False),
    ],
)
def test_the_call_of_a_wait_says_less_than_its_cause_and_nothing_wrong(true, said, wrong):
    [key] = compared([true], [said])
    assert is_wrong(*key) == wrong


@pytest.mark.parametrize(("cause", "holds"), [(Cause.UNKNOWN, True), (Cause.PROFILER, False)])
def test_a_cause_is_right_or_unknown(cause, holds):
    truth = truth_of(TWO)
    wrong = {
        gpu: [replace(p, cause=cause, name="") for p in those] for gpu, those in truth.idle.items()
    }
    one = judged(truth, replace(perfect(truth), causes=wrong))
    assert one.idle.total() == sum(those["idle"] for those in truth.states.values())
    assert cases("causes", [one]) == [holds]


# -- Which trouble a finding is about


def trouble(name: str, **about: object) -> TroubleTruth:
    return TroubleTruth(name, 0, About(**about), healthy=False, remedied_length_ns=0)  # type: ignore[arg-type]


ORDINARY = Ordinary(frozenset(["forward", "save", "upload", NO_OP]), frozenset(["gemm"]), gpus=2)
TROUBLES = (
    trouble("checkpoint", ops=("save",), calls=("cudaMemcpyAsync_v3020",), os_calls=("write",)),
    trouble("small_copies", ops=("upload",), calls=("cudaMemcpyAsync_ptsz_v7000",)),
    trouble("needless_sync", calls=("cudaStreamSynchronize_v3020",)),
    trouble("late_rank_gpu", kernels=("gemm",), gpus=(1,)),
    trouble("profiler_overhead", overhead=("CUPTI: Buffer flush",)),
    trouble("terminal", os_calls=("getc",), once=True),
    trouble("garbage_collection", outside_ops=True),
)


@pytest.mark.parametrize(
    ("check", "names", "about"),
    [
        ("host-bound", ["save"], {"checkpoint"}),
        ("memcpy", ["upload", "cudaMemcpyAsync"], {"small_copies"}),
        ("memcpy", ["cudaMemcpyAsync"], {"checkpoint", "small_copies"}),  # it does not say which
        ("memcpy", ["forward", "cudaMemcpyAsync"], set()),  # those of another op
        ("memcpy", [NO_OP, "[CUDA memcpy Host-to-Device]"], set()),
        ("memcpy", ["upload", "[CUDA memcpy Host-to-Device]"], {"small_copies"}),
        ("sync", ["forward", "cudaStreamSynchronize"], {"needless_sync"}),
        ("tensor-cores", ["gemm"], set()),  # what all GPUs run
        ("slow", ["gemm", "GPU 1 NVIDIA A100"], {"late_rank_gpu"}),
        ("slow", ["gemm", "GPU 0 NVIDIA A100"], set()),
        ("slow", ["gemm", "GPU 0 NVIDIA A100", "GPU 1 NVIDIA A100"], set()),
        ("low-use", ["GPU 1 NVIDIA A100"], set()),
        ("stragglers", ["gemm"], {"late_rank_gpu"}),
        ("profiler", [], {"profiler_overhead"}),
        ("system-call", ["getc"], set()),  # again and again
        ("host-bound", ["host code outside ops"], {"garbage_collection"}),
        ("host-bound", ["forward"], set()),
    ],
)
def test_a_finding_is_about_the_trouble_whose_names_it_has(check, names, about):
    assert about_which(Found(check, frozenset(names)), TROUBLES, ORDINARY) == about


def test_what_is_paid_once_is_no_trouble_of_each_iteration():
    once = Found("paid-once", frozenset(["getc", "write"]), once=True)
    assert about_which(once, TROUBLES, ORDINARY) == {"terminal"}


def test_without_ranges_host_code_is_outside_of_all():
    found, slow = Found("host-bound", frozenset(["host code outside ops"])), trouble("slow_host_op")
    assert about_which(found, [slow], ORDINARY) == {"slow_host_op"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaMalloc_v3020", "cudaMalloc"),
        ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync"),
        ("cudaLaunchKernel_ptsz", "cudaLaunchKernel"),
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("forward", "forward"),
    ],
)
def test_names_of_calls_are_compared_without_version(name, expected):
    assert bare(name) == expected


# -- Tables


def test_tables_say_what_holds(tmp_path: Path):
    truth = with_savings(truth_of(TWO), 0.2, 0.03)
    said = changed(truth, truth.length_ns // 10)
    stranger = Found("single-precision", frozenset(["gemm"]), truth.length_ns // 10)
    one = judged(truth, replace(said, findings=(*said.findings, stranger)))
    again = replace(one, evidence="lost_rows")
    lines = tables([one, again])
    name = truth.troubles[0].name
    assert f"| {name} | 1 | 1 | 1/1 | 1/1 | 0/1 | 1/1 | 0.50 × |" in lines
    assert "| single-precision | 1 | 0 | 1 | 10.0 % |" in lines
    assert any(line.startswith("| lost rows | 1 | 100.0 % | 100.0 % | 0.0 %") for line in lines)
    assert any("2 are found, 2 with an estimate" in line for line in lines)
    text = "\n".join(shown(one))
    assert "fails savings" in text
    assert f"{name}: " in text
    assert "no trouble: gemm" in text


def test_tables_are_written_between_their_comments(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nText.\n\n", encoding="utf-8")
    into_page(page, ["| old |"], "python -m x")
    page.write_text(page.read_text(encoding="utf-8") + "\n## Behind\n", encoding="utf-8")
    into_page(page, ["| new |"], "python -m y")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Page\n\nText.\n\n" + BEGIN)
    assert text.endswith("| new |\n" + END + "\n## Behind\n")
    assert "`python -m y` makes" in text
    assert "old" not in text
    assert "python -m x" not in text


def test_every_respect_has_a_goal_and_a_floor():
    assert list(GOALS) == list(FLOORS) == list(RESPECTS)
    assert all(FLOORS[name] <= 1 for name in FLOORS)
    assert share("first", []) == 1


# -- The product


@pytest.mark.slow
def test_a_sample_has_exact_lengths_and_states_and_no_less_than_was_reached():
    measured = list(measure_all(SAMPLE))
    assert len(measured) == len(SAMPLE)
    for one in measured:
        assert one.is_length, one.seed
        assert one.is_states, one.seed
    reached = {respect: share(respect, measured) for respect in BINDING}
    assert not [name for name in BINDING if reached[name] < OF_SAMPLE[name]], reached
