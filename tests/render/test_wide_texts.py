"""One text that is much wider than the others costs its own bytes, not those of a whole chunk."""

import tracemalloc

import numpy as np
import pytest

from bridge.render.packet_tracks import PathText
from bridge.render.packets import Message, Packets
from bridge.render.text_columns import Lines, Names, Path, Text

ROWS = 4_096
WIDE = b"w" * 50_000
TEXTS = [WIDE, *(b"%d" % number for number in range(400))]
CODES = np.arange(ROWS) % len(TEXTS)
MOST = 150_000_000  # bytes; padded to the wide text, a chunk and its indices take 2 GB


@pytest.fixture(autouse=True)
def _without_much_memory():
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST


def test_lines():
    pieces = [Text(b"<"), Names(CODES, TEXTS), Text(b">\n")]
    printed = b"".join(chunk.print() for chunk in Lines(pieces, np.arange(ROWS)).chunks())
    lines = [line.strip(b"< >") for line in printed.splitlines() if line.strip()]
    assert lines == [TEXTS[code] for code in CODES]


def test_paths_in_lines():
    parent = np.arange(ROWS) - len(TEXTS)
    parent[parent < 0] = -1
    path = Path(np.arange(ROWS), parent, Names(CODES, TEXTS, 1), b"<", b">\n")
    rows = np.arange(ROWS)[CODES > 0]
    printed = b"".join(chunk.print() for chunk in Lines([path], rows).chunks())
    depth = rows // len(TEXTS) + 1
    expected = [b"/".join([TEXTS[CODES[row]]] * n) for row, n in zip(rows, depth, strict=True)]
    assert [line.strip(b"< >") for line in printed.splitlines()] == expected


def test_paths_in_packets():
    text = Message(2, [PathText(np.full(ROWS, -1), Names(CODES, TEXTS, 1))])
    packets = Packets([Message(1, [text])], np.arange(ROWS), ROWS)
    printed = b"".join(chunk.print() for chunk in packets.chunks())
    assert printed.count(WIDE) == np.count_nonzero(CODES == 0)
    assert len(printed) > sum(len(TEXTS[code]) for code in CODES)
