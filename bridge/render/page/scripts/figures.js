// The figures at the head of the page: one report's, or two reports' with the change from A to B.

const busyShare = ({ devices }) => {
  const [busy, span] = ["busy_ns", "run_ns"].map((key) => devices.reduce((sum, one) => sum + one[key], 0));
  return span ? busy / span : 0;
};

const share = (part, whole) => (whole ? part / whole : 0);

function kinds({ figures }) {
  const found = ["kernels", "memcpys", "memsets", "graphs"].filter((kind) => figures[kind]);
  return found.map((kind) => `${count(figures[kind])} ${figures[kind] === 1 ? kind.replace(/(ie)?s$/, (s) => (s === "ies" ? "y" : "")) : kind}`).join(", ");
}

function largest({ operators, names, figures }) {
  if (!operators) return null;
  const at = operators.kind.findIndex((kind) => kind === "op");
  if (at < 0 || operators.gpu_self_ns[at] <= 0) return null;
  return { name: names[operators.name[at]], share: share(operators.gpu_self_ns[at], figures.totals.gpu_ns) };
}

const idleTime = ({ devices }) => devices.reduce((sum, one) => sum + one.idle_ns, 0);

function iterationText({ iteration_ns: iteration, host_ns: host, median_ns: step, between_ns: between, loading_ns: loading }) {
  const apart = loading ? `, of which ${time(loading)} data loading` : "";
  const onHost = host && Math.abs(host - iteration) > 0.05 * iteration ? `, ${time(host)} on the host` : "";
  return `${time(step)} in the step, ${time(between)} between steps${apart}${onHost}`;
}

const LARGEST = "Largest op";
const LARGEST_ON_CPU = "Largest op on the CPU";
const IDLE = "Largest cause of idleness";

// [heading, value, text of a value, what stands below]; no card without a value.
const CARDS = [
  ["GPU busy", (r) => (r.figures.devices.length ? busyShare(r.figures) : null), percent, (r) =>
    (r.figures.devices.length > 1 && r.figures.devices.length < 5
      ? r.figures.devices.map((d) => `${d.name.split(" ").slice(0, 2).join(" ")} ${percent(share(d.busy_ns, d.run_ns))}`).join(", ")
      : r.figures.devices.length > 4 ? `of ${r.figures.devices.length} GPUs, of the run`
        : `of the run, ${time(r.figures.devices[0].run_ns)}`)],
  [IDLE, (r) => (r.figures.idle.length ? share(r.figures.idle[0].idle_ns, idleTime(r.figures)) : null), percent,
    (r) => `of idle time: ${r.figures.idle[0].cause}, ${time(r.figures.idle[0].idle_ns)}`],
  ["Iteration", (r) => r.figures.iteration?.iteration_ns ?? null, time, (r) => iterationText(r.figures.iteration)],
  ["Steps", (r) => r.figures.steps || null, count, (r) => (r.figures.iteration ? `median ${time(r.figures.iteration.median_ns)}` : "")],
  [LARGEST, (r) => largest(r)?.share ?? null, percent, (r) => `of GPU time: ${largest(r).name}`],
  ["GPU time", (r) => (r.figures.totals.activities ? r.figures.totals.gpu_ns : null), time, (r) =>
    `of ${r.figures.devices.length ? `${plural(r.figures.devices.length, "device")}, ` : ""}${time(r.figures.run_ns)} of the run`],
  ["Activities", (r) => r.figures.totals.activities || null, count, kinds],
  ["In ops", (r) => (r.reasons.length && r.figures.totals.gpu_ns ? share(r.figures.totals.attributed_ns, r.figures.totals.gpu_ns) : null), percent,
    (r) => `of GPU time, in ${plural(r.figures.ops, "op")}`],
  ["CPU time", (r) => r.figures.cpu?.total_ns ?? null, time, (r) => `of ${plural(r.figures.cpu.ops, "op")}, ${time(r.figures.run_ns)} of the run`],
  [LARGEST_ON_CPU, (r) => (r.figures.cpu ? share(r.figures.cpu.op_ns, r.figures.cpu.total_ns) : null), percent, (r) => `of CPU time: ${r.figures.cpu.op}`],
  ["Op calls", (r) => (r.figures.totals.activities ? null : r.figures.calls || null), count, () => "ranges that are ops"],
  ["Capture quality", (r) => (r.quality && r.quality.score < 100 ? r.quality.score : null), count, (r) => `of 100: ${r.quality.first}`],
];

function card([heading, value, text, below], reports) {
  const values = reports.map(value);
  if (values.every((one) => one === null)) return null;
  const box = make("div", { class: "card" }, make("h3", {}, heading));
  if (reports.length === 1) {
    box.append(make("b", {}, text(values[0])), make("span", { class: "below", title: below(reports[0]) }, below(reports[0])));
    return box;
  }
  values.forEach((one, at) => box.append(make("div", { class: "pair" },
    make("span", { class: "side" }, "AB"[at]), make("b", {}, one === null ? "–" : text(one)),
    make("span", { class: "below" }, one === null ? "" : below(reports[at])))));
  const subject = { [LARGEST]: (r) => largest(r)?.name, [LARGEST_ON_CPU]: (r) => r.figures.cpu?.op, [IDLE]: (r) => r.figures.idle[0]?.cause }[heading] ?? (() => null);
  const alike = subject(reports[0]) === subject(reports[1]);
  if (values.every((one) => one !== null) && alike) box.append(make("div", { class: "change" }, change(values, text)));
  return box;
}

function change([a, b], text) {
  if (a === b) return "no change";
  const points = text === percent;
  const shown = points ? `${(100 * Math.abs(b - a)).toFixed(1)} points` : text(Math.abs(b - a));
  const relative = !points && a ? ` (${signed((b - a) / a, (x) => `${(100 * x).toFixed(1)} %`)})` : "";
  return `${b > a ? "▲ +" : "▼ −"}${shown}${relative}`;
}

function drawFigures(reports) {
  const box = make("section", { id: "figures", class: "cards", "aria-label": "Headline figures" });
  if (reports.length > 1) {
    box.append(make("p", { class: "sources" }, ...reports.flatMap((report, at) => [
      make("span", { class: "side" }, "AB"[at]), make("span", { class: "name" }, report.source.join(", "))])));
  }
  box.append(...CARDS.map((one) => card(one, reports)).filter(Boolean));
  document.getElementById("panels").append(box);
}
