"""A program that annotates by hand, to be profiled; what the profile must hold stands beside it."""

from __future__ import annotations

import sys
import threading

from bridge import Domain, backend, counter, mark, nvtx_op, nvtx_range, pop, push, scope

DEEP = 10_000
# One text of each plane of Unicode that has characters, and what C, JSON and SQL find hard.
NAMES = (
    *(
        "plain",
        "naïve Ω ж",
        "日本語 한국어",
        "😀🚀",
        "\U00020000\U0002a6d6",
        "\U0003134a",
        "\U000e0041",
    ),
    *(
        "quote ' \" back \\ slash",
        "tab\tnew\nline",
        "percent %s {}",
        "a/b::c<d>(e)",
        " ",
        "x" * 60_000,
    ),
)
PHASES = (  # name, domain, category, colour, payload
    ("epoch", None, None, None, 7),
    ("epoch", "train", "phase", 0xFF008080, -(1 << 63)),
    ("warm-up", "train", "other phase", None, (1 << 63) - 1),
)
MARKS = (("here", None, 5), ("there", "train", 0), ("far", None, 2.5))


def everything() -> None:
    for name in NAMES:
        with nvtx_op(name):
            pass
    phases = [
        nvtx_range(name, domain=domain, category=category, color=color, payload=payload)
        for name, domain, category, color, payload in PHASES
    ]
    for phase in phases:
        phase.start()
    phases[0].end()
    ending = threading.Thread(target=phases[1].end)
    ending.start()
    ending.join()
    phases[2].end()
    for name, domain, payload in MARKS:
        mark(name, domain=domain, payload=payload)
    queue = counter("queue", domain="train", value=3)
    queue += 4
    queue.set(-1)
    for n in range(DEEP):
        push(f"depth {n % 10}", payload=n)
    for _ in range(DEEP):
        pop()
    with scope("encoder"), Domain("train").event("read"), Domain("io").task("fetch"):
        Domain("io").marker("done").mark()
    nvtx_range("never ended", domain="train").start()


if __name__ == "__main__":
    everything()
    sys.stdout.write(str(backend()))
