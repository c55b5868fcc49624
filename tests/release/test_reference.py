"""The pages made from the code are in step with it."""

from __future__ import annotations

import re
import signal
from types import ModuleType

import pytest
from docs.pages import PAGES
from real_parts import ROOT
from test_docs import commands, named_in

import bridge as package
from bridge import bench, memory
from bridge.cli import main
from docs import columns
from docs import commands as help_of_commands

DOCS = ROOT / "docs"
COMMANDS = DOCS / "commands.md"
MADE = "run: python -m tests.docs commands"
GROUPS = ("", "runs")  # commands that have commands, which all options are not asked of
HEADINGS = {  # where a module has the name of what the package offers, its home is named
    "bridge.annotate.patch.wrap": "bridge.wrap",
    "bridge.torch.ops.ops": "bridge.torch.ops",
}
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def section(name: str) -> str:
    """Return what the page shows of a command."""
    found = re.search(
        rf"^## {re.escape(name)}\n\n```\n(.*?)\n```$",
        COMMANDS.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert found, f"{COMMANDS.name} has no {name}; {MADE}"
    return found[1]


def referred() -> set[str]:
    """Name everything that the reference shows."""
    pages = (DOCS / "reference").glob("*.md")
    return {name for page in pages for name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("made", [columns, help_of_commands], ids=["columns", "commands"])
def test_pages_made_from_the_code_are_in_step_with_it(made):
    for page, text in made.files():
        assert page.read_text(encoding="utf-8") == text, "run: python -m tests.docs all"


@pytest.mark.parametrize("name", ["", *[name for name, _ in commands(main)]])
def test_the_page_shows_what_help_prints(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    before = signal.getsignal(signal.SIGTERM)
    try:
        words = [*name.split(), "--help" if name in GROUPS else "--help-all"]
        main.main(words, prog_name="bridge", standalone_mode=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert section(f"bridge {name}".strip()) == capsys.readouterr().out.rstrip()


def test_every_command_is_told_of_on_a_page_of_its_own():
    others = [page for page in PAGES if page != COMMANDS]
    text = "\n".join(page.read_text(encoding="utf-8") for page in others)
    assert [name for name, _ in commands(main) if not named_in(text, name)] == []


@pytest.mark.parametrize("module", [package, bench, memory], ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_reference(module):
    names = {
        name for name in module.__all__ if not isinstance(getattr(module, name), (ModuleType, str))
    }
    shown = {HEADINGS.get(name, name) for name in referred()}
    assert {f"{module.__name__}.{name}" for name in names} <= shown


def test_a_name_that_a_module_has_too_is_shown_as_what_is_imported():
    for home, name in HEADINGS.items():
        text = "".join(
            page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")
        )
        assert f"::: {home}\n    options:\n      heading: {name}\n" in text


@pytest.mark.slow
def test_what_the_reference_names_exists():
    griffe = pytest.importorskip(
        "griffe", reason="griffe is not installed: pip install -e '.[dev]'"
    )
    loader = griffe.GriffeLoader(search_paths=[ROOT])
    loader.load("bridge")
    loader.resolve_aliases()
    undocumented = [
        name for name in sorted(referred()) if not loader.modules_collection[name].has_docstring
    ]
    assert undocumented == []
    found = {
        name: loader.modules_collection[name] for name in referred() - {"bridge.importers.errors"}
    }
    assert [name for name, thing in found.items() if thing.is_module] == []
