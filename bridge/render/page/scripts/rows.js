// The rows of the table of ops: of one report, or of two matched by name.

const orNull = (value) => (isMissing(value) ? null : value);
const title = (name, kind) => (kind === "reason" ? `no op: ${words(name)}` : name);

function grouped(work, made) {
  const under = new Map();
  work.of.forEach((of, at) => {
    if (!under.has(of)) under.set(of, []);
    under.get(of).push(made(at));
  });
  return under;
}

function rowsOfOne({ operators: ops, names, figures }) {
  const whole = figures.totals.gpu_ns;
  const cpu = figures.cpu; // the time on the CPU, where nothing ran on a GPU
  const under = grouped(ops.work, (at) => ({
    name: names[ops.work.name[at]], kind: "work", self: ops.work.total_ns[at], total: null,
    share: share(ops.work.total_ns[at], whole), calls: ops.work.count[at], mean: ops.work.mean_ns[at],
    max: ops.work.max_ns[at], cpu: null, full: names[ops.work.full[at]],
  }));
  return ops.name.map((name, at) => family({
    name: title(names[name], ops.kind[at]), kind: ops.kind[at], self: ops.gpu_self_ns[at],
    total: orNull(ops.gpu_total_ns[at]), share: share(ops.gpu_self_ns[at], whole), calls: ops.calls[at],
    mean: orNull(ops.gpu_mean_ns[at]), max: orNull(ops.gpu_max_ns[at]), cpu: orNull(ops.cpu_total_ns[at]),
    ...(cpu ? { cpuSelf: orNull(ops.cpu_self_ns[at]), cpuShare: share(ops.cpu_self_ns[at], cpu.total_ns) } : {}),
  }, under.get(at)));
}

// The full names of what ran under each op, of either report: what the table says of both is matched by name.
const keyOf = (...texts) => JSON.stringify(texts);

function fullNames(reports) {
  const found = new Map();
  for (const { operators: ops, names } of reports) {
    ops?.work.of.forEach((of, at) => {
      const op = ops.kind[of] === "other" ? "more ops" : names[ops.name[of]];
      const key = keyOf(ops.kind[of], op, names[ops.work.name[at]]);
      if (!found.has(key)) found.set(key, names[ops.work.full[at]]);
    });
  }
  return found;
}

function rowsOfTwo(both, reports) {
  const full = fullNames(reports);
  const pair = (columns, at) => ({
    a: columns.a_ns[at], b: columns.b_ns[at], delta: columns.delta_ns[at], ratio: columns.ratio[at],
    aCalls: columns.a_calls[at], bCalls: columns.b_calls[at],
  });
  const under = grouped(both.work, (at) => ({
    name: both.work.name[at], kind: "work", ...pair(both.work, at),
    full: full.get(keyOf(both.kind[both.work.of[at]], both.name[both.work.of[at]], both.work.name[at])),
  }));
  return both.name.map((name, at) =>
    family({
      name: title(name, both.kind[at]), kind: both.kind[at], ...pair(both, at),
      state: both.state[at], interval: interval(both.low[at], both.high[at]),
    }, under.get(at)));
}

// Where the change per step lies with 95 % confidence, in per cent of A.
function interval(low, high) {
  if (low === null || high === null) return null;
  const decimals = high - low > 0.2 ? 0 : 1;
  const [first, second] = [low, high].map((end) => {
    const text = (100 * (end - 1)).toFixed(decimals);
    return Number(text) < 0 ? text : `+${text.replace("-", "")}`;
  });
  return `${first} … ${second} %`;
}

// A row with those under it, which know it: a filter looks at both.
function family(row, children) {
  if (!children) return row;
  children.forEach((child) => Object.defineProperty(child, "above", { value: row, enumerable: false }));
  row._children = children;
  return row;
}

const COLUMNS_OF_ONE = [ // [field, heading, text, what it is]
  ["share", "of GPU", percent, "GPU self as a share of all GPU time"],
  ["self", "GPU self", time, "GPU time of the innermost op alone: selfs add up"],
  ["total", "GPU total", time, "GPU time of the op and everything under it"],
  ["calls", "calls", count, "calls of the op; of a kernel, how often it ran"],
  ["mean", "mean", time, "GPU time of a call; of a kernel, of one run"],
  ["max", "max", time, "longest GPU time of a call or run"],
  ["cpuShare", "of CPU", percent, "CPU self as a share of the CPU time of all ops"],
  ["cpuSelf", "CPU self", time, "time on the CPU of the innermost op alone: selfs add up"],
  ["cpu", "CPU total", time, "time on the CPU, everything under the op included"],
];

// Where neither report has work on a device, the time is that on the CPU.
function columnsOfTwo(unit) {
  const what = unit === "gpu" ? "GPU self" : "CPU total";
  return [
    ["a", `A: ${what}`, time, `${what} time in A`],
    ["b", `B: ${what}`, time, `${what} time in B`],
    ["delta", "B − A", (ns) => signed(ns, time), `change of the ${what} time`],
    ["ratio", "B / A", (value) => `${value.toFixed(3)} ×`, `${what} time in B as a multiple of that in A`],
    ["state", "state", String, "whether B is slower or faster per step, the same within the noise (1 %), or unclear"],
    ["interval", "per step", String, "where the change per step lies with 95 % confidence; empty without at least 4 steps in each report"],
    ["aCalls", "A: calls", count, "calls in A; of a kernel, how often it ran"],
    ["bCalls", "B: calls", count, "calls in B; of a kernel, how often it ran"],
  ];
}

function asCsv(rows, columns) {
  const units = { share: "share", ratio: "ratio", calls: "calls", aCalls: "a_calls", bCalls: "b_calls", state: "state", interval: "change_per_step" };
  const full = rows.some((row) => row._children?.some((child) => child.full)); // else there is no such column
  const head = ["op", "kernel", ...columns.map(([field]) => units[field] ?? `${field}_ns`), ...(full ? ["full_name"] : [])];
  const line = (op, kernel, row) => [op, kernel, ...columns.map(([field]) => row[field]), ...(full ? [row.full] : [])];
  const body = rows.flatMap((row) => [line(row.name, "", row), ...(row._children ?? []).map((child) => line(row.name, child.name, child))]);
  return csv([head, ...body]);
}
