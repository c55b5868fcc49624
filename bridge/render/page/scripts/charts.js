// Curves and points, drawn by ECharts: utilisation, memory, roofline.

const STYLES = { // told apart by their dashes as well
  any: { colour: "busy", dash: "solid", width: 1.6, area: 0.16 },
  compute: { colour: "compute", dash: "solid", width: 1.4, area: 0 },
  communication: { colour: "communication", dash: [6, 3], width: 1.6, area: 0 },
  memops: { colour: "memops", dash: [2, 2], width: 1.6, area: 0 },
};
const DASHES = ["solid", [8, 3], [3, 3], [1, 3], [10, 3, 2, 3]];

function chart(part, height, about, options) {
  const holder = make("div", { class: "chart", role: "img", "aria-label": about, style: { height: `${height}px` } });
  part.append(holder);
  const drawing = echarts.init(holder, null, { renderer: "canvas" });
  const draw = () => { drawing.resize(); drawing.setOption(options(), true); };
  drawnAnew(holder, draw);
  draw();
  part.chart = drawing;
}

function base(more) {
  const box = { backgroundColor: token("card"), borderColor: token("line"), textStyle: { color: token("fg"), fontSize: 12 } };
  return {
    animation: false, textStyle: { fontFamily: token("font") }, ...more,
    tooltip: { confine: true, axisPointer: { lineStyle: { color: token("muted") } }, ...box, ...more.tooltip },
  };
}

const axis = (more) => ({
  type: "value", axisLine: { show: true, lineStyle: { color: token("line") } }, axisTick: { show: false },
  splitLine: { lineStyle: { color: token("line") } }, nameTextStyle: { color: token("muted") }, ...more,
  axisLabel: { color: token("muted"), hideOverlap: true, ...more.axisLabel },
});

const legend = () => ({ top: 0, right: 0, type: "scroll", itemWidth: 24, itemHeight: 8, textStyle: { color: token("fg") }, pageTextStyle: { color: token("muted") } });
const slider = () => [{ type: "slider", height: 16, bottom: 6, borderColor: token("line"), showDetail: false, brushSelect: false },
  { type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, moveOnMouseMove: false }];

const short = (ns) => (ns ? time(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ") : "0");

function timed(series, length, more) {
  return base({
    grid: { left: 64, right: 14, top: 30, bottom: 50 }, legend: legend(), dataZoom: slider(), series,
    xAxis: axis({ min: 0, max: length, axisLabel: { formatter: short }, splitLine: { show: false } }),
    tooltip: { trigger: "axis", formatter: (points) => tipOf(time(points[0].value[0]), points.map((p) => [p.seriesName, more.text(p.value[1])])) },
    yAxis: axis({ min: 0, axisLabel: { formatter: more.text }, ...more.y }),
  });
}

const tipOf = (title, pairs) => make("div", { class: "chart-tip" }, ...lines(title, pairs));

// -- utilisation

function drawUtilisation(report, side) {
  const { utilisation } = report;
  if (!utilisation) return;
  const { bin_ns: bin, length_ns: length, devices } = utilisation;
  const part = make("div", { class: "drawing" });
  place("utilisation", "GPU utilization", `The share of each ${time(bin)} in which any work ran on the device, and apart by kind of work.`, part, side);
  devices.forEach((device, at) => {
    const figures = report.figures.devices[at];
    const about = `${device.name}: busy ${percent(share(figures.busy_ns, figures.run_ns))} of the run, ${time(figures.run_ns)}`;
    part.append(make("h3", { class: "name" }, about));
    chart(part, devices.length > 2 ? 170 : 220, about, () => timed(Object.entries(device.series).map(([kind, busy]) => {
      const style = STYLES[kind];
      const full = (nth) => share(busy[nth], Math.min(bin, length - nth * bin) || bin);
      return {
        name: kind, type: "line", step: "start", showSymbol: false, itemStyle: { color: token(style.colour) },
        lineStyle: { width: style.width, type: style.dash, color: token(style.colour) },
        areaStyle: style.area ? { color: token(style.colour), opacity: style.area } : undefined,
        data: [[0, full(0)], ...busy.map((_, nth) => [Math.min(length, (nth + 1) * bin), full(nth)])],
      };
    }), length, { text: (part) => `${(100 * part).toFixed(0)} %`, y: { max: 1 } }));
  });
}

// -- memory

function drawMemory(report, side) {
  const { memory } = report;
  if (!memory) return;
  const part = make("div", { class: "drawing" });
  const left = memory.left ? ` ${plural(memory.left, "smaller curve")} left out.` : "";
  place("memory", "Memory", `Counters that the program recorded: the level holds until the next sample.${left}`, part, side);
  const most = memory.series.map(({ value }) => Math.max(...value));
  const peaks = memory.series.map(({ name }, at) => `${name} ${size(most[at])}`);
  part.append(make("h3", { class: "name" }, `Most: ${peaks.slice(0, 4).join(", ")}${peaks.length > 4 ? " …" : ""}`));
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, Math.max(...most) / 6))); // round in binary units
  chart(part, 260, `Memory over time, most: ${peaks.join(", ")}`, () => timed(memory.series.map(({ name, time: times, value }, nth) => ({
    name, type: "line", step: "end", showSymbol: value.length < 40, symbolSize: 4, itemStyle: { color: PALETTE[nth % PALETTE.length] },
    lineStyle: { width: 1.6, type: DASHES[nth % DASHES.length] }, data: times.map((at, sample) => [at, value[sample]]),
  })), memory.length_ns, { text: size, y: { interval: step, max: step * Math.ceil(Math.max(1, ...most) / step), axisLabel: { formatter: (bytes) => size(bytes).replace(/\.0+ /, " ") } } }));
}

// -- roofline

function drawRoofline(report, side) {
  const { roofline: found, names } = report;
  if (!found) return;
  const kernels = [...new Set(found.op)]; // where kernels were measured; ops have their own colours
  const look = (op, at) => (found.level ? { name: `${names[op]}, ${found.level[at]}`, level: found.level[at], fill: PALETTE[kernels.indexOf(op)] } : { name: names[op] });
  const points = found.op.map((op, at) => ({
    ...look(op, at), ns: found.gpu_ns[at], calls: found.calls[at], left: found.left[at], flops: found.flops[at],
    value: [found.flops[at] / found.bytes[at], (found.flops[at] / found.gpu_ns[at]) * 1e9], speed: (found.bytes[at] / found.gpu_ns[at]) * 1e9,
  }));
  const part = make("div", { class: "drawing" });
  const said = found.level ? "What each kernel reaches, by how much it computes on each byte of DRAM, L2 and L1, as Nsight Compute counted. Dashed: the most that a point here reached,"
    : "What each op reaches, by how much it computes on each byte, from the FLOPs and bytes of its calls. Dashed: the most that an op here reached,";
  place("roofline", "Roofline", said + " in FLOP/s and in bytes per second; " + (found.roofs.length ? `solid: what the GPU can do (${found.roofs.map(roofName).join("; ")}).` : "the device's own limits lie above."), part, side);
  const about = points.slice(0, 8).map((p) => `${p.name} ${rate(p.value[1], "FLOP/s")} at ${digits(p.value[0])} FLOP/byte`).join(", ");
  chart(part, 360, `Roofline: ${about}`, () => rooflineOf(points, found.roofs));
}

const LEVELS = { DRAM: "circle", L2: "diamond", L1: "triangle" }; // of memory: the shape of what was counted there

const roofName = ({ name, tflops, gb_per_s: speed }) => [name && `${name}:`, tflops && rate(tflops * 1e12, "FLOP/s"), speed && rate(speed * 1e9, "B/s")].filter(Boolean).join(" ");

function roofLine(roof, low, high) {
  const [peak, speed] = [roof.tflops * 1e12 || Infinity, roof.gb_per_s * 1e9 || Infinity];
  const ridge = Math.min(high, Math.max(low, peak / speed || low));
  const at = (x) => [x, Math.min(x * speed, peak)];
  const [data, end] = roof.name in LEVELS ? [[at(high), at(ridge), at(low)], { align: "left", offset: [4, -8] }] // a cache is told by its slope
    : [[at(low), at(ridge), at(high)], { align: "right", offset: [-4, -2] }];
  return { type: "line", silent: true, symbol: "none", data, lineStyle: { color: token("fg"), width: 1.2, opacity: 0.7 },
    endLabel: { show: true, formatter: roof.name, color: token("muted"), verticalAlign: "bottom", ...end } };
}

function rooflineOf(points, roofs) {
  const [xs, ys] = [0, 1].map((at) => points.map((point) => point.value[at]));
  const limits = roofs.filter((roof) => roof.tflops && roof.gb_per_s).map((roof) => (roof.tflops * 1e3) / roof.gb_per_s);
  const least = (values) => 10 ** Math.floor(Math.log10(Math.min(...values)) - 0.2);
  const most = (values) => 10 ** Math.ceil(Math.log10(Math.max(...values)) + 0.2);
  const [low, high, bottom, top] = [least(xs), most([...xs, ...limits]), least(ys), most([...ys, ...roofs.map((roof) => roof.tflops * 1e12).filter(Boolean)])];
  const speed = Math.max(...points.map((point) => point.speed)), peak = Math.max(...ys);
  const ridge = Math.min(high, Math.max(low, peak / speed));
  const longest = Math.max(...points.map((point) => point.ns));
  return base({
    grid: { left: 92, right: 24, top: 16, bottom: 48 },
    xAxis: axis({ type: "log", min: low, max: high, name: "FLOP per byte", nameLocation: "middle", nameGap: 28,
      axisLabel: { formatter: (value) => (value >= 0.001 && value < 1e5 ? String(Number(value.toPrecision(3))) : value.toExponential(0)) } }),
    yAxis: axis({ type: "log", min: bottom, max: top, axisLabel: { formatter: (value) => rate(value, "FLOP/s").replace(/\.0+ /, " ") } }),
    tooltip: { trigger: "item", formatter: ({ data }) => (data.name === undefined ? "" : tipOf(data.name, [
      ["reaches", rate(data.value[1], "FLOP/s")], ["and", rate(data.speed, "B/s")], ["at", `${digits(data.value[0])} FLOP/byte`],
      ["GPU time", time(data.ns)], [data.level ? "launches" : "calls", data.left ? `${count(data.calls)} of ${count(data.calls + data.left)}` : count(data.calls)]])) },
    series: [
      { type: "line", silent: true, symbol: "none", lineStyle: { color: token("muted"), type: "dashed", width: 1.4 },
        data: [[low, low * speed], [ridge, ridge * speed], [high, peak]] },
      ...roofs.map((roof) => roofLine(roof, low, high)),
      { type: "scatter", labelLayout: { hideOverlap: true }, data: points.map((point) => ({
        ...point, symbol: LEVELS[point.level] ?? "circle", symbolSize: 9 + 26 * Math.sqrt(point.ns / longest), itemStyle: { color: point.fill ?? colour(point.name), opacity: 0.9, borderColor: token("fg"), borderWidth: 0.6 } })),
      label: { show: true, position: "top", color: token("fg"), fontSize: 11, formatter: ({ data }) => data.name.slice(0, 40) } },
    ],
  });
}
