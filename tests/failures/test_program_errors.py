"""The line in which a program tells of its error, and what is none: metrics, counts, progress, words of launchers."""

from __future__ import annotations

import time

import pytest

from bridge.importers.program_errors import error_line, loose_error_line

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    run()\n'
ERRORS = """\
Error: Unexpected end of file
error: no input
./a.out: error: bad input
main.cu(12): error: identifier "x" is undefined
file.cu:12: error: no such thing
[2024-01-01 10:00:00,1][__main__][ERROR] - a file is missing
2023-12-15 09:21:04,797 - ERROR - broken pipe
ERROR: LoadError: UndefVarError
FATAL: cannot open the device
Error: 12 files are missing
error(2): a value is bad
CUDA error: an illegal memory access was encountered
CUDA error 700 at solver.cu:12
CUDA Error: invalid device function
Cuda failure main.cu:33: 'out of memory'
GPUassert: invalid argument main.cu 12
cublas error 13 in gemm
failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device was found
check(cudaErrorIllegalAddress) in step 4
CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate
RuntimeError: CUDA error: unspecified launch failure
[rank0]: RuntimeError: sizes do not match
prog: main.c:12: main: Assertion `n == 1' failed.
k.cu:5: f: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.
thread 'main' panicked at 'no device'
Segmentation fault (core dumped)
Aborted (core dumped)
Killed
run.sh: line 3: 1234 Killed                  python train.py
terminate called after throwing an instance of 'std::bad_alloc'
[rank0]:[E1201 10:00:00 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout
[node7:01234] Caught signal 11 (Segmentation fault: address not mapped)""".splitlines()
NONE = """\
0 errors
errors: 0
Number of errors: 0
Errors found: 0
No CUDA errors
CUDA errors: 0
CUDA error checking enabled
error = 1.2e-5
error: 1.2e-5
Error: 0
Error: 5 %
Error: nan
Error: none
error: no
ERROR 0.5
ERROR RATE 0.3
Relative error: 0.01
Test error: 0.3
Test Error: 3.2 %
Test error: 13 / 100
Training error: 12.5
avg error: 3 px
Max error: 0.00012 (at 7)
MeanSquaredError: 0.012
reconstruction error: high
Jacobi relaxation: error 0.16
Killed 3 workers that were idle
UserWarning: CUDA error reporting is off
Warning: error: deprecated
a block was checked out of memory pool 3
ERROR: ld.so: object '/opt/libToolsInjectionProxy64.so' from LD_PRELOAD cannot be preloaded: ignored.
Exception ignored in: <function Pool.__del__ at 0x7f>
wandb: ERROR Failed to sample metric: Not Supported
fatal: not a git repository (or any of the parent directories): .git
PT 8.849
100 %|##########| 50/50 [00:01<00:00, 40.1it/s]""".splitlines()


@pytest.mark.parametrize("line", ERRORS)
def test_a_line_that_tells_of_an_error_is_found(line: str) -> None:
    assert error_line(f"step 1\n{line}\n") == line
    assert error_line(f"{line}\nPT 8.849\n 50 %\r100 %\r") == line  # what stands last tells nothing
    assert error_line(line + "\nstep" * 30) == ""  # the program went on


@pytest.mark.parametrize("line", NONE)
def test_a_line_that_tells_of_none_is_not(line: str) -> None:
    assert error_line(f"step 1\n{line}\ndone\n") == ""


LAUNCHERS = """\
E0101 12:00:00 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-01-01_10:00:00
  host      : node
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 3)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
MPI = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
mpirun noticed that process rank 0 with PID 0 on node x exited on signal 11 (Segmentation fault).
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (f"{TRACE}app.MyProblem: 12\nPT 8.8\n", "app.MyProblem: 12"),
        (f"{TRACE}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{TRACE}KeyError: 'a'\n\nDuring handling of it:\n\n{TRACE}ValueError: b\n", "ValueError: b"),
        (TRACE + "  deep\n" * 60 + "OddError: x\n", "OddError: x"),
        (TRACE + "OddError: handled\n" + "step\n" * 30, ""),
        (f"{TRACE}ValueError: bad\n{LAUNCHERS}", "ValueError: bad"),
        (f"error: bad mesh\n{MPI}", "error: bad mesh"),
        (f"step 1\n{MPI}", MPI.splitlines()[-1]),  # all that is known
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no mesh\nAborted (core dumped)\n",
            "terminate called after throwing an instance of 'std::runtime_error': what():  no mesh",
        ),
        ("error: no plugin\n" + "step\n" * 9 + "Segmentation fault\n", "Segmentation fault"),
        ("\x1b[1;31merror:\x1b[0m no mesh\n", "error: no mesh"),
        ("CUDA error: out of memory\nAborted (core dumped)\n", "CUDA error: out of memory"),
    ],
)  # fmt: skip
def test_what_launchers_and_runtimes_add_is_skipped(output: str, line: str) -> None:
    assert error_line(output) == line


def test_looser_words_of_failure_are_no_metrics_either() -> None:
    gone = "python: can't open file 'train.py': [Errno 2] No such file or directory"
    assert error_line(f"{gone}\n") == ""
    assert loose_error_line(f"loading\n{gone}\nbye\n") == gone
    for line in ("0 errors", "Test error: 0.3", "Relative error 1e-5", "done"):
        assert loose_error_line(f"{line}\n") == ""


@pytest.mark.parametrize(
    "text", ["-" * 5_000, "[x] " * 2_000, "= - " * 2_000, "a/b: " * 2_000, "1:2 " * 2_000]
)
@pytest.mark.racy("costs are measured by the clock")
def test_no_line_takes_long(text: str) -> None:
    begun = time.perf_counter()
    assert error_line(text) == loose_error_line(text) == ""
    assert time.perf_counter() - begun < 1
