// A window of time on an axis from 0 to `length`: dragged, zoomed by the wheel and stepped through by keys.

const LEAST_WINDOW = 100; // ns

class Window {
  constructor(length, changed) {
    Object.assign(this, { length, changed, from: 0, to: length });
  }

  set(from, to) {
    const width = Math.min(this.length, Math.max(LEAST_WINDOW, to - from));
    this.from = Math.max(0, Math.min(from, this.length - width));
    this.to = this.from + width;
    this.changed();
  }

  get width() { return this.to - this.from; }
  get isWhole() { return this.width >= this.length; }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.set(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(part) {
    this.set(this.from + this.width * part, this.to + this.width * part);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), _: () => this.zoom(2),
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), Home: () => this.set(0, this.length),
      Escape: () => this.set(0, this.length), 0: () => this.set(0, this.length),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // With Ctrl the wheel zooms about the pointer, as in the charts; alone it scrolls the page, sideways it moves.
  wheel(event, at) {
    if (event.ctrlKey) {
      event.preventDefault(); // else the browser would zoom the page
      this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), at);
    } else if (!this.isWhole && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan(event.deltaX / 800);
    }
  }
}

// Round times for an axis: 1, 2 or 5 times a power of ten, about `most` of them.
function ticks(from, to, most) {
  const rough = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return { step, found };
}

function tickText(at, step) {
  const [scale, unit] = TIME.find(([s]) => step >= s || s === 1) ;
  return `${(at / scale).toFixed(0).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f")} ${unit}`;
}
