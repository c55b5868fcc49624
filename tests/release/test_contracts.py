"""What other programs may rely on: the schemas of JSON documents, the tables of the store, the public names."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_reports
import pytest
from command import done
from docs.pages import DOCS, PAGES
from gpu_counters import made as gpu_counters
from join import plain_writer as join_writer
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from read_once import reading_once
from real_parts import NIGHT, ROOT, corpus_reports, need

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from docs import contracts

FORMATS = DOCS / "formats"
MADE = "run: python -m tests.docs contracts"
PACKAGES = {"bridge"}
TABLES = [*VIEWS, *(name for name in DIMENSIONS if name not in VIEWS)]
COMBINED = ["op,shape", "op,kernel", "api,op", "step,op", "stream,kernel", "module,direction"]
# Columns that a table has where a report records them, where there are several reports, or with --memory-kinds.
RECORDED = {"os_call", "os_ns", "gil_ns", "gil_holder", "off_cpu_ns", "report", "source", "target"}
# An integer column never holds 12.0, nor a column of fractions 12: programs with types must not meet either.
STRICT = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: type(value) is int
    ).redefine("number", lambda _checker, value: type(value) is float),
)

pytestmark = pytest.mark.usefixtures("read_once")


def schema(kind: str) -> dict[str, Any]:
    """Read the schema of a document."""
    [path] = FORMATS.glob(f"bridge.{kind}-*.schema.json")
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def closed(value: Any) -> Any:
    """Give a schema that allows no field but those that it names."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {name: closed(item) for name, item in value.items()}
    if "properties" in value and value.get("type") == "object":
        result.setdefault("additionalProperties", False)
    return result


def parsed(text: str) -> Any:
    """Read JSON as RFC 8259 has it: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"no JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def printed(command: str, *words: str | Path) -> Any:
    """Give the document that a command prints."""
    return parsed(done(command, *words, "--format", "json"))


def assert_report(document: Any) -> None:
    """Assert that a document of `bridge report` has the fields and types of its schema, and no others."""
    assert mistakes(STRICT(CLOSED["report"]), document) == []


def mistakes(validator: Any, document: Any) -> list[str]:
    """List what is wrong with a document, without the schema that jsonschema would print."""
    found = {f"{list(error.path)}: {error.message}" for error in validator.iter_errors(document)}
    return sorted(found)[:10]


CLOSED = {
    path.name.split(".")[1].rpartition("-")[0]: None for path in FORMATS.glob("*.schema.json")
}
CLOSED = {kind: closed(schema(kind)) for kind in CLOSED}


# -- The files are those that the code makes


@pytest.mark.slow
def test_the_schemas_are_those_of_the_code() -> None:
    made = dict(contracts.documents())
    assert set(made) == set(FORMATS.glob("*.schema.json"))
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: {MADE}"
        Draft202012Validator.check_schema(json.loads(text))


def test_the_tables_of_the_store_are_those_of_a_new_one() -> None:
    assert contracts.STORE.read_text(encoding="utf-8") == contracts.store_tables(), MADE


# -- bridge report


@pytest.mark.parametrize("by", [*TABLES, *COMBINED])
def test_a_table_is_as_its_schema_says(by: str, demo: Path) -> None:
    document = printed("report", demo, "--by", by, "--top", "4")
    assert_report(document)
    assert_report(printed("report", demo, "--by", by, "--columns", "all", "--top", "4"))
    default = schema("report")["$defs"].get(by, {}).get("x-default-columns", [])
    for row in document["rows"]:
        assert set(default) - set(row) <= RECORDED


@pytest.mark.slow
@pytest.mark.parametrize(
    "report",
    corpus_reports(
        "nsys/*.sqlite",
        "ncu/*.details.csv",
        "kineto/*",
        names={"pytorch-forward", "sampled-rank0", "copy-blocked"}
        | ({"torch-compile-graphs"} if NIGHT else set()),
    ),
)
def test_the_tables_of_real_reports_are_as_their_schema_says(report: Path) -> None:
    no_timeline = report.suffix == ".csv"
    tables = ["op", "kernel", "op-kernel", "op,kernel", "rule"] if no_timeline else TABLES
    with reading_once():
        for by in [*tables, *([] if no_timeline else COMBINED)]:
            for columns in ([], ["--columns", "all"]):
                assert_report(printed("report", report, "--by", by, "--top", "8", *columns))


@pytest.mark.slow
def test_rare_tables_are_as_their_schema_says(tmp_path: Path) -> None:
    """Those that neither the demo nor a real report fills: counters that nsys sampled, phases, several reports."""
    counters = join_writer.write(tmp_path / "counters.sqlite", gpu_counters.tables())
    phases = made_reports.phases_alone(tmp_path / "phases.sqlite")
    other = made_reports.small(tmp_path / "small.sqlite")
    for by, *reports in (
        ("counter", counters),
        ("op", counters),
        ("phase", phases),
        ("launch", phases, other),
    ):
        document = printed("report", *reports, "--by", by, "--columns", "all")
        assert document["rows"], by
        assert_report(document)


def test_chosen_columns_stand_beside_the_names_of_rows(demo: Path) -> None:
    document = printed("report", demo, "--by", "op", "--columns", "calls", "--running")
    assert [*document["rows"][0]] == ["op", "calls", "running_calls"]
    Draft202012Validator(CLOSED["report"]).validate(document)


MISTAKES = {
    "another format": lambda d: d.update(format="bridge.report/1"),
    "no totals": lambda d: d.pop("totals"),
    "a fraction of a nanosecond": lambda d: d["totals"].update(gpu_ns=1.5),
    "a count as text": lambda d: d["rows"][0].update(count="4"),
    "a row without its kernel": lambda d: d["rows"][0].pop("kernel"),
    "an unknown time as null": lambda d: d["rows"][0].update(min_ns=None),
    "a reason without its time": lambda d: d["totals"]["unattributed"]["no_launch"].pop("gpu_ns"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_document_is_found(mistake: Any, demo: Path) -> None:
    document = printed("report", demo, "--by", "op-kernel")
    Draft202012Validator(schema("report")).validate(document)
    mistake(document)
    with pytest.raises(ValidationError):
        Draft202012Validator(schema("report")).validate(document)


def test_a_new_field_is_no_mistake_but_is_seen_by_these_tests(demo: Path) -> None:
    document = printed("report", demo, "--by", "op-kernel")
    document["rows"][0]["colour"] = "red"
    Draft202012Validator(schema("report")).validate(document)
    [mistake] = mistakes(STRICT(CLOSED["report"]), document)
    assert "colour" in mistake


# -- Other documents

SLOW = ("diff", "trend", "summary", "advice")
MEMORY_TABLES = ("op", "allocation", "alive", "category", "scope", "step", "trace", "summary")
MEMORY = ROOT / "tests" / "memory" / "data" / "training.pt.trace.json.gz"
ONEDNN = ROOT / "tests" / "onednn" / "data" / "onednn-3.12.log"
DOCUMENTS = {  # by kind, the words that print one; REPORT is the demo
    "summary": [["summary", "REPORT"]],
    "advice": [["advise", "REPORT"], ["advise", "REPORT", "--over", "99%"]],
    "why": [["why", "REPORT", "#21"], ["why", "REPORT", "#0"]],
    "annotate": [["annotate", "REPORT"]],
    "what-if": [
        ["what-if", "REPORT", "--op", "forward", "--faster", "30%", "--iterations", "100"],
        ["what-if", "REPORT", "--gpu-faster", "2", "--step", "2"],
    ],
    "quality": [["doctor", "REPORT"]],
    "diff": [
        ["diff", "REPORT", "REPORT", "--fail-over", "5%"],
        ["diff", "REPORT", "REPORT", "--by", "op-kernel"],
        ["diff", "REPORT", "REPORT", "--by", "idle"],
        ["diff", "REPORT", "REPORT", "--by", "op,shape"],
        ["diff", "REPORT", "REPORT", "--by", "step"],
    ],
    "trend": [
        ["trend", *["REPORT"] * 5, "--fail-over", "5%"],
        ["trend", "REPORT", "REPORT", "--by", "kernel"],
        ["trend", "REPORT", "--by", "step"],
    ],
    "graph": [["graph", "REPORT"]],
    "list": [
        ["report", "--by", "list"],
        ["report", "--columns", "list"],
        ["report", "--by", "gap", "--sort", "list"],
        ["report", "--by", "op,shape", "--filter", "list"],
        ["diff", "--by", "list"],
        ["diff", "REPORT", "REPORT", "--sort", "list"],
        ["advise", "--list"],
    ],
    "onednn": [["onednn", ONEDNN], ["onednn", ONEDNN, "--by", "primitive,problem"]],
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in SLOW)) for k in DOCUMENTS]
)
def test_other_documents_are_as_their_schemas_say(kind: str, demo: Path) -> None:
    validator = Draft202012Validator(CLOSED[kind])
    for words in DOCUMENTS[kind]:
        document = printed(*(demo if word == "REPORT" else word for word in words))
        assert mistakes(validator, document) == []
        broken = dict(list(document.items())[1:])
        assert mistakes(validator, broken) == ["[]: 'format' is a required property"]


@pytest.mark.slow
def test_tables_of_memory_are_as_their_schema_says() -> None:
    with reading_once():
        for by in MEMORY_TABLES:
            document = printed("memory", MEMORY, "--by", by, "--top", "50")
            assert document["rows"]
            assert mistakes(STRICT(CLOSED["memory"]), document) == []


@pytest.mark.slow
def test_the_check_of_the_machine_is_as_its_schema_says() -> None:
    need("nsys", shutil.which("nsys"), "no nsys on the path, without which doctor ends with 1")
    assert mistakes(Draft202012Validator(CLOSED["doctor"]), printed("doctor")) == []


def test_a_benchmark_is_as_its_schema_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "calls.py").write_text("def add(n=1):\n    return n + n\n")
    monkeypatch.chdir(tmp_path)
    document = printed("bench", "calls.py::add", "--runs", "3")
    assert mistakes(Draft202012Validator(CLOSED["bench"]), document) == []


@pytest.mark.slow
@pytest.mark.parametrize("report", corpus_reports(names={"pytorch-backward"}))
def test_documents_of_a_real_report_are_as_their_schemas_say(report: Path) -> None:
    with reading_once():
        for kind, words in {
            "summary": ["summary", report],
            "advice": ["advise", report],
            "why": ["why", report, "#7"],
            "annotate": ["annotate", report.with_stem("gaussian-no-nvtx")],
            "quality": ["doctor", report],
            "diff": [
                "diff",
                report.with_stem("pytorch-2gpu-before"),
                report.with_stem("pytorch-2gpu-after"),
            ],
            "graph": ["graph", report],
        }.items():
            assert mistakes(Draft202012Validator(CLOSED[kind]), printed(*words)) == [], kind


# -- The public names


def released() -> Path:
    """Give the names of the newest release."""

    def version(path: Path) -> tuple[int, ...]:
        return tuple(map(int, path.stem.removeprefix("api-").split(".")))

    return max(FORMATS.glob("api-*.txt"), key=version)


def unreleased() -> str:
    """Give the section of the changelog on what is not released yet."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]


def untold(names: list[str], section: str) -> list[str]:
    """List the names that a section of the changelog does not hold in backticks.

    A new command brings its options, a new class its members.
    """
    spans = " ".join(re.findall(r"`[^`]+`", section))

    def is_told(name: str) -> bool:
        command, of = name.partition(" -")[0], name.rpartition(".")[0]
        return any(
            re.search(rf"(?<![\w.]){re.escape(one)}(?![\w.])", spans)
            for one in (name, command, of)
            if one in names
        )

    return [name for name in names if not is_told(name)]


@pytest.mark.slow
def test_changes_of_public_names_are_in_the_changelog() -> None:
    now = contracts.api()
    assert contracts.API.read_text(encoding="utf-8") == now, MADE
    names = contracts.changed(released().read_text(encoding="utf-8"), now)
    assert untold(names, unreleased()) == [], (
        f"name them in CHANGELOG.md; {released().name} has others"
    )


@pytest.mark.slow
def test_every_public_name_has_a_docstring() -> None:
    assert contracts.undocumented() == []


def test_a_public_name_without_a_docstring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    griffe = pytest.importorskip("griffe")
    code = (
        'class A:\n    """Said."""\n    field: int\n    def __call__(self): pass\n'
        "    def method(self): pass\n"
        "    @property\n    def value(self): return 1\n"
        '    def told(self):\n        """Told."""\n'
        "    def _own(self): pass\n"
        "class B: pass\ndef f(): pass\n"
    )
    with griffe.temporary_visited_module(code) as module:
        names = [contracts.Shown(name) for name in ("A", "B", "f")]
        found = [one for name in names for one in contracts._with_members(name, module[name.name])]
        monkeypatch.setattr(contracts, "public_objects", lambda: found)
        assert contracts.undocumented() == ["A.method", "A.value", "B", "f"]


def test_keywords_of_functions_are_names_too() -> None:
    listed = contracts.API.read_text(encoding="utf-8").splitlines()
    assert "bridge.load(…, domains: Sequence[str])" in listed
    assert "bridge.Report.by(…, inclusive: bool)" in listed


def test_programs_in_the_documentation_use_public_names_alone() -> None:
    listed = contracts.API.read_text(encoding="utf-8")
    public = {re.split(r"[(:]", line.removeprefix("class "))[0] for line in listed.splitlines()}
    public |= {name.rpartition(".")[0] for name in public}  # modules and classes
    used = {(page.name, name) for page in PAGES for name in names_used(page)}
    assert {name for _, name in used} >= {"bridge.load", "bridge.knowledge.formulas.Call"}
    assert {(page, name) for page, name in used if name not in public} == set()


def names_used(page: Path) -> Iterator[str]:
    """Give the names of this package that the programs of a page import or call by their full names."""
    for block in re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                if node.module.partition(".")[0] in PACKAGES:
                    yield from (f"{node.module}.{one.name}" for one in node.names)
            elif isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                if text.partition(".")[0] in PACKAGES and re.fullmatch(r"[\w.]+", text):
                    yield text


def test_a_changed_signature_and_a_new_and_a_lost_name_are_changes() -> None:
    before = "bridge.load(*paths: Path) -> Report\nbridge.Report.use: Use\nclass bridge.Report()\n"
    after = "bridge.load(path: Path) -> Report\nclass bridge.Report()\nclass bridge.Span()\n"
    names = contracts.changed(before, after)
    assert names == ["bridge.Report.use", "bridge.Span", "bridge.load"]
    assert untold(names, "`bridge.load(path)` and `bridge.Spanner`; bridge.Report.use") == names[:2]
    assert untold(["bridge new", "bridge new --op", "bridge old --op"], "`bridge new`") == [
        "bridge old --op"
    ]


def test_the_listing_holds_what_is_documented() -> None:
    listed = contracts.API.read_text(encoding="utf-8").splitlines()
    for start in (
        "bridge.nvtx_op(name: Any = None, ",
        "bridge.torch.ops(",  # a function that has the name of its module, in a package that is not installed here
        "bridge.Report.by(",
        "class bridge.comparison.Diff(",
        "bridge.importers.load(*paths: ",
    ):
        assert [line for line in listed if line.startswith(start)], start
