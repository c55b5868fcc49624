// What the run waited for: the largest parts of the critical path, and how long the run takes without each.

function drawCritical(report, side) {
  const path = report.critical;
  if (!path) return;
  const head = path.headings.map((name, at) => make("th", { scope: "col", class: at > 1 ? "number" : null }, name));
  const rows = path.op.map((op, at) => make("tr", {},
    make("td", { title: op }, shortName(op)), make("td", {}, path.kind[at]),
    make("td", { class: "number" }, time(path.time_ns[at])), make("td", { class: "number" }, percent(path.share[at])),
    make("td", { class: "number" }, isMissing(path.without_ns[at]) ? "" : time(path.without_ns[at]))));
  place("critical", "Critical path", "What the run waited for, and how long it would be if all elements of a row took no time.",
    make("div", {}, make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)),
      make("p", { class: "below" }, `The run takes ${time(path.run_ns)}.`)), side);
}
