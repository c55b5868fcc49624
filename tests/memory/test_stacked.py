"""The timeline by category: drawn, thinned without losing a peak, and written as PyTorch writes it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given

import bridge
from bridge.analyze.cost.memory import MemoryUsage, by_category, summary
from bridge.analyze.cost.memory import flow as stacking
from bridge.analyze.cost.memory.categories import CATEGORIES, Categories, category_levels
from bridge.analyze.cost.memory.flow import AreaPanel, StackedAreas, stacked_areas
from bridge.cli import main
from bridge.importers import frames
from bridge.join.attributed import AttributedCapture
from bridge.render.memory_plots import IN_TORCH, as_torch, stacked_svg
from memory.histories import histories
from memory.snapshots import snapshot, training
from memory.test_snapshot import held_of, written

TRAINING = Path(__file__).parent / "data" / "training.pt.trace.json.gz"
SVG = "{http://www.w3.org/2000/svg}"


def plain_levels(held, found, group) -> list[list[int]]:
    """Go from event to event, a bag of bytes per category."""
    bag = [0] * len(CATEGORIES)
    alive = {}
    said = []
    for n in range(len(held.events)):
        key, category = int(held.events.key[n]), int(found.of_event[n])
        if not held.events.is_release[n] and key in alive:
            where, old, size = alive.pop(key)
            if where == group:
                bag[old] -= size
        size = int(held.size[n])
        if held.events.is_release[n]:
            alive.pop(key, None)
            size = -size
        else:
            alive[key] = int(held.group[n]), category, size
        if held.group[n] == group:
            bag[category] += size
            said.append([*bag])
    return said


@pytest.mark.slow
@given(histories())
def test_levels_are_a_bag_per_category(history):
    held = history.held
    found = Categories(held)
    for group in range(len(held.events.groups)):
        rows, level = category_levels(found, group)
        assert np.array_equal(level[1:-1].sum(axis=1), held.used[rows])
        assert level[0].sum() == held.base[group]
        expected = np.array(plain_levels(held, found, group)).reshape(-1, len(CATEGORIES))
        assert np.array_equal(level[1:-1] - level[0], expected)
        assert (level >= 0).all()
    table, whole = by_category(held), summary(held)
    assert table["at_peak_bytes"].sum() == whole["peak_bytes"].sum()
    assert table["end_bytes"].sum() == whole["end_bytes"].sum()
    assert table["allocated_bytes"].sum() == whole["allocated_bytes"].sum()


@pytest.mark.slow
def test_the_drawing_has_areas_axes_legend_and_the_peak(held):
    tree = ET.fromstring(stacked_svg(stacked_areas(held)))
    areas = [p for p in tree.iter(f"{SVG}path") if p.get("fill")]
    shown = [p.find(f"{SVG}title").text.split(":")[0] for p in areas]
    assert set(shown) == set(by_category(held)["category"])
    texts = [t.text for t in tree.iter(f"{SVG}text")]
    assert any(re.fullmatch(r"peak .* at .* in aten::\w+", text or "") for text in texts)
    assert "time since the first event" in texts
    assert len([t for t in texts if re.fullmatch(r"[\w ]+: [\d.]+ (B|KiB)", t or "")]) == len(shown)
    strips = [r for g in tree.iter(f"{SVG}g") if g.get("class") == "h" for r in g]
    assert len(strips) == 200
    assert all(r.find(f"{SVG}title").text for r in strips)


def test_areas_lie_on_each_other(held):
    """The height of an area in pixels is that of its bytes, at every corner."""
    [panel] = stacked_areas(held).panels
    tree = ET.fromstring(stacked_svg(stacked_areas(held)))
    areas = [p for p in tree.iter(f"{SVG}path") if p.get("fill")]
    assert len(areas) == len(by_category(held)) > 1
    corner = re.compile(r"H([\d.]+)V([\d.-]+)")
    total = np.zeros(len(panel.time))
    for area in areas:
        name = area.find(f"{SVG}title").text.split(":")[0]
        start, rest = area.get("d")[1:].split("H", 1)
        ups = [float(start.split()[1]), *(float(y) for _, y in corner.findall("H" + rest))]
        total = total + panel.level[:, CATEGORIES.index(name)]
        expected = 80 + 420 - total * 420 / (panel.peak_bytes + panel.peak_bytes // 16)
        assert np.abs(np.array(ups[: len(total)]) - expected).max() < 0.06


@pytest.mark.slow
def test_many_events_are_thinned_and_keep_their_peaks(tmp_path, monkeypatch):
    device = training(steps=300)
    held = held_of(written(tmp_path / "s.pickle", snapshot(device)))
    whole, thin = stacked_areas(held, thin=False), stacked_areas(held)
    monkeypatch.setattr(stacking, "MAX_TIMES", 100)
    thinner = stacked_areas(held)
    assert len(whole.panels[0].time) == len(held.events) + 1
    for drawn, most in ((thin, 1_600), (thinner, 120)):
        [panel] = drawn.panels
        assert len(panel.time) <= most
        assert panel.level.sum(axis=1).max() == device.peak == panel.peak_bytes
        assert panel.level[-1].sum() == device.used
        assert np.isin(panel.time, whole.panels[0].time).all()
    assert len(stacked_svg(thin)) < 2_000_000


def test_the_json_is_what_pytorch_would_write(held):
    times, sizes = json.loads(as_torch(stacked_areas(held, thin=False)))
    assert len(times) == len(sizes) == len(set(times)) > 1_000
    assert times == sorted(times)
    assert {len(row) for row in sizes} == {9}
    assert {row[0] for row in sizes} == {0}
    assert max(map(sum, sizes)) <= held.used.max()
    began = held.attributed.capture.facts[0].epoch_ns + held.attributed.capture.began
    assert times[0] == began // 1_000


@pytest.mark.slow
def test_the_columns_of_the_json_are_in_pytorchs_order(held):
    reason = "PyTorch is not installed"
    profiler = pytest.importorskip("torch.profiler._memory_profiler", reason=reason)
    torchs = {
        "unknown" if category is None else category.name.lower().replace("_", " "): index
        for category, index in profiler._CATEGORY_TO_INDEX.items()
    }
    assert set(torchs) == set(CATEGORIES)
    assert sorted(torchs, key=torchs.__getitem__) == list(IN_TORCH)
    found = stacked_areas(held, thin=False)
    _, sizes = json.loads(as_torch(found))
    [panel] = found.panels
    seen = set()
    for category, index in torchs.items():
        level = panel.level[:, CATEGORIES.index(category)]
        column = [row[1 + index] for row in sizes]  # PyTorch's first column is always 0
        assert set(column) <= set(level.tolist())
        assert column[-1] == level[-1]
        seen |= {category} if any(column) else set()
    assert seen == set(by_category(held)["category"])


@pytest.mark.slow
def test_commands(tmp_path):
    run = CliRunner()
    outputs = {
        "a.svg": ["--by", "category", "-o"],
        "memory_timeline.svg": ["-o"],
        "t.svg": ["--timeline"],
    }
    texts = []
    for name, options in outputs.items():
        done = run.invoke(main, ["memory", str(TRAINING), *options, str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        texts.append((tmp_path / name).read_text())
    assert len(set(texts)) == 1
    done = run.invoke(main, ["memory", str(TRAINING), "--timeline", str(tmp_path / "t.json")])
    assert done.exit_code == 0, done.output
    assert len(json.loads((tmp_path / "t.json").read_text())) == 2
    done = run.invoke(main, ["memory", str(TRAINING), "--timeline", str(tmp_path / "t.json")])
    assert done.exit_code == 1
    assert "--force" in done.stderr
    done = run.invoke(
        main, ["memory", str(TRAINING), "--by", "category", "--step", "1", "--format", "json"]
    )
    table = json.loads(done.stdout)["rows"]
    assert {row["category"] for row in table} == set(by_category(
        MemoryUsage.of(bridge.load(TRAINING).within(steps=(1, 1)).attributed)
    )["category"])  # fmt: skip


# -- what is told of from before


@pytest.mark.slow
@given(histories())
def test_what_is_held_before_is_as_if_it_were_released_after_all(history):
    """An address that nothing else uses: told of at first, or released at last, the levels between are the same."""
    table = history.capture.memory
    time = table.time
    one = {c: table[c][[0]] for c in ("report", "process", "device")}
    one |= {"address": np.array([999]), "bytes": np.array([77]), "kind": table.kind[:1]}

    def with_one(when: int, operation: int) -> MemoryUsage:
        own = frames.Memory(one, time=np.array([when]), operation=np.array([operation]))
        parts = [own, table] if operation == frames.HELD else [table, own]
        return MemoryUsage.of(
            AttributedCapture.of(replace(history.capture, memory=frames.Memory.concat(parts)))
        )

    first = with_one(int(time.min()) - 1, frames.HELD)
    last = with_one(int(time.max()) + 1, frames.RELEASE)
    assert np.array_equal(first.used[1:], last.used[:-1])
    assert np.array_equal(np.sort(first.base), np.sort(last.base))
    assert first.is_made.sum() == last.is_made.sum()
    assert summary(first)["end_bytes"].sum() == summary(last)["end_bytes"].sum() + 77


def test_the_line_of_what_is_reserved_goes_from_the_first_time_at_which_it_is_known():
    level = np.zeros((3, len(CATEGORIES)), np.int64)
    level[:, 0] = [10, 20, 10]
    panel = AreaPanel(
        title="GPU 0", start=0, end=100, time=np.array([0, 25, 50]), level=level,
        reserved=np.array([-1, 32, 64]), peak=25, peak_bytes=20, peak_op="mm",
    )  # fmt: skip
    tree = ET.fromstring(stacked_svg(StackedAreas(("a.pickle",), (panel,), 0, 0)))
    [line] = [path for path in tree.iter(f"{SVG}path") if path.get("class") == "v"]
    most = 64 + 64 // 16  # bytes at the top of 420 pixels, from y = 80; 1080 pixels are 100 ns
    half, all_ = 500 - 32 * 420 / most, 500 - 64 * 420 / most
    assert line.get("d") == f"M360 {half:.1f}H630V{all_:.1f}H1170V{all_:.1f}"
