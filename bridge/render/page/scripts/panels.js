// Where a report's part of a panel goes: alone, or as A and B in one panel.

function place(id, title, about, part, side) {
  const known = document.getElementById(id);
  const named = side ? make("div", { class: "of-side" }, make("p", { class: "side-name" }, make("span", { class: "side" }, side.letter), make("span", { class: "name" }, side.source)), part) : part;
  if (known) known.querySelector(".parts").append(named);
  else panel(id, title, about, make("div", { class: side ? "parts two" : "parts" }, named));
}

// What `bridge summary` says first: the run and its parts, what failed, what each GPU did, what the run pays for.

function drawSummary(reports) {
  const said = reports.flatMap((report, at) => (report.summary?.lines ?? []).map((line) => [reports.length > 1 ? "AB"[at] : null, line]));
  if (!said.length) return;
  panel("summary", "Summary", "The run, what its GPUs did, what it pays for.", make("ul", {}, ...said.map(([side, line]) =>
    make("li", {}, side ? make("span", { class: "side" }, side) : null, line))));
}

function drawNotes(reports) {
  const notes = reports.flatMap((report, at) => report.notes.map((note) => [reports.length > 1 ? "AB"[at] : null, note]));
  if (!notes.length) return;
  const noWork = reports.every((report) => !report.figures.totals.activities);
  panel("notes", noWork ? "No work on a GPU" : "Notes", noWork ? "Why the page has no kernels." : "What to know before trusting the figures.", make("ul", {}, ...notes.map(([side, note]) =>
    make("li", {}, side ? make("span", { class: "side" }, side) : null, note))));
}
