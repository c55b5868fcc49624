// What slows the run down: each piece of advice with what it is worth, what to do, and where it shows most.

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

function advicePiece(one, side) {
  const most = one.share >= 0 ? make("div", { class: "worth", role: "img", "aria-label": `at most ${percent(one.share)} of the run` },
    make("i", { style: { width: `${Math.max(0.5, 100 * one.share)}%` } })) : null;
  return make("li", {},
    make("h3", {}, side ? make("span", { class: "side" }, side) : null, one.title),
    make("p", {}, sentence(one.text)), most,
    one.worth ? make("p", { class: "below" }, sentence(one.worth)) : null,
    make("p", {}, make("strong", {}, "Do: "), `${one.remedy}.`),
    one.same_time ? make("p", { class: "below" }, sentence(one.same_time)) : null,
    one.place ? make("p", { class: "below" }, "Largest at ", make("code", {}, one.place)) : null,
    one.source ? make("p", { class: "below" }, sentence(one.source)) : null);
}

function drawAdvice(reports) {
  const side = (at) => (reports.length > 1 ? "AB"[at] : null);
  const told = reports.map(({ advice }) => advice ?? { pieces: [], left: [] });
  const pieces = told.flatMap(({ pieces: own }, at) => own.map((one) => advicePiece(one, side(at))));
  const left = told.flatMap(({ left: own }, at) => own.map((text) => make("li", {}, side(at) ? make("span", { class: "side" }, side(at)) : null, text)));
  if (!pieces.length) return;
  panel("advice", "Advice", "What slows the run down, with estimated savings. Each cause is listed once.",
    make("ol", { class: "advice" }, ...pieces),
    left.length ? make("details", {}, make("summary", {}, "Skipped rules"), make("ul", {}, ...left)) : null);
}
