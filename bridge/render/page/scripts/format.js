// Numbers as people read them, and cells of CSV files.
"use strict";

const TIME = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const SIZE = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const THOUSANDS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

// Four digits that count: 1.234, 12.34, 123.4, 1234.
function digits(value) {
  const size = Math.abs(Number(value.toPrecision(4))); // as it will be read: 9.9996 is 10.00
  return value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function scaled(value, scales) {
  const fits = scales.findIndex(([s]) => Math.abs(value) >= s);
  const nth = fits < 0 ? scales.length - 1 : fits;
  const textIn = ([scale]) => (scale === 1 && Number.isInteger(value) ? String(value) : digits(value / scale));
  // What rounds up to a whole larger unit is told in that: 1.000 s, not 1000 ms.
  const up = nth > 0 && Math.abs(Number(textIn(scales[nth]))) * scales[nth][0] >= scales[nth - 1][0];
  const chosen = scales[up ? nth - 1 : nth];
  return `${textIn(chosen)} ${chosen[1]}`;
}

const isMissing = (value) => value === null || value === undefined || value < 0;
const time = (ns) => scaled(ns, TIME);
const size = (bytes) => scaled(bytes, SIZE);
const rate = (perSecond, unit) => scaled(perSecond, THOUSANDS) + unit;
const count = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
const signed = (value, text) => (value > 0 ? "+" : value < 0 ? "−" : "±") + text(Math.abs(value));
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// A little is not shown as nothing, nor nearly all as all.
function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1 %";
  if (share < 1 && share > 0.999) return ">99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

// Long forms of frameworks' names, and what is shown of them.
const shortNames = new Map();
const shortName = (name) => shortNames.get(name) ?? name;

const words = (reason) => reason.replaceAll("_", " ");

// A text that a spreadsheet would take for a formula gets an apostrophe before it.
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csv = (rows) => rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
