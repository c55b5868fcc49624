"""``bridge demo``: the whole way on a report that the package makes itself."""

from __future__ import annotations

from pathlib import Path

import click

NEXT = """
Next, the same on a program of yours ('. .venv/bin/activate' first, if bridge is in one):

  from bridge import nvtx_op                  annotate: @nvtx_op above a function,
                                              with nvtx_op("name"): around a block
  nsys profile -o report python train.py      capture
  bridge import report.nsys-rep               join, store, print this table
  bridge report --by op                       and look closer
"""


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("bridge-demo"),
    show_default=True,
    help="Where to write; what an earlier demo wrote there is replaced.",
)
def demo(folder: Path) -> None:
    """Make a small report, import it, print its breakdown, write its trace."""
    from bridge import store
    from bridge.cli.demo_report import make
    from bridge.cli.import_ import show
    from bridge.output import OutputError, whole
    from bridge.report import load

    report, db, trace = (folder / name for name in ("demo.sqlite", "bridge.db", "trace.json.gz"))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}") from error
    with whole(report, force=True) as draft:
        make(draft)
    joined = load(report)
    known = store.identity([report])
    if not store.find(db, known):
        store.save(joined, db, known)
    show(joined)
    joined.export_chrome_trace(trace, force=True)
    click.echo(f"\nWrote {report}, {db} and {trace}: open the trace at https://ui.perfetto.dev")
    click.echo(NEXT)
