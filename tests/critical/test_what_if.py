"""What if: the run that would have been is that of the program with these costs."""

from __future__ import annotations

import json

import pytest
from command import assert_misused, done
from command import bridge as run
from hypothesis import given
from hypothesis import strategies as st
from simulated import Plan, Truth, program, write
from simulated.troubles import KINDS

import bridge
from bridge.analyze.run.what_if import Question, RunTime, WhatIf, part_left, what_if
from critical.machine import Machine
from critical.test_programs import programs

FASTER = {"host code", "kernel", "memcpy"}  # what an op has; its calls and gaps keep their times


class Costly(Machine):
    """A machine with other costs: parts of them by op (or "") and kind, and names of calls that go.

    All costs are even, so that halves of them are whole.
    """

    def __init__(
        self, parts: dict[tuple[str, str], float] | None = None, without: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.parts, self.without = parts or {}, without
        self.goes = False

    def cost(self, ns: int, op: str, kind: str) -> int:
        if self.goes and kind in {"API call", "synchronization"}:
            return 0
        part = self.parts.get((op, kind), 1.0) * self.parts.get(("", kind), 1.0)
        return round(1000 * ns * part)

    def called(self, rank, op, host, ns, name):
        self.goes = name in self.without
        number = super().called(rank, op, host, ns, name)
        self.goes = False
        return number

    def wait_for(self, rank, op, activity, tail, name):
        self.goes = name in self.without
        number = super().wait_for(rank, op, None if self.goes else activity, tail, name)
        self.goes = False
        return number

    def launch(self, rank, op, *costs):
        super().launch(rank, op, *costs)
        self.records.activities[-1]["name"] = f"kernel_{op}"

    def begin_cuda(self, rank, op, ns) -> None:
        self.called(rank, op, 0, ns, "cudaFree")


BEGIN = ("begin_cuda", "start", 50)
LAUNCH = ("launch", "a", 10, 6, 7, 2, 30)
STEP = [
    *[("code", "load", 40), LAUNCH, LAUNCH, ("launch", "b", 4, 6, 7, 2, 200)],
    *[("sync", "c", 7, 4), ("code", "c", 20)],
]


def run_of(steps: list, **changed) -> Costly:
    return Costly(**changed).run([(steps, [])])


def answered(machine: Machine, **asked) -> WhatIf:
    asked = {name: (given,) if name != "iterations" else given for name, given in asked.items()}
    if "gpu_faster" in asked:
        asked["gpu_faster"] = asked["gpu_faster"][0]
    return what_if(machine.records.attributed(), Question.of(**asked))


def of_op(op: str, part: float) -> dict:
    return {(op, kind): part for kind in FASTER}


# -- Each option, against the program with these costs


@pytest.mark.parametrize("part", [0.5, 0.0])
@pytest.mark.parametrize("op", ["a", "b", "c", "load"])
def test_an_op_takes_less_time(op, part):
    steps = [BEGIN, *STEP * 4]
    answer = answered(run_of(steps), op=op, faster={0.5: "2x", 0.0: "100%"}[part])
    assert answer.recorded.run_ns == run_of(steps).span
    assert answer.would_be.run_ns == run_of(steps, parts=of_op(op, part)).span
    assert answer.saving_ns == answer.recorded.run_ns - answer.would_be.run_ns > 0
    [change] = answer.changes
    assert (change.option, change.name, change.part) == ("--op", op, part)


@pytest.mark.slow
@given(programs(), st.sampled_from("abc"))
def test_an_op_of_any_program_takes_half_its_time(made, op):
    whole = Costly().run(made)
    if op not in whole.records.attributed().ops:
        return
    expected = Costly(of_op(op, 0.5)).run(made)
    assert answered(whole, op=op, faster="50%").would_be.run_ns == expected.span


def test_all_kernels_are_faster():
    steps = [BEGIN, *STEP * 4, ("copy", "d", 7, 2, 30, 4)]
    answer = answered(run_of(steps), gpu_faster="2")
    assert answer.would_be.run_ns == run_of(steps, parts={("", "kernel"): 0.5}).span
    assert answer.changes[0].count == 12


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaStreamSynchronize"])
def test_calls_go(name):
    steps = [BEGIN, *STEP * 4]
    answer = answered(run_of(steps), without=name)
    assert answer.would_be.run_ns == run_of(steps, without=(name,)).span < answer.recorded.run_ns


def test_calls_by_a_pattern_but_for_the_first_one():
    """CUDA begins in the first call of a process, whichever that is."""
    steps = [BEGIN, *STEP * 2]
    answer = answered(run_of(steps), without="cuda*")
    gone = ("cudaLaunchKernel", "cudaStreamSynchronize")
    assert answer.would_be.run_ns == run_of(steps, without=gone).span
    assert answer.changes[0].count == 8


def test_calls_of_the_operating_system_go():
    machine = run_of([BEGIN, *STEP, ("code", "read", 100), *STEP])
    [read] = [row for row in machine.records.ranges if row["name"] == "read"]
    row = {"thread": read["thread"], "start": read["start"] + 1, "end": read["end"] - 1}
    machine.records.system.append({**row, "name": "pread64"})
    answer = answered(machine, without="pread*")
    assert answer.saving_ns == row["end"] - row["start"]


def test_communication_is_hidden_by_computation():
    met = ("collective", "dist", 4, 6, 2, 50)
    rounds = [([BEGIN, *STEP, met], []), ([("sync_all", "c", 4), *STEP], [])]
    gone = {("dist", kind): 0 for kind in ("collective", "device gap", "launch latency")}
    expected = Costly(gone).run(rounds).span
    for name in ("nccl", "communication", "ncclDevKernel*"):
        answer = answered(Costly().run(rounds), hide=name)
        assert answer.would_be.run_ns == expected < answer.recorded.run_ns
        assert answer.changes[0].count == 1


def test_what_computation_cannot_hide_stays():
    rounds = [([BEGIN, ("launch", "a", 4, 6, 7, 2, 20), ("collective", "dist", 4, 6, 2, 50)], [])]
    answer = answered(Costly().run(rounds), hide="nccl")
    gone = {("dist", "collective"): 0.6, ("dist", "launch latency"): 0}
    assert answer.would_be.run_ns == Costly(gone).run(rounds).span


def test_several_changes_are_made_at_once():
    steps = [BEGIN, *STEP * 4]
    attributed = run_of(steps).records.attributed()
    question = Question.of(
        ["a", "load"], ["50%", "100%"], ["cudaStreamSynchronize"], gpu_faster="2x"
    )
    answer = what_if(attributed, question)
    parts = {**of_op("a", 0.5), **of_op("load", 0), ("", "kernel"): 0.5}
    alike = run_of(steps, parts=parts, without=("cudaStreamSynchronize",))
    assert answer.would_be.run_ns == alike.span
    apart = [
        what_if(attributed, Question.of(["a"], ["50%"])),
        what_if(attributed, Question.of(["load"], ["100%"])),
    ]
    assert answer.saving_ns != sum(one.saving_ns for one in apart)
    both = what_if(attributed, Question.of(["a", "b"], ["2x"]))
    assert both.would_be.run_ns == run_of(steps, parts={**of_op("a", 0.5), **of_op("b", 0.5)}).span


def test_a_run_of_more_iterations():
    """What is paid once, here the first call and an end, stays."""

    def steps(count: int) -> list:
        return [BEGIN, *STEP * count, ("code", "save", 300)]

    machine = run_of(steps(6))
    assert [loop.count for loop in machine.records.attributed().loops.iterations] == [6]
    answer = answered(machine, op="b", faster="2x", iterations=40)
    assert answer.iterations == 6
    assert answer.recorded.run_ns == run_of(steps(40)).span
    alike = run_of(steps(40), parts=of_op("b", 0.5))
    assert answer.would_be.run_ns == alike.span
    each = run_of(steps(41), parts=of_op("b", 0.5)).span - alike.span
    assert answer.would_be.iteration_ns == each
    assert answer.recorded.iteration_ns == run_of(steps(41)).span - run_of(steps(40)).span


def test_what_bounds_the_run_then():
    """A GPU that waits for nothing but its kernels, whose host bounds the run when they are fast."""
    steps = [BEGIN, *[("launch", "a", 40, 6, 7, 2, 100)] * 20]
    now = answered(run_of(steps), op="a", faster="1x")
    then = answered(run_of(steps), gpu_faster="100%")
    first = now.bound[0]
    assert (first.op, first.kind, first.time_ns) == ("a", "kernel", 20 * 100_000)
    assert now.saving_ns == 0
    assert (then.bound[0].op, then.bound[0].kind) == ("a", "host code")
    assert then.bound[0].time_ns == 20 * 40_000
    assert then.bound[0].share == then.bound[0].time_ns / then.would_be.run_ns


def test_waits_that_something_unrecorded_ended_are_told_twice():
    """A batch comes every 200 µs from nobody knows where: twice as fast code may have to wait as long as it saves."""
    machine = Costly()
    rounds = [("code", "wait", 60), ("launch", "a", 134, 6, 7, 2, 30)] * 12
    machine.run([([BEGIN, *rounds], [])])
    for row in [row for row in machine.records.ranges if row["name"] == "wait"]:
        system = {"thread": row["thread"], "start": row["start"], "end": row["end"]}
        machine.records.system.append({**system, "name": "poll"})
    answer = answered(machine, op="a", faster="2x")
    saved = answer.recorded.run_ns - answer.lasting_waits.run_ns
    assert saved == 12 * 67_000 + 15_000
    assert answer.would_be == answer.paced_waits
    assert answer.would_be.run_ns > answer.lasting_waits.run_ns
    assert answer.saving_ns < saved / 4


# -- A part of the run


def test_of_a_part_nothing_before_it_changes():
    steps = [BEGIN, *STEP * 4]
    machine = run_of(steps)
    report = bridge.Report(machine.records.attributed())
    half = report.within(first_ns=machine.span // 2).what_if(op="load", faster="100%")
    whole = report.what_if(op="load", faster="100%")
    assert half.is_part
    assert half.recorded.run_ns < whole.recorded.run_ns
    assert half.would_be.iteration_ns == -1
    assert half.saving_ns in (
        80_000,
        120_000,
    )  # of the two iterations that begin in the half, or one more
    with pytest.raises(ValueError, match="goes with the whole run"):
        report.within(first_ns=10).what_if(op="load", faster="2x", iterations=3)


# -- Reports that lack something


def test_a_report_of_work_alone():
    """Kernels of a stream follow each other after the gaps that they had."""
    machine = Costly()
    for n in range(3):
        machine.records.activity(-1, 100 * n, 100 * n + 80)
    answer = answered(machine, gpu_faster="2")
    assert (answer.recorded.run_ns, answer.saving_ns) == (280, 120)


def test_a_report_of_ranges_alone():
    machine = Costly().run([([("code", "a", 100), ("code", "b", 50)], [])])
    answer = answered(machine, op="a", faster="50%")
    assert answer.recorded == RunTime(150_000, -1)
    assert answer.would_be == RunTime(100_000, -1)
    assert (answer.bound[0].op, answer.bound[0].kind) == ("a", "host code")
    with pytest.raises(ValueError, match="no call 'x'"):
        answered(machine, without="x")


# -- What is asked


@pytest.mark.parametrize(
    ("text", "option", "part"),
    [
        *[("30%", "--faster", 0.7), ("100 %", "--faster", 0.0), ("2x", "--faster", 0.5)],
        *[("1.25", "--gpu-faster", 0.8), ("1x", "--faster", 1.0), ("0%", "--gpu-faster", 1.0)],
    ],
)
def test_how_much_faster(text, option, part):
    assert part_left(text, option) == pytest.approx(part)


@pytest.mark.parametrize("text", ["2", "0.5x", "120%", "-10%", "fast", "", "x", "%"])
def test_no_measure_of_speed(text):
    with pytest.raises(ValueError, match="write how much less time it takes, as 30% or 2x"):
        part_left(text, "--faster")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "name a change: --op with --faster, --without, --hide or --gpu-faster"),
        ("--iterations 5", "name a change"),
        ("--op forward", "--op needs --faster"),
        ("--faster 2x", "--faster goes with --op"),
        ("--op forward --op backward --op x --faster 2x --faster 30%", "once for each --op"),
        ("--op forwart --faster 2x", "no range 'forwart'; did you mean forward?"),
        ("--without cudaLaunchKernl", "no call 'cudaLaunchKernl'; did you mean cudaLaunchKernel?"),
        ("--without Launch", "no call 'Launch'; '*Launch*' is cudaLaunchKernel"),
        ("--without forward", "no call 'forward', but an op: --op 'forward' --faster 100%"),
        ("--hide flash_fwd", "no kernel or copy 'flash_fwd'; '*flash_fwd*' is flash_fwd_kernel"),
        ("--gpu-faster 0.5", "--gpu-faster '0.5': write how much"),
        ("--gpu-faster 2 --step 1 --iterations 9", "--iterations goes with the whole run"),
    ],
)
def test_what_is_refused(words, said, demo):
    assert_misused(run("what-if", demo, *words.split()), said)


def test_no_communication_to_hide():
    with pytest.raises(ValueError, match="no communication in the report"):
        answered(run_of(STEP), hide="nccl")


def test_no_iterations_to_count():
    with pytest.raises(ValueError, match="the report has none"):
        answered(run_of([BEGIN, LAUNCH]), op="a", faster="2x", iterations=5)


# -- The command, and from Python


def test_the_command_prints_what_python_returns(demo):
    words = ("--op", "aten::addmm", "--op", "layer*", "--faster", "30%", "--hide", "nccl")
    document = json.loads(done("what-if", demo, *words, "--format", "json"))
    assert document.pop("format") == "bridge.what-if/1"
    answer = bridge.load(demo).what_if(op=["aten::addmm", "layer*"], faster="30%", hide="nccl")
    for name in ("recorded", "would_be", "lasting_waits", "paced_waits"):
        assert RunTime(**document[name]) == getattr(answer, name)
    assert document["saving_ns"] == answer.saving_ns > 0
    assert len(document["bound"]) == 3
    text = done("what-if", demo, *words)
    assert "nccl hidden by computation (12 kernels or copies, 1.440 ms)" in text
    assert "The run would take" in text
    assert "Then it waits for:" in text


def test_each_form_of_the_text(demo):
    text = done("what-if", demo, "--gpu-faster", "1.5", "--iterations", "1000")
    assert "kernels: 33.3 % less time" in text
    assert "A run of 1 000 iterations would take" in text
    assert "nothing is saved" in done("what-if", demo, "--op", "forward", "--faster", "0%")
    assert "no time" in done("what-if", demo, "--op", "forward", "--faster", "100%")
    assert "The selected part would take" in done(
        "what-if", demo, "--without", "cudaLaunch*", "--step", "2"
    )


def test_backward_work_is_that_of_the_op_around_its_caller(demo):
    """As in the total of the op in `--by op`."""
    report = bridge.load(demo)
    table = report.by("op", columns="gpu_total").set_index("op")["gpu_total_ns"]
    answer = report.what_if(op="backward", faster="100%")
    assert answer.saving_ns > 0.9 * (table["backward"] - 1_440_000)


# -- Against simulated programs, whose true saving is known


ASKED = {
    "slow_host_op": {"op": "tokenize", "faster": "90%"},
    "slow_kernel": {"op": "transpose", "faster": "5x"},
    "allocation_in_loop": {"without": ["cudaMalloc", "cudaFree"]},
    "file_in_step": {"without": "pread64"},
    "sleep_in_step": {"without": "clock_nanosleep"},
}
SEEDS = (2, 4, 5, 7, 8)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ASKED)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_saving_is_that_of_the_remedied_program(seed, trouble, tmp_path):
    plan = Plan.draw(seed)
    assert plan.annotated
    if not KINDS[trouble].fits(plan):
        pytest.skip("no such trouble in this program")
    truth = Truth.of(program(seed, plan, trouble))
    [path] = write(truth.result, tmp_path / "simulated.sqlite")
    answer = bridge.load(path).what_if(**ASKED[trouble])
    assert answer.recorded.run_ns == truth.length_ns
    [remedied] = truth.troubles
    assert abs(answer.saving_ns - remedied.true_saving_ns) <= 0.005 * truth.length_ns
