"""`bridge annotate` against plain loops over the stacks, and what it says where there is little to say."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command import bridge as run
from command import done
from hypothesis import given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, process, strings_only, thread
from real_parts import need

from bridge.annotate.headers import include_folders
from bridge.render.annotate import HEADER

Frames = tuple[tuple[str, str], ...]
LAUNCH = ("cudaLaunchKernel", "/lib/libcudart.so.12")
TORCH = ("[Python] /v/lib/python3.11/site-packages/torch/nn/modules/linear.py:116 forward", "")
TRAIN = "/home/me/train.py"
MODEL = "/home/me/model.py"


def py(function: str, line: int, file: str = TRAIN) -> tuple[str, str]:
    return (f"[Python] {file}:{line} {function}", "")


def native(function: str) -> tuple[str, str]:
    return (function, "/home/me/app")


class Story(Made):
    """A report of kernels one after the other, each with the stack of its call and the op around it."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.chains = 1_000, dict[Frames, int]()

    def launch(self, stack: Frames | None, long: int, *, name: str = "k", op: str = "") -> None:
        """Add a kernel of so many ns; ``stack`` is outermost first."""
        if op:
            self.annotation(PUSH_POP, self.at - 1, self.at + 50, text=op, thread=thread(100))
        self.kernel(name, self.at, 100, self.at + 10, self.at + 10 + long)
        if stack is not None:
            chain = self.chains.setdefault(stack, len(self.chains) + 1)
            self.tables["launches"][-1]["chain"] = chain
        self.at += long + 100

    def written(self, path: Path, without: str = "") -> Path:
        for stack, chain in self.chains.items():
            self.stack(chain, LAUNCH, *stack[::-1])
        return super().written(path, without)

    def sample(self, at: int, stack: Frames) -> None:
        """Add a sample of the CPU of the thread that launches."""
        chain = len(self.tables["samples"]) + 1
        self.tables["samples"].append({"time": at, "thread": thread(100), "chain": chain})
        for depth, (symbol, module) in enumerate(stack[::-1]):
            ids = {"symbol": self.string(symbol), "module": self.string(module)}
            self.tables["sample_chains"].append({"chain": chain, "depth": depth, **ids})


def document(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(done("annotate", path, "--format", "json"))
    whole = answer["in_ops_ns"] + answer["unplaced_ns"]
    assert whole + sum(place["gpu_ns"] for place in answer["places"]) == answer["gpu_ns"]
    return answer


def short(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("add", "where", "gpu_ns", "total_ns", "calls", "confidence")
    return [tuple(place[key] for key in keys) for place in answer["places"]]


# -- Plain loops as a witness


FRAMES = {  # of each frame of the program: function, file and line, -1 of native code
    py("main", 5): ("main", TRAIN, 5), py("train", 20): ("train", TRAIN, 20), py("train", 21): ("train", TRAIN, 21),
    py("forward", 7, MODEL): ("forward", MODEL, 7), py("block", 30, MODEL): ("block", MODEL, 30),
    py("block", 31, MODEL): ("block", MODEL, 31), native("launch"): ("launch", "/home/me/app", -1),
    native("solve"): ("solve", "/home/me/app", -1), py("<lambda>", 3): None, TORCH: None,
}  # fmt: skip
Place = tuple[str, str, int]  # a function has the line 0


def places_on(stack: Frames | None) -> list[Place]:
    """Give the places on a stack, outermost first, a function before its line; of Python where there is any."""
    known = [place for frame in stack or () if (place := FRAMES[frame])]
    known = [place for place in known if place[2] > 0] or known
    return [
        place
        for function, file, line in known
        for place in ((function, file, 0), (function, file, line))
        if place[2] >= 0
    ]


def stage_of(held: int, whole: int) -> int:
    """Give when a place is taken: one that holds at most half first, one that holds nearly all last."""
    return (2 * held <= whole, 20 * held < 19 * whole, True).index(True)


def time_of(work: list[tuple[list[Place], int]], without: list[Place]) -> Counter[Place]:
    result = Counter[Place]()
    for places, time in work:
        if not set(places) & set(without):
            result.update(dict.fromkeys(places, time))
    return result


def depths_of(work: list[tuple[list[Place], int]]) -> dict[Place, list[int]]:
    result: dict[Place, list[int]] = {}
    for places, _ in work:
        for at, place in enumerate(places):
            outside = sum(other[2] == 0 for other in places[:at])
            result.setdefault(place, []).append(outside - (place[2] != 0))
    return result


def chosen(work: list[tuple[list[Place], int]]) -> list[Place]:
    """Choose places as docs/annotate.md says, one at a time."""
    whole, held, depths = sum(t for p, t in work if p), time_of(work, []), depths_of(work)
    result: list[Place] = []
    for stage in range(3):
        while stage < 2 or not result:
            rest = time_of(work, result)
            fitting = {p: time for p, time in rest.items() if stage_of(held[p], whole) == stage}
            most = max(fitting.values(), default=0)
            if 20 * most < whole or not most:
                break

            def order(place: Place, stage: int = stage) -> tuple[Any, ...]:
                is_line = place[2] != 0
                inward = (-max(depths[place]), is_line)
                return (*(inward if stage else (is_line, min(depths[place]))), place)

            best = [place for place, time in fitting.items() if time == most]
            result.append(min(best, key=order))
    return result


CALLS = st.tuples(
    st.none() | st.lists(st.sampled_from(list(FRAMES)), min_size=1, max_size=5).map(tuple),
    st.integers(1, 40),
    st.sampled_from(["", "", "", "a"]),
)


@pytest.mark.slow
@given(st.lists(CALLS, min_size=1, max_size=12))
def test_places_are_those_that_plain_loops_choose(tmp_path_factory, calls):
    story = Story()
    for number, (stack, long, op) in enumerate(calls):
        story.launch(stack, long, name=f"k{number}", op=op)  # nothing repeats
    answer = document(story.written(tmp_path_factory.mktemp("made") / "a.sqlite"))
    whole, in_ops = (sum(c[1] for c in calls if c[2] or every) for every in (True, False))
    assert (answer["gpu_ns"], answer["in_ops_ns"]) == (whole, in_ops)
    work = [(places_on(stack), long) for stack, long, op in calls if not op]
    assert answer["stack_ns"] == sum(long for places, long in work if places)
    if 20 * (whole - in_ops) < whole or whole == in_ops:
        assert (answer["verdict"], answer["places"]) == ("annotated", [])
        return
    assert not any(place["kind"] == "iteration" for place in answer["places"])
    names = chosen(work)
    own, total, count = Counter[Place](), Counter[Place](), Counter[Place]()
    for places, long in work:
        on = [place for place in places if place in names]
        total.update(dict.fromkeys(on, long))
        own.update({on[-1]: long} if on else {})
        count.update(on[-1:])
    assert {
        (p["function"], p["file"], p["line"] if p["kind"] == "lines" else 0): (
            p["gpu_ns"], p["total_ns"], p["activities"],
        )
        for p in answer["places"]
    } == {place: (own[place], total[place], count[place]) for place in names if own[place]}  # fmt: skip
    assert (answer["verdict"] == "enough") == (2 * sum(own.values()) >= whole - in_ops)


# -- A training


def trained(path: Path, *, steps: int = 4, layers: int = 1) -> Path:
    """Write a training whose loop is in `train`: forward, backward in the library, and the optimizer."""
    story = Story()
    main = (py("<module>", 90), py("main", 80))
    story.launch((*main, py("load", 12)), 1_000, name="copy")
    for _ in range(steps):
        loop = (*main, py("train", 31))
        for _ in range(layers):
            story.launch((*loop, py("forward", 7, MODEL), TORCH), 3_000, name="gemm")
            story.launch((*loop, py("forward", 8, MODEL), TORCH), 1_000, name="relu")
        story.launch((*main, py("train", 33), TORCH), 5_000, name="backward")
        story.launch(
            (*main, py("train", 34), py("optimize", 60), py("update", 50)), 1_000, name="adam"
        )
    return story.written(path)


def test_iterations_come_first_then_what_splits_them(tmp_path):
    answer = document(trained(tmp_path / "a.sqlite"))
    assert short(answer) == [
        ('with bridge.nvtx_op("iteration"):', "around lines 31 to 34", 0, 40_000, 4, "high"),
        ('with bridge.nvtx_op("train:33"):', "around line 33", 20_000, 20_000, -1, "high"),
        ("@nvtx_op", "above def forward", 16_000, 16_000, -1, "high"),
        ("@nvtx_op", "above def optimize", 4_000, 4_000, -1, "high"),
    ]
    assert [place["evidence"] for place in answer["places"]] == [
        ["call stack", "repetition"],
        *[["call stack"]] * 3,
    ]
    assert (answer["unplaced_ns"], answer["verdict"], answer["script"]) == (1_000, "enough", TRAIN)


def test_lines_that_go_back_are_no_iteration(tmp_path):
    """A function that is called for each layer is not taken for the iteration."""
    story = Story()
    for _ in range(4):
        for _ in range(3):
            for line, long in ((7, 300), (8, 200)):
                story.launch(
                    (py("main", 5), py("layer", line, MODEL), TORCH), long, name=f"k{line}"
                )
        story.launch((py("main", 5), py("layer", 9, MODEL)), 10, name="end")
    answer = document(story.written(tmp_path / "a.sqlite"))
    [iteration] = [place for place in answer["places"] if place["kind"] == "iteration"]
    assert (iteration["function"], iteration["line"], iteration["confidence"]) == ("", -1, "low")
    assert iteration["where"] == "around the body of the loop that launches k7 … end"


def test_the_text_of_a_training(tmp_path):
    path = trained(tmp_path / "a.sqlite")
    assert done("annotate", path).splitlines() == [
        "41.000 µs of GPU time: 0 ns (0.0 %) in ops, 41.000 µs (100.0 %) in none.",
        "This is a PyTorch program, which can be annotated without changes, or in the",
        "code: bridge.torch.auto(model):",
        "→ bridge run --auto train.py",
        "",
        "1. iteration in train, /home/me/train.py:31",
        "   40.000 µs (97.6 %), 0 ns of that in no place within, 4 iterations, high",
        "   confidence (call stack, repetition)",
        '   with bridge.nvtx_op("iteration"):   around lines 31 to 34',
        "",
        "2. train, /home/me/train.py:33",
        "   20.000 µs (48.8 %), high confidence (call stack)",
        '   with bridge.nvtx_op("train:33"):   around line 33',
        "",
        "3. forward, /home/me/model.py:7",
        "   16.000 µs (39.0 %), high confidence (call stack)",
        "   @nvtx_op   above def forward",
        "",
        "4. optimize, /home/me/train.py:60",
        "   4.000 µs (9.8 %), high confidence (call stack)",
        "   @nvtx_op   above def optimize",
        "",
        "In none of these places: 1.000 µs (2.4 %).",
    ]


def test_what_to_add_is_code(tmp_path):
    for place in document(trained(tmp_path / "a.sqlite"))["places"]:
        body = "    pass" if place["add"].startswith("with") else "def f(): pass"
        ast.parse(f"{place['add']}\n{body}")


# -- C++ and other evidence


def solver(path: Path, *, stacks: bool) -> Path:
    """Write a program in C++: in each of four iterations a kernel by `assemble`, and two by `solve`."""
    story = Story()
    story.tables["processes"].append({"process": process(100), "name": "solver"})
    for _ in range(4):
        for function, name, long in (
            ("assemble", "fill", 300),
            ("solve", "jacobi", 400),
            ("solve", "norm", 200),
        ):
            called = (native("main"), native(function), native("launch"))
            story.launch(called if stacks else None, long, name=name)
    return story.written(path)


def test_native_functions_get_ranges_of_nvtx(tmp_path):
    answer = document(solver(tmp_path / "a.sqlite", stacks=True))
    assert short(answer) == [
        ('nvtx3::scoped_range range{"iteration"};', "first in the body of the loop that launches fill … norm",
         0, 3_600, 4, "low"),
        ('nvtx3::scoped_range range{"solve"};', "first in solve", 2_400, 2_400, -1, "high"),
        ('nvtx3::scoped_range range{"assemble"};', "first in assemble", 1_200, 1_200, -1, "high"),
    ]  # fmt: skip
    assert {place["source"] for place in answer["places"]} == {"", "/home/me/app"}


@pytest.mark.slow
def test_a_compiler_takes_the_range(tmp_path):
    compiler = need("g++", shutil.which("g++"), "g++ is not installed")
    lines = [
        place["add"] for place in document(solver(tmp_path / "a.sqlite", stacks=True))["places"]
    ]
    blocks = "\n".join(f"{{ {line} }}" for line in lines)
    (tmp_path / "a.cpp").write_text(f"{HEADER}\nint main() {{\n{blocks}\n}}\n")
    folders = [f"-I{folder}" for folder in include_folders()]
    command = [compiler, *folders, str(tmp_path / "a.cpp"), "-o", str(tmp_path / "a"), "-ldl"]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0


def test_without_stacks_only_the_loop_is_known(tmp_path):
    path = solver(tmp_path / "a.sqlite", stacks=False)
    assert done("annotate", path).splitlines() == [
        "3.600 µs of GPU time: 0 ns (0.0 %) in ops, 3.600 µs (100.0 %) in none.",
        "The evidence is thin: no call stack tells which lines launch that work. To",
        "record more:",
        "→ bridge run --backtrace PROGRAM",
        "",
        "1. loop of 4 iterations",
        "   3.600 µs (100.0 %), low confidence (repetition)",
        '   nvtx3::scoped_range range{"iteration"};   first in the body of the loop that',
        "   launches fill … norm",
        "",
        "In C++ also #include <nvtx3/nvtx3.hpp>, a header of the CUDA toolkit.",
        "",
        "In none of these places: 0 ns (0.0 %).",
    ]
    assert document(path)["verdict"] == "thin"


def test_what_lies_before_the_iterations_is_start_up(tmp_path):
    story = Story()
    story.tables["processes"].append({"process": process(100), "name": "python3.11"})
    story.launch(None, 500, name="init")
    story.launch(None, 700, name="scale")
    for _ in range(4):
        for name, long in (("fill", 300), ("jacobi", 400)):
            story.launch(None, long, name=name)
    assert short(document(story.written(tmp_path / "a.sqlite"))) == [
        ('with bridge.nvtx_op("iteration"):', "around the body of the loop that launches fill … jacobi",
         2_800, 2_800, 4, "low"),
        ('with bridge.nvtx_op("start-up"):', "around the code that launches init … scale", 1_200, 1_200, -1, "low"),
    ]  # fmt: skip


def sampled(path: Path, *, apart: int) -> Path:
    """Write a program whose calls have no stacks: samples lie around the first two, ``apart`` ns from each other."""
    story = Story()
    paths = {"a": (py("main", 5), py("step", 20)), "b": (py("main", 6), py("other", 40))}
    for number, (around, long) in enumerate((("aa", 700), ("bb", 200), ("ab", 90), (None, 10))):
        story.at = 1_000 + number * 100_000_000
        for at, one in zip((-apart // 2, apart // 2), around or "", strict=False):
            story.sample(story.at + at, paths[one])
        story.launch(None, long, name=f"k{number}")
    return story.written(path)


def test_samples_tell_the_functions_that_both_are_in(tmp_path):
    answer = document(sampled(tmp_path / "a.sqlite", apart=1_000))
    assert short(answer) == [
        ("@nvtx_op", "above def step", 700, 700, -1, "medium"),
        ("@nvtx_op", "above def other", 200, 200, -1, "medium"),
    ]  # the third is in main for sure, through which all goes
    assert (answer["stack_ns"], answer["sample_ns"], answer["unplaced_ns"]) == (0, 990, 100)
    assert {tuple(place["evidence"]) for place in answer["places"]} == {("samples",)}
    assert {place["line"] for place in answer["places"]} == {-1}


def test_samples_far_apart_tell_nothing(tmp_path):
    answer = document(sampled(tmp_path / "a.sqlite", apart=20_000_000))
    assert (answer["sample_ns"], answer["places"], answer["verdict"]) == (0, [], "thin")


# -- Reports with ranges, without evidence, without work


def ranged(path: Path) -> Path:
    """Write a training all of which is in one range."""
    story = Story()
    for function, long in (("forward", 300), ("backward", 600), ("update", 100)):
        story.launch((py("main", 5), py(function, 20)), long, name=function, op="it's")
    return story.written(path)


def test_a_report_with_ranges_everywhere_lacks_none(tmp_path):
    story = Story()
    for op, long in (("forward", 480), ("backward", 480), ("", 40)):
        story.launch((py("main", 5),), long, op=op)
    path = story.written(tmp_path / "a.sqlite")
    assert done("annotate", path).splitlines() == [
        "Nothing to add: 960 ns (96.0 %) of 1.000 µs of GPU time are in ops.",
        "→ bridge report a.sqlite --by op".replace("a.sqlite", str(path)),
    ]
    answer = document(path)
    assert (answer["verdict"], answer["places"], answer["unplaced_ns"]) == ("annotated", [], 40)


def test_an_op_that_holds_all_is_split(tmp_path):
    path = ranged(tmp_path / "a.sqlite")
    said = done("annotate", path).splitlines()
    assert said[:2] == [
        "Nothing to add: 1.000 µs (100.0 %) of 1.000 µs of GPU time are in ops.",
        "Most of it is in one op, it's. What would split that:",
    ]
    _, *words = shlex.split(said[2].removeprefix("→ "))
    assert done(*words).splitlines()[:3] == [
        "1.000 µs of GPU time: 0 ns (0.0 %) in other ops, 1.000 µs (100.0 %) in it's or",
        "in none.",
        "",
    ]
    answer = json.loads(done(*words, "--format", "json"))
    assert [(p["function"], p["gpu_ns"]) for p in answer["places"]] == [
        ("backward", 600), ("forward", 300), ("update", 100),
    ]  # fmt: skip
    assert (
        "no op 'its': one of it's; did you mean it's?"
        in run("annotate", path, "--inside", "its").stderr
    )


def test_without_stacks_and_repetition_nothing_is_told(tmp_path):
    story = Story()
    for number in range(5):
        story.launch(None, 100 + number, name=f"k{number}")
    assert done("annotate", story.written(tmp_path / "a.sqlite")).splitlines() == [
        "510 ns of GPU time: 0 ns (0.0 %) in ops, 510 ns (100.0 %) in none.",
        "The evidence is thin: no call stack tells which lines launch that work. To",
        "record more:",
        "→ bridge run --backtrace PROGRAM",
    ]


def test_stacks_of_few_calls_are_thin_evidence(tmp_path):
    story = Story()
    story.launch((py("main", 5), py("step", 20)), 100, name="a")
    story.launch(None, 300, name="b")
    path = story.written(tmp_path / "a.sqlite")
    assert done("annotate", path).splitlines()[1:3] == [
        "The evidence is thin: call stacks tell who launched 25.0 % of that. To record",
        "more:",
    ]
    assert document(path)["verdict"] == "thin"


def test_a_report_without_work_is_refused(tmp_path):
    made = Made()
    made.annotation(PUSH_POP, 1, 9, text="a", thread=thread(100))
    refused = run("annotate", made.written(tmp_path / "a.sqlite"))
    assert refused.exit_code == 1
    assert "no work on a GPU in the report; bridge report" in refused.stderr
    assert run("annotate", strings_only(tmp_path / "b.sqlite")).exit_code == 1


def event(category: str, name: str, at: int, long: int, **args: int) -> dict[str, Any]:
    """Give an event of PyTorch's profiler; times in µs."""
    where = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 9, "tid": 1}
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": long, **where, "args": args}


def test_pytorch_tells_how_often_functions_were_called(tmp_path):
    events = [event("python_function", "train.py(40): main", 0, 9_000)]
    for at in (10, 1_000, 2_000):
        events += [
            event("python_function", "train.py(12): step", at, 500),
            event("cuda_runtime", "cudaLaunchKernel", at + 5, 5, correlation=at),
            event("kernel", f"k{at}", at + 50, 10, correlation=at, device=0, stream=7, context=1),
        ]
    events += [
        event("cuda_runtime", "cudaLaunchKernel", 5_000, 5, correlation=9),
        event("kernel", "end", 5_100, 10, correlation=9, device=0, stream=7, context=1),
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schemaVersion": 1, "with_stack": 1, "traceEvents": events}))
    [place] = document(path)["places"]
    assert (place["function"], place["source"], place["calls"]) == ("step", "train.py:12", 3)
    assert (place["gpu_ns"], place["activities"]) == (30_000, 3)


# -- What is no place, or only in part known


def test_lines_of_a_script_are_places_and_the_script_is_none(tmp_path):
    story = Story()
    for line, long in ((3, 300), (4, 200), (4, 200), (5, 300)):
        story.launch((py("<module>", line), TORCH), long, name=f"k{story.at}")
    story.launch((py("<module>", 9, MODEL), TORCH), 100, name="import")
    assert [place[:3] for place in short(document(story.written(tmp_path / "a.sqlite")))] == [
        ('with bridge.nvtx_op("train.py:4"):', "around line 4", 400),
        ('with bridge.nvtx_op("train.py:3"):', "around line 3", 300),
        ('with bridge.nvtx_op("train.py:5"):', "around line 5", 300),
        ('with bridge.nvtx_op("model.py:9"):', "around line 9", 100),
    ]


def test_iterations_of_which_half_has_no_stack_are_of_low_confidence(tmp_path):
    story = Story()
    for _ in range(4):
        story.launch((py("train", 31), py("forward", 7)), 300, name="a")
        story.launch((py("train", 32), py("update", 9)), 200, name="b")
        story.launch(None, 500, name="c")
    answer = document(story.written(tmp_path / "a.sqlite"))
    assert [(p["kind"], p["line"], p["gpu_ns"], p["confidence"]) for p in answer["places"]] == [
        ("iteration", 31, 2_000, "low"), ("function", 7, 1_200, "high"), ("function", 9, 800, "high"),
    ]  # fmt: skip


def test_what_stacks_tell_of_the_start_is_not_told_twice(tmp_path):
    story = Story()
    story.launch((py("main", 5), py("load", 9)), 500, name="init")
    story.launch(None, 700, name="scale")
    for _ in range(4):
        for name, long in (("fill", 300), ("jacobi", 400)):
            story.launch(None, long, name=name)
    answer = document(story.written(tmp_path / "a.sqlite"))
    assert [(p["kind"], p["gpu_ns"], p["total_ns"]) for p in answer["places"]] == [
        ("iteration", 2_800, 2_800), ("part", 700, 700), ("function", 500, 500),
    ]  # fmt: skip


def test_a_short_start_is_no_place(tmp_path):
    story = Story()
    story.launch(None, 50, name="init")
    for _ in range(4):
        for name, long in (("fill", 300), ("jacobi", 400)):
            story.launch(None, long, name=name)
    answer = document(story.written(tmp_path / "a.sqlite"))
    assert ([p["kind"] for p in answer["places"]], answer["unplaced_ns"]) == (["iteration"], 50)


def test_iterations_that_ranges_mark_are_not_told(tmp_path):
    story = Story()
    for number in range(4):
        story.annotation(
            PUSH_POP, story.at - 5, story.at + 900, text=f"step {number}", thread=thread(100)
        )
        story.launch(None, 300, name="a")
        story.kernel(
            "b", story.at, 100, story.at + 10, story.at + 210, by=2
        )  # of a thread without ranges
        story.at += 1_000
    answer = document(story.written(tmp_path / "a.sqlite"))
    assert (answer["in_ops_ns"], answer["unplaced_ns"], answer["places"]) == (1_200, 800, [])


def test_samples_of_another_thread_tell_nothing(tmp_path):
    story = Story()
    story.sample(story.at - 100, (py("main", 5), py("step", 20)))
    story.sample(story.at + 100, (py("main", 5), py("step", 20)))
    story.tables["samples"][-1]["thread"] = thread(100, 2)
    story.launch(None, 300)
    assert document(story.written(tmp_path / "a.sqlite"))["sample_ns"] == 0


def test_a_function_that_calls_itself_holds_no_iteration(tmp_path):
    story = Story()
    for _ in range(4):
        for line in (5, 6):
            called = (py("main", 1), py("solve", line + 2), py("solve", line))
            story.launch(called, 300, name=f"k{line}")
    iteration = document(story.written(tmp_path / "a.sqlite"))["places"][0]
    assert (iteration["kind"], iteration["function"], iteration["line"]) == ("iteration", "", -1)
