"""Every kind of annotation within a session: the profiler and the session itself record the same."""

from __future__ import annotations

import os
import sys

import by_hand
import decorated

import bridge

DEEP = 1_000  # a path is as long as it is deep: those of ten thousand would be half a gigabyte


def in_child() -> None:
    """Annotate in a forked child, which nsys traces only if it is told to."""
    pid = os.fork()
    if not pid:
        with (
            bridge.nvtx_op("in the child", color="teal"),
            bridge.nvtx_op("within", domain="forked"),
        ):
            pass
        sys.exit()
    os.waitpid(pid, 0)


if __name__ == "__main__":
    with bridge.profile(path=sys.argv[1], level=0):
        decorated.run()
        by_hand.DEEP = DEEP
        by_hand.everything()
        in_child()
    sys.stdout.write(str(bridge.backend()))
