"""One attribution explained: every way it can go, through the command, and real profiles by sample."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from command import assert_misused, assert_refused, bridge, done, unwarned
from made_reports import PUSH_POP, START_END, Made, process, report, small, thread
from real_parts import corpus_reports

from bridge import report as whole
from bridge.analyze.checks.why import GENERAL, REMEDIES, remedy, rows_of, why
from bridge.join.arrays import NONE
from bridge.join.attribution import REASONS
from bridge.knowledge.abbreviations import abbreviation
from bridge.render import table as tables
from bridge.render.why import as_json, for_terminal

PID, OTHER = 100, 101
MAIN, WORKER = thread(PID), thread(PID, 2)
EMPTY = ("failed-export", "no-kernels-osrt")


def opened(made, start, end, text, of=MAIN, kind=PUSH_POP, **more):
    made.annotation(kind, start, end, text=text, thread=of, **more)


def explained(path, asked, **options):
    joined = whole.load(path, **options).attributed
    return why(joined, rows_of(joined, asked))


def kinds(found):
    return [hint.kind for hint in found.hints]


@pytest.fixture
def path(tmp_path):
    return small(tmp_path / "small.sqlite")


@pytest.fixture
def one_op(tmp_path):
    """Give an export in the making: one op on the main thread, a kernel of it."""
    made = Made()
    opened(made, 100, 200, "step")
    made.kernel("inside", 150, PID, 160, 180)
    return made


# -- the chain


def test_the_whole_chain(path):
    assert done("why", path, "gemm_kernel") == (
        "kernel #0 gemm_kernel, 80 ns at 100 ns\n"
        "  on device 0, context 1, stream 7, correlation id 1\n"
        "launched by call #0 cudaLaunchKernel, 5 ns at 60 ns\n"
        "  on thread 1 (main of 100) of process 100 (python 100), where these ranges were open:\n"
        "    range #0 step, 900 ns at 0 ns\n"
        "      range #1 aten::mm, 290 ns at 10 ns"
        " (aten::mm, seq = 0, op_id = 50, sizes = [[2, 3]])\n"
        "        range #2 gemm, 150 ns at 50 ns\n"
        "          range #3 ncclAllReduce, 135 ns at 55 ns (not an op: domain NCCL is a library's)\n"
        "op: gemm, by launch: the innermost op open on the thread of its API call when the call began\n"
        "  module: step/gemm\n"
        "this is the longest of 2 activities with that name; next: #4"
        f" (bridge why {path} '#4')\n"
    )


@pytest.mark.slow
def test_json_holds_the_same_facts(path):
    told = json.loads(done("why", path, "#0", "--format", "json"))
    assert told["format"] == "bridge.why/1"
    assert told["report"] == "small.sqlite"
    assert told["base_ns"] == 1_000
    assert told["activity"] == {
        "what": "kernel", "row": 0, "name": "gemm_kernel",
        "start_ns": 1_100, "end_ns": 1_180, "duration_ns": 80,
    }  # fmt: skip
    assert told["call"]["thread"] == {
        "tid": 1, "name": "main of 100", "pid": 100, "process": "python 100",
    }  # fmt: skip
    assert [r["op"] for r in told["call"]["ranges"]] == ["step", "aten::mm", "gemm", ""]
    assert (told["op"], told["rule"], told["reason"]) == ("gemm", "launch", "")
    assert (told["captured"], told["owner"]) == (None, None)


@pytest.mark.slow
def test_what_is_open_at_an_instant(tmp_path):
    """Where a range begins it is open, where it ends it is not; of equal starts the longer is outer."""
    made = Made()
    for start, end, text in (
        (150, 160, "inner"), (150, 170, "begins"), (100, 150, "ended"), (150, 150, "never"),
        (90, 300, "outer"), (150, 160, "twin"), (151, 160, "later"),
    ):  # fmt: skip
        opened(made, start, end, text)
    made.tables["processes"].append({"process": process(PID), "name": "/usr/bin/python3"})
    made.kernel("k", 150, PID, 200, 210)
    found = explained(made.written(tmp_path / "x.sqlite"), "k")
    assert [r.name for r in found.call.ranges] == ["outer", "begins", "inner", "twin"]
    assert found.op == found.call.op == "twin"
    assert found.call.thread.process == "python3"


@pytest.mark.slow
def test_rules_regroup(path, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\nmatch = 'gemm'\nop = 'matmul'\n")
    said = done("why", path, "#0", "--op-rules", rules)
    assert "range #2 gemm, 150 ns at 50 ns (op matmul)\n" in said
    assert "\nop: matmul, by launch: " in said


def test_phases_and_ranges_that_never_ended(one_op, tmp_path):
    opened(one_op, 50, 300, "epoch", of=WORKER, kind=START_END)
    opened(one_op, 50, 120, "over", kind=START_END)
    opened(one_op, 50, 300, "foreign", of=thread(OTHER), kind=START_END)
    opened(one_op, 60, None, "endless")
    said = done("why", one_op.written(tmp_path / "x.sqlite"), "#0")
    assert "  phases open then: epoch (#1)\n" in said
    assert "range #4 endless, " in said
    assert "at 10 ns (never ended)\n" in said


@pytest.mark.slow
def test_ranges_that_are_no_ops_say_why(one_op, tmp_path):
    opened(one_op, 110, 190, "ncclBroadcast", domain=9)
    path = one_op.written(tmp_path / "x.sqlite")
    found = explained(path, "#0")
    assert [r.note for r in found.call.ranges] == ["", "domain #9 is a library's"]
    assert found.op == found.call.op == "step"
    said = done("why", path, "#0", "--domain", "#9")
    assert "range #0 step, 100 ns at 0 ns (not an op: domain default is left out)\n" in said
    assert "\nop: ncclBroadcast, by launch: " in said
    said = done("why", path, "#0", "--exclude-domain", "default")
    assert "\n  the ranges open there are of domains that are no ops\n" in said
    assert "--domain NAME" in said


@pytest.mark.slow
def test_what_is_printed_stays_on_its_line(one_op, tmp_path):
    opened(one_op, 110, 190, "two\nlines\x1b[31m")
    said = done("why", one_op.written(tmp_path / "x.sqlite"), "#0")
    assert "range #1 two lines [31m, 80 ns" in said


@pytest.mark.slow
def test_a_rule_may_find_the_op_on_another_thread(one_op, tmp_path):
    opened(one_op, 10, 400, "elsewhere", of=WORKER)
    joined = whole.load(one_op.written(tmp_path / "x.sqlite")).attributed
    nesting = joined.attribution.nesting
    node = np.flatnonzero(nesting.range == 1)
    moved = replace(joined, attribution=replace(joined.attribution, node=node))
    found = why(moved, np.array([0]))
    assert (found.op, found.owner.step.row, found.owner.thread.tid) == ("elsewhere", 1, 2)
    said = for_terminal(found)
    assert "  range #1 elsewhere, 390 ns at 0 ns, on thread 2 of process 100\n" in said


# -- what is asked for


def names_of(path, asked):
    joined = whole.load(path)
    return joined.capture.activities.name[rows_of(joined.attributed, asked)].tolist()


@pytest.mark.slow
def test_names_equal_then_parts_then_any_case(one_op, tmp_path):
    one_op.kernel("side", 150, PID, 200, 201)
    one_op.kernel("inside too", 150, PID, 210, 240)
    path = one_op.written(tmp_path / "x.sqlite")
    assert names_of(path, "side") == ["side"]
    assert names_of(path, "insid") == ["inside", "inside too"]
    assert names_of(path, "void inside<float>(float *)") == ["inside"]
    assert names_of(path, "too<float>") == ["inside too"]
    assert names_of(path, "SIDE") == ["side"]
    assert names_of(path, "INSID") == ["inside", "inside too"]
    assert names_of(path, "#1") == ["side"]
    assert names_of(path, "#3") == names_of(path, "#x") == names_of(path, "nothing") == []


def test_names_as_tables_show_them(one_op, tmp_path):
    one_op.kernel("ncclDevKernel_SendRecv", 150, PID, 200, 201)
    one_op.kernel("swish_fwd_kernel_one", 150, PID, 210, 240)
    one_op.kernel("swish_bwd_kernel_one", 150, PID, 250, 260)
    one_op.kernel("swish_fwd_kernel_two", 150, PID, 270, 280)
    path = one_op.written(tmp_path / "x.sqlite")
    assert names_of(path, "nccl SendRecv") == ["ncclDevKernel_SendRecv"]
    assert names_of(path, "nccl Se…") == names_of(path, "nc…ecv") == ["ncclDevKernel_SendRecv"]
    assert names_of(path, "swish_b…") == ["swish_bwd_kernel_one"]
    assert names_of(path, "…fwd_kernel_two") == ["swish_fwd_kernel_two"]
    assert names_of(path, "swish_fwd_kernel_one…") == []  # nothing was cut
    several = "3 names may be cut to 'swish…': 'swish_bwd_kernel_one', 'swish_fwd_kernel_one', "
    assert_refused(bridge("why", path, "swish…"), several, "; write more of one")
    assert_refused(bridge("why", path, "clash…"), "no kernel, memcpy or memset has 'clash…' in")


@pytest.mark.parametrize("path", corpus_reports("nsys/*.sqlite"))
@pytest.mark.parametrize("width", [80, 120])
def test_every_kernel_is_found_by_its_name_in_a_table(path, width):
    """The witness is the table itself: the row of a name says which kernel it is."""
    if path.stem in EMPTY:
        pytest.skip("nothing ran on a device")
    joined = whole.load(path)
    table = joined.by("kernel")
    lines = tables.for_terminal("kernel", table, tables.Look(width)).splitlines()[2:]
    shown = [line.split("  ")[0] for line in lines[: len(table)]]
    for name, cell in zip(table["kernel"], shown, strict=True):
        rows = rows_of(joined.attributed, cell)
        head, gap, tail = cell.partition("…")
        alike = [
            other for other in table["kernel"]
            if (short := abbreviation(other)).startswith(head) and short.endswith(tail)
        ]  # fmt: skip
        if gap and len(alike) != 1:
            assert not len(rows)
        else:
            assert {*joined.attributed.activity_name[rows]} == {name}, cell
    checksums = {text for name in table["kernel"] if (text := name.rpartition("~")[2]) != name}
    for text in sorted(checksums):
        found = {*joined.attributed.activity_name[rows_of(joined.attributed, f"~{text}")]}
        assert found == {name for name in table["kernel"] if f"~{text}" in name}


@pytest.mark.slow
def test_the_longest_is_explained_and_the_others_counted(path, one_op, tmp_path):
    one_op.kernel("sooner", 150, PID, 600, 610)
    one_op.kernel("longest", 150, PID, 700, 800)
    assert explained(one_op.written(tmp_path / "x.sqlite"), "o").activity.name == "longest"
    said = done("why", path, "kernel")
    assert said.startswith("kernel #0 gemm_kernel, ")
    assert (
        "\nthis is the longest of 8 activities with such a name (4 different names);"
        " next: #4, #1, #5 (bridge why "
    ) in said
    assert said.endswith("  4 of them have no op; the longest of these: #2, #6, #3\n")
    assert "the longest of" not in done("why", path, "#4")


@pytest.mark.slow
def test_what_is_not_there_is_refused_with_what_comes_near(path, tmp_path):
    assert_refused(asked_for("gem_kernel", path), "small.sqlite", "'gem_kernel'", "'gemm_kernel'")
    assert_refused(asked_for("last", path), "'lost_kernel'")  # like a word of the name
    assert_refused(asked_for("x\ny", path), "bridge report", "--by kernel lists them")
    assert_refused(asked_for("#14", path), "no activity #14", "from #0 to #13")
    assert_refused(asked_for(f"#{'9' * 30}", path), "9999")
    device = "kernels copies fills graphs"
    host = small(tmp_path / "host.sqlite", without=device)
    assert_refused(asked_for("gemm", host), "no work on a GPU in the report", "--by op")


@pytest.mark.slow
def test_a_name_is_suggested_once(tmp_path):
    made = Made()
    made.kernel("inside_too", 150, PID, 210, 240)
    said = asked_for("insde", made.written(tmp_path / "x.sqlite"))
    assert_refused(said, "near it: 'inside_too'")
    assert said.stderr.count("inside_too") == 1


def asked_for(asked, *words):
    return bridge("why", *words, asked)


@pytest.mark.slow
def test_a_wrong_command_line_is_a_usage_error(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_misused(asked_for(path), "name what to explain after the report")
    assert_misused(asked_for("", path), "name what to explain")
    assert_misused(bridge("why"), "Missing argument")
    assert_misused(asked_for("#0", path, "--run", "1"), "--run, which reads the store")


@pytest.mark.slow
def test_help_needs_no_frames():
    program = (
        "import sys; from bridge.cli import main\n"
        "try: main(['why', '--help'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    words = [sys.executable, "-c", program]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.startswith("Usage: ")
    assert not {"pandas", "numpy", "sqlite_utils"} & set(said.splitlines()[-1].split())


# -- no op


def test_what_was_annotated_around_a_call_without_an_op(path):
    said = done("why", path, "late_kernel")
    assert (
        "  on thread 1 (main of 100) of process 100 (python 100), where no range was open\n" in said
    )
    assert (
        "no op (no_range): no op was open on the thread of its API call when the call began\n"
        "  time from the end of the last op on that thread, step (#0), to the call: 50 ns\n"
        'to change that: annotate the code that makes this call: @nvtx_op, or with nvtx_op("…")'
        " around it\n"
    ) in said


@pytest.mark.slow
def test_other_threads_may_have_had_ops_open(one_op, tmp_path):
    for number in range(2, 7):
        opened(one_op, 250, 400, f"outer {number}", of=thread(PID, number))
        opened(one_op, 260, 390, f"inner {number}", of=thread(PID, number))
    opened(one_op, 250, 400, "foreign", of=thread(OTHER))
    opened(one_op, 250, 400, "phase", of=WORKER, kind=START_END)
    one_op.tables["threads"].append({"thread": WORKER, "name": one_op.string("autograd")})
    one_op.kernel("alone", 300, PID, 310, 320)
    found = explained(one_op.written(tmp_path / "x.sqlite"), "alone")
    assert [hint.text for hint in found.hints] == [
        "thread 2 (autograd) had inner 2 (#2) open",
        "thread 3 had inner 3 (#4) open",
        "thread 4 had inner 4 (#6) open",
        "2 more threads had ops open",
        "time from the end of the last op on that thread, step (#0), to the call:",
    ]
    assert found.hints[-1].ns == 100
    assert "emit_nvtx" in found.remedy
    assert [phase.name for phase in found.call.phases] == ["phase"]


@pytest.mark.slow
def test_the_last_op_before_a_call(one_op, tmp_path):
    opened(one_op, 210, 295, "last")
    opened(one_op, 220, 250, "inside the last")
    opened(one_op, 290, 300, "ncclBroadcast", domain=9)
    one_op.kernel("alone", 300, PID, 310, 320)
    found = explained(one_op.written(tmp_path / "x.sqlite"), "alone")
    assert [(hint.kind, hint.row, hint.ns) for hint in found.hints] == [("op_before", 1, 5)]


@pytest.mark.slow
def test_nothing_was_ever_annotated(one_op, tmp_path):
    one_op.kernel("first", 50, PID, 60, 70)
    path = one_op.written(tmp_path / "x.sqlite")
    assert kinds(explained(path, "first")) == ["none_before"]
    one_op.tables["annotations"].clear()
    found = explained(one_op.written(tmp_path / "bare.sqlite"), "first")
    assert kinds(found) == ["no_ranges"]
    assert "--trace=cuda,nvtx" in found.remedy


@pytest.mark.slow
def test_a_graph_recorded_as_a_whole(one_op, tmp_path):
    one_op.launched("graphs", 300, PID, 310, 400, graph=3)
    said = done("why", one_op.written(tmp_path / "x.sqlite"), "[CUDA graph 3]")
    assert said.startswith("graph #1 [CUDA graph 3], ")
    assert "--cuda-graph-trace=node" in said.splitlines()[-1]


@pytest.mark.slow
def test_a_call_that_was_not_recorded(one_op, tmp_path):
    """Ids restart in every process: a call of another one is never taken."""
    foreign = {"start": 140, "end": 145, "thread": thread(OTHER), "correlation": 2}
    one_op.tables["launches"].append({**foreign, "name": one_op.string("cuLaunchKernel")})
    one_op.kernel("lost", -1, PID, 200, 210)
    said = done("why", one_op.written(tmp_path / "x.sqlite"), "lost")
    assert (
        "no op (no_launch): no API call with its process and correlation id is in the report\n"
        "  cuLaunchKernel (#1) of process 101 has that id: not its call, for ids restart in every"
        " process\n"
    ) in said
    assert "launched by" not in said


@pytest.mark.slow
def test_the_capture_began_after_the_launch(tmp_path):
    made = Made()
    made.kernel("before", -1, PID, 100, 110)
    made.kernel("queued", -1, PID, 900, 910)
    made.kernel("known", 500, PID, 600, 610)
    later = {"start": 800, "end": 805, "thread": MAIN, "correlation": 9}
    made.tables["launches"].append({**later, "name": made.string("cudaFree")})
    made.kernel("of nobody", -1, OTHER, 900, 910)
    made.tables["kernels"][1]["correlation"] = 2
    path = made.written(tmp_path / "x.sqlite")
    began_later = explained(path, "before")
    assert kinds(began_later) == ["begin_later"]
    assert (began_later.hints[0].row, began_later.hints[0].ns) == (0, 400)
    assert kinds(explained(path, "queued")) == ["lower_id"]
    assert "cudaProfilerStart" in explained(path, "queued").remedy
    assert kinds(explained(path, "of nobody")) == ["no_calls"]
    assert "began later by 400 ns\n" in done("why", path, "before")


@pytest.mark.slow
def test_a_migration_of_unified_memory(one_op, tmp_path):
    one_op.launched("copies", -1, PID, 300, 320, bytes=4_096, copy_kind=11)
    one_op.tables["copies"][0]["correlation"] = 0
    found = explained(one_op.written(tmp_path / "x.sqlite"), "Unified")
    assert kinds(found) == ["migration"]
    said = for_terminal(found)
    assert "stream 7, no correlation id\n" in said
    assert "cudaMalloc" in said.splitlines()[-1]


@pytest.mark.slow
def test_an_end_before_the_start(tmp_path):
    said = done("why", report(tmp_path / "x.sqlite"), "backwards")
    assert said.startswith("kernel #16 backwards, from 700 ns to 650 ns\n")
    assert (
        "no op (invalid_time): it ends before it starts, at 0 or at a time that no capture has, so it counts no time\n"
        in said
    )
    assert "range #" in said  # what was open is shown all the same
    assert "cudaProfilerStop" in said.splitlines()[-1]


def test_every_reason_has_a_remedy_even_one_unheard_of():
    assert {"no_launch", "no_range", "invalid_time"} <= set(REMEDIES) & set(REASONS)
    assert remedy("unheard of", ()) == GENERAL


# -- CUDA graphs


@pytest.fixture
def graph(one_op, tmp_path):
    """Give a report with nodes captured in an op, in none and before the report, launched in one and in none."""
    opened(one_op, 300, 400, "replay")
    for at, node, original in ((150, 1, None), (250, 2, None), (260, 11, 1)):
        event = {"time": at, "thread": MAIN, "node": node, "original": original}
        one_op.tables["graph_nodes"].append(event)
    for at, name, node in (
        (310, "captured", 11), (320, "loose", 2), (330, "older", 99), (450, "late", 2),
    ):  # fmt: skip
        one_op.kernel(name, at, PID, at + 10, at + 15)
        one_op.tables["kernels"][-1]["graph_node"] = node
    return one_op.written(tmp_path / "graph.sqlite")


@pytest.mark.slow
def test_both_places_of_a_graph_node_are_told(graph):
    said = done("why", graph, "captured")
    assert (
        "captured as node 1 (#0) of a CUDA graph at 50 ns\n"
        "  on thread 1 of process 100, where these ranges were open:\n"
        "    range #0 step, 100 ns at 0 ns\n"
        "launched by call #1 cudaLaunchKernel, 5 ns at 210 ns\n"
        "  on thread 1 of process 100, where these ranges were open:\n"
        "    range #1 replay, 100 ns at 200 ns\n"
        "op: step, by capture: the innermost op open where its node of a CUDA graph was captured\n"
        "  module: step\n"
        "  captured in step, launched in replay; --graphs capture|launch chooses, the other serves"
        " where that has no op\n"
    ) in said
    assert "\nop: replay, by launch: " in done("why", graph, "captured", "--graphs", "launch")


@pytest.mark.slow
def test_a_graph_node_with_one_place_or_none(graph):
    loose, older, late = (explained(graph, name) for name in ("loose", "older", "late"))
    assert (loose.op, loose.rule, loose.captured.op) == ("replay", "launch", "")
    assert (older.op, older.captured) == ("replay", None)
    assert "  node 99 of a CUDA graph; its capture is not in the report\n" in for_terminal(older)
    assert (late.op, late.reason) == ("", "no_range")
    assert "  captured in no op, launched in no op; " in for_terminal(late)


# -- where reports come from


@pytest.mark.slow
def test_the_store_tells_what_the_file_tells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = report(tmp_path / "x.sqlite")
    done("import", path)
    for asked in ("gemm_kernel", "late_kernel", "lost_kernel", "backwards", "#3"):
        for form in ("text", "json"):
            told = done("why", path, asked, "--format", form)
            by_run = done("why", asked, "--run", "1", "--format", form)
            assert by_run.replace("(bridge why --run 1 ", f"(bridge why {path} ") == told
            assert done("why", asked, "--format", form) == by_run.replace("why --run 1", "why")


@pytest.mark.slow
def test_of_several_reports_it_says_which(tmp_path):
    one, other = (
        small(tmp_path / f"{name}.sqlite", steps=n) for name, n in (("one", 1), ("other", 2))
    )
    alone, both = done("why", other, "#3"), done("why", one, other, "#10").splitlines()
    assert both[1] == "  in other.sqlite"
    assert both[0] == alone.splitlines()[0].replace("#3", "#10")
    assert "  in one.sqlite" in done("why", one, other, "#3")


@pytest.mark.slow
def test_reports_do_not_mix(one_op, tmp_path):
    """Threads, processes and ids of two captures may have the same numbers."""
    other = Made()
    for one, name in ((one_op, "one"), (other, "other")):
        one.tables["threads"].append({"thread": MAIN, "name": one.string(f"main of {name}")})
    opened(other, 1_000, 3_000, "foreign")
    other.kernel("theirs", 1_500, PID, 1_600, 1_610)
    other.kernel("lost", 1_700, PID, 1_800, 1_810)
    opened(one_op, 2_000, 2_010, "mine")
    one_op.kernel("lost", -1, PID, 2_800, 2_810)
    one_op.kernel("alone", 2_500, PID, 2_600, 2_610)
    paths = [m.written(tmp_path / f"{n}.sqlite") for n, m in (("other", other), ("one", one_op))]
    joined = whole.load(*paths).attributed
    alone, lost = (why(joined, rows_of(joined, asked)) for asked in ("alone", "#3"))
    assert (alone.report, alone.base_ns, alone.call.thread.name) == (
        "one.sqlite",
        100,
        "main of one",
    )
    assert (alone.call.ranges, alone.hints[0].row, alone.hints[0].ns) == ((), 2, 490)
    assert (lost.report, lost.reason, lost.hints) == ("one.sqlite", "no_launch", ())


@pytest.mark.slow
def test_warnings_go_to_stderr(tmp_path):
    path = small(tmp_path / "bare.sqlite", without="annotations")
    result = bridge("why", path, "#0")
    assert result.exit_code == 0
    assert "no NVTX ranges" in result.stderr
    assert unwarned(result.stderr) == ""


# -- real profiles


@pytest.mark.slow
@pytest.mark.parametrize("path", [of for of in corpus_reports() if of.id not in EMPTY])
def test_real_activities_are_explained_as_they_were_attributed(path):
    joined = whole.load(path)
    count = len(joined.capture.activities)
    for row in np.random.default_rng(1).integers(0, count, 20 if count else 0).tolist():
        found, truth = why(joined.attributed, np.array([row])), joined.op_kernels.iloc[row]
        assert (found.op or None) == (truth["op"] if isinstance(truth["op"], str) else None)
        assert (found.reason, found.rule) == (truth["reason"], truth["rule"])
        assert (found.call.step.row if found.call else NONE) == truth["launch"]
        if found.rule == "launch":
            assert_open(found, truth)
        assert json.loads(as_json(found))["op"] == found.op
        assert for_terminal(found).startswith(f"{found.activity.what} #{row} ")


def assert_open(found, truth):
    """Assert that the ranges told are open at the call, the innermost that is an op being the one."""
    at = found.call.step.start_ns
    ranges = found.call.ranges
    assert all(r.start_ns <= at < r.start_ns + r.duration_ns for r in ranges)
    ops = [r for r in ranges if r.op]
    assert ops[-1].row == truth["range"]
    assert "/".join(r.op for r in ops) == truth["path"]


@pytest.mark.slow
def test_backward_work_tells_its_forward_range_its_module_and_who_adopted_it(demo):
    said = json.loads(done("why", demo, "flash_bwd", "--adopt", "--format", "json"))
    lineage = said["lineage"]
    assert (lineage["direction"], lineage["ambiguous"]) == ("backward", False)
    assert lineage["forward"]["step"]["name"] == "aten::scaled_dot_product_attention"
    assert lineage["module"] == "ProfilerStep/backward"  # its layers are not marked as modules
    assert lineage["adopter"]["step"]["name"] == "backward"
    text = done("why", demo, "flash_bwd", "--adopt")
    assert "  backward work of range #" in text
    assert "  adopted, by time alone, by range #" in text
