// The icicle: each frame as wide as the time it and everything under it takes; a click zooms in.
// All steps share frames, or each has its own; idle time of the GPUs is a frame on request.

const FRAME_HEIGHT = 24;
const LEVEL_NAMES = { idle: "idle time of GPUs", step: "step", module: "module", op: "op", kernel: "work", reason: "no op", other: "too small to be drawn apart", root: "all" };

// Frames as objects that know their parent, children and place (x from 0 to the root's value).
function framesOf({ icicle, names, figures }, { bySteps, withIdle }) {
  const columns = bySteps ? icicle.by_step : icicle.merged;
  const root = { name: "all", level: "root", value: 0, count: 0, children: [], parent: null, depth: 0, x: 0 };
  const frames = columns.name.map((name, at) => ({
    name: columns.level[at] === "reason" ? `no op: ${words(names[name])}` : names[name],
    level: columns.level[at], value: columns.value[at], count: columns.count[at], children: [], above: columns.parent[at],
  }));
  if (withIdle) {
    const at = frames.length;
    frames.push({ name: "idle", level: "idle", value: figures.idle.reduce((sum, one) => sum + one.idle_ns, 0), count: 0, children: [], above: -1 });
    figures.idle.forEach((one) => frames.push({ name: one.cause, level: "idle", value: one.idle_ns, count: 0, children: [], above: at }));
  }
  frames.forEach((frame) => {
    frame.parent = frame.above < 0 ? root : frames[frame.above];
    frame.depth = frame.parent.depth + 1;
    frame.op = frame.level === "op" || isColoured(frame) ? frame.name : frame.parent.op;
    frame.noOp = frame.level === "reason" || frame.parent.noOp;
    frame.x = frame.parent.x + frame.parent.children.reduce((sum, child) => sum + child.value, 0);
    if (frame.parent === root) root.value += frame.value;
    frame.parent.children.push(frame);
  });
  return { root: root.children.length === 1 ? Object.assign(root.children[0], { parent: null }) : root, frames };
}

// A range of the program's own may stand for a module and be an op with time of its own.
const isColoured = (frame) => frame.level === "module" && colourOfOp.has(frame.name);

const deepest = (frame) => frame.children.reduce((most, child) => Math.max(most, deepest(child)), frame.depth);

function drawIcicle(report, side) {
  if (!report.icicle) return;
  const chosen = { bySteps: false, withIdle: false };
  const { root } = framesOf(report, chosen);
  const unit = report.icicle.unit === "gpu" ? "GPU time" : "CPU time";
  const canvas = make("canvas", { tabindex: "0", role: "application" });
  const crumbs = make("nav", { class: "crumbs", "aria-label": "Where the icicle is zoomed to" });
  const merged = report.icicle.steps ? ` The times of all ${count(report.icicle.steps)} steps are added.` : "";
  const about = `${report.icicle.unit === "gpu" ? "Modules, ops and kernels" : "Modules and ops"}, each as wide as its ${unit}.${merged} Click to zoom in; arrows move, Enter zooms, Escape goes back.`;
  const rebuild = () => { view.root = framesOf(report, chosen).root; view.hovered = null; zoom(view.root); };
  const part = make("div", { class: "drawing icicle" }, icicleChoices(report, chosen, rebuild), crumbs, canvas);
  place("icicle", unit, about, part, side);
  const view = { canvas, crumbs, unit, root, zoomed: root, chosen: null, hovered: null, drawn: [] };
  part.view = view;
  const draw = () => paintIcicle(view);
  const zoom = (frame) => { view.zoomed = frame; view.chosen = frame; drawCrumbs(view, zoom); draw(); sayFrame(view, frame); };
  canvas.addEventListener("click", (event) => { const frame = frameAt(view, event); if (frame) zoom(frame.level === "other" ? frame.parent : frame); });
  canvas.addEventListener("pointermove", (event) => hoverFrame(view, event, draw));
  canvas.addEventListener("pointerleave", () => { view.hovered = null; noTip(); draw(); });
  canvas.addEventListener("keydown", (event) => moveFrame(view, event, zoom, draw));
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);
  drawCrumbs(view, zoom);
  drawnAnew(part, draw);
  draw();
}

// What can be chosen: a frame per step, and idle time as a frame.
function icicleChoices({ icicle, figures }, chosen, rebuild) {
  const choice = (key, text) => make("label", { class: "choice" },
    make("input", { type: "checkbox", "data-choice": key, "aria-label": text, onchange: (event) => { chosen[key] = event.target.checked; rebuild(); } }), text);
  const choices = [
    icicle.by_step ? choice("bySteps", "by step") : null,
    icicle.unit === "gpu" && figures.idle.length ? choice("withIdle", "with idle time") : null,
  ].filter(Boolean);
  return choices.length ? make("div", { class: "choices" }, ...choices) : null;
}

// -- drawing

function paintIcicle(view) {
  const { canvas, zoomed, root } = view;
  const width = canvas.clientWidth || canvas.parentElement.clientWidth;
  const rows = deepest(zoomed) - zoomed.depth + 1;
  const context = sharp(canvas, width, rows * FRAME_HEIGHT + 2);
  context.font = `12px ${token("font")}`;
  const stripes = striped(context);
  const scale = width / zoomed.value;
  view.drawn = [];
  const paint = (frame) => {
    const box = { x: (frame.x - zoomed.x) * scale, y: (frame.depth - zoomed.depth) * FRAME_HEIGHT, width: frame.value * scale, frame };
    if (box.width < 0.3) return;
    view.drawn.push(box);
    paintFrame(context, box, view, stripes);
    frame.children.forEach(paint);
  };
  paint(zoomed);
  canvas.setAttribute("aria-label", `Icicle of ${view.unit}, at ${zoomed.name}: ${time(zoomed.value)}, ${percent(share(zoomed.value, root.value))} of all. `
    + zoomed.children.slice(0, 5).map((child) => `${child.name} ${percent(share(child.value, zoomed.value))}`).join(", "));
  canvas.dataset.at = zoomed.name;
}

function fillOf(frame) {
  if (frame.level === "op" || isColoured(frame)) return colour(frame.name);
  if (frame.level === "kernel" && !frame.noOp) return mixed(colour(frame.op), token("card"), 0.35);
  return token({ step: "step", module: "module", root: "step", kernel: "neutral", idle: "card" }[frame.level] ?? "other");
}

function paintFrame(context, { x, y, width, frame }, view, stripes) {
  const fill = fillOf(frame);
  const gap = width > 3 ? 1 : 0;
  context.fillStyle = frame.level === "reason" ? stripes : fill;
  context.fillRect(x, y, width - gap, FRAME_HEIGHT - 1.5);
  if (frame.level === "idle") outline(context, x, y, width - gap, token("muted"));
  const marked = frame === view.hovered || (frame === view.chosen && document.activeElement === view.canvas);
  if (marked) outline(context, x + 0.5, y + 0.5, width - gap - 1, token("fg"), 2);
  if (width < 34) return;
  context.fillStyle = ["reason", "idle"].includes(frame.level) ? token("fg") : ink(fill);
  context.fillText(fitting(context, shortName(frame.name), width - 12), x + 6, y + 15.5);
}

function outline(context, x, y, width, colour, line = 1) {
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.strokeRect(x + 0.5, y + 0.5, Math.max(0, width - 1), FRAME_HEIGHT - 2.5);
}

// As much of a text as fits, measured once per width of letters.
function fitting(context, text, room) {
  if (text.length > 300) text = text.slice(0, 300);
  const full = context.measureText(text).width;
  if (full <= room) return text;
  const kept = Math.floor((text.length * room) / full) - 1;
  return kept < 2 ? "" : `${text.slice(0, kept)}…`;
}

// -- pointer and keyboard

function frameAt(view, event) {
  const { left, top } = view.canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - left, event.clientY - top];
  return view.drawn.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + FRAME_HEIGHT)?.frame ?? null;
}

function hoverFrame(view, event, draw) {
  const frame = frameAt(view, event);
  if (frame !== view.hovered) { view.hovered = frame; draw(); }
  if (!frame) { noTip(); return; }
  tip(event.clientX, event.clientY, frame.name, [
    ["", LEVEL_NAMES[frame.level]],
    [view.unit, time(frame.value)],
    ["of all", percent(share(frame.value, view.root.value))],
    frame.parent ? [`of ${frame.parent.name.slice(0, 40)}`, percent(share(frame.value, frame.parent.value))] : null,
    frame.count ? [{ kernel: "runs", other: "frames", reason: "activities" }[frame.level] ?? "calls", count(frame.count)] : null,
  ]);
}

function moveFrame(view, event, zoom, draw) {
  const at = view.chosen ?? view.zoomed;
  const among = at.parent?.children ?? [at];
  const next = {
    ArrowDown: () => at.children[0], ArrowUp: () => (at === view.zoomed ? null : at.parent),
    ArrowRight: () => among[among.indexOf(at) + 1], ArrowLeft: () => among[among.indexOf(at) - 1],
  }[event.key];
  const jump = { Enter: () => at, Escape: () => view.zoomed.parent, Backspace: () => view.zoomed.parent, Home: () => view.root }[event.key];
  if (!next && !jump) return;
  event.preventDefault();
  if (jump) { const frame = jump(); if (frame) zoom(frame); return; }
  const frame = at === view.zoomed && event.key !== "ArrowDown" ? null : next();
  if (frame) { view.chosen = frame; draw(); sayFrame(view, frame); }
}

const sayFrame = (view, frame) =>
  announce(`${LEVEL_NAMES[frame.level]} ${frame.name}, ${time(frame.value)}, ${percent(share(frame.value, view.root.value))} of all`);

function drawCrumbs(view, zoom) {
  const path = [];
  for (let frame = view.zoomed; frame; frame = frame.parent) path.unshift(frame);
  view.crumbs.replaceChildren(...path.map((frame) => (frame === view.zoomed
    ? make("span", { "aria-current": "location", class: "name" }, frame.name)
    : button(frame.name, () => zoom(frame), { class: "name" }))));
}
