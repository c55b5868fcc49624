// Elements, made without markup: every text enters the page as text.

function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const button = (text, action, given = {}) => make("button", { type: "button", onclick: action, ...given }, text);

// A panel with its heading; it is in the contents of the page as well.
function panel(id, title, about, ...children) {
  const section = make("section", { id, class: "panel", "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, title), about ? make("p", { class: "about" }, about) : null, ...children);
  document.getElementById("panels").append(section);
  document.getElementById("contents").append(make("a", { href: `#${id}` }, title));
  return section;
}

function announce(text) {
  document.getElementById("live").textContent = text;
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// What is drawn on canvases is drawn anew when the page changes its colours or its width.
const drawings = [];

function drawnAnew(element, draw) {
  drawings.push(draw);
  let width = element.clientWidth; // it is drawn in this width already
  new ResizeObserver(() => {
    // A browser counts its sheets first: what grew after that would be lost.
    if (document.documentElement.hasAttribute("data-paper")) return;
    if (element.clientWidth === width || !element.clientWidth) return;
    width = element.clientWidth;
    draw();
  }).observe(element);
}

const redraw = () => drawings.forEach((draw) => draw());

// A canvas of this size in CSS pixels, sharp on any screen.
function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}
