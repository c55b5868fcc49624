"""Find the line in which the output of a program tells of an error that ended it, or of an error near its end.

That is the last line of a Python traceback, an uncaught exception, a failed assertion, a signal, `error: …`, or an
error of CUDA. What launchers and profilers add below it is skipped. A metric that is called error is none:
`error: 1.2e-5`, `Test error: 3 %`, `0 errors`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence

LAST_LINES = 20  # of an output, in which an error is looked for
TAIL = 65_536  # characters of an output, in which lines are looked for
LONGEST = 1_000  # characters of a line that are looked at
WORDS = re.compile(r"\w")
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # and other commands of terminals

# -- Lines that tell of an error

# A metric may be called like an exception (MeanSquaredError: 0.012): without a traceback before it, only these count.
KNOWN_EXCEPTIONS = (
    *(n for n in dir(builtins) if n.endswith(("Error", "Exception"))),
    *"OutOfMemoryError AcceleratorError DistBackendError DistNetworkError ChildFailedError".split(),
    *"CalledProcessError JSONDecodeError CUDARuntimeError XlaRuntimeError ResourceExhaustedError".split(),
)
RANK = r"^(?:\[rank\d+\]: ?)?"  # which PyTorch puts before each line of an error
VALUE = (  # what follows the name of a metric, or says that there is no error
    r"(?:[-+]?(?:\d*\.\d+|\d+\.|\d+e)|[-+]?\d+(?!\d)\s*(?:%|[^\w\s]|$|\w{1,2}\b)|[-+]?(?:inf|nan)\b"
    r"|(?:none|null|false|ok|success)\b|no(?: errors?)?\s*$)"
)
# What may stand before the word: [brackets], a time, a file with a line, a program.
BEFORE = (
    r"(?:\[[^\]]*+\]:?\s*+|\d[\d:,.T/+Z-]*+\s++(?:[-|]\s++)?"
    r"|[\w./\\+-]++(?:\(\d+(?:,\s*\d+)?\))?(?::\d+)*+:\s++|[-*>!#=]++\s*+)*"
)
LEVELS = "ERROR|FATAL|CRITICAL"  # of logs
SIGNAL = re.compile(
    r"\bSegmentation fault\b|\bcore dumped\b|\bBus error\b|\b[Cc]aught signal \d+"
    r"|^\s*(?:\S+: )?(?:line \d+:\s+)?(?:\d+\s+)?"
    r"(?:Killed|Aborted|Terminated|Illegal instruction|Floating point exception)(?:$|\s*\(|\s{2,})"
)
ERROR = re.compile(
    "|".join(
        (
            rf"{RANK}(?:\w+\.)*(?:{'|'.join(KNOWN_EXCEPTIONS)}): (?!\s*(?i:{VALUE}))\s*\S",
            rf"^\s*{BEFORE}(?i:fatal )?(?i:error)(?:\s*[(\[]?\w*\d\w*[)\]]?)?\s*[:!]\s*(?!(?i:{VALUE}))\S",
            rf"^\s*{BEFORE}(?:[\w.]+\s+[-|]\s+)?\[?(?:{LEVELS})\]?(?:\s*[-|:]\s*|\s+)(?!(?i:{VALUE}|rates?\b))\S",
            rf"\[(?:{LEVELS}|error|fatal)\]\s*[-:]?\s*\S",
            r"\bFatal Python error\b|\bterminate called\b|\bstd::bad_alloc\b|\bpanicked at\b|^panic: ",
            r"\bWatchdog caught\b|^Exception in thread |\b[Aa]ssertion\b.*\bfailed\b",
            r"\b(?:CUDA|HIP)(?: error:)? out of memory\b|^\s*(?:[\w.]+: )?(?i:out of memory)\s*(?:[:.!,;(]|$)",
            r"\b(?i:cuda|hip|cublas|cudnn|nccl)(?i:[ _](?:runtime|driver|kernel))*[ _](?i:error|failure)\b(?!\s+check)",
            r"\bcudaError(?!_t\b|NotReady\b)[A-Z]\w+|\bCUDA_ERROR_\w+|\bGPUassert\b",
            r"\b(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|CUFFT)_STATUS_(?!SUCCESS)\w+",
        )
    )
)
NEAR = 3  # lines before a signal, in which an error explains it
NO_ERROR = re.compile(
    r"\b(?:0|no|zero|without)\s+(?:\w+\s+)?(?:errors?|failures?)\b|\b(?:errors?|failed|failures?)\s*[:=]\s*0+\b(?!\.)"
    r"|\bwarn(?:ing)?\b|Warning\b|\bignor(?:ed|ing)\b|^\s*wandb:",
    re.IGNORECASE,
)
# Where next to nothing ran on a device, looser words may tell why.
FAILURE = re.compile(
    r"\b(?:error|exception|fail(?:ed|ure)?|fatal|abort(?:ed)?|segmentation fault|not found|cannot|can't|could not"
    r"|couldn't|no such|unable|denied|killed|out of memory|invalid|unsupported|not supported|terminated|usage:)"
    r"|Error\b|Exception\b",
    re.IGNORECASE,
)
METRIC = re.compile(rf"\berrors?(?:\s+\w+)?\s*[:=]?\s*{VALUE}", re.IGNORECASE)

# -- Tracebacks, and what stands below them

TRACEBACK = "Traceback (most recent call last)"
RAISED = re.compile(rf"{RANK}(?:\w+\.)*[A-Za-z_]\w*(?:: .*)?$")  # the line below a traceback
TERMINATE, WHAT = re.compile(r"\bterminate called\b"), re.compile(r"^\s*what\(\):")
# Exceptions of launchers, which only say that a process of theirs failed.
OF_LAUNCHERS = re.compile(
    r"\b(?:ChildFailedError|CalledProcessError|ProcessExitedException|SystemExit)\b"
)
NOTICES = re.compile(
    r"\b(?:mpirun|mpiexec|prterun|orterun|torchrun)\b|\bMPI_ABORT\b|^\s*(?:srun|slurmstepd):|^Primary job\s|exit code"
    r"|torch[./]distributed[./](?:elastic|launcher|run)|\bdestroy_process_group\b|<NO_OTHER_FAILURES>"
    r"|^\s*(?:time|host|rank|exitcode|error_file|traceback)\s+:|^(?:Failures|Root Cause)\b|\bFAILED$"
    r"|^Generating '|\breport\d*\.(?:nsys-rep|sqlite)\b|\.qdstrm\b|^Processing events|^Collecting data"
)


def error_line(output: str) -> str:
    """Return the line of an output that tells of an error; "" if none near its end does."""
    lines = _last_lines(output)
    own, notices = _without_launchers(lines)
    return _last_error(own) or _last_error(notices)


def loose_error_line(output: str) -> str:
    """Return the last line with any word of failure; "" if there is none."""
    lines = _without_launchers(_last_lines(output))[0][-LAST_LINES:]
    said = (line for line in reversed(lines) if FAILURE.search(line))
    return next((line for line in said if not (NO_ERROR.search(line) or METRIC.search(line))), "")


def _last_lines(output: str) -> list[str]:
    """Return the lines with words of the end of an output."""
    plain = COLOUR.sub("", output[-TAIL:])
    return [line[:LONGEST] for line in plain.splitlines() if WORDS.search(line)]


def _without_launchers(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines of the program itself, and those that launchers and profilers add."""
    own: list[str] = []
    notices: list[str] = []
    begin = 0
    for start, end in [*_tracebacks(lines), (len(lines), len(lines))]:
        for line in lines[begin:start]:
            (notices if NOTICES.search(line) else own).append(line)
        block = lines[start : end + 1]
        is_launchers = bool(block) and OF_LAUNCHERS.search(block[-1])
        (notices if is_launchers else own).extend(block)
        begin = end + 1
    return own, notices


def _tracebacks(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first line and the line of the exception of each traceback."""
    result = []
    for start, line in enumerate(lines):
        if TRACEBACK in line:
            below = range(start + 1, len(lines))
            end = next((i for i in below if RAISED.search(lines[i]) or TRACEBACK in lines[i]), None)
            if end is not None and TRACEBACK not in lines[end]:
                result.append((start, end))
    return result


def _last_error(lines: Sequence[str]) -> str:
    """Return the last of the last lines that tells of an error; of a signal, what explains it right before."""
    raised = {end for _, end in _tracebacks(lines)}
    last = range(max(0, len(lines) - LAST_LINES), len(lines))
    errors = [at for at in last if at in raised or is_error(lines[at]) or WHAT.search(lines[at])]
    signals = [at for at in last if SIGNAL.search(lines[at])]
    if signals and (not errors or errors[-1] < signals[-1] - NEAR):
        return lines[signals[-1]]
    return _whole(lines, errors[-1]) if errors else ""


def _whole(lines: Sequence[str], at: int) -> str:
    """Return a line; what an exception of C++ says, with its type."""
    line, before = lines[at], lines[at - 1] if at else ""
    is_said = WHAT.search(line) and TERMINATE.search(before)
    return f"{before.strip()}: {line.strip()}" if is_said else line


def is_error(line: str) -> bool:
    """Return whether a line by itself tells of an error, other than a signal."""
    return ERROR.search(line) is not None and not NO_ERROR.search(line)
