"""Programs run unchanged: as python itself runs them, and with the ranges that were asked for."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from captures import exported, profiled
from real_parts import ROOT

import bridge
from bridge import autorun
from bridge.frameworks.autorun import Options, format_options, parse_options

TESTS = ROOT / "tests"
MAIN = "bridge.autorun"

SHOW = """
import sys
shown = {k: v if isinstance(v, str | None) else type(v) for k, v in globals().items()}
print(shown, sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals())
"""
FAILING = "def f():\n    raise ValueError('x')\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError(1) from e"
HOOKED = "import sys\nsys.excepthook = lambda *a: print(a[:2], a[2].tb_lineno, a[2].tb_frame.f_code.co_name)\n1 / 0"
EXIT = "import atexit, sys\natexit.register(print, 'bye', __name__)\nsys.exit({})"
LIBRARY = """
def load(n):
    return list(range(n))
def train(n):
    return [load(k) for k in range(n)]
class Model:
    def forward(self, x):
        return x
LOADER = __spec__.loader is __loader__ and type(__loader__).__name__
"""
PROGRAM = "import library, sys\nlibrary.train(3)\nlibrary.Model().forward(sys.argv[1])\nprint(library.LOADER)"
# Prints the ranges of its process at the end.
RECORDER = """
import atexit, json, os, sys
from recorder import Recorder
from bridge.annotate import emit
tool = Recorder()
emit.use(tool)
"""
RECORDING = f"{RECORDER}\natexit.register(lambda: print(json.dumps(tool.names())))\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Give a folder with programs, and be in it."""
    files = {
        "show.py": SHOW, "failing.py": FAILING, "interrupted.py": "raise KeyboardInterrupt",
        "hooked.py": HOOKED, "three.py": EXIT.format(3), "said.py": EXIT.format("'said'"),
        "wrong.py": "x = (", "library.py": LIBRARY, "program.py": PROGRAM,
        "latin.py": "# coding: latin-1\nprint(ascii('\u00e4'))", "package/__main__.py": SHOW,
        "package/__init__.py": "", "package/part.py": SHOW, "empty/nothing.txt": "",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="latin-1")
    (tmp_path / "package" / "link.py").symlink_to(tmp_path / "show.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environ(**more):
    """Give an environment in which bridge and the tests' recorder are found, and nothing is armed."""
    path = os.pathsep.join(filter(None, [str(ROOT), str(TESTS), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
    return {**kept, "PYTHONPATH": path, **more}


def python(*words, **more):
    command = [sys.executable, *words]
    return subprocess.run(
        command, env=environ(**more), capture_output=True, text=True, check=False, timeout=120
    )


def ranges(*words, **more):
    """Run a program that records, and name its ranges."""
    done = python(*words, **more)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "show.py a --ops -m", "./show.py", "package/../show.py", "package/link.py", "package a",
        "package/part.py", "-m show a -b", "-m package a", "-m package.part", "latin.py",
        "failing.py", "-m failing", "interrupted.py", "-m interrupted", "hooked.py", "-m hooked",
        "three.py", "-m three", "said.py", "wrong.py", "-m wrong", "absent.py", "absent/x.py",
        "empty", "-m absent", "-m package.absent", "-m absent.x", "-m json.tool absent.json",
    ],
)  # fmt: skip
def test_it_is_as_python_itself_does_it(here, words):
    python(*words.split())  # writes the compiled files that tell of themselves
    plain, ours = python(*words.split()), python("-m", MAIN, *words.split())
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        (plain.returncode, plain.stdout, plain.stderr)
    )


@pytest.mark.slow
def test_it_can_be_told_to_put_no_folder_on_the_path(here):
    (here / "path.py").write_text("import sys; print(sys.path)")
    plain, ours = python("-P", "path.py"), python("-P", "-m", MAIN, "path.py")
    assert ours.stdout == plain.stdout


@pytest.mark.slow
@pytest.mark.racy("processes are spawned and waited for")
def test_main_lasts_to_the_end_and_spawned_children_find_it(here):
    (here / "spawning.py").write_text(
        textwrap.dedent("""
        import atexit, multiprocessing, pickle, sys, threading, time
        class Thing: pass
        def made(n): return Thing(), n
        def late():
            time.sleep(0.1)
            assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
            print("late")
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert isinstance(pool.map(made, [1])[0][0], Thing)
            threading.Thread(target=late).start()
            atexit.register(lambda: print(sys.modules["__main__"].Thing is Thing))
        """)
    )
    done = python("-m", MAIN, "spawning.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "late\nTrue\n", "")


# -- wrapping


@pytest.mark.slow
def test_functions_of_a_module_are_ops_when_it_is_imported(here):
    program = (here / "program.py").read_text()
    (here / "program.py").write_text(RECORDING + program)
    wraps = ["--wrap", "library:train,Model.forward", "--wrap=library:load"]
    found = ranges("-m", MAIN, *wraps, "program.py", "x")
    assert found == ["library.train", *["library.load"] * 3, "library.Model.forward"]
    assert ranges("-m", MAIN, "--wrap", "library", "program.py", "x") == [
        *("library.train", *["library.load"] * 3)
    ]


@pytest.mark.slow
def test_the_library_sees_its_own_loader(here):
    done = python("-m", MAIN, "--wrap", "library", "program.py", "x")
    assert (done.stdout, done.stderr) == ("SourceFileLoader\n", "")


@pytest.mark.slow
def test_what_cannot_be_wrapped_is_said_and_the_program_runs(here):
    wraps = ["--wrap=library:absent", "--wrap=nowhere", "--wrap=json.decoder:py_scanstring"]
    done = python("-m", MAIN, *wraps, "program.py", "x")
    assert (done.returncode, done.stdout) == (0, "SourceFileLoader\n")
    assert done.stderr.splitlines() == [
        "bridge.autorun: library is not annotated: AttributeError: wrap: library has no absent",
        "bridge.autorun: --wrap json.decoder: not imported by this process",
        "bridge.autorun: --wrap nowhere: not imported by this process",
    ]


@pytest.mark.slow
def test_an_import_that_fails_fails_as_before_and_can_be_tried_again(here):
    (here / "library.py").write_text(
        "import os\nos.environ['TRIED'] += 'x'\nif len(os.environ['TRIED']) < 2: 1 / 0\ndef load(n): pass"
    )
    (here / "again.py").write_text(
        RECORDING
        + "os.environ['TRIED'] = ''\ntry: import library\nexcept ZeroDivisionError: pass\nimport library\nlibrary.load(1)\nimport importlib\nimportlib.reload(library).load(2)"
    )
    found = ranges("-m", MAIN, "--wrap", "library:load", "again.py")
    assert found == ["library.load"] * 2


@pytest.mark.slow
@pytest.mark.racy("processes are spawned and waited for")
def test_child_processes_are_armed_by_the_environment(here):
    (here / "child.py").write_text(f"{RECORDING}\nimport library\nlibrary.train(1)")
    (here / "parent.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py'])"
    )
    done = python("-m", MAIN, "--wrap=library:train", "parent.py")
    assert json.loads(done.stdout) == ["library.train"]
    assert done.stderr == "bridge.autorun: --wrap library: not imported by this process\n"
    armed = {"BRIDGE_AUTORUN_OPTIONS": "--wrap=library:train"}
    assert ranges("child.py", BRIDGE_AUTOSTART="1", **armed) == ["library.train"]
    for off in ({}, {"BRIDGE_AUTOSTART": "0"}, {"BRIDGE_AUTOSTART": ""}):
        assert ranges("child.py", **armed, **off) == []
    wrong = python("child.py", BRIDGE_AUTOSTART="1", BRIDGE_AUTORUN_OPTIONS="--nothing")
    assert (wrong.returncode, wrong.stderr) == (
        *(0, "bridge.autorun: BRIDGE_AUTORUN_OPTIONS: no option --nothing\n"),
    )


# -- the start of child processes, and modules of the program that are called as ours

IS_ANNOTATED = "import sys; print('bridge.frameworks.autorun' in sys.modules)"


def armed(**more):
    """Give the environment of the children of an annotated program; `more` is also on the path."""
    path = os.pathsep.join([autorun.START, *more.pop("path", [])])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
    return {**kept, "BRIDGE_AUTOSTART": "1", "PYTHONPATH": path, **more}


def child(*words, **more):
    return subprocess.run(
        [sys.executable, *words],
        check=False,
        env=armed(**more),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "more", "is_annotated"),
    [
        ([], {}, True),
        (["-P"], {}, True),
        (["-E"], {}, False),  # both ignore the environment
        (["-I"], {}, False),
        (["-S"], {}, False),  # no sitecustomize
        ([], {"BRIDGE_AUTOSTART": "0"}, False),
        ([], {"BRIDGE_AUTOSTART": ""}, False),
    ],
)
def test_python_s_own_options_decide_whether_a_child_is_annotated(flags, more, is_annotated):
    done = child(*flags, "-c", IS_ANNOTATED, **more)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{is_annotated}\n", "")


@pytest.mark.slow
def test_nothing_of_bridge_is_loaded_where_nobody_asks_for_it(here):
    done = python("-c", "import sys; print(*[m for m in sys.modules if m.startswith('bridge')])")
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["", "1 / 0"])
def test_a_sitecustomize_of_the_user_runs_as_before(failing, here):
    (here / "own").mkdir()
    (here / "own" / "sitecustomize.py").write_text(f"import builtins; builtins.own = 7\n{failing}")
    show = "import sys; print(own, sys.modules['sitecustomize'].__name__, sys.path[1])"
    plain = python("-c", show, PYTHONPATH=str(here / "own"))
    ours = child("-c", show, path=[str(here / "own")])
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        (plain.returncode, plain.stdout, plain.stderr)
    )
    both = child("-c", IS_ANNOTATED, path=[str(here / "own")])
    assert both.stdout == "True\n"


@pytest.mark.slow
def test_a_child_that_cannot_import_bridge_goes_on(here):
    copied = here / "copied" / "bridge" / "frameworks" / "autorun"
    shutil.copytree(autorun.START, copied / "start")
    for folder in (copied, copied.parent, copied.parents[1]):
        (folder / "__init__.py").write_text("")
    (copied.parents[1] / "__init__.py").write_text("import a_package_that_is_not_installed")
    done = child("-c", "print(1)", PYTHONPATH=str(copied / "start"))
    assert done.stdout == "1\n"
    [line] = done.stderr.splitlines()
    assert line.startswith("bridge.autorun: process ")
    assert "No module named 'a_package_that_is_not_installed'" in line


@pytest.mark.slow
@pytest.mark.parametrize("autostart", ["1", "0", ""])
def test_a_python_that_is_too_old_says_so_if_it_is_to_be_annotated(here, autostart):
    text = (Path(autorun.START) / "sitecustomize.py").read_text()
    assert "OLDEST = (3, 11)" in text
    (here / "start").mkdir()
    (here / "start" / "sitecustomize.py").write_text(text.replace("(3, 11)", "(99, 1)"))
    done = child("-c", "print(1)", PYTHONPATH=str(here / "start"), BRIDGE_AUTOSTART=autostart)
    assert (done.returncode, done.stdout) == (0, "1\n")
    version = ".".join(map(str, sys.version_info[:2]))
    line = rf"bridge.autorun: process \d+ has no annotations: Python {version}, and they need 99.1 or newer\n"
    assert re.fullmatch(line if autostart == "1" else "", done.stderr)


@pytest.fixture
def own_modules(here):
    """Give a folder with a program that has modules with the names of this package."""
    folder = here / "mine"
    (folder / "importers").mkdir(parents=True)
    (folder / "importers" / "__init__.py").write_text("def rows(): return 3")
    (folder / "network.py").write_text("import importers, sys\nprint(importers.rows(), sys.argv)")
    (folder / "bridge.py").write_text("print('own')\ndef cross(): return 5")
    (folder / "train.py").write_text("import sys, bridge\nprint(bridge.cross(), sys.argv[1:])")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("program", [["mine/train.py", "--ops"], ["-m", "train", "-x"]])
def test_a_program_with_a_module_called_bridge_runs_and_a_line_says_so(own_modules, program):
    at = own_modules if "-m" in program else own_modules.parent
    plain, ours = (
        subprocess.run(
            [sys.executable, *words, *program],
            check=False, cwd=at, env=environ(PYTHONPATH=""), capture_output=True, text=True, timeout=120,
        )
        for words in ([], [autorun.LAUNCHER, "--shapes"])
    )  # fmt: skip
    assert (ours.returncode, ours.stdout) == (0, plain.stdout)
    assert "own\n5 [" in plain.stdout
    assert ours.stderr == (
        f"bridge.autorun: {own_modules / 'bridge.py'} has the name of nsight-bridge:"
        " the program runs without annotations\n"
    )


@pytest.mark.slow
def test_a_child_with_a_module_called_bridge_runs_and_a_line_says_so(own_modules):
    done = child(str(own_modules / "train.py"))
    assert (done.returncode, done.stdout) == (0, "own\n5 []\n")
    assert "bridge.py has the name of nsight-bridge: process " in done.stderr


@pytest.mark.slow
def test_a_folder_called_importers_beside_the_program_stays_its_own(own_modules):
    record = own_modules / "recorded.jsonl"
    words = ["-m", MAIN, "--record", str(record), str(own_modules / "network.py")]
    done = python(*words)
    assert (done.returncode, done.stdout, done.stderr) == (
        *(0, f"3 ['{own_modules}/network.py']\n", ""),
    )
    assert record.exists()


@pytest.mark.slow
def test_a_program_is_launched_by_path_even_where_the_working_folder_has_a_bridge(here):
    (here / "bridge.py").write_text("1 / 0")
    (here / "sub").mkdir()
    (here / "sub" / "show.py").write_text(SHOW)
    plain, ours = python("sub/show.py", "a"), python(autorun.LAUNCHER, "sub/show.py", "a")
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, plain.stdout, "")


@pytest.mark.slow
def test_the_folder_for_the_path_is_printed():
    done = python("-m", MAIN, "--path")
    assert done.stdout == f"{autorun.START}\n"


# -- options


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(modules=False, ops=True, shapes=True),
        Options(wraps=(("a.b", None), ("c", ("d", "E.f")))),
    ],
)
def test_options_are_read_as_they_are_written(options):
    assert parse_options([*format_options(options).split(), "x.py", "--ops"]) == (
        options,
        ["x.py", "--ops"],
    )
    assert format_options(options._replace(record="a b")) == format_options(options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "no program"), ("--ops", "no program"), ("-m", "no module"), ("-x y.py", "no option -x"),
        ("--opps x.py", "no option --opps"), ("--ops=1 x.py", "no option --ops"),
        ("--wrap", "--wrap needs MODULE or MODULE:NAME,NAME"), ("--record", "--record needs FILE"),
        ("--wrap a: x.py", "--wrap a:: '' is no name"), ("--wrap a:b,,c x.py", "'' is no name"),
        ("--wrap /x.py x.py", "'/x.py' is no name"),
        ("--wrap __main__:f x.py", "put the functions into a module that the script imports"),
    ],
)  # fmt: skip
def test_misuse_is_said_with_the_usage(here, words, said):
    done = python("-m", MAIN, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("bridge.autorun: ")
    assert said in first
    assert second.startswith("usage: python -m bridge.autorun")


@pytest.mark.slow
def test_help(here):
    done = python("-m", MAIN, "--help")
    assert done.returncode == 0
    assert "--wrap MODULE" in done.stdout


# -- without a tool


def test_host_times_are_recorded_where_no_tool_listens(tool, monkeypatch):
    from bridge.annotate import emit, emitter

    opened = []

    @contextmanager
    def profile(*, path, level):
        opened.append(path)
        yield

    monkeypatch.setattr("bridge.capture.session.profile.profile", profile)
    with autorun.recorded("a.jsonl"):
        assert opened == []  # a tool listens
    emit.use(emitter.NullEmitter())
    with autorun.recorded(None):
        assert opened == []
    with autorun.recorded("a.jsonl"):
        assert opened == ["a.jsonl"]
    emit.use(tool)


@pytest.mark.slow
def test_a_recording_holds_what_was_wrapped(here):
    words = ["--wrap=library:train,load", "--record", "host.jsonl", "program.py", "x"]
    done = python("-m", MAIN, *words)
    assert (done.returncode, done.stderr) == (0, "")
    calls = bridge.load(here / "host.jsonl").by("op").set_index("op")["calls"]
    assert (calls["library.train"], calls["library.load"]) == (1, 3)


@pytest.mark.slow
def test_no_library_is_imported_for_it(here):
    program = "import bridge.autorun as a, sys; a.arm(); print({'torch', 'jax', 'cupy', 'numpy', 'runpy'} & set(sys.modules))"
    done = python("-c", program)
    assert (done.stdout, done.stderr) == ("set()\n", "")


# -- PyTorch

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.body(x))

torch.manual_seed(0)
net, x = Net(), torch.ones(3, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.1)

def step():
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
"""
FORWARD = [f"module:Net{path}" for path in ("", ".body", ".body.0", ".body.1", ".head")]
BACKWARD = [f"backward:Net{path}" for path in ("", ".head", ".body", ".body.1", ".body.0")]
ZERO, STEP = "Optimizer.zero_grad#SGD.zero_grad", "Optimizer.step#SGD.step"
IN_A_STEP = [ZERO, *FORWARD, *BACKWARD, STEP]


# What one training does, part by part, from its first step on; each is asserted below by its name.
PARTS = {
    "steps": """
        for _ in DataLoader(range(3)):
            step()
        trained = [p.tolist() for p in net.parameters()]
    """,
    "copies": """
        file = io.BytesIO()
        torch.save(net, file)
        assert b"bridge" not in file.getvalue()
        assert not net._forward_pre_hooks and not net._forward_hooks
        file.seek(0)
        copy.deepcopy(net)(x), torch.load(file, weights_only=False)(x)
    """,
    "annotated": """
        net(x)
        with bridge.torch.annotate(net, name="Mine"):
            net(x)
        net(x)
    """,
    "error": """
        other = Net()
        other.body(x)
        try:
            other(torch.ones(3, 5))
        except RuntimeError:
            assert tool.open() == ()
        other(x)
    """,
    "compiled": """
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x), net(x))
        tool.slices.clear()
        compiled(x)
        scripted = torch.jit.script(net)
        scripted(x)
    """,
}
USED = "import copy, io, warnings\nimport bridge.torch\nfrom torch.utils.data import DataLoader\nwarnings.simplefilter('ignore')\n"
RECORD_PART = "tool.slices.clear()\n{}\nparts[{!r}] = tool.names()\n"
PLAIN = "import json\nfor _ in range(3):\n    step()\nprint(json.dumps([p.tolist() for p in net.parameters()]))"
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Run a program of PyTorch with some parts, and give the ranges of each, and the parameters after the first steps."""
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    folder = tmp_path_factory.mktemp("training")

    def run(*options, parts):
        lines = [RECORD_PART.format(textwrap.dedent(PARTS[part]), part) for part in parts]
        end = "emit.use(emit.NullEmitter())\nprint(json.dumps([parts, trained]))"
        program = folder / "training.py"
        program.write_text("\n".join([RECORDER, NET, USED, "parts = {}", *lines, end]))
        done = python("-m", MAIN, *options, str(program))
        says_what_changes = bool({"--ops", "--shapes"} & set(options))
        assert done.returncode == 0
        assert (
            len(done.stderr.splitlines())
            == done.stderr.count("a dispatch mode")
            == says_what_changes
        )
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def trained(training):
    """Give the ranges of every part, as they are without options, and the parameters after three steps."""
    return training(parts=PARTS)


@pytest.fixture
def parts(trained):
    return trained[0]


@pytest.mark.slow
def test_models_optimizers_and_loaders_have_ranges_from_the_first_step(parts):
    assert parts["steps"] == [*[WAIT, *IN_A_STEP] * 3, WAIT]


@pytest.mark.slow
def test_ops_too_and_modules_not(training):
    found = training("--no-modules", "--ops", parts=["steps"])[0]["steps"]
    named = [name for name in found if "::" not in name and "Backward0" not in name]
    assert named == [*[WAIT, ZERO, STEP] * 3, WAIT]
    assert found.count("aten::addmm") == 2 * 3


@pytest.mark.slow
def test_shapes_come_with_ops(training):
    sized = training("--shapes", parts=["steps"])[0]["steps"]
    assert sized.count("aten::addmm") == 2 * 3  # what was given to it is in the recording
    assert set(FORWARD) < set(sized)


@pytest.mark.slow
def test_nothing_is_put_into_a_model(parts):
    assert parts["copies"] == FORWARD * 2


@pytest.mark.slow
def test_what_the_program_annotates_itself_has_one_range(parts):
    mine = [name.replace("Net", "Mine") for name in FORWARD]
    assert parts["annotated"] == [*FORWARD, *mine, *FORWARD]


@pytest.mark.slow
def test_an_error_closes_what_was_open_and_parts_keep_their_names(parts):
    body = [f"module:Sequential{path}" for path in ("", ".0", ".1")]
    whole = ["module:Net", *body, "module:Net.head"]
    assert parts["error"] == [*body, *whole[:3], *whole]


@pytest.mark.slow
def test_compiled_and_scripted_models_are_as_they_were(parts):
    assert parts["compiled"] == ["module:Net"] * 3


@pytest.mark.slow
def test_losses_are_the_same_to_the_bit(trained, here):
    (here / "plain.py").write_text(f"{NET}\n{PLAIN}")
    plain = python("plain.py")
    assert plain.returncode == 0, plain.stderr
    assert json.loads(plain.stdout) == trained[1]


# -- the other libraries


@pytest.mark.parametrize(
    ("library", "program", "name"),
    [
        ("jax", "import jax\njax.jit(lambda x: x + 1)(1.0)", "jit:<lambda>"),
        ("cupy", "import cupy\ntry: cupy.zeros(3)\nexcept Exception: pass", "cupy.zeros"),
    ],
)
def test_jax_and_cupy_are_annotated_when_they_are_imported(here, library, program, name):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    (here / "using.py").write_text(RECORDING + program)
    done = python("-m", MAIN, "using.py")
    assert name in json.loads(done.stdout.splitlines()[-1])


# -- under the real nsys


def recorded_by(nsys, folder, *words, **more):
    """Profile a program, and give the texts of its ranges in their order."""
    profiled(nsys, folder, sys.executable, *words, env=environ(**more))
    with closing(sqlite3.connect(exported(nsys, folder / "report.nsys-rep"))) as database:
        rows = database.execute(
            "SELECT coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id"
            " WHERE eventType = 59 ORDER BY start"
        ).fetchall()
    return [text for (text,) in rows]


@pytest.mark.slow
def test_nsys_records_what_was_wrapped(nsys, here):
    wraps = ["--wrap=library:train,load,Model.forward"]
    found = recorded_by(nsys, here, "-m", MAIN, *wraps, "program.py", "x")
    assert found == ["library.train", *["library.load"] * 3, "library.Model.forward"]


@pytest.mark.slow
def test_nsys_records_a_training(nsys, here):
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    (here / "training.py").write_text(f"{NET}\nfor _ in range(2):\n    step()\n")
    found = recorded_by(nsys, here, "-m", MAIN, "--ops", "training.py")
    named = [name for name in found if "::" not in name and "Backward0" not in name]
    assert named == IN_A_STEP * 2
    assert found.count("aten::addmm") == 2 * 2
