"""The words that docs/causes.md lists are those of the code."""

import re

from real_parts import ROOT

from bridge.analyze.causes.gaps import WORDS as CAUSES
from bridge.analyze.causes.host_timeline import WORDS
from bridge.analyze.columns.breakdown import CAUSES as COLUMNS

PAGE = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")


def cells(heading):
    """Return the rows of the table whose first heading is this."""
    table = PAGE.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_the_page_lists_all_words():
    first = [row[0].strip("`") for row in cells("cause | the host")]
    assert sorted(first) == sorted(CAUSES)
    assert ", ".join(CAUSES) in re.sub(r"\s+", " ", PAGE)
    assert [row[0].strip("`") for row in cells("word | the figure that is compared")] == list(WORDS)
    assert [row[0].strip("`") for row in cells("column | is")] == list(COLUMNS)
