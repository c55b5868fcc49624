"""``bridge mcp``: answers questions of agents and editors about reports, over the Model Context Protocol."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import options
from bridge.cli.help import Command, report_option
from bridge.cli.terminal import harmless

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from bridge.cli.mcp_tools import Tools

LOG = logging.getLogger("bridge.cli")

NEEDED = "bridge mcp needs the MCP SDK: pip install 'nsight-bridge[mcp]'"
TOOLS = (
    "summary advise what_if table why timeline diff open_report list_tables list_runs".split()
)  # in the order that clients list them
LISTS = ("--by", "--columns", "--filter", "--sort")  # options that list names


@click.command(
    cls=Command,
    examples=(
        "bridge mcp",
        "bridge mcp --folder .",
        "claude mcp add nsight-bridge -- bridge mcp",
    ),
)
@report_option(
    "--folder",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read only reports in this folder. May be repeated. [default: all that the user may read]",
)
@report_option(
    "--keep",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Reports that stay in memory between questions.",
)
@options.store_option
def mcp(db: Path, folders: tuple[Path, ...], keep: int) -> None:
    """Answer questions about reports as an MCP server on standard input and output.

    Agents and editors start it: docs/mcp.md has their configurations. It reads reports and the
    store, writes nothing, and opens no connection.
    """
    if not _is_installed():
        raise click.ClickException(NEEDED)
    from bridge.cli.mcp_reports import KeptReports
    from bridge.cli.mcp_tools import Tools

    server(Tools(KeptReports(db, folders, keep))).run("stdio")


def _is_installed() -> bool:
    """Return whether the SDK is there, in a version with the server that is used here."""
    return find_spec("mcp") is not None and find_spec("mcp.server.mcpserver") is not None


def server(tools: Tools) -> MCPServer[Any]:
    """Return an MCP server with the tools."""
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    from bridge.cli.mcp_tools import INSTRUCTIONS
    from bridge.knowledge.package import VERSION

    result: MCPServer[Any] = MCPServer(
        "nsight-bridge", instructions=INSTRUCTIONS, version=VERSION, log_level="ERROR"
    )
    annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    one_at_a_time = threading.Lock()
    for name in TOOLS:
        result.add_tool(
            _answering(getattr(tools, name), one_at_a_time),
            annotations=annotations,
            structured_output=False,
        )
    return result


def _answering(tool: Callable[..., str], lock: threading.Lock) -> Callable[..., str]:
    """Return a tool that runs in the context of the command, and whose errors are one line for the user."""
    from mcp.server.mcpserver.exceptions import ToolError

    from bridge.importers.errors import ReportError
    from bridge.knowledge.package import UserError

    context = click.get_current_context(silent=True)

    @functools.wraps(tool)
    def answer(*args: Any, **values: Any) -> str:
        # The SDK calls tools on threads; the context of click belongs to one.
        with lock, context.scope(cleanup=False) if context else nullcontext():
            try:
                return tool(*args, **values)
            except click.ClickException as error:
                raise ToolError(_message(error.format_message())) from error
            except (ReportError, UserError, ValueError, OSError) as error:
                LOG.debug("%s is refused", tool.__name__, exc_info=True)
                raise ToolError(_message(str(error))) from error

    return answer


def _message(text: str) -> str:
    """Return a message of a command on one line, with the names of tools for those of options."""
    for name in LISTS:
        text = text.replace(f"{name} list", "list_tables")
    return " ".join(harmless(text).split())
