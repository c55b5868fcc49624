"""``bridge doctor``: what is installed, whether annotations are recorded, which traps are set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.capture.doctor.traps import Finding, Machine

COLORS = {"ok": "green", "note": "yellow", "lost": "red"}


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="For people, or for programs.",
)
@click.argument("reports", nargs=-1, type=options.FILE)
@click.pass_context
def doctor(context: click.Context, reports: tuple[Path, ...], form: str) -> None:
    """Say what is installed, profile a decorated function with it, and name the traps that are set.

    Exit status 1 when annotations would be lost. REPORTS are tried as well: can this machine read them?
    """
    from bridge.capture.doctor import traps

    here = traps.look()
    test = None if here.nsys is None else traps.run(here.nsys)
    found = [*traps.findings(here, test), *(traps.unreadable(one, here) for one in reports)]
    click.echo(_json(here, found) if form == "json" else _text(here, found))
    if any(one.kind == traps.LOST for one in found):
        context.exit(1)


def _installed(here: Machine) -> dict[str, str]:
    programs = {"nsys": here.nsys, "ncu": here.ncu}
    found = {name: f"{p.version} {p.path}".strip() if p else "" for name, p in programs.items()}
    return {"python": here.python, **found, "driver": here.driver, **here.packages}


def _text(here: Machine, found: Iterable[Finding]) -> str:
    lines = [f"{name:14} {said or 'not found'}" for name, said in _installed(here).items()]
    lines.append("")
    for one in found:
        lines.append(f"{click.style(f'{one.kind:4}', fg=COLORS[one.kind])}  {one.what}")
        if one.remedy:
            lines.append(f"      {one.remedy}")
    return "\n".join(lines)


def _json(here: Machine, found: Iterable[Finding]) -> str:
    document = {
        "format": "bridge.doctor/1",
        "installed": _installed(here),
        "findings": [one._asdict() for one in found],
    }
    return json.dumps(document, indent=1, ensure_ascii=False)
