"""Run the commands of README.md and docs/*.md, and record what they print: python docs/outputs.py [PAGE ...]

Pages that show real profiles need these ($BRIDGE_CORPUS). Look at the difference before it is
committed: the tests only compare.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from real_parts import CORPUS
from test_docs import BLOCK, PAGES, bridge_lines, run
from test_docs_of_profiles import PROFILE

RUNS, OUTPUTS = ("run", "corpus-run"), ("output", "corpus-output")


def recorded(text: str, folder: Path) -> str:
    """Return the text of a page with the outputs of its commands."""
    printed, pieces, reached = "", [], 0
    for match in BLOCK.finditer(text):
        kind, body = match.groups()
        if kind in RUNS:
            _copy_profiles(body, folder)
            printed = "".join(run(line, folder) for line in bridge_lines(body))
        elif kind in OUTPUTS:
            pieces += [text[reached : match.start(2)], printed]
            reached = match.end(2)
    return "".join([*pieces, text[reached:]])


def _copy_profiles(commands: str, folder: Path) -> None:
    for name in set(PROFILE.findall(commands)):
        for profile in CORPUS.rglob(name):
            shutil.copy(profile, folder)


def main(names: list[str]) -> None:
    """Record the pages of these names, or all."""
    for page in PAGES:
        if names and page.name not in names:
            continue
        text = page.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder:
            page.write_text(recorded(text, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
