"""A program that tells details of its calls, to be profiled; its child as well, if asked for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from bridge import nvtx_op


@nvtx_op("mm", shapes=True, flops="auto")
def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b


@nvtx_op(args=("n", "axis"), flops=lambda n, axis: 10 * n)
def numbered(n: int, axis: int = 1) -> int:
    return n


def work(first: int) -> None:
    for n in range(1, 4):
        product(np.ones((2, n), np.float32), np.ones((n, 5), np.float32))
        numbered(first + n, axis=True)
    with nvtx_op("block", shapes=(np.ones(7),), args={"layer": "naïve \ud800"}):
        pass


if __name__ == "__main__":
    if sys.argv[1:] == ["twice"]:
        subprocess.run([sys.executable, __file__, "100"], check=True)
    work(int(sys.argv[1]) if sys.argv[1:] == ["100"] else 0)
