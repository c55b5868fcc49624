"""What help lists: the commands by section with their summaries, and the sections of options.

Help and completion read these tables, so that neither loads a command to list it.
"""

from __future__ import annotations

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
    CommandEntry("Analyze", "what-if", "Tell how long a faster program takes"),
    CommandEntry("Analyze", "memory", "Show which ops allocate memory"),
    CommandEntry("Analyze", "why", "Explain which op a kernel belongs to"),
    CommandEntry("Analyze", "hang", "Find the rank that a hung program waits for"),
    CommandEntry("Analyze", "annotate", "List where ranges are missing"),
    CommandEntry("Look", "html", "Write a report as one HTML page"),
    CommandEntry("Look", "trace", "Write a timeline for Perfetto or Chrome"),
    CommandEntry("Look", "view", "Open the timeline in Perfetto's UI"),
    CommandEntry("Look", "flame", "Write stacks for flame graphs"),
    CommandEntry("Look", "graph", "Write the graph of the calls of ops"),
    CommandEntry("Look", "plot", "Draw charts as SVG, PNG or PDF"),
    CommandEntry("Compare", "diff", "Compare two reports, fail at limits"),
    CommandEntry("Compare", "trend", "Show since which run ops are slower"),
    CommandEntry("More", "runs", "List, show and remove stored runs"),
    CommandEntry("More", "cache", "List or clear the exports that are kept"),
    CommandEntry("More", "bench", "Time a function over a range of sizes"),
    CommandEntry("More", "onednn", "Summarize a oneDNN log"),
    CommandEntry("More", "scrub", "Copy a report without private data"),
    CommandEntry("More", "mcp", "Answer agents and editors over MCP"),
    CommandEntry("More", "demo", "Try every step on a made-up report"),
)
COMMANDS = tuple(entry.name for entry in CATALOG)
# Commands that show a report of Nsight Compute, which has no timeline (`show` is that of `runs`).
WITHOUT_TIMELINE = frozenset(
    "report import run summary diff trend show plot flame advise doctor mcp".split()
)

OTHERS = "Options"  # the section of an option that names none
# The titles of options in the help of a command, in order.
SECTIONS = (
    OTHERS,
    *("Program", "Recording", "Steps", "Nsight Compute"),  # of run
    *("Inputs", "Timing", "Store"),  # of bench
    *("Report", "Attribution", "Limits", "Table", "Drawings", "Rows", "Time", "FLOPs", "Workers"),
    "Output",
)
