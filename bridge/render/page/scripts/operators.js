// The table of ops, a tree with what ran under each; Tabulator sorts, filters and scrolls it.

const rowOf = new WeakMap(); // element -> row, for the keyboard

function drawOperators(reports, comparison) {
  const two = reports.length > 1;
  if (two ? !comparison.name.length : !reports[0].operators) return Promise.resolve();
  const rows = two ? rowsOfTwo(comparison, reports) : rowsOfOne(reports[0]);
  const columns = (two ? columnsOfTwo(comparison.unit) : COLUMNS_OF_ONE).filter(([field]) => used(rows, field));
  const trees = rows.some((row) => row._children);
  const holder = make("div", { id: "operators-table" });
  const tools = make("div", { class: "tools" });
  panel("operators", "Operators", two
    ? "Ops of both reports, matched by name; expand one to see what ran under it. The largest changes come first."
    : trees ? "GPU time per op; expand one to see the kernels, memcpys and memsets that it launched."
      : "CPU time per op: nothing ran on a GPU.",
  tools, holder, printed(rows, columns));
  const table = new tabulator.Tabulator(holder, {
    data: rows, dataTree: true, dataTreeChildIndent: 16, dataTreeFilter: true, dataTreeSort: true,
    dataTreeBranchElement: false, dataTreeStartExpanded: (row) => row.getData() === rows[0],
    layout: "fitColumns", responsiveLayout: "hide", maxHeight: 520, headerSortClickElement: "header",
    columnDefaults: { headerHozAlign: "right", hozAlign: "right", sorter: "number", sorterParams: { alignEmptyValues: "bottom" } },
    rowFormatter: withKeyboard, columns: columnsOf(rows, columns, two),
  });
  drawTools(tools, table, rows, columns);
  holder.addEventListener("keydown", (event) => byKeyboard(event, table));
  return new Promise((built) => table.on("tableBuilt", () => { treeRoles(holder); page.table = table; built(); }));
}

const used = (rows, field) => rows.some((row) => row[field] !== null && row[field] !== undefined && row[field] !== 0);

function columnsOf(rows, columns, two) {
  const bar = two ? "delta" : columns.some(([field]) => field === "cpuShare") ? "cpuShare" : "share";
  const most = rows.reduce((most, row) => Math.max(most, Math.abs(row[bar] ?? 0)), 0);
  const order = two ? [3, 4, 1, 5, 2, 6, 7, 8] : bar === "cpuShare" ? [4, 3, 1, 2] : [1, 2, 4, 3, 5, 6, 7]; // which columns go first where there is no room
  return [
    { title: rows.some((row) => row._children) ? "op / kernel" : "op", field: "name", widthGrow: 4, minWidth: 130, sorter: "string", headerHozAlign: "left", hozAlign: "left", formatter: named, responsive: 0, variableHeight: true },
    ...columns.map(([field, heading, text, about], nth) => ({
      title: heading, field, headerTooltip: about, minWidth: heading.length > 7 ? 120 : 96, // the heading and its arrow
      widthGrow: field === bar ? 1.6 : 1.2, responsive: order[nth],
      headerSortStartingDir: "desc", ...(field === "state" ? { sorter: "string" } : {}), formatter: (cell) => figure(cell, field === bar ? most : 0, text),
    })),
  ];
}

function named(cell) {
  const { name, kind, full, _children: children } = cell.getData();
  const dot = kind === "op" ? make("i", { class: "swatch", style: { background: colour(name) } })
    : kind === "reason" ? make("i", { class: "swatch no-op" }) : null;
  const like = kind === "work" ? "name work" : children ? "name" : "name lone";
  return make("span", { class: like, title: full ?? name }, dot, shortName(name));
}

function figure(cell, most, text) {
  const value = cell.getValue();
  if (value === null || value === undefined) return make("span", { class: "none" }, "–");
  if (!most) return make("span", {}, text(value));
  const part = `${(100 * Math.abs(value)) / most}%`;
  return make("span", { class: `bar-cell ${value < 0 ? "less" : ""}` }, make("i", { style: { width: part } }), make("span", {}, text(value)));
}

// -- filter, expand, CSV

function drawTools(tools, table, rows, columns) {
  const found = make("span", { class: "found", role: "status" });
  const trees = rows.some((row) => row._children);
  const what = trees ? "Filter ops and kernels" : "Filter ops";
  const parents = () => table.getRows().filter((row) => row.getData()._children);
  const all = (open) => {
    table.blockRedraw();
    parents().forEach((row) => (open ? row.treeExpand() : row.treeCollapse()));
    table.restoreRedraw();
  };
  const filter = make("input", {
    type: "search", placeholder: what, "aria-label": what, spellcheck: "false",
    oninput: () => {
      const wanted = filter.value.trim().toLowerCase();
      if (!wanted) { table.clearFilter(); found.textContent = ""; return; }
      table.setFilter((row) => matches(row, wanted));
      table.blockRedraw();
      parents().filter((row) => !has(row.getData(), wanted)).forEach((row) => row.treeExpand());
      table.restoreRedraw();
      const left = rows.filter((row) => matches(row, wanted)).length;
      found.textContent = `${left} of ${rows.length}`;
    },
  });
  tools.append(filter, ...(trees ? [button("Expand all", () => all(true)), button("Collapse all", () => all(false))] : []),
    button("CSV", () => download("operators.csv", asCsv(rows, columns)), { title: "All rows, times in ns" }), found);
}

const has = (row, wanted) => row.name.toLowerCase().includes(wanted);
const matches = (row, wanted) => has(row, wanted) || (row.above && has(row.above, wanted))
  || Boolean(row._children?.some((child) => has(child, wanted)));

// -- keyboard: from row to row, by pages and to the ends, right and left to open and close

function withKeyboard(row) {
  const element = row.getElement();
  rowOf.set(element, row);
  const data = row.getData();
  element.setAttribute("tabindex", "-1");
  element.setAttribute("aria-level", data.kind === "work" ? "2" : "1");
  if (data._children) element.setAttribute("aria-expanded", String(row.isTreeExpanded()));
  element.classList.toggle("work-row", data.kind === "work");
}

function treeRoles(holder) {
  holder.setAttribute("role", "treegrid");
  holder.setAttribute("aria-label", "Operators: arrows up and down, Page Up, Page Down, Home and End move, right opens, left closes");
  const body = holder.querySelector(".tabulator-tableholder");
  body.setAttribute("tabindex", "0");
  body.setAttribute("aria-label", "Rows: arrow down goes to the first");
  holder.querySelectorAll(".tabulator-col").forEach((heading) => heading.setAttribute("tabindex", "0"));
}

function byKeyboard(event, table) {
  const row = rowOf.get(event.target);
  if (!row) { enter(event, table); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const tree = Boolean(row.getData()._children);
  const act = {
    ArrowDown: () => focusRow(row.getNextRow(), table),
    ArrowUp: () => focusRow(row.getPrevRow(), table),
    PageDown: () => focusRow(further(row, table, 1), table),
    PageUp: () => focusRow(further(row, table, -1), table),
    Home: () => focusRow(table.getRows("display")[0], table),
    End: () => focusRow(table.getRows("display").at(-1), table),
    ArrowRight: () => tree && open(row, table, true),
    ArrowLeft: () => (tree && row.isTreeExpanded() ? open(row, table, false) : focusRow(row.getTreeParent(), table)),
    Enter: () => tree && open(row, table, !row.isTreeExpanded()),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

// The row a page further down (1) or up (-1), as far as there are rows.
function further(row, table, way) {
  const rows = table.getRows("display");
  const element = row.getElement();
  const page = Math.max(1, Math.floor(element.closest(".tabulator-tableholder").clientHeight / element.offsetHeight) - 1);
  return rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(row) + way * page))];
}

// From a heading, which sorts, and from the body into the first row that is shown.
function enter(event, table) {
  const heading = event.target.matches(".tabulator-col") && (event.key === "Enter" || event.key === " ");
  const body = event.target.matches(".tabulator-tableholder") && event.key === "ArrowDown";
  if (!heading && !body) return;
  event.preventDefault();
  if (heading) event.target.click();
  else focusRow(table.getRows("active")[0], table);
}

function open(row, table, wanted) {
  if (row.isTreeExpanded() !== wanted) row.treeToggle();
  focusRow(row, table);
}

// A row far off is drawn only once the table has scrolled there, which may take it a few frames.
function focusRow(row, table, tries = 10) {
  if (!row) return;
  row.getElement().focus({ preventScroll: false });
  if (document.activeElement === row.getElement() || !tries) return;
  table.scrollToRow(row, "center", true).catch(() => undefined);
  requestAnimationFrame(() => focusRow(row, table, tries - 1));
}

// -- on paper there is no scrolling: the first rows as a plain table

function printed(rows, columns) {
  const ran = rows.filter((row) => row.self || row.a || row.b);
  const few = (ran.length ? ran : rows).slice(0, 25);
  const line = (row) => make("tr", {}, make("td", { class: "name" }, row.name),
    ...columns.map(([field, , text]) => make("td", {}, row[field] === null || row[field] === undefined ? "–" : text(row[field]))));
  return make("table", { class: "on-paper" },
    make("thead", {}, make("tr", {}, make("th", {}, "op"), ...columns.map(([, heading]) => make("th", {}, heading)))),
    make("tbody", {}, ...few.map(line)),
    rows.length > few.length ? make("caption", {}, `The first ${few.length} of ${rows.length} rows; the page itself has all.`) : null);
}
