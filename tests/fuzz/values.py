"""Values that hurt: where a text or a number of a report belongs, and what may stand there instead."""

from __future__ import annotations

import random
from typing import Any

MARKUP = "</script><img src=x onerror=\"window.__pwned='m'\">"
TEXTS = (
    '"; DROP TABLE NVTX_EVENTS; --',
    MARKUP,
    "javascript:window.__pwned=1",
    "[a](javascript:alert(1)) ![b](https://example.invalid/x.png) <b>|c|</b>",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    "two\nlines\r\nand\u2028more\u2029",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "nul\0in it",
    "\ufeff\u202egnp.exe",
    "\ud800 lone",
    "\udc80\udcff",
    "",
    " ",
    "%s %n {} ${x} {{y}}",
    "../../../../etc/passwd",
    "aten::mm, seq = 99999999999999999999, op_id = -1, sizes = [[[",
    "step 99999999999999999999",
    "ProfilerStep#18446744073709551616",
    "forward [1, 2, {",
    "a" * 100_000,
    "(" * 5_000,
    "<" * 5_000 + ">" * 5_000,
    "::" * 5_000,
    ", " * 5_000,
    "\u0301" * 1_000,
    "autograd::engine::evaluate_function: " * 50,
    "counter:memory",
    "NaN",
    "1e999",
    "true",
    "[CUDA graph 5]",
    "Memcpy HtoD (Pinned -> Device)",
)
LONG = "long " * 200_000  # 1 MB
INTEGERS = (
    0, 1, -1, 2, 7, 255, -128, 2**24 - 1, 2**24, 2**31 - 1, -(2**31), 2**32 - 1, 2**32, 2**53 + 1, 10**18,
    2**62 - 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1, -(2**62),
)  # fmt: skip
BEYOND = (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30, 10**400)
REALS = (0.5, -0.0, 1e308, 1e-308, -1.5)


def text(chance: random.Random) -> str:
    """Return a hostile text."""
    return LONG if chance.random() < 0.01 else chance.choice(TEXTS)


def octets(chance: random.Random) -> bytes:
    """Return bytes that are no text."""
    return chance.choice((b"", b"\xff\xfe", b"\x00", b"\xc3", chance.randbytes(20)))


def plain(chance: random.Random) -> Any:
    """Return a value as JSON has them, of any type."""
    return chance.choice(
        (
            lambda: text(chance),
            lambda: chance.choice(INTEGERS),
            lambda: chance.choice(BEYOND),
            lambda: chance.choice(REALS),
            lambda: chance.choice((None, True, False)),
            lambda: chance.choice(([], {}, [[]], [None], {"": None}, [{}], {"a": [1]})),
        )
    )()
