"""`bridge flame -o profile.pb.gz`: what is in the file, byte by byte, and what `go tool pprof` reads in it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import assert_misused, assert_refused, bridge, done, inside
from docs.pages import DOCS, blocks, run, run_in_shell
from hypothesis import given
from hypothesis import strategies as st
from join.compare import steps_of
from join.trainings import training, trainings
from real_parts import corpus_reports
from witness.attribution import Activity, Call, Range
from witness.stacks import TrueStacks

from bridge.analyze.core.calltree import LEVELS, WEIGHTS, CallTree, folded_stacks, stacked
from bridge.analyze.core.samples import Samples, samples
from bridge.importers.frames import Names
from bridge.join.attributed import AttributedCapture
from bridge.join.options import AttributionOptions
from bridge.render.pprof import pprof
from flame import profiles
from flame.test_flame import counted

P = 7 << 24
MAIN, AUTOGRAD = P | 1, P | 2
NONE = -1


def written(attributed, weight="gpu", *, steps=True):
    made = samples(attributed, stacked(attributed, steps=steps))
    return profiles.read(b"".join(pprof(made, ("made",), weight)))


def figures(profile):
    """Return the values of each stack and its labels, which must be there once."""
    keys = [(sample.stack, frozenset(sample.labels)) for sample in profile.samples]
    assert len({*keys}) == len(keys)
    return dict(zip(keys, (sample.values for sample in profile.samples), strict=True))


def on_streams(made, streams, devices=None):
    """Attribute a training whose activities ran on these streams, and devices."""
    capture = made.capture()
    columns = {"stream": np.array(streams, np.int64)}
    columns |= {"device": np.array(devices, np.int64)} if devices else {}
    capture = replace(capture, activities=capture.activities.replace(**columns))
    return AttributedCapture.of(capture, AttributionOptions(adopt=False))


# -- by hand


def opened(start, end, text, thread=MAIN):
    return Range(0, P, thread, start, end, ""), text


def two_steps_on_two_streams():
    """Steps 0 and 5 with a module, an op in it on streams 0 and 7 of GPUs 0 and 1, its backward, and work in no range."""
    ranges = [
        opened(0, 100, "ProfilerStep#0"),
        opened(10, 40, "nn.Module: encoder"),
        opened(15, 25, "aten::mm, seq = 7"),
        opened(50, 60, "MmBackward0, seq = 7", AUTOGRAD),
        opened(200, 300, "ProfilerStep#5"),
        opened(210, 240, "nn.Module: encoder"),
    ]
    instants = [(16, MAIN), (17, MAIN), (18, MAIN), (55, AUTOGRAD), (220, MAIN), (400, MAIN)]
    calls = [Call(0, P, thread, n, at, at + 1) for n, (at, thread) in enumerate(instants, 1)]
    kernels = [Activity(0, P, n, 500 + n, 500 + n + 2**n, name="k") for n in range(1, 7)]
    return on_streams(training(ranges, calls, kernels), [0, 7, 7, 0, 0, NONE], [0, 0, 1, 0, 0, 0])


def test_a_sample_has_its_stack_its_labels_and_every_weight():
    profile = written(two_steps_on_two_streams())
    assert profile.types == [("gpu", "nanoseconds"), ("cpu", "nanoseconds"), ("calls", "count")]
    assert (profile.default, profile.comments) == ("gpu", ["made"])
    one, other = (("step 0", "encoder"), ("step 5", "encoder"))
    mm, back = (*one, "aten::mm"), (*one, "MmBackward0")

    def labels(step, op, module="encoder", **work):
        named = {"step": step, "op": op, "module": module, **work}
        return frozenset((name, value) for name, value in named.items() if value is not None)

    def kernel(stream, gpu=0):
        return {"kernel": "k", "stream": stream, "device": f"GPU {gpu} in one"}

    encoder = "nn.Module: encoder"
    assert figures(profile) == {
        (("step 0",), labels(0, "ProfilerStep", None)): (0, 70, 1),
        (one, labels(0, encoder)): (0, 20, 1),
        (mm, labels(0, "aten::mm")): (0, 10, 1),
        ((*mm, "k"), labels(0, "aten::mm", **kernel(0))): (2, 0, 0),
        ((*mm, "k"), labels(0, "aten::mm", **kernel(7))): (4, 0, 0),
        ((*mm, "k"), labels(0, "aten::mm", **kernel(7, gpu=1))): (8, 0, 0),
        (back, labels(0, "MmBackward0")): (0, 10, 1),
        ((*back, "k"), labels(0, "MmBackward0", **kernel(0))): (16, 0, 0),
        (("step 5",), labels(5, "ProfilerStep", None)): (0, 70, 1),
        (other, labels(5, encoder)): (0, 30, 1),
        ((*other, "k"), labels(5, encoder, **kernel(0))): (32, 0, 0),
        (("no_range", "k"), labels(None, None, None, **kernel(None))): (64, 0, 0),
    }


def test_without_steps_no_sample_has_one():
    profile = written(two_steps_on_two_streams(), steps=False)
    found = figures(profile)
    assert not [name for _, labels in found for name, _ in labels if name == "step"]
    labels = {"op": "nn.Module: encoder", "module": "encoder"}
    assert found[("encoder",), frozenset(labels.items())] == (0, 50, 2)


@pytest.mark.parametrize("steps", [True, False])
def test_the_sums_are_those_of_folded_stacks(steps):
    attributed = two_steps_on_two_streams()
    tree, profile = stacked(attributed, steps=steps).tree, written(attributed, steps=steps)
    for kind in WEIGHTS:
        lines, values = folded_stacks(tree, kind)
        true = dict(zip(lines.tolist(), values.tolist(), strict=True))
        assert profile.by_stack(kind) == true != {}


# -- texts, numbers and types


def made_of(*names, parent=None, gpu=None, label=None):
    """Samples of a tree with these names, each inside the one before; the innermost has all time."""
    many = len(names)
    values = np.zeros(many, np.int64)
    values[-1] = 7
    gpu, none = values if gpu is None else np.array(gpu), np.zeros(many, np.int64)
    above = np.arange(many) - 1 if parent is None else np.array(parent)
    level = np.full(many, LEVELS.index("op"))
    tree = CallTree(above, np.arange(many), list(names), level, gpu, none, none)
    frame = np.flatnonzero(gpu)
    texts = {} if label is None else {"op": Names.of([label] * len(frame))}
    weights = {"gpu": gpu[frame], "cpu": none[frame], "calls": none[frame]}
    return Samples(tree, frame, texts, {}, weights)


def read_back(made, weight="gpu"):
    return profiles.read(b"".join(pprof(made, ("x",), weight)))


def test_any_name_is_a_name():
    hostile = ["a;b", "new\nline\x00", "", "\ud800", "ü 🙂", "x" * 20_000]
    [sample] = read_back(made_of(*hostile, label="")).samples
    assert sample.stack == (*hostile[:2], "(unnamed)", "?", *hostile[4:])
    assert sample.labels == (("op", "(unnamed)"),)


@pytest.mark.parametrize(
    ("many", "deep"), [(300, 140), pytest.param(17_000, 300, marks=pytest.mark.slow)]
)
def test_stacks_of_any_depth_stand_beside_each_other(many, deep):
    """More than 127 locations, and than 16 384: their numbers take more bytes. Two stacks grow to `deep`, others have one frame."""
    parent = [row - 1 if row % deep and row < 2 * deep else NONE for row in range(many)]
    gpu = [row % 3 * 10**6 * row for row in range(many)]
    found = read_back(made_of(*map(str, range(many)), parent=parent, gpu=gpu)).samples
    expected = {}
    for row in range(many):
        outermost = row - row % deep if row < 2 * deep else row
        expected[tuple(map(str, range(outermost, row + 1)))] = gpu[row]
    assert {sample.stack: sample.values[0] for sample in found} == {
        stack: ns for stack, ns in expected.items() if ns
    }


def test_the_default_is_the_weight_that_is_asked_for_or_else_one_that_is_there():
    """All three are there, for profiles that are compared need the same types."""
    for weight in WEIGHTS:
        profile = read_back(made_of("a"), weight)
        assert [name for name, _ in profile.types] == [*WEIGHTS]
        assert profile.default == "gpu"
    everything = two_steps_on_two_streams()
    assert [written(everything, weight).default for weight in WEIGHTS] == list(WEIGHTS)


def test_no_samples_are_a_profile_too():
    assert written(training([]).attributed()).samples == []


# -- any program


def true_samples(truth: TrueStacks, streams):
    """Return time, CPU time and calls by stack and labels: one activity, piece of time and call after the other."""
    more, b = truth.more, truth.profile
    found: dict[str, Counter] = {kind: Counter() for kind in WEIGHTS}

    def key(path, step, op=None, module=None, **work):
        number = int(step[0][1].removeprefix("step ")) if step else None
        named = {"step": number, "op": op, "module": module, **work}
        labels = frozenset((name, value) for name, value in named.items() if value is not None)
        return tuple(name for _, name in path), labels

    def of_range(stack):
        one = b.ranges[stack[-1]]
        own = stack[-1] in more.modules
        modules = more.module_paths(b.whole(stack) if own else more.module_stack(stack))
        step = truth.step_at(one, one.start)
        return key(truth._of_range(stack), step, one.op, [None, *modules][-1])

    for row, (one, owner) in enumerate(zip(b.activities, b.found, strict=True)):
        step = truth.step_at(one, b.issued(row))
        path = truth.path(step, owner.stack)
        path += (("reason", owner.reason),) if owner.reason else ()
        op = b.ranges[owner.stack[-1]].op if owner.stack else None
        work = {"kernel": one.name, "stream": None if streams[row] == NONE else streams[row]}
        module = more.module(row) if owner.stack else None
        found["gpu"][key((*path, ("kernel", one.name)), step, op, module, **work)] += b.time(row)
    for first, last, stack in b.pieces():
        found["cpu"][of_range(stack)] += last - first
    firsts: dict[object, int] = {}
    rows = [row for row in b.op_rows() if more.around(row)]
    for row in sorted(rows, key=lambda row: (b.ranges[row].start, row)):
        firsts.setdefault(b.call_of(row), row)
    found["calls"].update(of_range(more.around(row)) for row in firsts.values())
    return {kind: +values for kind, values in found.items()}


@pytest.mark.slow
@given(trainings(), st.lists(st.sampled_from([NONE, 0, 7, 300]), min_size=12, max_size=12))
def test_samples_of_any_training_are_those_of_its_records(made, streams):
    streams = streams[: len(made.program.activities)]
    joined = on_streams(made, streams)
    for by_step in (True, False):
        profile = written(joined, steps=by_step)
        true = true_samples(
            TrueStacks(made.profile(), steps_of(joined.steps), by_step, True), streams
        )
        for kind, expected in true.items():
            found = Counter()
            for (stack, labels), values in figures(profile).items():
                own = frozenset(label for label in labels if label[0] != "device")
                found[stack, own] += values[WEIGHTS.index(kind)]
            assert +found == expected


# -- the command


@pytest.fixture
def report_here(three_steps, folder):
    return Path(shutil.copy(three_steps, folder / "made.sqlite"))


def profile_in(path):
    return profiles.read(gzip.decompress(Path(path).read_bytes()))


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["--steps", "--no-steps"])
def test_the_file_says_what_the_other_formats_say(report_here, steps):
    done("flame", report_here, steps, "-o", "x.pb.gz")
    profile = profile_in("x.pb.gz")
    assert profile.comments == ["made.sqlite"]
    done("flame", report_here, steps, "-o", "x.speedscope.json")
    shown = {
        one["name"]: one for one in json.loads(Path("x.speedscope.json").read_text())["profiles"]
    }
    for kind, name in (("gpu", "GPU time"), ("cpu", "CPU time"), ("calls", "calls")):
        folded = counted(done("flame", report_here, steps, "--weight", kind))
        assert profile.by_stack(kind) == folded
        assert shown[name]["endValue"] == sum(folded.values())


@pytest.mark.slow
def test_the_suffix_the_format_and_the_weight(report_here):
    assert done("flame", report_here, "--weight", "calls", "-o", "x.pb.gz") == ""
    assert profile_in("x.pb.gz").default == "calls"
    done("flame", report_here, "--format", "pprof", "-o", "other")
    assert profile_in("other").default == "gpu"
    done("flame", report_here, "--format", "folded", "-o", "y.pb.gz")
    assert counted(Path("y.pb.gz").read_text())
    assert_refused(bridge("flame", report_here, "-o", "x.pb.gz"), "x.pb.gz", "--force")


@pytest.mark.slow
def test_the_same_report_gives_the_same_bytes(report_here):
    for name in ("a.pb.gz", "b.pb.gz"):
        done("flame", report_here, "-o", name)
    data = Path("a.pb.gz").read_bytes()
    assert data == Path("b.pb.gz").read_bytes()
    assert data[3:8] == bytes(5)  # no name and no time


def test_a_profile_is_not_for_the_standard_output(report_here):
    result = bridge("flame", report_here, "--format", "pprof")
    assert_misused(result, "binary", "-o profile.pb.gz")
    assert inside(report_here.parent) == ["made.sqlite"]


# -- what Go makes of it

EXACT = ("-unit=ns", "-nodefraction=0", "-nodecount=1000000")
TOP = re.compile(r"^ *(\d+)(?:ns)? +\S+ +\S+ +\S+ +\S+  (.+)$", re.MULTILINE)
TAG = re.compile(r"^ *(\d+)\.0(?:ns)? \( *\S+%\): (.+)$", re.MULTILINE)
RAW = re.compile(r"^ *(\d+) +(\d+) +(\d+): [\d ]+$", re.MULTILINE)


@pytest.fixture
def says(go):
    """Give what `go tool pprof` prints of x.pb.gz."""

    def says(*options):
        command = [go, "tool", "pprof", *options, "x.pb.gz"]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    return says


def tags(said):
    """Return the sums of each label, by its values; -unit gives its unit to numbers, too."""
    found = {}
    for part in re.split(r"\n\n+", said):
        if head := re.match(r" *(\w+): Total ", part):
            is_number = head[1] in ("step", "stream")
            pairs = [
                (name.removesuffix("ns") if is_number else name, int(ns))
                for ns, name in TAG.findall(part)
            ]
            found[head[1]] = +Counter(dict(pairs))
    return found


def table(path, by, value, named=None):
    """Return the sums of a column of a table by another, without those of nothing."""
    document = json.loads(done("report", path, "--by", by, "--columns", "all", "--format", "json"))
    sums: Counter[str] = Counter()
    for row in document["rows"]:
        sums[str(row[named or by])] += row[value]
    for nothing in ("-1", "(no module)"):
        del sums[nothing]
    return +sums


def hold_to_tables(path, says):
    """Hold the sums that Go reads by label, by frame and in all to the tables of a report."""
    done("flame", path, "-o", "x.pb.gz")
    gpu, cpu, calls = (tags(says("-tags", *EXACT, f"-sample_index={kind}")) for kind in WEIGHTS)
    for label, value in (
        ("op", "gpu_self_ns"),
        ("module", "gpu_self_ns"),
        ("device", "gpu_ns"),
        ("stream", "total_ns"),
    ):
        assert gpu.get(label, Counter()) == table(path, label, value), label
    kernels = table(path, "kernel", "total_ns") + table(path, "memcpy", "total_ns", "operation")
    assert kernels == {name: gpu["kernel"][name] for name in kernels}
    assert cpu.get("op", Counter()) == table(path, "op", "cpu_self_ns")
    flat = Counter({name: int(ns) for ns, name in TOP.findall(says("-top", *EXACT))})
    assert +flat == gpu["kernel"]
    columns = zip(*(map(int, row) for row in RAW.findall(says("-raw"))), strict=True)
    return [sum(column) for column in columns], calls


@pytest.mark.slow
def test_go_reads_the_sums_of_the_tables(report_here, says):
    sums, calls = hold_to_tables(report_here, says)
    true = table(report_here, "step,device", "total_ns", "step")
    assert tags(says("-tags", *EXACT))["step"] == true == {"0": 260, "1": 260, "2": 260}
    of_no_length = Counter({"<unnamed>": 1})  # is in no stack
    assert calls["op"] + of_no_length == table(report_here, "op", "calls")
    folded = [counted(done("flame", report_here, "--weight", kind)) for kind in WEIGHTS]
    assert sums == [sum(stacks.values()) for stacks in folded]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", corpus_reports(names=["pytorch-forward", "simplex-streams", "two-processes"])
)
def test_go_reads_the_sums_of_the_tables_of_real_profiles(path, says, folder):
    (gpu_ns, *_), _ = hold_to_tables(path, says)
    assert gpu_ns == json.loads(done("report", path, "--format", "json"))["totals"]["gpu_ns"]


@pytest.mark.slow
def test_go_selects_by_labels(report_here, says):
    done("flame", report_here, "-o", "x.pb.gz")
    for focus, ns in (
        ("step=0", 260),
        ("step=1:", 520),
        ("stream=7", 918),
        ("stream=70", 0),
        ("op=^aten::mm$", 240),
        ("kernel=memcpy", 60),
        ("module=step/gemm", 480),
        ("device=GPU 1", 459),
    ):
        flat = [int(one) for one, _ in TOP.findall(says("-top", *EXACT, f"-tagfocus={focus}"))]
        assert (focus, sum(flat)) == (focus, ns)


@pytest.mark.slow
def test_the_page_shows_what_go_prints(go, folder):
    """Each block behind commands of Go is what they print of the page's own profile."""
    text = (DOCS / "flame.md").read_text(encoding="utf-8")
    marked = blocks(text)
    run("bridge demo", folder)
    [making] = re.findall(r"^bridge flame .*\.pb\.gz$", text, re.MULTILINE)
    run(making, folder)
    [commands, shown] = [body for mark, body in marked if mark in ("pprof-run", "pprof-output")]
    assert "".join(run_in_shell(line, folder) for line in commands.splitlines()) == shown
