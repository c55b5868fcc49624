"""What help lists where: commands by section with their summaries, options by section, and rarely used options.

Help and completion read these tables, so that neither loads a command to list it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command: its section in ``bridge --help``, its name, and what it does in a few words."""

    section: str
    name: str
    summary: str


CATALOG = (
    CommandEntry("Capture", "run", "Profile a program and import the report"),
    CommandEntry("Capture", "import", "Store a report and summarize it"),
    CommandEntry("Capture", "doctor", "Check this machine, or a report"),
    CommandEntry("Analyze", "summary", "Show GPU use, idle causes and top ops"),
    CommandEntry("Analyze", "report", "Print tables by op, kernel, step …"),
    CommandEntry("Analyze", "advise", "Find bottlenecks"),
    CommandEntry("Analyze", "memory", "Show which ops allocate memory"),
    CommandEntry("Analyze", "why", "Explain which op a kernel belongs to"),
    CommandEntry("Look", "html", "Write a report as one HTML page"),
    CommandEntry("Look", "trace", "Write a timeline for Perfetto or Chrome"),
    CommandEntry("Look", "view", "Open the timeline in Perfetto's UI"),
    CommandEntry("Look", "flame", "Write stacks for flame graphs"),
    CommandEntry("Look", "graph", "Write the graph of the calls of ops"),
    CommandEntry("Look", "plot", "Draw charts as SVG, PNG or PDF"),
    CommandEntry("Compare", "diff", "Compare two reports, fail at limits"),
    CommandEntry("More", "runs", "List, show and remove stored runs"),
    CommandEntry("More", "bench", "Time a function over a range of sizes"),
    CommandEntry("More", "onednn", "Summarize a oneDNN log"),
    CommandEntry("More", "scrub", "Copy a report without private data"),
    CommandEntry("More", "mcp", "Answer agents and editors over MCP"),
    CommandEntry("More", "demo", "Try every step on a made-up report"),
)
COMMANDS = tuple(entry.name for entry in CATALOG)
# Commands that show a report of Nsight Compute, which has no timeline (`show` is that of `runs`).
WITHOUT_TIMELINE = frozenset(
    "report import run summary diff show plot flame advise doctor mcp".split()
)

OTHERS = "Options"  # the section of options that no table lists
Sections = Mapping[str, str]  # the options of each section, in order


# An option that several commands have stands in the same section in all of them.
SHARED: Sections = {
    "Report": "--run --db --ncu --sidecar --rank-from --only --timeout",
    "Attribution": "--graphs --domain --exclude-domain --adopt --backward-under --op-rules --kernel-rules"
    " --names --steps",
    "Limits": "--fail-over --budget --noise",
    "Table": "--by --columns --direction --kernel-names --inclusive --arguments --memory-kinds --idle-over"
    " --metrics --running",
    "Rows": "--sort --top --filter --fold",
    "Time": "--from --to --step --range",
    "FLOPs": "--flops --dtype --peak-tflops --peak-gbs --gpus",
    "Workers": "--workers --memory-limit --strict",
    "Output": "--format --output --force --unit",
}
OF_COMMAND: Mapping[str, Sections] = {
    "run": {
        "Program": "-m --auto --print",
        "Recording": "--tool --preset --graphs --memory --backtrace",
        "Steps": "--schedule --capture --kill",
        "Nsight Compute": "--op --set --metrics --replay --no-clock-control",
        "Output": "--output --force --no-import --db",
    },
    "bench": {
        "Inputs": "--shape --sweep --set --inputs --dtype --with --device",
        "Timing": "--runs --warmup --repeat --number --backward --graph --group --cold",
        "Store": "--save --name --db",
        "Output": "--format --output --force",
    },
    "mcp": {"Report": "--folder --keep --db"},
    "memory": {
        "Table": "--by --later",
        "Drawings": "--flow --timeline --color",
    },
}

# Options that few people need: --help-all alone shows them, --help says how many there are. A name with
# a command before it is rare in that command only.
RARE = frozenset(
    [
        *"--only --timeout --sidecar --rank-from --graphs --domain --exclude-domain --adopt".split(),
        *"--backward-under --op-rules".split(),
        *"--kernel-rules --names --inclusive --arguments --memory-kinds --idle-over --running".split(),
        *"--flops --dtype --peak-tflops --peak-gbs --gpus --workers --memory-limit --strict".split(),
        *("report --metrics", "import --verify", "import --keep", "plot --width", "plot --height"),
        *("run --replay", "run --no-clock-control", "run --kill", "run --capture"),
        *("bench --repeat", "bench --number", "bench --group", "bench --cold"),
    ]
)
COMMON = frozenset(["run --graphs", "bench --dtype"])  # though of a rare name


def is_rare(command: str, option: str) -> bool:
    """Return whether an option is shown by ``--help-all`` alone."""
    name = f"{command} {option}"
    return name in RARE or (option in RARE and name not in COMMON)


def sections(command: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the sections of a command in order, and the options that belong there."""
    own = {title: names.split() for title, names in OF_COMMAND.get(command, {}).items()}
    yield from own.items()
    elsewhere = {name for names in own.values() for name in names}
    for title, names in SHARED.items():
        if title not in own:
            yield title, [name for name in names.split() if name not in elsewhere]
