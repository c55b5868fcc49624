"""The temporary file in which the tables of reports wait: read in any order, copied whole, and named when it is full."""

from __future__ import annotations

import errno
import os
import pickle
import tempfile

import numpy as np
import pytest

from bridge.output import OutputError
from bridge.scale.merging import PartialTable, packed
from bridge.scale.spool import Spool


def table(number: int) -> bytes:
    return packed(PartialTable({"op": np.array(["a"], object)}, {"count": np.array([number])}))


PARTS = {2: {"op": table(2)}, 0: {"op": table(0), "kernel": table(7)}}


def counts(spool: Spool) -> list[int]:
    return [int(one.sums["count"][0]) for one in spool.each("op")]


def test_tables_come_in_the_order_of_their_places() -> None:
    spool = Spool(PARTS)
    spool.add(1, {"op": table(1)})
    assert counts(spool) == [0, 1, 2]
    assert spool.names() == {"op"}
    assert spool.of(0) == PARTS[0]
    assert counts(pickle.loads(pickle.dumps(spool))) == [0, 1, 2]


def test_a_full_folder_is_named_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool()
    monkeypatch.setattr(os, "pwrite", full)
    said = f"{tempfile.gettempdir()}: No space left on device; TMPDIR names another folder"
    with pytest.raises(OutputError, match=said):
        spool.add(0, PARTS[0])


def test_the_file_is_closed_with_the_object() -> None:
    spool = Spool(PARTS)
    number = spool._file
    os.fstat(number)
    del spool
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
