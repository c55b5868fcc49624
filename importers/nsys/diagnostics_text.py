"""What the profiler and the program said: their own words tell why a report holds nothing, or little.

Of the output of a program at most one line per process and stream is kept, and only a line that tells of an error
(`importers/program_errors.py`) or of what makes a GPU slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bridge.importers import frames, profiler_words, program_errors
from bridge.importers.arrays import MISSING
from bridge.importers.nsys import schema
from bridge.importers.nsys.annotations import Strings
from bridge.importers.program_rates import rate_text
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Columns, ints_of, texts_of
from bridge.importers.texts import Texts

LONGEST = 160  # characters of a quoted line
# What frameworks print about the speed of a GPU, or that they use none.
HINTS = (
    "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled",
    "This DataLoader will create",
    "torch._dynamo hit config",
    "skipping cudagraphs due to",
    "Not enough SMs to use max_autotune_gemm",
    "Grad strides do not match bucket view strides",
    "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters",
    "Torch was not compiled with flash attention",
    "is not compatible with the current PyTorch installation",
    "CUDA initialization:",
    "CUDA is not available",
    "a CUDA-enabled jaxlib is not installed",
    "Could not find cuda drivers on your machine",
    "Skipping registering GPU devices",
    "no CUDA-capable device is detected",
    "CUDA driver version is insufficient for CUDA runtime version",
)
INFO, WARNING, ERROR = (frames.SEVERITIES.index(name) for name in ("info", "warning", "error"))


# -- The program


@record
class Quote:
    """A line that a program printed, or a rate in one: ``source`` is `frames.PROGRAM` or `frames.RATE`."""

    process: int
    severity: int
    text: str
    source: int = frames.PROGRAM


def quotes(streams: Columns, strings: Strings, *, idle: bool) -> list[Quote]:
    """Return the quoted lines of each process; ``idle`` is whether next to nothing ran on a device."""
    return [
        Quote(process, severity, shortened(line))
        for process, outputs in _outputs(streams, strings).items()
        for severity, line in _quoted(outputs, idle=idle)
    ]


def rates(streams: Columns, strings: Strings) -> list[Quote]:
    """Return the last rate that each process printed, such as ``59.19 samples/second``."""
    outputs = _outputs(streams, strings).items()
    found = ((process, next(filter(None, map(rate_text, texts)), "")) for process, texts in outputs)
    return [Quote(process, INFO, shortened(text), frames.RATE) for process, text in found if text]


def as_diagnostics(lines: Sequence[Quote]) -> frames.Diagnostics:
    """Return the lines as rows of the frame `diagnostics`."""
    process, severity = ([getattr(q, name) for q in lines] for name in ("process", "severity"))
    return frames.Diagnostics(
        time=np.full(len(lines), MISSING),
        process=np.array(process, np.int64),
        source=np.array([line.source for line in lines], np.int64),
        severity=np.array(severity, np.int64),
        name=frames.Names.of([line.text for line in lines]),
    )


def shortened(line: str) -> str:
    """Return a line without control characters and double blanks, cut at `LONGEST` characters."""
    text = " ".join("".join(c if c.isprintable() else " " for c in line).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def _outputs(streams: Columns, strings: Strings) -> dict[int, list[str]]:
    """Return the ends of the outputs of each process, standard error first."""
    process, file, content = (ints_of(streams, name) for name in ("process", "file", "content"))
    names, texts = (strings.texts(ids) for ids in (file, content))
    result: dict[int, list[str]] = {}
    order = sorted(range(len(names)), key=lambda row: "stderr" not in names[row])
    for row in order:
        result.setdefault(int(process[row]), []).append(texts[row])
    return result


def _quoted(outputs: Sequence[str], *, idle: bool) -> Iterator[tuple[int, str]]:
    """Yield the severity and the text of the lines to be quoted of one process."""
    for text in outputs:
        found = next((line for hint in HINTS if (line := _line_with(text, hint))), "")
        if found:
            yield WARNING, found
    if error := next(filter(None, map(program_errors.error_line, outputs)), ""):
        yield ERROR, error
    elif idle and (said := next(filter(None, map(program_errors.loose_error_line, outputs)), "")):
        yield INFO, said


def _line_with(text: str, fragment: str) -> str:
    """Return the line with a fragment, from the fragment on if the line is long; "" if there is none."""
    place = text.find(fragment)
    if place < 0:
        return ""
    first = text.rfind("\n", 0, place) + 1
    line = text[first:].split("\n", 1)[0]
    return line if len(line) <= LONGEST else line[place - first :]


# -- The profiler


CUDA_WAS_ON = re.compile(r"\bCUDA (?:events collected|profiling|trace)|\bCUPTI\b")
NVTX_WAS_ON = re.compile(r"\bNVTX (?:events|early profiling)")
OFF = frozenset(["false", "0", "no", "off"])


@record
class TracingStatus:
    """Whether an export says that CUDA and NVTX were recorded, and what it says where nothing came.

    ``problem`` is a message of the profiler on CUDA, ``output`` a line that the program printed; "" for none.
    """

    cuda: bool
    nvtx: bool
    problem: str = ""
    output: str = ""

    @classmethod
    def of(cls, read: Mapping[str, Columns]) -> TracingStatus:
        """Return what the settings, the messages and the strings of an export say."""
        strings = strings_of(read)
        messages = _messages(read["diagnostics"], strings)
        on = _settings_on(read["capture"])
        overhead = _overhead_names(read, strings)
        printed = quotes(read["streams"], strings, idle=True)
        printed.sort(key=lambda quote: -quote.severity)
        ranks = {text: profiler_words.rank(text) for text in messages}
        problems = sorted((r, text) for text, r in ranks.items() if r is not None)
        said = [*messages, *overhead]
        return cls(
            schema.CUDA_TRACE in on or any(map(CUDA_WAS_ON.search, said)),
            schema.NVTX_TRACE in on or any(map(NVTX_WAS_ON.search, said)),
            shortened(problems[0][1]) if problems else "",
            printed[0].text if printed else "",
        )


def strings_of(read: Mapping[str, Columns]) -> Strings:
    """Return the table of strings of an export; empty where it was not read."""
    columns = read.get("strings", {})
    if "value" not in columns:
        return Strings(np.empty(0, np.int64), Texts.of([]))
    return Strings(ints_of(columns, "id"), texts_of(columns, "value"))


def _messages(columns: Columns, strings: Strings) -> list[str]:
    """Return the distinct messages of the profiler."""
    inline = texts_of(columns, "text").decode()
    registered = strings.texts(ints_of(columns, "text_id"))
    texts = (text or named for text, named in zip(inline, registered, strict=True))
    return [*dict.fromkeys(text for text in texts if text)]


def _settings_on(columns: Columns) -> set[str]:
    """Return the names of the settings that are not off, without the number of the process."""
    pairs = zip(*(texts_of(columns, name).decode() for name in ("name", "value")), strict=True)
    return {name.rpartition(":")[2] for name, value in pairs if value.strip().lower() not in OFF}


def lacks_events(read: Mapping[str, Columns]) -> bool:
    """Return whether an export has no ranges or no work on a device: then `TracingStatus` is needed."""
    types = ints_of(read["annotations"], "type")
    has_ranges = np.isin(types, schema.PUSH_POP + schema.START_END).any()
    return not (has_ranges and any(_rows(read[name]) for name in schema.DEVICE_TABLES))


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))


def _overhead_names(read: Mapping[str, Columns], strings: Strings) -> list[str]:
    """Return the names of the profiler's own work, if they were read."""
    columns = read.get("overhead_names", read["overhead"])
    return strings.texts(np.unique(ints_of(columns, "name")))


def nothing_recorded(name: str, read: Mapping[str, Columns]) -> str:
    """Return the message for an export without ranges, CUDA calls and activities."""
    nothing = f"{name}: no ranges, no CUDA calls and no kernels"
    if is_unfinished(read):
        return (
            f"{nothing}; the export failed or is incomplete: export it again"
            " with nsys export of a version that is not older than the recorder"
        )
    status = TracingStatus.of(read)
    if status.output:
        return f'{nothing}; the program printed: "{status.output}"'
    if status.problem:
        return f'{nothing}; the profiler says: "{status.problem}"'
    why = (
        "CUDA was recorded, but the program called no CUDA function"
        if status.cuda
        else "was it recorded with --trace=cuda,nvtx?"
    )
    return f"{nothing}; {why}; bridge run --auto train.py records ranges of a program that has none"


def is_unfinished(read: Mapping[str, Columns]) -> bool:
    """Return whether an export lacks all that every finished one has, besides the events."""
    tables = ("processes", "epoch", "session", "system", "gpus")
    return not any(len(next(iter(read[name].values()), ())) for name in tables)


def missing(read: Mapping[str, Columns], rows: Sequence[int], *, no_gpu: bool) -> list[str]:
    """Return a warning for each kind of rows that an export lacks; ``rows`` counts ranges, calls, activities."""
    ranges, calls, work = rows
    status = (
        TracingStatus.of(read) if not (ranges and work) else TracingStatus(cuda=True, nvtx=True)
    )
    lines = [] if ranges else [f"no NVTX ranges, so no work belongs to an op; {_no_ranges(status)}"]
    if no_gpu and not work:  # then neither calls nor kernels can be there
        return [*lines, schema.NO_GPU]
    if work and not calls:
        lines.append("no CUDA API calls: kernels cannot be attributed to ops")
    if not work:
        lines.append(f"no kernels, memcpys or memsets; {_no_work(status, calls)}")
    return lines


def _no_ranges(status: TracingStatus) -> str:
    if status.nvtx:
        return "NVTX was recorded, the program has no ranges: @nvtx_op adds them, bridge run --auto those of Python"
    return "was it recorded with --trace=nvtx?"


def _no_work(status: TracingStatus, calls: int) -> str:
    if status.output and calls:
        return f'the program printed: "{status.output}"'
    if status.problem:
        return f'the profiler says: "{status.problem}"'
    if calls:
        were = "1 CUDA call was" if calls == 1 else f"{calls} CUDA calls were"
        return f"{were} recorded, but no work on a GPU"
    if status.cuda:
        return "CUDA was recorded, but the program called no CUDA function"
    return "was it recorded with --trace=cuda?"
