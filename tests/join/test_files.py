"""Made-up programs by way of files: what is written, read, joined and counted is what is true."""

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings

import bridge.report
from bridge.analyze.core.totals import totals
from join.compare import found_of, said
from join.plain_writer import CALLS, COPIES, FILLS, GRAPHS, KERNELS, NVTX, STRINGS, strings, write
from join.programs import DOMAINS, Program, programs, without_libraries

pytestmark = pytest.mark.slow


TABLES = {"kernel": KERNELS, "memcpy": COPIES, "memset": FILLS, "graph": GRAPHS}
THREAD = 0xFFFFFF


def written(path, program, report):
    """Write the rows of one of a program's reports."""
    named = strings(*dict.fromkeys([*program.texts, *(a.name for a in program.activities)]))
    ids = {row["value"]: row["id"] for row in named}
    tables = {STRINGS: named, NVTX: list(_domains(program, report))}
    for number, (one, text) in enumerate(zip(program.ranges, program.texts, strict=True)):
        if one.report == report:
            name = {"text": text} if number % 2 else {"textId": ids[text]}
            kind = 60 if one.phase else 59
            tables[NVTX].append(
                {"start": one.start, "end": one.end, "eventType": kind, "globalTid": one.thread}
                | {"domainId": one.domain, "int64Value": one.payload, **name}
            )
    for call in program.calls:
        if call.report == report:
            row = {"start": call.start, "end": call.end, "globalTid": call.thread}
            tables.setdefault(CALLS, []).append(row | {"correlationId": call.correlation})
    for a in program.activities:
        if a.report == report:
            row = {
                "start": a.start,
                "end": a.end,
                "globalPid": a.process,
                "correlationId": a.correlation,
            }
            row |= {"bytes": a.bytes, "shortName": ids[a.name], "copyKind": 1, "graphId": 1}
            tables.setdefault(TABLES[a.kind], []).append(row)
    return write(path, tables)


def _domains(program: Program, report: int) -> Iterable[dict[str, object]]:
    for process in dict.fromkeys(one.process for one in program.ranges if one.report == report):
        for domain, name in DOMAINS.items():
            if name:
                declared = {"start": 0, "end": None, "eventType": 75, "text": name}
                yield declared | {"globalTid": process | THREAD, "domainId": domain}


def as_stored(program: Program) -> Program:
    """Put rows in the order of files and tables, with the process that a thread's id tells."""
    pairs = sorted(zip(program.ranges, program.texts, strict=True), key=lambda pair: pair[0].report)
    tables = list(TABLES)
    return without_libraries(
        Program(
            [one for one, _ in pairs],
            sorted(program.calls, key=lambda call: call.report),
            sorted(program.activities, key=lambda a: (a.report, tables.index(a.kind))),
            [text for _, text in pairs],
        )
    )


@given(program=programs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_files_say_what_the_program_did(tmp_path, program):
    program = as_stored(program)
    rows = program.ranges, program.calls, program.activities
    reports = [n for n in (0, 1) if any(one.report == n for of in rows for one in of)]
    if not reports:
        return
    paths = [written(tmp_path / f"{number}.sqlite", program, number) for number in reports]
    joined = bridge.report.load(*paths).attributed
    assert list(found_of(joined)) == said(program.profile())
    assert totals(joined) == program.profile().totals()
    assert joined.capture.texts.decode(joined.capture.ranges.text) == program.texts
