"""Programs as PyTorch's documentation shows them, with one import changed, beside PyTorch's own profiler."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import HERE, Done, run

nn = pytest.importorskip("torch.nn", reason="PyTorch is not installed")

import torch  # noqa: E402

PROGRAMS = sorted(path.stem for path in (HERE / "pytorch").glob("*.py"))
ORIGINAL = ("bridge.compat.torch_profiler", "torch.profiler")
# Names that PyTorch keeps in other modules.
ELSEWHERE = "from torch.autograd.profiler import emit_itt\nfrom torch.autograd.profiler_util import EventList\n"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.racy(
        "PyTorch's own profiler may lose events while other programs take the processor"
    ),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's own
]
WORDS_ONLY = re.compile(r"[\d.]+(?:[KMGT]?B|us|ms|s|%)|-?\d+\.\d+|-{2,}")


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[Done, Done]]:
    """Keep what each program did with either profiler, for all tests of it."""
    return {}


@pytest.fixture
def done(tmp_path_factory, request, made):
    """Run each program once with each profiler, and again for a test that is tried again; PyTorch is loaded once for all."""
    again = getattr(request.node, "execution_count", 1) > 1

    def both(name: str) -> tuple[Done, Done]:
        if again or name not in made:
            folder, results = tmp_path_factory.mktemp(name), []
            for kind in ("ours", "theirs"):
                torch.manual_seed(0)
                path = HERE / "pytorch" / f"{name}.py"
                if kind == "theirs" and name == "operations":
                    text = path.read_text().replace(*ORIGINAL)
                    text = text.replace("    EventList,\n", "").replace("    emit_itt,\n", "")
                    (folder / "operations.py").write_text(ELSEWHERE + text)
                    path = folder / "operations.py"
                    results.append(run(path, folder / kind))
                    continue
                results.append(run(path, folder / kind, ORIGINAL if kind == "theirs" else None))
            made[name] = (results[0], results[1])
        return made[name]

    return both


def heads(text: str) -> list[list[str]]:
    """Give the columns of each table."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if "# of Calls" in line]


def rows(text: str) -> Counter[str]:
    """Count the names in the first column; names that times sort into the last places may differ."""
    lines = [line for line in text.splitlines() if re.search(r" \d+\s*($|  )", line)]
    return Counter(re.split(r"  +", line.strip())[0] for line in lines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_tables_and_files_are_pytorchs(done, name):
    ours, theirs = done(name)
    assert heads(ours.text) == heads(theirs.text) != []
    assert len(ours.text.splitlines()) == len(theirs.text.splitlines())
    assert ours.files == theirs.files
    units = [re.findall(r"\b(Self CPU time total)", done.text) for done in (ours, theirs)]
    assert units[0] == units[1]


def figures(prof, **how):
    names = ("key", "overload_name", "count", "input_shapes", "flops", "cpu_memory_usage",
             "self_cpu_memory_usage", "is_user_annotation", "device_type")  # fmt: skip
    averages = [row for row in prof.key_averages(**how) if not is_python(row.key)]
    return sorted(tuple(str(getattr(row, name)) for name in names) for row in averages)


def is_python(name: str) -> bool:
    """Tell whether an event is a function of Python, as with_stack=True records: among them are ours."""
    return name.startswith(("<built-in", "nn.Module: ")) or ".py(" in name


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_counts_shapes_memory_and_flops_are_pytorchs(done, name):
    profilers = [one.names.get("prof") or one.names["p"] for one in done(name)]
    for how in ({}, {"group_by_input_shape": True}, {"group_by_overload_name": True}):
        ours, theirs = (figures(prof, **how) for prof in profilers)
        if name == "tensorboard":  # memory of its batches differs from run to run
            ours, theirs = ([row[:5] for row in side] for side in (ours, theirs))
        assert ours == theirs
    names = [Counter(e.name for e in prof.events() if not is_python(e.name)) for prof in profilers]
    assert names[0] == names[1]


def test_the_first_rows_are_those_of_the_recipe(done):
    text = done("inference")[0].text
    first = [table.splitlines() for table in text.split("Self CPU time total")]
    assert first[0][3].split()[0] == "model_inference"
    assert "Input Shapes" in heads(text)[1]
    assert {"CPU Mem", "Self CPU Mem"} <= set(heads(text)[2])


def events_of(path: Path) -> Counter[tuple[str, str]]:
    data = path.read_bytes()
    content = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    spans = [event for event in content["traceEvents"] if event["ph"] == "X"]
    return Counter(
        (event.get("cat", ""), event["name"]) for event in spans if event.get("cat") != "Trace"
    )


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("inference", "trace.json"), ("start_stop", "trace.json"), ("long_job", "trace_5.json"),
     ("tensorboard", "log/net/*.json"), ("execution_trace", "timeline.json"), ("accumulate", "trace.json.gz")],
)  # fmt: skip
def test_traces_have_pytorchs_events(done, name, pattern):
    traces = [next(one.folder.glob(pattern)) for one in done(name)]
    ours, theirs = map(events_of, traces)
    if name == "tensorboard":  # Python's frames differ by those of the profiler
        ours, theirs = (
            Counter({key: n for key, n in side.items() if key[0] != "python_function"})
            for side in (ours, theirs)
        )
    assert ours == theirs


def test_tensorboards_files_have_its_name(done):
    [file] = done("tensorboard")[0].folder.rglob("*.json")
    assert re.fullmatch(r"worker0\.\d{19}\.pt\.trace\.json", file.name)
    names = {name for _, name in events_of(file)}
    assert {
        "ProfilerStep#2",
        "ProfilerStep#3",
        "ProfilerStep#4",
        "Optimizer.step#SGD.step",
    } <= names
    assert any(name.startswith("enumerate(DataLoader)#") for name in names)


def test_stacks_are_pytorchs(done):
    """Both leave out stacks of less than a microsecond: what one of them lacks is at most a little longer in the other."""
    plain, ours = (
        {
            stack.partition("long_job.py")[2]: int(us)
            for stack, _, us in (line.rpartition(" ") for line in text.splitlines())
            if "torch/profiler/" not in stack
        }  # PyTorch's own frames, of which some are ours here
        for text in ((one.folder / "profiler_stacks.txt").read_text() for one in done("long_job"))
    )
    both = plain.keys() & ours.keys()
    assert len(both) > len(plain) / 2
    assert {stack: us for stack, us in (plain | ours).items() if stack not in both and us > 3} == {}
    assert any("nn.Module:_Linear_0" in stack for stack in both)
    assert "Source Location" in done("long_job")[0].text


def test_memory_timelines_are_pytorchs(done):
    from operator import itemgetter

    sides = []
    for one in done("memory_timeline"):
        times, sizes = json.loads((one.folder / "timeline.json").read_text())
        raw = json.loads(gzip.decompress((one.folder / "timeline.raw.json.gz").read_bytes()))
        assert len(times) == len(sizes)
        sides.append((sizes[-1], Counter(map(itemgetter(1, 3), raw))))
    assert sides[0] == sides[1]


def test_memory_by_category_is_found_by_bridge_too(done, tmp_path):
    """`bridge memory --by category` on the trace of the same program names the same categories."""
    from command import bridge as command

    prof = done("memory_timeline")[0].names["prof"]
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    shown = command("memory", tmp_path / "t.json", "--by", "category")
    assert shown.exit_code == 0, shown.output
    text = shown.stdout.lower()
    assert all(word in text for word in ("gradient", "activation", "optimizer state", "temporary"))


def test_an_execution_trace_has_pytorchs_nodes(done):
    nodes = []
    for one in done("execution_trace"):
        trace = json.loads((one.folder / "execution.json").read_text())
        nodes.append(Counter(node["name"] for node in trace["nodes"]))
    assert nodes[0] == nodes[1]
    assert nodes[0]["aten::linear"] == 2


def test_the_graph_of_the_trace_has_the_nodes_of_the_execution_trace(done, tmp_path):
    """`bridge graph --format et` makes of the timeline what the observer recorded of the same step."""
    from command import bridge as command

    one = done("execution_trace")[0]
    path = tmp_path / "made.et"
    shown = command("graph", one.folder / "timeline.json", "-o", path)
    assert shown.exit_code == 0, shown.output
    recorded, made = (
        Counter(node["name"] for node in json.loads(file.read_text())["nodes"])
        for file in (one.folder / "execution.json", path)
    )
    for name in ("aten::linear", "aten::addmm", "aten::relu", "AddmmBackward0", "aten::mm"):
        assert made[name] == recorded[name], name
    parents = {}
    for file in (one.folder / "execution.json", path):
        nodes = {n["id"]: n for n in json.loads(file.read_text())["nodes"]}
        around = [
            nodes[n["ctrl_deps"]]["name"] for n in nodes.values() if n["name"] == "aten::addmm"
        ]
        parents[file.name] = Counter(around)
    assert parents["made.et"] == parents["execution.json"] == {"aten::linear": 2}


def test_metadata_is_in_the_trace(done):
    path = done("accumulate")[0].folder / "trace.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    assert content["note"] == "a text"
    assert content["config"] == {"lr": 0.1}
    assert "aten::mul" not in {event["name"] for event in content["traceEvents"]}
    report = done("accumulate")[0].names["prof"].report
    assert report.capture.facts[0].metadata["note"] == "a text"


@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if name not in {"long_job", "accumulate"}]
)
def test_the_report_counts_what_the_table_counts(done, name):
    prof = done(name)[0].names["prof"]
    table = prof.by("op").set_index("op")["calls"]
    events = Counter(re.sub(r"^(\w+::\w+)\.\w+$", r"\1", event.name) for event in prof.events())
    ops = [op for op in table.index if op.startswith("aten::")]
    assert len(ops) > 5
    # PyTorch counts an op that only calls the same op once, and hides a few that do nothing.
    assert all(table[op] >= events[op] for op in ops)
    assert sum(table[op] == events[op] for op in ops) > 0.8 * len(ops)
