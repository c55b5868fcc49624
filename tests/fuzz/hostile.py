"""A report in which every name attacks: ops, kernels, modules, threads, processes, devices, domains, calls' details."""

from __future__ import annotations

import json
from pathlib import Path

from made_reports import MARK, PUSH_POP, START_END, Made, thread

RUN = "window.__pwned=1"
NAMES = (
    f"</script><script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f"\"'><svg/onload='{RUN}'>",
    f"]]><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"</title><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"javascript:{RUN}",
    f"[click](javascript:{RUN}) ![x](https://example.invalid/x.png)",
    "https://example.invalid/ <https://example.invalid/a> www.example.invalid @everyone",
    "a | b || c \\| d `e` **f** ~~g~~ &lt;h&gt;",
    "=cmd|' /C calc'!A0",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1+1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1\n\nnew line",
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;https://example.invalid\x07red\x1b[31m",
    "\x9b31m c1 \u2028 \u202e ltr",
    '"; DROP TABLE NVTX_EVENTS; --',
    'a;b "c" 5',
    "{{7*7}} ${7*7} %s %n",
)
PID = 100
TABLES = "op op-kernel kernel memcpy range phase wait launch gap step device op,thread op,process kernel,stream".split()


def hostile(path: Path, *, longer: int = 0) -> Path:
    """Write it; ``longer`` are ns that each kernel takes more."""
    made, host = Made(), {"thread": thread(PID)}
    every = NAMES[0] + NAMES[1] + NAMES[18]
    made.annotation(75, 1, None, text=every, domain=3, **host)
    made.annotation(33, 1, None, text=every, category=4, **host)
    made.tables["processes"].append({"process": PID << 24, "name": every})
    made.tables["threads"].append(
        {"thread": thread(PID), "name": made.string(every), "priority": 1}
    )
    made.tables["devices"].append({"gpu": 0, "device": 0, "pid": PID})
    made.tables["gpus"].append({"gpu": 0, "device": 0, "name": every})
    for number, name in enumerate(NAMES):
        at = 10_000 * (number + 1)
        told = json.dumps({"flops": 1000, "bytes": 100, name: name})
        made.annotation(PUSH_POP, at, at + 9_000, text=f"step {number}", **host)
        made.annotation(START_END, at, at + 9_000, text=name, **host)
        made.annotation(PUSH_POP, at + 10, at + 8_000, text=name, json=told, category=4, **host)
        made.annotation(PUSH_POP, at + 20, at + 7_000, text=f"{name}:{name}", domain=3, **host)
        made.annotation(MARK, at, None, text=f"counter:memory {name}", payload=number, **host)
        made.kernel(name, at + 100, PID, at + 200, at + 4_000 - 100 * number + longer)
        made.memory(
            at + 300, PID, bytes=4_096 * (number + 1), operation=0, address=(number + 1) << 20
        )
        made.waits(at + 400, PID, kind=number % 5)
    return made.written(path)
