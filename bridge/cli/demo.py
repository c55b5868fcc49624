"""``bridge demo``: every step of the way, on a report that the package makes."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli.help import Command, option

NEXT = """
Next, a program of yours ('. .venv/bin/activate' first, if bridge is in one). One of PyTorch, unchanged:

  bridge run --auto train.py                  annotate, capture, store and summarize
  bridge report --by op                       and look closer

Any other:

  from bridge import nvtx_op                  annotate: @nvtx_op above a function,
                                              with nvtx_op("name"): around a block
  bridge run program.py                       capture, store and summarize
"""


@click.command(
    cls=Command,
    examples=(
        "bridge demo",
        "bridge demo --folder try",
    ),
)
@option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bridge-demo"),
    show_default=True,
    help="Where to write; what an earlier demo wrote there is replaced.",
)
def demo(folder: Path) -> None:
    """Make a small report, import it, print its breakdown, write its trace."""
    from bridge import store
    from bridge.cli import hints, options
    from bridge.cli.demo_report import make
    from bridge.cli.summary import summary_text
    from bridge.output import OutputError, whole
    from bridge.report import load

    path, db, trace = (folder / name for name in ("demo.sqlite", "bridge.db", "trace.json.gz"))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}") from error
    with whole(path, force=True) as draft:
        make(draft)
    report = load(path)
    known = store.identity([path])
    if not store.find_run(db, known):
        store.save(report, db, known)
    hints.select_file(path)
    look = options.look()
    click.echo(summary_text(report, look), nl=False, color=look.color)
    report.export_chrome_trace(trace, force=True)
    click.echo(f"\nWrote {path}, {db} and {trace}: open the trace at https://ui.perfetto.dev")
    click.echo(NEXT)
