"""The laws of the house, each kept by a scanner over the source, and each scanner tried on a snippet that breaks it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import made_reports
import pytest
from real_parts import ROOT

from bridge.analyze.core.catalog import VIEWS

PACKAGES = ("bridge", "importers")


def python_files(*folders: str) -> list[str]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


MODULES = python_files(*PACKAGES)

NSIGHT_TABLES = re.compile(
    r"\b(CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|StringIds|TARGET_INFO_\w+|META_DATA_\w+|ENUM_[A-Z]\w+)"
)
HOME_OF_TABLES = "importers/nsys/schema.py"

# Rooms whose data stays in columns, and what walks over rows in Python, or makes floats of integers.
IN_COLUMNS = ("importers", "bridge/join", "bridge/analyze", "bridge/render")
ROW_CALLS = {"itertuples", "iterrows", "apply", "applymap", "map"}
MERGES = {"merge", "merge_asof", "merge_ordered"}
LOADS_TABLES = "bridge/analyze/tables/build.py"
SHORT_IMPORT = re.compile(r"^\s*(from importers\b|import (\w+, )*importers\b)", re.MULTILINE)
# What opens files by whatever name, or loads modules past the import contracts.
FILE_CALLS = {
    *(
        "open",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "fromfile",
        "tofile",
        "memmap",
    ),
    *("load", "save", "loadtxt", "genfromtxt", "read_csv", "read_sql", "read_json", "to_csv"),
    *("import_module", "__import__", "resolve_name", "load_entry_points", "connect", "urlopen"),
}
# A renderer computes nothing; these modules lay out bytes, for which they count offsets and number names.
COMPUTATIONS = set(
    "groupby factorize sort_values value_counts nunique pivot_table agg quantile sum nansum cumsum mean median"
    " argsort lexsort unique bincount add.at".split()
)
LAYOUT = {
    "bridge/render/table_columns.py": {
        "unique"
    },  # columns in which all rows say the same are left out
    "bridge/render/packets.py": {"cumsum"},
    "bridge/render/text_columns.py": {"cumsum"},
    "bridge/render/packet_tracks.py": {"cumsum", "argsort", "unique", "bincount"},
}

LINT_EXCEPTIONS = 118  # as many as there are: the number may fall, not rise
REASON = re.compile(r"# noqa: [A-Z0-9, ]+ (- |\()\S")

EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}

TOP_LEVEL = {
    *("bridge", "importers", "tests", "docker", "docs", "benchmarks", "examples"),
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
}

HEAVY = {"pandas", "numpy", "click", "sqlite3", "sqlite_utils", "asyncio", "nvtx"}
# What the first screens import of other distributions, and the rooms that they need: pandas alone takes longer than all of it.
AT_ONCE = {"adbc_driver_manager", "adbc_driver_sqlite", "click", "nanoarrow", "numpy", "rich"}
ROOMS_AT_ONCE = set(
    "cli importers join knowledge output plugins render report scale source".split()
)
OF_ANALYZE_AT_ONCE = {"checks", "core", "run", "tables"}


# Functions of other distributions that take many arguments by position alone.
OF_OTHERS = {"CFUNCTYPE", "debug", "ndarray", "pack", "partial", "submit", "zip"}


def inside(*rooms: str) -> list[str]:
    """List the modules of these rooms."""
    return [path for path in MODULES if path.startswith(tuple(f"{room}/" for room in rooms))]


def source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


# -- scanners: source in, what breaks the law out

parsed = cache(ast.parse)  # of each module once, for all laws


def relative_imports(code: str) -> list[int]:
    found = (node for node in ast.walk(parsed(code)) if isinstance(node, ast.ImportFrom))
    return [node.lineno for node in found if node.level]


def calls(code: str) -> Iterator[tuple[str, int]]:
    """Name every function or method that is called."""
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.Call):
            called = node.func
            yield getattr(called, "id", None) or getattr(called, "attr", ""), node.lineno


def calls_of(code: str, forbidden: set[str]) -> list[str]:
    return [f"{name} in line {line}" for name, line in calls(code) if name in forbidden]


def taking_any_number(code: str) -> list[str]:
    """List the functions that take any number of positional arguments."""
    functions = (node for node in ast.walk(parsed(code)) if isinstance(node, ast.FunctionDef))
    return [one.name for one in functions if one.args.vararg]


def unnamed_arguments(code: str, known: Container[str]) -> list[str]:
    """List calls, but for those of known names, that pass more than four arguments without a name."""
    every = (node for node in ast.walk(parsed(code)) if isinstance(node, ast.Call))
    long = [c for c in every if sum(not isinstance(a, ast.Starred) for a in c.args) > 4]
    names = [(getattr(c.func, "id", "") or getattr(c.func, "attr", ""), c.lineno) for c in long]
    return [f"{name} in line {line}" for name, line in names if name not in known]


def row_loops(code: str) -> list[str]:
    """List calls that walk over rows, and loops over all rows of a frame as lists."""
    found = [
        c
        for c in calls_of(code, ROW_CALLS)
        if not c.startswith("map ") or f"{c}" in attributes_called(code)
    ]
    loops = (ast.For, ast.comprehension)
    for node in ast.walk(parsed(code)):
        if isinstance(node, loops) and "to_numpy().tolist()" in ast.unparse(node.iter).replace(
            " ", ""
        ):
            found.append(f"a loop over {ast.unparse(node.iter)}")
    return found


def attributes_called(code: str) -> set[str]:
    """Name every method that is called, as `calls_of` does: `map` of Python is none."""
    nodes = (node for node in ast.walk(parsed(code)) if isinstance(node, ast.Call))
    return {f"{n.func.attr} in line {n.lineno}" for n in nodes if isinstance(n.func, ast.Attribute)}


def computations(code: str) -> list[str]:
    """List the methods and functions of NumPy and pandas that group, sum or order; `sum` of Python is none."""
    nodes = (node for node in ast.walk(parsed(code)) if isinstance(node, ast.Call))
    called = [
        (n.lineno, ast.unparse(n.func).split("."))
        for n in nodes
        if isinstance(n.func, ast.Attribute)
    ]
    found = [(".".join(names[-length:]), line) for line, names in called for length in (1, 2)]
    return sorted(f"{name} in line {line}" for name, line in set(found) if name in COMPUTATIONS)


def table_names(code: str) -> list[str]:
    return [match[0] for match in NSIGHT_TABLES.finditer(code)]


def empty_names(path: str) -> list[str]:
    return [part for part in Path(path).with_suffix("").parts if part in EMPTY_NAMES]


def imports_of_importers(code: str) -> list[int]:
    """List the lines that import the package `importers`, which only a checkout has."""
    result = []
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        result += [node.lineno for name in names if name.partition(".")[0] == "importers"]
    return result


# -- the laws


def offenders(paths: Iterable[str], law: Callable[[str], object]) -> dict[str, object]:
    """Return what breaks a law of source texts, by module."""
    return {path: found for path in paths if (found := law(source(path)))}


@pytest.mark.slow
def test_join_and_analyze_open_no_file_and_load_no_module_by_name():
    paths = set(inside("bridge/join", "bridge/analyze")) - {LOADS_TABLES}
    assert not offenders(paths, lambda code: calls_of(code, FILE_CALLS))
    [call] = calls_of(source(LOADS_TABLES), FILE_CALLS)
    assert call.startswith("resolve_name ")  # the function of a table, whose name is checked here:
    rooms = {view.rows.partition(".")[0] for view in VIEWS.values()}
    assert rooms <= {"tables", "cost", "run"}


@pytest.mark.slow
def test_nothing_imports_the_folder_of_importers_past_the_package():
    """In a checkout it would be found, as a second copy; where the package is installed there is none."""
    files = python_files("bridge", "importers", "tests", "benchmarks", "examples")
    assert not offenders(files, imports_of_importers)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert [p.name for p in pages if SHORT_IMPORT.search(p.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_only_the_schema_names_tables_of_nsight():
    assert not offenders((path for path in MODULES if path != HOME_OF_TABLES), table_names)


@pytest.mark.slow
def test_no_python_walks_over_the_rows_of_a_frame():
    assert not offenders(inside(*IN_COLUMNS), row_loops)


@pytest.mark.slow
def test_more_than_four_arguments_are_named():
    """Annotations and hooks name none: each call of a user's program pays for it."""
    called_often = ("bridge/annotate/", "bridge/frameworks/")
    paths = [path for path in MODULES if not path.startswith(called_often)]
    any_number = {name for path in MODULES for name in taking_any_number(source(path))}
    assert not offenders(paths, lambda code: unnamed_arguments(code, any_number | OF_OTHERS))


@pytest.mark.slow
def test_no_merge_makes_floats_of_nanoseconds():
    assert not offenders(MODULES, lambda code: calls_of(code, MERGES))


@pytest.mark.slow
def test_a_renderer_computes_nothing():
    found = {
        path: [
            c for c in computations(source(path)) if c.partition(" ")[0] not in LAYOUT.get(path, ())
        ]
        for path in inside("bridge/render")
    }
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.slow
def test_every_module_says_what_it_is_for():
    assert not offenders(MODULES, lambda code: ast.get_docstring(parsed(code)) is None)


@pytest.mark.slow
def test_imports_are_absolute():
    assert not offenders(MODULES, relative_imports)


@pytest.mark.slow
def test_no_name_says_nothing():
    assert not [
        path for path in python_files(*PACKAGES, "tests", "benchmarks") if empty_names(path)
    ]


@pytest.mark.slow
def test_the_top_level_holds_only_what_belongs_there():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout")
    listed = run("git", "-C", str(ROOT), "ls-files")
    top = {path.partition("/")[0] for path in listed.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


# -- lightness


def loaded_by(program: str) -> set[str]:
    """Run a program in a Python of its own, and name the modules that it has loaded at its end."""
    listing = f"{program}\nimport sys; sys.stderr.write(' '.join(sys.modules))"
    return set(run(sys.executable, "-c", listing).stderr.split())


@pytest.mark.slow
def test_importing_bridge_is_light():
    assert not loaded_by("import bridge") & HEAVY


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "report",
        *(f"report --by {by}" for by in ("op-kernel", "kernel", "memcpy")),
        "summary",
        "why",
    ],
)
def test_the_first_screens_import_little(words: str, tmp_path: Path):
    path = made_reports.report(tmp_path / "r.sqlite")
    command, *options = words.split()
    line = [command, str(path), *options, *(["gemm"] if command == "why" else [])]
    loaded = loaded_by(
        f"from bridge.cli import main\ntry: main({line!r})\nexcept SystemExit as end: assert not end.code"
    )
    own = {"bridge", *loaded_by("")}
    others = {name.partition(".")[0] for name in loaded} & packages_distributions().keys()
    assert others - own <= AT_ONCE
    assert "rich.console" not in loaded
    parts = {tuple(name.split(".")[1:3]) for name in loaded if name.startswith("bridge.")}
    assert {part[0] for part in parts} <= ROOMS_AT_ONCE | {"analyze"}
    of_analyze = {part[1] for part in parts if part[0] == "analyze" and len(part) > 1}
    assert of_analyze <= OF_ANALYZE_AT_ONCE | ({"cost"} if command == "summary" else set())


@pytest.mark.slow
def test_only_one_thread_imports_at_a_time(tmp_path: Path):
    """Two threads that import modules of one package at once may fail with a KeyError."""
    program = (
        "import sys, threading\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('bridge.') and len(threading.enumerate()) > 1:\n"
        "            sys.stderr.write(f'{threading.current_thread().name} imports {name}\\n')\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from bridge.cli import main\n"
        f"main(['demo', '--folder', {str(tmp_path / 'demo')!r}])"
    )
    lines = run(sys.executable, "-c", program).stderr.splitlines()
    assert lines  # a thread makes what the store keeps
    assert [line for line in lines if line.startswith("MainThread")] == []


@pytest.mark.slow
def test_help_needs_no_frames():
    program = "from bridge.cli import main\ntry: main(['--help'])\nexcept SystemExit as end: assert not end.code"
    loaded = loaded_by(program)
    assert "click" in loaded
    assert not loaded & {"pandas", "numpy", "sqlite_utils"}


@pytest.mark.slow
@pytest.mark.racy("costs are measured by the clock")
def test_help_is_instant():
    def seconds() -> float:
        start = time.perf_counter()
        run(sys.executable, "-c", "from bridge.cli import main; main(['--help'])")
        return time.perf_counter() - start

    # The house's limit is 0.3 s: this one is for a change of kind, not for a busy machine.
    assert min(seconds() for _ in range(3)) < 1.5


@pytest.mark.slow
def test_a_command_seldom_looks_for_garbage(tmp_path: Path):
    report = made_reports.small(tmp_path / "small.sqlite")
    program = (
        "import atexit, gc\n"
        "seen = lambda: print(sum(one['collections'] for one in gc.get_stats()), gc.isenabled())\n"
        "atexit.register(seen)\nfrom bridge.__main__ import command\ncommand()"
    )
    words = (sys.executable, "-c", program, "report", str(report))
    collections, enabled = run(*words).stdout.split()[-2:]
    assert int(collections) < 100  # 220 at Python's own threshold
    assert enabled == "False"  # at the end


def lint_exceptions(code: str) -> list[str]:
    """List the lines that are excepted from a rule of the linter."""
    return [line.strip() for line in code.splitlines() if "# noqa" in line]


def wrong_count(exceptions: int) -> str:
    """Return what to do when there are more or fewer exceptions than the number above says."""
    if exceptions > LINT_EXCEPTIONS:
        return f"{exceptions} exceptions from the linter, {LINT_EXCEPTIONS} are allowed: remove one"
    if exceptions < LINT_EXCEPTIONS:
        return f"only {exceptions} exceptions from the linter: lower LINT_EXCEPTIONS to that"
    return ""


@pytest.mark.slow
def test_exceptions_from_the_linter_do_not_grow_and_have_a_reason():
    every = [line for path in MODULES for line in lint_exceptions(source(path))]
    assert not wrong_count(len(every))
    assert [line for line in every if not REASON.search(line)] == []


# -- each scanner finds what it is for


def test_modules_are_found():
    assert "bridge/__init__.py" in MODULES
    assert inside("importers")


def test_an_exception_from_the_linter_is_found():
    assert lint_exceptions("x = 1  # noqa: E731\ny = 2  # text") == ["x = 1  # noqa: E731"]


def test_the_number_of_exceptions_neither_grows_nor_stays_behind():
    assert "remove one" in wrong_count(LINT_EXCEPTIONS + 1)
    assert "lower LINT_EXCEPTIONS" in wrong_count(LINT_EXCEPTIONS - 1)
    assert not wrong_count(LINT_EXCEPTIONS)


def test_a_relative_import_is_found():
    assert relative_imports("from . import a\nfrom .b import c\nfrom d import e") == [1, 2]


def test_an_import_of_the_folder_of_importers_is_found():
    code = "import importers\nfrom importers.nsys import read\nimport os, importers.frames\n"
    assert imports_of_importers(code) == [1, 2, 3]
    assert not imports_of_importers("from bridge import importers\nimport bridge.importers")
    assert SHORT_IMPORT.search("text\nimport bridge, importers\n")


@pytest.mark.parametrize(
    "code",
    [
        "with open('x') as f: pass",
        "text = place.open()",
        "text = Path('x').read_text()",
        "values = np.load('x.npy')",
        "sql = importlib.import_module('sqlite3')",
        "sql = __import__('sqlite3')",
        "added = load_entry_points(RULES)",
    ],
)
def test_an_opened_file_is_found(code):
    assert calls_of(code, FILE_CALLS)
    assert not calls_of("opened = reopen(open)", FILE_CALLS)


@pytest.mark.parametrize(
    "code",
    [
        "for row in frame.itertuples(): pass",
        "frame.apply(lambda row: 1, axis=1)",
        "for row in frame.to_numpy().tolist(): pass",
        "names = [one for one in frame[['a']].to_numpy().tolist()]",
        "names = frame['name'].map(short)",
    ],
)
def test_a_loop_over_rows_is_found(code):
    assert row_loops(code)


def test_a_loop_over_few_codes_is_none():
    assert not row_loops(
        "for code in np.unique(codes).tolist(): pass\nnames = list(map(str, names))"
    )


def test_a_merge_is_found():
    assert calls_of("both = one.merge(other, how='left')", MERGES)


@pytest.mark.parametrize(
    "code",
    [
        "rows = frame.groupby('name')",
        "total = values.sum()",
        "code, names = pd.factorize(stacks)",
        "np.add.at(values, code, own)",
        "order = np.argsort(starts)",
    ],
)
def test_a_computation_is_found(code):
    assert computations(code)


def test_offenders_are_named():
    assert offenders(["bridge/__init__.py"], lambda code: "bridge" in code) == {
        "bridge/__init__.py": True
    }
    assert not offenders(["bridge/__init__.py"], relative_imports)


@pytest.mark.parametrize(
    "name",
    ["CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "StringIds", "TARGET_INFO_GPU", "ENUM_CUDA_KIND"],
)
def test_a_table_of_nsight_is_found(name):
    assert table_names(f'"select * from {name}"') == [name]


def test_other_names_are_no_tables():
    assert not table_names("NVTX_INJECTION64_PATH MY_ENUM_X string_ids Enum_x")


def test_an_empty_name_is_found():
    assert empty_names("bridge/join/utils.py")
    assert empty_names("bridge/helpers/x.py")
    assert not empty_names("bridge/join/commonality.py")


def test_unnamed_arguments_are_found():
    code = "f(1, 2, 3, 4, 5)\ng(1, 2, 3, 4, 5)\nf(1, 2, 3, 4, *x)\nh.f(1, 2, 3, 4, e=5)\n"
    assert unnamed_arguments(code, {"g"}) == ["f in line 1"]
    assert taking_any_number("def f(*a): pass\ndef g(a): pass") == ["f"]


@pytest.mark.slow
def test_a_heavy_import_is_found():
    assert loaded_by("import sqlite3") & HEAVY == {"sqlite3"}
