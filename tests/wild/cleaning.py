"""What of the output of a program is not its own: the lines of nsys and of bridge, and what no two runs have alike."""

from __future__ import annotations

import re

# Before the program, on stderr, and after it.
HEAD = (
    r"BRIDGE_SIDECAR=\S+ nsys profile .*",
    r"bridge run annotates .*",
)
TAIL = (
    r"the program ended with status \d+",
    r"\S+\.recordings/: details of calls and processes; keep it beside the report",
    r"annotations of modules took about .*",
    r"(warning|note): .*",
)
NSYS_BEGINS = re.compile(r"^Generating '.*\.qdstrm'$", re.MULTILINE)

CHANGING = (  # what differs from run to run, and what stands for it
    (r"0x[0-9a-f]{6,}", "0xADDRESS"),
    (r"\b(pid|PID|process|Process)([ =:]+)\d+", r"\1\2N"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?", "TIME"),
    (r"\b[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ \d+", "LOG TIME N"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"(?m)^(\w+:TIME) \d+:\d+ ", r"\1 N:N "),
    # What PyTorch's profiler says of itself, of several processes mixed.
    (r"(USDT)*:TIME \S+ \w+\.cpp:\d+\] profiler_\w+\n*", ""),
)


def of_the_program(stdout: str) -> str:
    """Return what the program wrote to stdout: all before nsys writes its report."""
    found = NSYS_BEGINS.search(stdout)
    return stdout[: found.start()] if found else stdout


def errors_of_the_program(stderr: str) -> str:
    """Return what the program wrote to stderr: all but the first and last lines of `bridge run`."""
    lines = stderr.splitlines(keepends=True)
    while lines and _is_one(lines[0], HEAD):
        del lines[0]
    while lines and _is_one(lines[-1], TAIL):
        del lines[-1]
    return "".join(lines)


def _is_one(line: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, line.rstrip("\n")) for pattern in patterns)


def alike(text: str, folder: str) -> str:
    """Return a text without what differs from run to run: numbers of processes, times, the folder of the run."""
    text = text.replace(folder, "FOLDER")
    for pattern, stand_in in CHANGING:
        text = re.sub(pattern, stand_in, text)
    return text
