// The start: unpack the libraries, draw the panels, say that all is there.

const page = {}; // what tests and the curious may look at: window.page

async function unpacked(element) {
  const packed = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  element.remove();
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function loadLibraries() {
  const texts = await Promise.all([...document.querySelectorAll("script.library")].map(unpacked));
  texts.forEach((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    script.remove();
  });
}

function themeButton() {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);
  const theme = document.getElementById("theme");
  const show = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; show(); redraw(); });
  preferred.addEventListener("change", () => { show(); redraw(); });
  const paper = (is) => { if (root.hasAttribute("data-paper") === is) return; root.toggleAttribute("data-paper", is); redraw(); };
  matchMedia("print").addEventListener("change", (event) => paper(event.matches));
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  show();
}

async function start() {
  const { reports, comparison } = JSON.parse(document.getElementById("data").textContent);
  const sides = reports.map((report, at) => (reports.length > 1 ? { letter: "AB"[at], source: report.source.join(", ") } : null));
  const each = (draw) => reports.forEach((report, at) => draw(report, sides[at]));
  window.page = page;
  reports.forEach(({ short_names: short }) => Object.entries(short ?? {}).forEach(([name, text]) => shortNames.set(name, text)));
  giveColours(reports);
  themeButton();
  const noWork = reports.every((report) => !report.figures.totals.activities);
  if (noWork) drawNotes(reports); // they say why, so they come first
  drawFigures(reports);
  drawSummary(reports);
  drawAdvice(reports);
  drawAccounting(reports);
  await loadLibraries();
  const table = drawOperators(reports, comparison);
  [drawIcicle, drawCritical, drawTimeline, drawUtilisation, drawMemory, drawRoofline].forEach(each);
  if (!noWork) drawNotes(reports);
  await table;
  requestAnimationFrame(() => {
    document.documentElement.dataset.ready = "";
    page.readyMs = performance.now();
  });
}

start().catch((error) => {
  document.getElementById("panels").prepend(make("p", { class: "alert" }, `The page could not be drawn: ${error.message}`));
  throw error;
});
