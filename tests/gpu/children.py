"""Processes that multiprocessing starts, each with work on the GPU: children.py parent|fork|spawn.

With `parent` the parent uses the GPU, and its forked children do not; otherwise the children use it.
"""

from __future__ import annotations

import multiprocessing
import sys

import bridge

HOW = sys.argv[1] if len(sys.argv) > 1 else "spawn"  # a spawned child has other arguments


def on_gpu() -> None:
    sys.argv = sys.argv[:1]  # the options of the program are its defaults
    import program

    program.options = program._options()
    program.gpu = program.Gpu(program.options.code)
    with bridge.nvtx_op("on gpu"):
        for _ in range(3):
            program.gpu.launch("k_step")
        program.gpu.wait()


def on_cpu() -> None:
    with bridge.nvtx_op("on cpu"):
        pass


if __name__ == "__main__":
    if HOW == "parent":
        on_gpu()
    context = multiprocessing.get_context("spawn" if HOW == "spawn" else "fork")
    children = [context.Process(target=on_cpu if HOW == "parent" else on_gpu) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    sys.exit(any(child.exitcode for child in children))
