"""Made reports for the page: names that attack it, counters of memory, calls that tell their FLOPs."""

from __future__ import annotations

from pathlib import Path

from command import done
from made_reports import MARK, PUSH_POP, Made, thread

from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT

MARKUP = "</script><img src=x onerror=alert(1)>"
HOSTILE = (
    MARKUP,
    "<!--<script>alert(2)//",
    "\"'><svg onload=alert(3)>",
    "two\u2028lines\u2029here",
    '=HYPERLINK("http://example.invalid")',
    "+1+1",
    "@SUM(A1)",
    "\tcmd",
    "{{script}}",
    "${alert(4)}",
    "&lt;b&gt;",
    "naïve 名前 🚀",
)
PID = 100


def make(output: Path, *reports: Path | str) -> Path:
    """Run `bridge html`."""
    done("html", *reports, "-o", output)
    return output


def hostile(path: Path) -> Path:
    """Write a report whose kernels, ops and counters have such names; ops and kernels bear the same ones."""
    made = Made()
    made.names_of(PID)
    for number, name in enumerate(HOSTILE):
        t = 10_000 * (number + 1)
        made.annotation(PUSH_POP, t, t + 5_000, text=f"op {name}", thread=thread(PID))
        made.annotation(PUSH_POP, t + 10, t + 4_000, text=name, thread=thread(PID))
        made.kernel(name, t + 100, PID, t + 200, t + 4_000 - 100 * number)
        made.annotation(PUSH_POP, t + 5_500, t + 5_600, text=name, thread=thread(PID), json=TOLD)
        made.annotation(
            MARK, t, None, text=f"counter:memory {name}", thread=thread(PID), payload=number
        )
    return made.written(path)


TOLD = '{"flops": 1000, "bytes": 100}'


def memory(path: Path, samples: list[tuple[int, int]]) -> Path:
    """Write a report with samples (time, bytes) of two counters of memory and of one of something else."""
    made = Made()
    made.names_of(PID)
    made.kernel("k", 10, PID, 20, 1_000)
    for at, (when, value) in enumerate(samples):
        name = ("cuda:0 allocated", "host resident")[at % 2]
        where = {"thread": thread(PID), "domain": 3}
        made.annotation(MARK, when, None, text=f"counter:{name}", payload=value, **where)
        made.annotation(MARK, when, None, text="counter:queue", payload=1, thread=thread(PID))
    return made.written(path)


def calls(path: Path) -> Path:
    """Write calls of mm: one told in two slices, one without FLOPs, one whose work never ran, one of 2 kernels."""
    made = Made()
    made.names_of(PID)
    told = '{"flops": 6000, "bytes": 300}'

    def call(start: int, ident: int, json: str | None, *kernels: tuple[int, int]) -> None:
        payload = CALL_ID << CALL_ID_SHIFT | ident
        more = {"json": json} if json else {}
        made.annotation(
            PUSH_POP, start, start + 100, text="mm", payload=payload, thread=thread(PID), **more
        )
        for at, (begin, end) in enumerate(kernels):
            made.kernel("gemm", start + 1 + at, PID, begin, end)

    call(1_000, 1, told, (1_200, 1_300))
    call(2_000, 1, told, (2_200, 2_250))  # its second slice: the same call
    call(3_000, 2, None, (3_200, 3_900))
    call(4_000, 3, told)
    call(5_000, 4, '{"flops": 1000, "bytes": 50}', (5_200, 5_300), (5_300, 5_400))
    return made.written(path)
