"""Pages that show real profiles: their commands, run on these, print what the pages show.

<!-- corpus-run -->       its `bridge …` lines are run in a folder with the profiles that the page names
<!-- corpus-output -->    what the block before it printed, exactly
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from test_docs import PAGES, blocks, bridge_lines, run

SHOWING = [page for page in PAGES if "<!-- corpus-output -->" in page.read_text(encoding="utf-8")]
PROFILE = re.compile(r"[\w-]+\.(?:sqlite|pt\.trace\.json\.gz|ncu-rep|csv)")


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path, corpus: Path, tmp_path: Path) -> None:
    marked = blocks(page.read_text(encoding="utf-8"))
    commands = "\n".join(body for kind, body in marked if kind == "corpus-run")
    for name in set(PROFILE.findall(commands)):
        for profile in corpus.rglob(name):
            shutil.copy(profile, tmp_path)
    printed, compared = "", 0
    for kind, body in marked:
        if kind == "corpus-run":
            printed = "".join(run(line, tmp_path) for line in bridge_lines(body))
        elif kind == "corpus-output":
            assert printed == body
            compared += 1
    assert compared


def test_the_tutorial_is_shown() -> None:
    assert "tutorial" in [page.stem for page in SHOWING]
