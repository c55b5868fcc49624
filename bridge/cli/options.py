"""Options that several commands share, and the reports that they select."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import completion
from bridge.cli.catalog import WITHOUT_TIMELINE
from bridge.cli.help import attribution_option, option, report_option, table_option
from bridge.cli.hints import DEFAULT_STORE, with_report
from bridge.cli.timeout import running_stage, stage, timeout_option

if TYPE_CHECKING:
    from bridge.importers.listener import Listener
    from bridge.importers.nsys.tables import Details
    from bridge.importers.remote import Location
    from bridge.join.options import AttributionOptions, Rule
    from bridge.knowledge.kernels import Rules
    from bridge.render.table import Look
    from bridge.report import Report
    from bridge.source import ReportInput


# -- Progress on a terminal


PATIENCE = 1.0  # seconds before anything is shown
REFRESH = 8  # times per second


@contextmanager
def doing(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what the block does and for how long already, if it takes more than a second.

    Gives a function that shows what the block does now. Within another such block, that one shows it.
    """
    is_inside = bool(running_stage())
    with stage(what) as now, nullcontext() if is_inside else _shown():
        yield now


@contextmanager
def _shown() -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_say, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _say(over: threading.Event) -> None:
    if over.wait(PATIENCE):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as progress:
        task = progress.add_task(running_stage(), total=None)
        while not over.wait(1 / REFRESH):
            progress.update(task, description=running_stage(), refresh=True)


# -- Ranks from paths


F = TypeVar("F", bound=Callable[..., Any])


def _step_name(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise click.BadParameter("is empty: write the name of a range, or leave the option out")
    return text


def _expression(context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is None or context.resilient_parsing:
        return None
    from bridge.join.options import compile_rank_pattern

    try:
        return compile_rank_pattern(text).text
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


rank_from_option = report_option(
    "--rank-from",
    metavar="REGEX",
    callback=_expression,
    help="The rank in the path of a report: group rank, or the first one; the host: group host.",
    after="--sidecar",
    rare=True,
)
only_option = report_option(
    "--only",
    type=click.Choice(("host", "gpu")),
    help="Read one side alone: host (ranges, API calls) or gpu (kernels, memcpys, memory). Faster.",
    after="--rank-from",
    rare=True,
)
steps_option = attribution_option(
    "--steps",
    "step_name",
    metavar="NAME",
    callback=_step_name,
    help="The ranges that are steps: a name, or a family as 'Batch N'. [default: they are found]",
)


def identity_with_ranks(known: str, expression: str | None) -> str:
    """Return the identity of a run whose ranks are found with an expression."""
    return known if expression is None else f"{known}+rank-from:{expression.encode().hex()}"


# -- Options


PROTOCOL = "://"  # of URLs
DOWNLOADS = "bridge.downloads"  # key in the meta data of a context


class File(click.Path):
    """The path of a file on this machine."""

    def convert(
        self, value: Any, option: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the path. Raises `click.BadParameter` for a URL."""
        if isinstance(value, str) and PROTOCOL in value:
            self.fail("a URL: only REPORTS are fetched; name a file of this machine")
        return super().convert(value, option, context)


class ReportLocation(click.Path):
    """The path or the URL of a report."""

    def convert(
        self, value: Any, option: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the path, or the URL."""
        if isinstance(value, str) and PROTOCOL in value:
            from bridge.importers.remote import location

            return location(value)
        return super().convert(value, option, context)


FILE = File(path_type=Path)
REPORT = ReportLocation(path_type=Path)
FILE_WIDTH = 160
SHOWN = {
    "html": "page",
    "view": "trace to view",
    "memory": "allocations",
    "why": "explanation",
    "annotate": "places to annotate",
}  # by commands


def store_option(command: F, *, section: str = "Report") -> F:
    """Add the option ``--db``: the store."""
    return option(
        "--db",
        type=FILE,
        envvar="BRIDGE_DB",
        default=Path(DEFAULT_STORE),
        show_default=True,
        show_envvar=True,
        help="The store of imported runs.",
        section=section,
    )(command)


def reports_argument(command: F, *, required: bool = False) -> F:
    """Add the argument ``reports``: files, which the shell completes by their suffixes, or URLs."""
    return click.argument(
        "reports", nargs=-1, required=required, type=REPORT, shell_complete=completion.reports
    )(command)


def parse_run(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> int | str | None:
    """Read the run of ``--run``, None for the newest."""
    return None if text is None else run_key(text)


def run_key(text: str) -> int | str:
    """Read the number of a run, or its name."""
    return int(text) if text.isdecimal() else text


run_option = report_option(
    "--run",
    metavar="RUN",
    callback=parse_run,
    shell_complete=completion.runs,
    help="Run of the store to read, by number or name; default: the newest.",
)
sidecar = report_option(
    "--sidecar",
    multiple=True,
    type=FILE,
    help="A recording of the profiled program, or a folder of them. May be repeated."
    " [default: those beside the report and in $BRIDGE_SIDECAR]",
    rare=True,
)


graph_annotations = report_option(
    "--graph-annotations",
    multiple=True,
    type=FILE,
    help="What PyTorch says of nodes of CUDA graphs: a pickle of get_kernel_annotations(), what"
    " dump_kernel_py_stacks() writes, or get_graph_data() as a pickle or JSON. May be repeated.",
    rare=True,
)
ncu_option = report_option(
    "--ncu",
    multiple=True,
    type=FILE,
    help="A report of Nsight Compute (.ncu-rep, or what ncu --csv prints) of the same program."
    " May be repeated.",
    after="--db",
)


def _without_cache(context: click.Context, _option: click.Parameter, given: bool) -> None:
    """Switch the cache of exports off for the command, and for the processes that it starts."""
    if given and not context.resilient_parsing:
        from bridge.importers.nsys import export_cache

        context.with_resource(export_cache.switched_off())


no_cache_option = report_option(
    "--no-cache",
    is_flag=True,
    expose_value=False,
    callback=_without_cache,
    help="Export an .nsys-rep anew and do not keep the export: see bridge cache.",
    after="--timeout",
    rare=True,
)


def parse_names(_context: click.Context, _option: click.Parameter, text: str) -> list[str]:
    """Read names separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


kernel_names = table_option(
    "--kernel-names",
    type=click.Choice(("readable", "short", "demangled", "mangled")),
    default="readable",
    show_default=True,
    help="How kernels are named.",
)


@contextmanager
def usage_errors(context: click.Context | None = None) -> Iterator[None]:
    """Turn a ValueError, whose message is for the user, into a usage error."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error), context) from error


def collected(
    parameter: str, build: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[F], F]:
    """Give a command several options as one parameter: the result of ``build`` for their values as keywords."""

    def decorate(command: F) -> F:
        fields: list[str] = []

        @functools.wraps(command)
        def with_parameter(*args: Any, **values: Any) -> Any:
            own = {name: values.pop(name) for name in fields}
            return command(*args, **{parameter: build(**own)}, **values)

        decorated: Any = with_parameter
        before = set(_parameters(command))
        for add in reversed(options):
            decorated = add(decorated)
        fields += [name for name in _parameters(decorated) if name not in before]
        result: F = decorated
        return result

    return decorate


def _parameters(command: Any) -> list[str]:
    """Return the names of the click parameters that a function has so far."""
    return [str(parameter.name) for parameter in getattr(command, "__click_params__", [])]


def report_input(command: F) -> F:
    """Give a command the options that select a report as one parameter ``source``, and a time limit."""
    options = (
        reports_argument,
        run_option,
        store_option,
        sidecar,
        graph_annotations,
        *ATTRIBUTION_OPTIONS,
    )
    return no_cache_option(timeout_option(collected("source", _report_input, *options)(command)))


def _report_input(
    *,
    reports: tuple[Location, ...],
    db: Path,
    run: int | str | None,
    sidecar: tuple[Path, ...],
    graph_annotations: tuple[Path, ...],
    **attribution: Any,
) -> ReportInput:
    from bridge.source import ReportInput

    return ReportInput(
        reports=reports,
        db=db,
        run=run,
        attribution=_attribution(**attribution),
        sidecar=sidecar,
        graph_annotations=graph_annotations,
    )


def attribution_options(command: F) -> F:
    """Give a command the options of the attribution as one parameter ``attribution_options``."""
    return collected("attribution_options", _attribution, *ATTRIBUTION_OPTIONS)(command)


def _attribution(
    *, rules: Path | None, kernel_rules: Path | None, **fields: Any
) -> AttributionOptions:
    from bridge.join.options import AttributionOptions

    kernels = read_kernel_rules(kernel_rules)
    return AttributionOptions(read_rules(rules), kernel_rules=kernels, **fields)


rare_attribution_option = functools.partial(attribution_option, rare=True)
rules_option = rare_attribution_option(
    "--op-rules",
    "rules",
    type=FILE,
    help="A TOML file that regroups ops: [[rule]] tables with match (a regular expression) and op.",
)
ATTRIBUTION_OPTIONS = (
    rare_attribution_option(
        "--graphs",
        type=click.Choice(("capture", "launch")),
        help="Work of a CUDA graph belongs to the op it was captured in, or that launched the graph."
        " [default: capture where known, but launch for raw texts]",
    ),
    rare_attribution_option(
        "--domain",
        "domains",
        multiple=True,
        help="Only ranges of this NVTX domain are ops: its name, default, or all. May be repeated."
        " [default: all but libraries' own]",
    ),
    rare_attribution_option(
        "--exclude-domain",
        "exclude_domains",
        multiple=True,
        help="Ranges of this domain are no ops.",
    ),
    rare_attribution_option(
        "--adopt/--no-adopt",
        default=None,
        help="Give work launched outside of ranges to the op that another thread waits in: --adopt that"
        " of all threads, a guess; --no-adopt none. [default: that of PyTorch's autograd]",
    ),
    rare_attribution_option(
        "--backward-under",
        type=click.Choice(("caller", "forward")),
        default="caller",
        show_default=True,
        help="Show PyTorch's backward work under the range that called it, or under that of its forward op.",
    ),
    rules_option,
    rare_attribution_option(
        "--kernel-rules",
        type=FILE,
        envvar="BRIDGE_KERNEL_RULES",
        show_envvar=True,
        help="A TOML file that says what kernels are, before the built-in rules: see docs/kernels.md.",
    ),
)


class Printer:
    """Prints on stderr what a command reads, as far as people want to know."""

    def warn(self, lines: Iterable[str]) -> None:
        """Print warnings."""
        warn(lines)

    def say(self, line: str) -> None:
        """Print a line."""
        from bridge.render.table import clean

        click.echo(clean(line), err=True)

    def doing(self, what: str, /) -> AbstractContextManager[Callable[[str], None]]:
        """Show what takes a while."""
        return doing(what)


PRINTER: Listener = Printer()


def load(source: ReportInput, details: Details = True, listener: Listener = PRINTER) -> Report:
    """Load the rows of a report and print warnings on stderr; ``details`` are the optional columns that are read.

    Refuses a report without a timeline, if the command needs one.
    """
    from bridge.analyze.core import no_timeline
    from bridge.source import load_report

    with usage_errors():
        source.check()
        local = replace(source, reports=local_reports(source.reports))
        report = load_report(local, details, listener)
    command = click.get_current_context().command.name or ""
    no_timeline.refuse(
        report.capture, SHOWN.get(command, command), fits=command in WITHOUT_TIMELINE
    )
    return report


def warn(lines: Iterable[str]) -> None:
    """Print warnings on stderr."""
    from bridge.render.table import clean

    for line in lines:
        click.echo(f"warning: {clean(line)}", err=True)


def local_reports(reports: Sequence[Location]) -> tuple[Path, ...]:
    """Return the paths of reports; those at URLs are fetched until the command ends."""
    paths = tuple(report for report in reports if isinstance(report, Path))
    if len(paths) == len(reports):
        return paths
    from bridge.importers import check_distinct
    from bridge.importers.remote import Downloads, Url
    from bridge.scale.loading import expand_paths

    context = click.get_current_context()
    if DOWNLOADS not in context.meta:
        context.meta[DOWNLOADS] = context.with_resource(Downloads())
    expanded = (
        expand_paths([report]) if isinstance(report, Url) else [report] for report in reports
    )
    files = list(chain.from_iterable(expanded))
    check_distinct(files)
    result = []
    for file in files:
        with doing(f"fetching {file}"):
            result.append(context.meta[DOWNLOADS].path(file))
    return tuple(result)


def read_rules(path: Path | None) -> tuple[Rule, ...]:
    """Read a file of rules; an invalid one is a usage error."""
    from bridge.join import options as labels

    if path is None:
        return ()
    try:
        return labels.rules(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.BadParameter(f"{path}: {reason}", param_hint="--op-rules") from error


def read_kernel_rules(path: Path | None) -> Rules | None:
    """Read a file of kernel rules; an invalid one is a usage error."""
    from bridge.knowledge import kernels

    if path is None:
        return None
    try:
        return kernels.rules(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.BadParameter(f"{path}: {reason}", param_hint="--kernel-rules") from error


TERMINAL_ROWS = 20  # rows of a table on a terminal unless a number is given


def is_on_terminal(*, to_terminal: bool) -> bool:
    """Return whether people see the text right away: not in a pipe, nor in a file."""
    import sys

    return to_terminal and sys.stdout.isatty()


def wrapped(lines: Iterable[str], *, to_terminal: bool = True) -> str:
    """Return lines of text, each with a line break; standard output gets them broken at its width.

    Commands in them name the report.
    """
    from bridge.render.wrapping import wrap

    lines = map(with_report, lines)
    if to_terminal:
        width = terminal_width()
        lines = [part for line in lines for part in wrap(line, width) or [""]]
    return "".join(f"{line}\n" for line in lines)


def look(*, to_terminal: bool = True) -> Look:
    """Return how tables are printed: with bars and colours on a terminal, plain in a pipe or a file.

    $NO_COLOR disables colours, $FORCE_COLOR enables them in a pipe too.
    """
    from bridge.render.table import Look

    is_terminal = is_on_terminal(to_terminal=to_terminal)
    forced = to_terminal and os.environ.get("FORCE_COLOR", "") not in ("", "0")
    color = (is_terminal or forced) and not os.environ.get("NO_COLOR")
    command = "" if "--kernel-names" in _choices() else "bridge report REPORT --by kernel "
    return Look(
        terminal_width() if to_terminal else FILE_WIDTH,
        is_terminal or forced,
        color,
        remedies=_remedies(to_terminal=to_terminal),
        whole_names=with_report(f"{command}--kernel-names demangled"),
    )


def _remedies(*, to_terminal: bool) -> tuple[str, ...]:
    """Return how to see the columns that a table of the running command leaves out."""
    from bridge.render.table import WIDER

    known = _choices()
    form = next((form for form in ("csv", "json") if form in known.get("--format", ())), "")
    remedies = [
        *([WIDER] if to_terminal else []),
        *(["--columns"] if "--columns" in known and not _is_given("--columns") else []),
        *([f"--format {form}"] if form else []),
    ]
    return tuple(remedies) or (WIDER,)


def _is_given(name: str) -> bool:
    """Return whether the user gave an option of the running command a value."""
    context = click.get_current_context()
    parameters = (p for p in context.command.params if name in p.opts)
    return any(context.params.get(str(parameter.name)) for parameter in parameters)


def _choices() -> Mapping[str, Sequence[str]]:
    """Return the options of the running command, with the values that they may have."""
    context = click.get_current_context(silent=True)
    parameters = context.command.params if context else []
    return {name: tuple(getattr(p.type, "choices", ())) for p in parameters for name in p.opts}


def terminal_width() -> int:
    """Return the width of the terminal, 80 without one; $COLUMNS overrides it."""
    import shutil

    return max(60, shutil.get_terminal_size((int(os.environ.get("COLUMNS") or 80), 24)).columns)
