"""What `--help` prints: commands by section, examples that work, options in sections, rare ones on request."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command import bridge, done

from bridge.cli import main
from bridge.cli.catalog import COMMANDS, SECTIONS
from bridge.cli.help import Command, Option, option

LISTED = {
    "Capture": "run import doctor",
    "Analyze": "summary report advise what-if memory why hang annotate",
    "Look": "html trace view flame graph plot",
    "Compare": "diff trend",
    "More": "runs cache bench onednn scrub mcp demo",
}
MADE = ("report.sqlite", "before.sqlite", "after.sqlite", "rank0.sqlite", "rank1.sqlite")
# What an example needs that is no report of Nsight Systems: a program, a browser, a tool, another file.
NEEDS = re.compile(
    r"^bridge (run|bench|view|memory|plot|hang)|onednn|rep\b|doctor$|doctor --run|nightly$|runs rm"
)


def leaves(group: click.Group = main, path: str = "") -> Iterator[tuple[str, Command]]:
    """Yield every command that has no commands, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{name} ")
        else:
            assert isinstance(command, Command)
            yield path + name, command


LEAVES = dict(leaves())
EXAMPLES = [(name, line) for name, command in LEAVES.items() for line in command.examples]


def options_in(text: str) -> dict[str, list[str]]:
    """Return the options that a help text lists by section, from the text alone."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][\w ]*:", line):
            title = line[:-1]
        elif match := re.match(r"  (?:-\w, )?(--?[\w-]+)", line):
            found.setdefault(title, []).append(match[1])
    return found


def test_commands_are_listed_in_sections() -> None:
    text = done("--help")
    for title, names in LISTED.items():
        part = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == names.split()
    assert sorted(" ".join(LISTED.values()).split()) == sorted(COMMANDS)


@pytest.mark.parametrize("name", LEAVES)
def test_help_and_help_all_list_every_option_once(name: str) -> None:
    short, whole = (options_in(done(*name.split(), flag)) for flag in ("--help", "--help-all"))
    listed = [option for options in whole.values() for option in options]
    options = [o for o in LEAVES[name].params if isinstance(o, click.Option)]
    own = {max(o.opts, key=len) for o in options}
    assert len(listed) == len(set(listed))
    assert set(listed) - {"--help", "--help-all"} == own
    left = own - {option for options in short.values() for option in options}
    last = done(*name.split(), "--help").splitlines()[-1]
    if left:
        assert last == f"--help-all shows {len(left)} more option{'s' if len(left) > 1 else ''}."
    else:
        assert "--help-all" not in done(*name.split(), "--help")


def test_an_option_is_in_the_same_section_everywhere() -> None:
    of: dict[str, set[str]] = {}
    for name in LEAVES:
        if name in ("run", "bench", "mcp"):  # where the same word is another option
            continue
        for title, options in options_in(done(*name.split(), "--help-all")).items():
            for listed in options:
                of.setdefault(listed, set()).add(title)
    assert {listed: titles for listed, titles in of.items() if len(titles) > 1} == {}


def test_every_option_says_where_it_stands() -> None:
    options = [o for c in LEAVES.values() for o in c.params if o.param_type_name == "option"]
    assert [o.name for o in options if not isinstance(o, Option)] == []
    assert {o.section for o in options} == set(SECTIONS)
    assert {o.after for o in options} <= {"", *(name for o in options for name in o.opts)}


def test_options_stand_by_section_in_order_of_definition_or_below_another() -> None:
    @click.command(cls=Command, first=("Table",))
    @option("--last", section="Output", rare=True)
    @option("--moved", section="Report", after="--here")
    @option("--stays", section="Report", after="--elsewhere")
    @option("--plain")
    @option("--unseen", hidden=True, rare=True)
    @option("--here", section="Report")
    @option("--by", section="Table")
    def made() -> None: ...

    text = CliRunner().invoke(made, ["--help-all"]).output
    assert list(options_in(text).items()) == [
        ("Table", ["--by"]),
        ("Options", ["--plain"]),
        ("Report", ["--stays", "--here", "--moved"]),
        ("Output", ["--last"]),
        ("Help", ["--help-all", "--help"]),
    ]
    short = CliRunner().invoke(made, ["--help"]).output
    assert "--last" not in short
    assert short.endswith("--help-all shows 1 more option.\n")


def test_an_option_of_an_unknown_section_is_refused() -> None:
    with pytest.raises(ValueError, match="'Tables' is no section"):
        option("--by", section="Tables")(lambda: None)


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_help_takes_the_width_of_the_terminal_up_to_120(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    before = signal.getsignal(signal.SIGTERM)
    try:
        main.main(["report", "--help"], prog_name="bridge", standalone_mode=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    widest = max(map(len, capsys.readouterr().out.splitlines()))
    assert min(columns, 120) - 12 < widest <= min(columns, 120)


def test_a_group_alone_shows_its_commands_and_takes_help_all() -> None:
    """What is rare is in the commands: a group leaves nothing out."""
    alone = bridge()
    assert alone.output == done("--help")
    assert alone.exit_code in (0, 2)  # as click does: 2 from click 8.2 on
    for words in ([], ["runs"]):
        whole = done(*words, "--help")
        assert done(*words, "--help-all") == whole
    for name in ("list", "show", "rm"):
        [line] = [line for line in whole.splitlines() if line.startswith(f"  {name} ")]
        assert not line.endswith("...")


# -- Examples


@pytest.mark.parametrize("name", LEAVES)
def test_examples_come_first(name: str) -> None:
    assert LEAVES[name].examples
    text = done(*name.split(), "--help")
    usage, first, examples = re.split(r"\n\n", text)[:3]
    assert usage.startswith("Usage: ")
    assert first.startswith("  ")
    assert examples.splitlines() == ["Examples:", *(f"  {line}" for line in LEAVES[name].examples)]


def words_of(line: str) -> list[str]:
    """Return the words of `bridge` in a line of a shell."""
    words = shlex.split(line, comments=True)
    words = words[words.index("bridge") + 1 :]
    return words[: words.index("|")] if "|" in words else words


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_is_of_its_command_and_can_be_read(name: str, line: str) -> None:
    words = words_of(line)
    depth = len(name.split())
    assert words[:depth] == name.split()
    parent = click.Context(main, help_option_names=["-h", "--help"])
    LEAVES[name].make_context(name, words[depth:], parent=parent)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of reports, each that of the demo under another name, with a store."""
    folder = tmp_path_factory.mktemp("examples")
    done("demo", "--folder", folder)
    for name in MADE:
        shutil.copy(folder / "demo.sqlite", folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for _, line in EXAMPLES if not NEEDS.search(line)])
def test_an_example_runs(line: str, examples: Path, folder: Path) -> None:
    for path in examples.iterdir():
        if path.suffix in {".sqlite", ".db"} and path.name != "demo.sqlite":
            shutil.copy(path, folder / path.name)
    result = bridge(*words_of(line))
    assert result.exit_code == 0, result.output
