"""The commands that messages suggest: each names the report that the running command read.

Texts of other rooms write ``bridge advise REPORT``. Commands fill in the words that select their own
report, as the user wrote them: the files, or ``--run``, and the options that choose a part of it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

COMMAND = re.compile(r"\bbridge ([a-z-]+) REPORT\b")
SELECTION = "bridge.selection"  # key in the meta data of a context
MOST_FILES = 8  # reports that a suggested command names
DEFAULT_STORE = "bridge.db"
REPORTS = "reports"  # the argument of commands that read reports
# Options that select a report, or a part of it, or the owners of its activities.
PARTS = ("--from", "--to", "--step", "--range")
OPTIONS = (
    *"--run --db --sidecar --op-rules --graphs --domain --exclude-domain --adopt".split(),
    *"--backward-under --kernel-rules --ncu".split(),
    *PARTS,
)
Selection = Mapping[str, Sequence[str]]  # words by option, and by `REPORTS`


def remember(context: click.Context, command: click.Command, raw: Mapping[str, Any]) -> None:
    """Keep what a user wrote to select a report; ``raw`` are unconverted values by parameter."""
    names = {max(p.opts, key=len): p for p in command.params if p.name in raw}
    if "--run" not in names and not any("--run" in p.opts for p in command.params):
        return  # a command that reads no single report
    selection: dict[str, list[str]] = {REPORTS: _texts(raw.get(REPORTS))}
    for name in OPTIONS:
        if name in names:
            selection[name] = _words(name, names[name], raw[str(names[name].name)])
    context.meta[SELECTION] = selection


def _words(name: str, option: click.Parameter, value: Any) -> list[str]:
    """Return the words of an option on a command line; a flag has no value."""
    if getattr(option, "is_flag", False):
        return [name] if value is True else []
    return [word for text in _texts(value) for word in (name, text)]


def _texts(value: Any) -> list[str]:
    """Return what a user wrote: nothing, a text, or several; click has its own values for nothing."""
    texts = value if isinstance(value, list | tuple) else [value]
    return [_without_credentials(str(text)) for text in texts if isinstance(text, str)]


def _without_credentials(text: str) -> str:
    if "://" not in text:
        return text
    from bridge.importers.remote import Url

    return str(Url(text))


def select_file(path: Path, *measured: Path) -> None:
    """From now on, suggest commands for this report, with reports of ncu."""
    ncu = [word for one in measured for word in ("--ncu", str(one))]
    click.get_current_context().meta[SELECTION] = {REPORTS: [str(path)], "--ncu": ncu}


def select_run(db: Path, run: int) -> None:
    """From now on, suggest commands for this run; the newest and the default store need no words."""
    from bridge import store

    selection: dict[str, list[str]] = {REPORTS: []}
    if store.get_run(db, None).id != run:
        selection["--run"] = ["--run", str(run)]
    if db != default_store():
        selection["--db"] = ["--db", str(db)]
    click.get_current_context().meta[SELECTION] = selection


def run_called(text: str, context: click.Context) -> str:
    """Return how to name the run that a user named as a file, '' for a text that names no run."""
    selection = context.meta.get(SELECTION)
    if selection is None or Path(text).name != text:
        return ""
    from bridge.store.names import run_names

    db = Path(selection["--db"][-1]) if selection.get("--db") else default_store()
    is_run = text.isdecimal() or text in run_names(db)
    return f"for that run of the store, write --run {shlex.quote(text)}" if is_run else ""


def with_report(text: str, context: click.Context | None = None, *, whole: bool = False) -> str:
    """Return a text in whose commands the report of the running command stands for ``REPORT``.

    ``whole``: all of it, where the running command read a part.
    """
    context = context or click.get_current_context(silent=True)
    selection = context.meta.get(SELECTION) if context else None
    if context is None or selection is None or "REPORT" not in text:
        return text
    given = {key: words for key, words in selection.items() if not (whole and key in PARTS)}
    commands = context.find_root().command
    if not isinstance(commands, click.Group):
        return text

    def named(match: re.Match[str]) -> str:
        command = commands.get_command(context, match[1])
        return _command(command, given) if command else match[0]

    return COMMAND.sub(named, text)


def _command(command: click.Command, given: Selection) -> str:
    """Return the beginning of a command line: the command, and what selects the report."""
    known = {option for parameter in command.params for option in parameter.opts}
    if "--run" not in known:
        return f"bridge {command.name} REPORT"
    files = given[REPORTS]
    options = {option: given.get(option, ()) for option in OPTIONS if option in known}
    if command.name == "doctor" and not files and not options["--run"]:
        options["--run"] = _newest(options["--db"])  # without a report, it checks the machine
    words = [*files[:MOST_FILES], *(word for words in options.values() for word in words)]
    left_out = " …" if len(files) > MOST_FILES else ""
    return _printable(shlex.join(["bridge", str(command.name), *words]) + left_out)


def _printable(text: str) -> str:
    """Return a text in which ``?`` stands for what cannot be printed: file names may hold any bytes."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _newest(db: Sequence[str]) -> Sequence[str]:
    """Return the words that select the newest run of a store, given as ``--db`` or the default one."""
    from bridge import store

    return ["--run", str(store.get_run(Path(db[-1]) if db else default_store(), None).id)]


def default_store() -> Path:
    """Return the store that commands read without ``--db``."""
    return Path(os.environ.get("BRIDGE_DB") or DEFAULT_STORE)
