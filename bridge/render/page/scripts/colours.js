// One colour per op in all panels, told apart with any kind of colour vision; names are always written besides.

const PALETTE = [ // Okabe and Ito's, and three more
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7d5fc2", "#8c9a3b", "#a0522d",
];
const colourOfOp = new Map();

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The ops with most time in any of the reports get the colours.
function giveColours(reports) {
  const most = new Map();
  const ran = reports.some(({ figures }) => figures.totals.gpu_ns); // else the time is that on the CPU
  for (const { operators, names } of reports) {
    operators?.kind.forEach((kind, row) => {
      const name = names[operators.name[row]];
      const own = ran ? operators.gpu_self_ns[row] : operators.cpu_self_ns[row];
      if (kind === "op" && own > 0) most.set(name, Math.max(own, most.get(name) ?? 0));
    });
  }
  const ranked = [...most].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));
  ranked.slice(0, PALETTE.length).forEach(([name], rank) => colourOfOp.set(name, PALETTE[rank]));
}

const colour = (op) => colourOfOp.get(op) ?? token("neutral");

function luminance(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Black or white, whichever is read better on this colour.
const ink = (hex) => (luminance(hex) > 0.18 ? "#10151c" : "#ffffff");

function mixed(hex, other, share) {
  const part = (at) => Math.round(
    parseInt(hex.slice(at, at + 2), 16) * (1 - share) + parseInt(other.slice(at, at + 2), 16) * share);
  return `#${[1, 3, 5].map((at) => part(at).toString(16).padStart(2, "0")).join("")}`;
}

// Stripes, for what has no op: known without its colour.
function striped(context) {
  const tile = make("canvas");
  tile.width = tile.height = 8;
  const draw = tile.getContext("2d");
  draw.fillStyle = token("stripe");
  draw.fillRect(0, 0, 8, 8);
  draw.strokeStyle = token("stripe-line");
  draw.lineWidth = 1.5;
  draw.beginPath();
  [[-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]].forEach(([a, b, c, d]) => { draw.moveTo(a, b); draw.lineTo(c, d); });
  draw.stroke();
  return context.createPattern(tile, "repeat");
}
