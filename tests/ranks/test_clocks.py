"""Clocks of several reports: planted offsets are found again, and what cannot be told is not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bridge
from bridge.analyze.run.concurrency import clocks
from bridge.analyze.run.concurrency.clocks import (
    APART,
    COLLECTIVES,
    REFERENCE,
    START,
    UNKNOWN,
    Clocks,
)
from bridge.importers.capture import Facts
from ranks.run import BEGIN_NS, EPOCH, STEP_NS, Rank, meeting, run

SECOND = 1_000_000_000
ZEROS = (0, 3 * SECOND, -2 * SECOND, 7)
WRONG = (0, 250_000, -90_000, 4_000_000)
JITTER = 10_000


def four(folder, *, jitter=JITTER, **more):
    ranks = [
        Rank(n, zero, wrong, pid=100 + n, **more)
        for n, (zero, wrong) in enumerate(zip(ZEROS, WRONG, strict=True))
    ]
    return run(folder, ranks, jitter=jitter)


def found(paths):
    return Clocks.of(bridge.load(*paths).attributed)


@pytest.mark.slow
def test_offsets_are_found_to_the_jitter(folder):
    paths, _ = four(folder)
    clock = found(paths)
    assert clock.known_by == [REFERENCE, COLLECTIVES, COLLECTIVES, COLLECTIVES]
    assert clock.offset.dtype == np.int64
    assert clock.offset[0] == 0
    assert (np.abs(clock.offset - ZEROS) <= JITTER).all()
    assert clock.spread[0] == 0
    assert ((clock.spread[1:] > 0) & (clock.spread[1:] <= 2 * JITTER)).all()


@pytest.mark.slow
def test_without_jitter_they_are_exact(folder):
    paths, _ = four(folder, jitter=0)
    clock = found(paths)
    assert clock.offset.tolist() == list(ZEROS)
    assert clock.spread.tolist() == [0, 0, 0, 0]


@pytest.mark.slow
def test_collectives_alone_tell_where_sessions_do_not(folder):
    paths, _ = four(folder, jitter=0, epoch=False)
    assert found(paths).offset.tolist() == list(ZEROS)


@pytest.mark.slow
def test_the_first_that_knows_when_it_began_is_the_reference(folder):
    ranks = [Rank(n, z, pid=100 + n, epoch=n > 0) for n, z in enumerate(ZEROS)]
    clock = found(run(folder, ranks)[0])
    assert clock.known_by[:2] == [COLLECTIVES, REFERENCE]
    assert clock.offset.tolist() == [z - ZEROS[1] for z in ZEROS]


@pytest.mark.slow
def test_without_collectives_sessions_tell_and_hosts_may_be_wrong(folder):
    ranks = [Rank(n, z, w, pid=100 + n) for n, (z, w) in enumerate(zip(ZEROS, WRONG, strict=True))]
    paths = [run(folder, [one])[0][0].rename(folder / f"{one.number}.sqlite") for one in ranks]
    for n, path in enumerate(paths):  # another number of collectives in each
        run(folder, [ranks[n]], steps=5 + n)[0][0].replace(path)
    clock = found(paths)
    assert clock.known_by == [REFERENCE, START, START, START]
    assert clock.offset.tolist() == [z + w for z, w in zip(ZEROS, WRONG, strict=True)]
    assert clock.spread.tolist() == [0, -1, -1, -1]


@pytest.mark.slow
def test_clocks_that_differ_by_more_than_hosts_do_are_not_moved(folder):
    wrong = 2 * SECOND  # one rank's collectives are others, or its clock is not to be believed
    paths, _ = run(folder, [Rank(0), Rank(1, wrong=wrong, pid=101)])
    clock = found(paths)
    assert (clock.known_by[1], clock.offset[1]) == (START, wrong)


@pytest.mark.slow
def test_on_one_host_clocks_are_one(folder):
    wrong = 20_000_000
    ranks = [Rank(0, host="a"), Rank(1, wrong=wrong, pid=101, host="a")]
    assert found(run(folder, ranks)[0]).known_by[1] == START
    ranks[1] = replace(ranks[1], host="b")
    (folder / "b").mkdir()
    clock = found(run(folder / "b", ranks)[0])
    assert (clock.known_by[1], clock.offset[1]) == (COLLECTIVES, 0)


@pytest.mark.slow
def test_differences_that_are_all_over_tell_nothing(folder):
    paths, _ = run(folder, [Rank(0), Rank(1, 5, pid=101)], jitter=40_000_000)
    assert found(paths).known_by[1] == START


@pytest.mark.slow
def test_two_collectives_are_too_few(folder):
    ranks = [Rank(0), Rank(1, 5, pid=101)]
    assert found(run(folder, ranks, steps=2)[0]).known_by[1] == START
    (folder / "b").mkdir()
    assert found(run(folder / "b", ranks, steps=3)[0]).known_by[1] == COLLECTIVES


@pytest.mark.slow
def test_a_broadcast_tells_nothing(folder, monkeypatch):
    """Its root leaves before the others have come."""
    monkeypatch.setattr("ranks.run.ALL_REDUCE", "ncclDevKernel_Broadcast_RING_LL")
    assert found(run(folder, [Rank(0), Rank(1, 5, pid=101)])[0]).known_by[1] == START


@pytest.mark.slow
def test_hosts_without_a_name_are_not_one(folder):
    paths, _ = run(folder, [Rank(0), Rank(1, wrong=20_000_000, pid=101)])
    clock = found(paths)
    assert (clock.known_by[1], clock.offset[1]) == (COLLECTIVES, 0)


@pytest.mark.slow
def test_clocks_are_told_from_one_to_the_next(folder):
    """The first meets the second, on another stream the second the third; the first and third never."""
    first, _ = run(folder / "a", [Rank(0), Rank(1, 50, pid=101)], steps=6)
    then, _ = run(folder / "b", [Rank(1, 50, pid=101), Rank(2, 900, pid=102)], steps=9)
    both = merged(first[1], then[0], folder / "both.sqlite")
    clock = found([first[0], both, then[1]])
    assert clock.offset.tolist() == [0, 50, 900]
    assert clock.known_by == [REFERENCE, COLLECTIVES, COLLECTIVES]


@pytest.mark.slow
def test_of_several_ranks_in_a_report_the_last_to_leave_counts(folder):
    """The clock of the second report begins 50 ns later; one of its two GPUs leaves early."""
    times = [BEGIN_NS + n * STEP_NS for n in range(5)]
    early, late = ([t - 50 - before for t in times] for before in (300, 0))
    paths = [
        meeting(folder / "a.sqlite", {Rank(0): times}),
        meeting(folder / "b.sqlite", {Rank(1, pid=101): early, Rank(2, pid=102, gpu=1): late}),
    ]
    assert found(paths).offset.tolist() == [0, 50]


def merged(one, other, path):
    """Write what one report has, and the kernels of another on a stream of their own."""
    import shutil
    import sqlite3
    from contextlib import closing

    shutil.copyfile(one, path)
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(path)) as db:
        db.execute("ATTACH ? AS other", (str(other),))
        names = dict(db.execute("SELECT value, id FROM StringIds"))
        theirs = dict(db.execute("SELECT id, value FROM other.StringIds"))
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({kernels})")]
        for row in db.execute(f"SELECT {','.join(columns)} FROM other.{kernels}").fetchall():
            said = dict(zip(columns, row, strict=True))
            for c in ("shortName", "demangledName", "mangledName"):
                said[c] = names[theirs[said[c]]]
            said |= {"streamId": 8, "correlationId": None}
            marks = ",".join("?" * len(said))
            db.execute(
                f"INSERT INTO main.{kernels} ({','.join(said)}) VALUES ({marks})", [*said.values()]
            )
        db.commit()
    return path


def facts(epoch, first=0, last=SECOND):
    return Facts(span=(first, last), epoch_ns=epoch)


def test_captures_of_other_days_are_not_brought_together():
    day = 86_400 * SECOND
    clock = clocks.clocks_by_start(
        [facts(EPOCH), facts(EPOCH + day), facts(EPOCH + 30 * SECOND), facts(-1)]
    )
    assert clock.known_by == [REFERENCE, APART, START, UNKNOWN]
    assert clock.offset.tolist() == [0, 0, 30 * SECOND, 0]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 300)), min_size=1, max_size=7))
def test_a_sitting_goes_on_from_report_to_report(captures):
    """A minute at most is between each and some other of it; ``captures`` are start and length in seconds."""
    spans = [(start, start + length) for start, length in captures]
    sitting, before = {0}, set()
    while sitting != before:
        before = set(sitting)
        sitting |= {
            n
            for n, (first, last) in enumerate(spans)
            if any(first - spans[m][1] <= 60 and spans[m][0] - last <= 60 for m in before)
        }
    clock = clocks.clocks_by_start([facts(EPOCH + s * SECOND, 0, n * SECOND) for s, n in captures])
    apart = [n for n, known in enumerate(clock.known_by) if known == APART]
    assert apart == [n for n in range(len(spans)) if n not in sitting]
    moved = [start - captures[0][0] if n in sitting else 0 for n, (start, _) in enumerate(captures)]
    assert clock.offset.tolist() == [by * SECOND for by in moved]


def test_a_damaged_epoch_does_no_harm():
    clock = clocks.clocks_by_start([facts(EPOCH), facts(2**63 - 1), facts(0)])
    assert clock.offset.tolist() == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_one_report_is_its_own_clock(folder, count):
    ranks = [Rank(n, pid=100 + n, epoch=False) for n in range(count)]
    paths, _ = run(folder, ranks)
    clock = found(paths[:1])
    assert (clock.known_by, clock.offset.tolist(), clock.spread.tolist()) == ([REFERENCE], [0], [0])
    assert not clock.moves


@pytest.mark.slow
def test_collectives_of_another_day_bring_nothing_together(folder):
    """Two captures of one program end their collectives alike, whenever they ran."""
    ranks = [Rank(0, host="a"), Rank(1, wrong=3_600 * SECOND, pid=101, host="a")]
    clock = found(run(folder, ranks)[0])
    assert (clock.known_by[1], clock.offset[1]) == (APART, 0)


@pytest.mark.slow
def test_collectives_tell_clocks_where_nothing_has_a_range(folder):
    times = [BEGIN_NS + n * STEP_NS for n in range(5)]
    one = meeting(folder / "a.sqlite", {Rank(0): times}, without="annotations")
    late = {Rank(1, 50, pid=101): [t - 50 for t in times]}
    other = meeting(folder / "b.sqlite", late, without="annotations")
    assert found([one, other]).offset.tolist() == [0, 50]
