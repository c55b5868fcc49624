"""A run read from the store gives what its report gives: every table, and the trace to the byte."""

from dataclasses import replace

import pytest
import real_parts

from bridge import importers, store
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.draw.timeline import timeline
from bridge.importers.call_chains import CallChains
from bridge.render.chrome import chrome
from bridge.render.document import as_json
from bridge.report import join

# On changes, of raw names only tables that show them: all others are of the same rows under either names.
RAW = VIEWS if real_parts.NIGHT else ("op", "range", "phase")


def told(report, raw=False):
    """Everything that commands print of a report."""
    from bridge.join.options import AttributionOptions

    joined = join(report, AttributionOptions(raw=raw))
    views = RAW if raw else VIEWS
    tables = [as_json(v, report.source, joined.totals, joined.by(v)) for v in views]
    trace = b"" if raw else b"".join(chrome(timeline(joined.attributed), report.source))
    return tables, trace


def assert_told_alike(path, folder):
    # The store keeps no call stacks, nor the places of ops.
    report = replace(importers.load(path), chains=CallChains())
    run = store.save(join(report), folder / "bridge.db", "x")
    back = store.load(folder / "bridge.db", run)
    assert told(back) == told(report)
    assert told(back, raw=True) == told(report, raw=True)


@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_real_reports(path, tmp_path):
    if path.stem in ("failed-export", "no-kernels-osrt"):
        pytest.skip("nothing recorded in this file, by design")
    assert_told_alike(path, tmp_path)


@pytest.mark.slow
def test_the_demonstration(demo, tmp_path):
    assert_told_alike(demo, tmp_path)
