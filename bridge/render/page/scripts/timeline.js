// The timeline: streams and the ranges of threads. The longest slices are drawn as they are; all shorter
// ones as the share of each bin that they fill, so that nothing is missing.

const ROW = { steps: 18, ops: 16, stream: 26, rest: 18 };
const HEADING = 20;
const RULER = 22;

function rowsOfTimeline({ timeline, names }) {
  let y = 0, group = null;
  const headings = [];
  const rows = timeline.rows.map((row) => {
    if (row.group !== group) {
      group = row.group;
      if (group) { headings.push({ y, name: group }); y += HEADING; }
    }
    const placed = { ...row, y, height: ROW[row.kind], slices: [], bins: [] };
    y += placed.height + 1;
    return placed;
  });
  const { slices, bins } = timeline;
  const op = (at) => (at < 0 ? null : names[at]);
  slices.row.forEach((row, at) => rows[row].slices.push({
    from: slices.start[at], to: slices.start[at] + slices.length[at], name: names[slices.name[at]] ?? "", op: op(slices.op[at]) }));
  bins.row.forEach((row, at) => rows[row].bins.push({
    from: bins.bin[at] * timeline.bin_ns, busy: bins.busy[at], count: bins.count[at], op: op(bins.op[at]) }));
  return { rows, headings, height: y };
}

function drawTimeline(report, side) {
  const { timeline } = report;
  if (!timeline) return;
  const canvas = make("canvas", { tabindex: "0", role: "application" });
  const ruler = make("canvas", { class: "ruler", "aria-hidden": "true" });
  const readout = make("span", { class: "found" });
  const tools = make("div", { class: "tools" });
  const part = make("div", { class: "drawing timeline" }, tools, ruler, make("div", { class: "scroll" }, canvas));
  const merged = timeline.merged ? ` ${plural(timeline.merged, "short slice")} drawn as how full each ${time(timeline.bin_ns)} is.` : "";
  place("timeline", "Timeline", `Streams and ranges. Drag to choose a time, Ctrl and the wheel or + and − to zoom, arrows to move, Home for all.${merged}`, part, side);
  const view = { canvas, ruler, readout, timeline, bin: timeline.bin_ns, ...rowsOfTimeline(report), drag: null };
  const draw = () => paintTimeline(view);
  view.window = new Window(timeline.length_ns, () => requestAnimationFrame(draw));
  tools.append(button("+", () => view.window.zoom(0.5), { "aria-label": "Zoom in" }), button("−", () => view.window.zoom(2), { "aria-label": "Zoom out" }),
    button("All", () => view.window.set(0, timeline.length_ns), { "aria-label": "Show all of the timeline" }), readout);
  part.view = view;
  listen(view, draw);
  drawnAnew(part, draw);
  draw();
}

// -- drawing

function paintTimeline(view) {
  const { canvas, window: shown } = view;
  const width = canvas.clientWidth || canvas.parentElement.clientWidth;
  view.left = width < 560 ? 74 : 156;
  view.scale = (width - view.left) / shown.width;
  const context = sharp(canvas, width, view.height);
  context.font = `11px ${token("font")}`;
  const { step, found } = ticks(shown.from, shown.to, (width - view.left) / 110);
  paintRuler(view, width, step, found);
  context.fillStyle = token("line");
  found.forEach((at) => context.fillRect(Math.round(xOf(view, at)), 0, 1, view.height));
  const stripes = striped(context);
  context.save();
  context.beginPath();
  context.rect(view.left, 0, width - view.left, view.height);
  context.clip();
  view.rows.forEach((row) => paintRow(context, view, row, stripes));
  context.restore();
  paintNames(context, view);
  if (view.drag) {
    context.fillStyle = token("choice");
    context.fillRect(Math.min(view.drag.x, view.drag.to), 0, Math.abs(view.drag.to - view.drag.x), view.height);
  }
  view.readout.textContent = `${time(shown.from)} to ${time(shown.to)}, ${time(shown.width)}`;
  Object.assign(canvas.dataset, { from: shown.from, to: shown.to });
  canvas.setAttribute("aria-label", `Timeline of ${view.rows.length} rows, ${time(shown.from)} to ${time(shown.to)} of ${time(shown.length)}`);
}

const xOf = (view, at) => view.left + (at - view.window.from) * view.scale;
const timeAt = (view, x) => view.window.from + (x - view.left) / view.scale;

function paintRuler(view, width, step, found) {
  const context = sharp(view.ruler, width, RULER);
  context.font = `11px ${token("font")}`;
  context.fillStyle = token("muted");
  found.forEach((at) => {
    const text = tickText(at, step);
    const x = xOf(view, at);
    if (x + context.measureText(text).width < width) context.fillText(text, x + 3, 15);
    context.fillRect(Math.round(x), 6, 1, RULER);
  });
}

const fillOfSlice = (row, op) => (op !== null ? colour(op) : row.kind === "steps" ? token("step") : null);

function paintRow(context, view, row, stripes) {
  const { from, to } = view.window;
  const plain = row.kind === "ops" ? token("neutral") : stripes;
  const density = (bin) => {
    if (bin.from > to || bin.from + view.bin < from) return;
    const full = Math.min(1, bin.busy / view.bin);
    const height = Math.max(1.5, full * row.height);
    context.fillStyle = fillOfSlice(row, bin.op) ?? plain;
    context.fillRect(xOf(view, bin.from), row.y + row.height - height, Math.max(0.8, view.bin * view.scale), height);
  };
  context.globalAlpha = 0.6;
  row.bins.forEach(density);
  context.globalAlpha = 1;
  row.slices.forEach((slice) => {
    if (slice.from > to || slice.to < from) return;
    const x = Math.max(view.left, xOf(view, slice.from));
    const width = Math.max(0.8, xOf(view, slice.to) - x);
    const fill = fillOfSlice(row, slice.op);
    context.fillStyle = fill ?? plain;
    context.fillRect(x, row.y, width > 3 ? width - 0.8 : width, row.height);
    if (width < 36) return;
    context.fillStyle = fill ? ink(fill) : row.kind === "ops" ? ink(token("neutral")) : token("fg");
    context.fillText(fitting(context, slice.name, width - 8), x + 4, row.y + row.height / 2 + 4);
  });
}

function paintNames(context, view) {
  context.font = `11px ${token("font")}`;
  view.headings.forEach(({ y, name }) => {
    context.fillStyle = token("card");
    context.fillRect(0, y, view.canvas.clientWidth, HEADING);
    context.fillStyle = token("muted");
    context.fillText(fitting(context, name, view.canvas.clientWidth - 8), 2, y + 14);
  });
  view.rows.forEach((row) => {
    if (row.depth) return;
    context.fillStyle = token("fg");
    context.fillText(fitting(context, row.name, view.left - 14), 8, row.y + row.height / 2 + 4);
  });
}

// -- pointer and keyboard

function listen(view, draw) {
  const { canvas, window: shown } = view;
  const x = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("keydown", (event) => shown.key(event));
  canvas.addEventListener("wheel", (event) => shown.wheel(event, timeAt(view, x(event))), { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch" || x(event) < view.left) return;
    canvas.setPointerCapture(event.pointerId);
    view.drag = { x: x(event), to: x(event) };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!view.drag) { hoverTimeline(view, event); return; }
    noTip();
    view.drag.to = Math.max(view.left, x(event));
    draw();
  });
  const dropped = () => {
    const { drag } = view;
    view.drag = null;
    if (!drag) return;
    const [from, to] = [drag.x, drag.to].sort((a, b) => a - b).map((at) => timeAt(view, at));
    if (Math.abs(drag.to - drag.x) > 4) shown.set(from, to);
    else draw();
  };
  canvas.addEventListener("pointerup", dropped);
  canvas.addEventListener("pointercancel", dropped);
  canvas.addEventListener("pointerleave", noTip);
  canvas.addEventListener("dblclick", (event) => {
    const { slice } = whatIsAt(view, event);
    if (slice) shown.set(slice.from - (slice.to - slice.from) * 0.1, slice.to + (slice.to - slice.from) * 0.1);
  });
}

function whatIsAt(view, event) {
  const { left, top } = view.canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - left, event.clientY - top];
  const row = x < view.left ? null : view.rows.find((one) => y >= one.y && y < one.y + one.height);
  if (!row) return {};
  const at = timeAt(view, x), near = 1.5 / view.scale;
  const slice = row.slices.find((one) => one.from <= at && at < one.to) ?? row.slices.find((one) => one.from - near <= at && at < one.to + near);
  const bin = slice ? null : row.bins.find((one) => one.from <= at && at < one.from + view.bin);
  return { row, slice, bin };
}

function hoverTimeline(view, event) {
  const { row, slice, bin } = whatIsAt(view, event);
  if (!slice && !bin) { noTip(); return; }
  const where = [["on", row.name], row.group ? ["of", row.group] : null];
  if (slice) {
    tip(event.clientX, event.clientY, slice.name, [["takes", time(slice.to - slice.from)], ["from", time(slice.from)],
      slice.op && slice.op !== slice.name ? ["op", slice.op] : null, ...where]);
    return;
  }
  tip(event.clientX, event.clientY, plural(bin.count, "short slice"), [["take", `${time(bin.busy)} of ${time(view.bin)}`],
    ["from", time(bin.from)], bin.op ? ["most in", bin.op] : null, ...where]);
}
