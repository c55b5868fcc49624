"""What the commands of README.md and docs/*.md print, below each command.

Pages that show real profiles need these ($BRIDGE_CORPUS). Look at the difference before it is committed:
the tests only compare.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from real_parts import CORPUS, NO_CORPUS

from .pages import PAGES, Files, as_printed, kinds_in


def add_arguments(parser: ArgumentParser) -> None:
    """Let a subset of the pages be named."""
    parser.add_argument(
        "names", nargs="*", metavar="PAGE", help="such as tutorial.md; all by default"
    )


def files(names: Sequence[str] = ()) -> Files:
    """Yield the pages of these names, or all, with what their commands print."""
    for page in PAGES:
        if not names or page.name in names:
            yield page, recorded(page)


def recorded(page: Path) -> str:
    """Return a page with the outputs of its commands; those on real profiles stay where there is no corpus."""
    text = page.read_text(encoding="utf-8")
    for kind in kinds_in(text):
        if kind == "corpus-" and not CORPUS.is_dir():
            print(f"left alone for want of profiles ({NO_CORPUS}): {page.name}")
            continue
        with TemporaryDirectory() as folder:
            text = as_printed(text, kind, Path(folder))
    return text
