"""One side of a report alone: the host or the GPU, and what is not read for it."""

from __future__ import annotations

import made_reports
import pytest
from command import assert_refused
from command import bridge as command

import bridge
from bridge import importers
from bridge.importers.nsys import read as nsys


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return made_reports.small(tmp_path_factory.mktemp("sides") / "report.sqlite")


@pytest.mark.parametrize("side", importers.SIDES)
def test_a_side_has_what_the_whole_report_has(path, side):
    whole, part = (
        importers.load(path),
        importers.load(path, details={importers.EVERY, importers.ONLY[side]}),
    )
    lengths = {kind: len(getattr(part, kind)) for kind in ("ranges", "launches", "activities")}
    expected = {kind: len(getattr(whole, kind)) for kind in lengths}
    empty = ("activities",) if side == "host" else ("ranges", "launches")
    assert all(expected.values())
    assert lengths == {k: 0 if k in empty else n for k, n in expected.items()}
    assert part.warnings == ()
    if side == "gpu":
        assert part.activities.to_pandas().equals(whole.activities.to_pandas())
    else:
        assert part.ranges.to_pandas().equals(whole.ranges.to_pandas())


@pytest.mark.parametrize(("side", "table"), [("host", "kernels"), ("gpu", "annotations")])
def test_the_other_side_is_not_read(path, side, table):
    with nsys.open_export(path) as database:
        tables = database.tables()
    both, one = (
        nsys.export_queries(path, tables, details=details)
        for details in ({"json"}, {"json", importers.ONLY[side]})
    )
    assert table in both
    assert table not in one


def test_tables_of_a_side(path, folder):
    whole, host, gpu = (
        command("report", path, "--by", by, *more, "--format", "csv").stdout
        for by, more in (("kernel", ()), ("op", ("--only", "host", "--columns", "cpu")), ("kernel", ("--only", "gpu")))
    )  # fmt: skip
    assert gpu == whole
    expected = bridge.load(path).by("op", columns="cpu")
    assert host.count("\n") == len(expected) + 1
    shown = command("report", path, "--only", "gpu")
    assert "only the GPUs were read" in shown.stdout
    assert command("trace", path, "--only", "host", "-o", "t.json").exit_code == 0
    assert '"kernel"' not in (folder / "t.json").read_text()


def test_a_side_that_is_not_there(tmp_path, folder):
    path = tmp_path / "t.json"
    path.write_text('[{"ph": "X", "name": "a", "ts": 1, "dur": 2}]')
    assert_refused(command("report", path, "--only", "gpu"), "nothing of the gpu in it")
