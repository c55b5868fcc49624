"""`bridge mcp` as clients see it: asked by the SDK's own client, in this process and as a program."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import made_reports
import pytest
from command import assert_refused, bridge, done
from real_parts import ROOT, corpus_reports

from bridge.cli import mcp as command
from mcp_server.answers import LIMIT, asked, objects, rounded

mcp = pytest.importorskip("mcp", reason="the MCP SDK is not installed")
pytestmark = pytest.mark.slow  # loading the SDK takes over a second
BLOCK = re.compile(r"^<!-- (asked|answered) -->\n```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BRIDGE = str(Path(sys.executable).with_name("bridge"))


def answers(server, questions: list[tuple[str, dict]]) -> list[tuple[bool, str]]:
    """Ask a server; give of each question whether it failed, and the text."""

    async def ask() -> list[tuple[bool, str]]:
        async with mcp.Client(server) as client:
            results = [await client.call_tool(name, values) for name, values in questions]
        return [(bool(r.is_error), "".join(part.text for part in r.content)) for r in results]

    return asyncio.run(ask())


def started(folder: Path, *words: str):
    """Start the program, for a client."""
    return mcp.stdio_client(
        mcp.StdioServerParameters(command=BRIDGE, args=["mcp", *words], cwd=folder)
    )


def in_process(folder: Path):
    with click.Context(command.mcp, info_name="mcp"):
        return command.server(asked(folder))


@pytest.mark.parametrize("path", corpus_reports(names=["mnist-training"]))
def test_five_questions_about_a_training(path, tmp_path):
    """Each is answered by at most 4 kB, with the figures of the commands."""
    report, op = {"report": str(path)}, "aten::convolution_backward"
    before, after = (path.with_name(f"pytorch-2gpu-{side}.sqlite") for side in ("before", "after"))
    asked = [
        ("summary", report),  # what is slow?
        (
            "table",
            {**report, "by": "op-kernel", "where": f"op={op}"},
        ),  # which kernels does it launch?
        ("table", {**report, "by": "idle"}),  # why is the GPU idle?
        ("timeline", {**report, "begin": "1.0s", "end": "1.1s"}),  # what happened then?
        ("diff", {"before": str(before), "after": str(after)}),  # what changed?
    ]
    told = answers(started(tmp_path), asked)
    assert [failed for failed, _ in told] == [False] * 5
    assert all(len(text.encode()) <= LIMIT for _, text in told)
    slow, kernels, idle, then, changed = (json.loads(text) for _, text in told)

    said = json.loads(done("summary", path, "--format", "json"))
    assert slow["gpus"][0]["busy_ns"] == said["gpus"][0]["busy_ns"]
    assert [cause["idle_ns"] for cause in slow["causes"]] == [c["idle_ns"] for c in said["causes"]]
    assert slow["ops"] == said["ops"]
    assert objects(slow) == [rounded(row) for row in said["rows"][:5]]

    words = ("--by", "op-kernel", "--filter", f"op={op}", "--format", "json")
    assert objects(kernels) == [
        rounded(r) for r in json.loads(done("report", path, *words))["rows"]
    ]

    said = json.loads(done("report", path, "--by", "idle", "--format", "json"))["rows"]
    assert objects(idle) == [rounded(row) for row in said[:10]]
    assert idle["left_out"] == len(said) - 10

    [device] = objects(then, "devices")
    assert (device["busy_ns"], device["idle_ns"]) == (0, 100_000_000)
    ranges = json.loads(done("report", path, "--by", "range", "--format", "json"))["rows"]
    first, last = (min(r["start_ns"] for r in ranges) + ns for ns in (1_000_000_000, 1_100_000_000))
    open_then = {
        r["name"]
        for r in ranges
        if r["start_ns"] < last and r["start_ns"] + r["duration_ns"] > first
    }
    assert {row["op"] for row in objects(then, "ops")} == open_then

    said = json.loads(done("diff", before, after, "--format", "json"))
    assert changed["totals"] == said["totals"]
    assert said["overall"]["iteration"] is None  # both captures hold a part of one iteration
    assert "iteration" not in changed
    pairs = zip(objects(changed), map(rounded, said["rows"]), strict=False)
    assert all(row == {name: of_command[name] for name in row} for row, of_command in pairs)


def test_what_goes_wrong_is_one_line(tmp_path):
    path = str(made_reports.small(tmp_path / "made.sqlite"))
    text = tmp_path / "notes.txt"
    text.write_text("nothing")
    told = answers(
        in_process(tmp_path),
        [
            ("table", {"report": path, "by": "kernal"}),
            ("table", {"report": path, "columns": "time"}),
            ("table", {"report": path, "where": "kernel"}),
            ("table", {"report": path, "step": "first"}),
            ("why", {"report": path, "what": "nothing like it"}),
            ("timeline", {"report": path, "begin": "2s", "end": "1s"}),
            ("timeline", {"report": path, "begin": "2", "end": "3s"}),
            ("advise", {"report": path, "rule": "none"}),
            ("what_if", {"report": path, "without": "nothing_like_it"}),
            ("what_if", {"report": path, "op": "forward", "faster": "2"}),
            ("summary", {"report": str(tmp_path / "none.sqlite")}),
            ("summary", {"report": str(text)}),
            ("summary", {}),
            ("diff", {"before": path, "after": path, "by": "gap"}),
            ("summary", {"report": "d" * 100_000}),
            ("summary", {"report": "no such report " * 10_000}),
            ("table", {"report": path, "by": "d" * 100_000}),
            ("table", {"report": path, "where": "d" * 100_000 + "=1"}),
            ("why", {"report": path, "what": "d " * 50_000}),
            ("timeline", {"report": path, "begin": "9" * 100_000, "end": "1s"}),
            ("advise", {"report": path, "rule": "d" * 100_000}),
        ],
    )
    for failed, said in told:
        assert failed, said
        assert len(said) < 3_000
        assert "\n" not in said
        assert "Traceback" not in said
    assert "did you mean kernel? list_tables shows all" in told[0][1]


def test_the_tools_say_what_they_are_for(tmp_path):
    async def listed():
        async with mcp.Client(in_process(tmp_path)) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(listed())
    assert [tool.name for tool in tools] == command.TOOLS
    for tool in tools:
        assert tool.description
        assert tool.annotations.read_only_hint
        assert all(p.get("description") for p in tool.input_schema["properties"].values())


def test_nothing_is_written_beside_a_report(tmp_path):
    path = made_reports.small(tmp_path / "made.sqlite")
    [(failed, _)] = answers(started(tmp_path), [("summary", {"report": "made.sqlite"})])
    assert not failed
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_it_ends_when_the_client_closes_standard_input(tmp_path):
    ended = subprocess.run(
        [BRIDGE, "mcp"],
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_without_the_sdk_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert_refused(
        bridge("mcp", "--db", tmp_path / "bridge.db"), "pip install 'nsight-bridge[mcp]'"
    )


def test_the_exchange_in_the_documentation_is_real(folder):
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    marked = BLOCK.findall(page)
    asked_for = [json.loads(body) for kind, body in marked if kind == "asked"]
    done("demo")
    told = answers(in_process(folder), [(q["name"], q["arguments"]) for q in asked_for])
    assert [text for _, text in told] == [body for kind, body in marked if kind == "answered"]
    assert len(told) == 2


def test_the_documentation_lists_the_tools_and_the_configurations_are_json():
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    assert (
        re.findall(
            r"^\| `(\w+)` \|.*\|.*\|$",
            page.partition("## Tools")[2].partition("##")[0],
            re.MULTILINE,
        )
        == command.TOOLS
    )
    configurations = re.findall(
        r"^```json\n(\{\n.*?)^```$", page.partition("## Tools")[0], re.MULTILINE | re.DOTALL
    )
    assert [list(json.loads(text)) for text in configurations] == [["mcpServers"], ["servers"]]
