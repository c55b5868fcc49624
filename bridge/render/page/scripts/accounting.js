// Where all time on the GPU went: into ops, or to a reason, with what to do about that.

// Work that a thread launched outside of ranges, and that the range waiting for it has.
const adoptedTime = (totals) => totals.adopted?.gpu_ns ?? 0;

function adoptedText({ totals }) {
  if (!totals.adopted) return "";
  return ` ${percent(share(adoptedTime(totals), totals.gpu_ns))} of GPU time is adopted: launched outside of ranges by a thread that another waited for.`;
}

function accountBar(report, side) {
  const { totals } = report.figures;
  const parts = [
    { name: "in ops", ns: totals.attributed_ns - adoptedTime(totals), class: "in-ops" },
    ...(totals.adopted ? [{ name: "adopted", ns: adoptedTime(totals), class: "adopted" }] : []),
    ...report.reasons.map(({ reason, gpu_ns: ns }) => ({ name: words(reason), ns, class: reason })),
  ];
  const said = parts.map(({ name, ns }) => `${name} ${percent(share(ns, totals.gpu_ns))}`).join(", ");
  return make("div", { class: "account" }, side ? make("span", { class: "side" }, side) : null,
    make("div", { class: "bar", role: "img", "aria-label": said }, ...parts.filter(({ ns }) => ns > 0).map((part) =>
      make("i", { class: part.class, style: { flexGrow: String(part.ns) }, title: `${part.name}: ${time(part.ns)}` },
        share(part.ns, totals.gpu_ns) > 0.12 ? `${part.name} ${percent(share(part.ns, totals.gpu_ns))}` : ""))));
}

function reasonRow(report, one, side) {
  const part = percent(share(one.gpu_ns, report.figures.totals.gpu_ns));
  return make("div", { class: "reason" },
    make("dt", {}, side ? make("span", { class: "side" }, side) : null, make("i", { class: `swatch ${one.reason}` }),
      `${words(one.reason)}: ${plural(one.activities, "activity").replace("activitys", "activities")}, ${time(one.gpu_ns)} (${part})`),
    make("dd", {}, `${one.meaning}.`),
    make("dd", {}, make("strong", {}, "To change that: "), `${one.remedy}.`));
}

function drawAccounting(reports) {
  const there = reports.filter((report) => report.figures.totals.activities);
  if (!there.length) return;
  const side = (report) => (reports.length > 1 ? "AB"[reports.indexOf(report)] : null);
  if (there.every((report) => !report.reasons.length)) {
    const activities = there.reduce((sum, report) => sum + report.figures.totals.activities, 0);
    document.getElementById("panels").append(make("p", { id: "accounted", class: "about" },
      `All ${count(activities)} activities on the GPU are attributed to ops.${there.map((report) => adoptedText(report.figures)).join("")}`));
    return;
  }
  const reasons = there.flatMap((report) => report.reasons.map((one) => reasonRow(report, one, side(report))));
  panel("accounting", "Accounting", `Every activity counts once: in the op that launched it, or under the reason why it has none.${there.map((report) => adoptedText(report.figures)).join("")}`,
    ...there.map((report) => accountBar(report, side(report))), make("dl", {}, ...reasons));
}
