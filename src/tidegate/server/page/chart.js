/**
 * Lines over time and a bar of parts, as SVG, without a library.
 *
 *     max ┤        ╭─╮            a line breaks where there is no value: a stopped changefeed has no lag
 *         │  ╭─────╯ ╰──          screen readers get the newest and the highest value of each line
 *       0 ┴──────────────►  time
 */
import { h, setAttribute, setText, svg } from "./dom.js";
import { NONE, time } from "./format.js";

const WIDE = 380;
const HIGH = 112;
const LEFT = 52;
const LOW = 24;

/** The next round number above: 1, 2 or 5 times a power of ten. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * unit).find((step) => step >= value);
}

export class LineChart {
  /** `lines` are {name, key}; `unit` formats a value. */
  constructor(title, lines, unit) {
    Object.assign(this, { title, lines, unit, data: null });
    this.paths = lines.map((_, number) => svg("path", { class: `line line-${number}` }));
    this.grid = svg("g", { class: "grid" });
    this.cursor = svg("line", { class: "cursor", y1: 8, y2: HIGH - LOW, visibility: "hidden" });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" }, this.grid, this.paths, this.cursor);
    this.picture.addEventListener("pointermove", (event) => this.#point(event));
    this.picture.addEventListener("pointerleave", () => this.#point(null));
    this.values = lines.map(() => h("span", { class: "number" }));
    const legend = lines.map((line, number) =>
      h("li", {}, h("span", { class: `swatch swatch-${number}`, "aria-hidden": "true" }), `${line.name}: `, this.values[number]),
    );
    this.when = h("li", { class: "quiet" });
    this.element = h(
      "figure",
      { class: "chart" },
      h("figcaption", {}, title),
      this.picture,
      h("ul", { class: "legend" }, legend, this.when),
    );
  }

  /** Show columns of samples: `time_ms` and one for each line. */
  update(data) {
    this.data = data;
    const times = data.time_ms;
    const first = times[0] ?? 0;
    const last = times.at(-1) ?? 1;
    const values = this.lines.flatMap((line) => data[line.key].filter((value) => value !== null));
    const top = roundUp(Math.max(0, ...values));
    this.x = (ms) => LEFT + ((ms - first) / Math.max(1, last - first)) * (WIDE - LEFT - 8);
    this.y = (value) => HIGH - LOW - (Math.min(value, top) / top) * (HIGH - LOW - 12);
    this.lines.forEach((line, number) => setAttribute(this.paths[number], "d", this.#path(times, data[line.key])));
    this.#axes(first, last, top, times.length);
    this.#legend(times.length - 1);
    const descriptions = this.lines.map((line) => {
      const values = data[line.key].filter((value) => value !== null);
      if (!values.length) return `${line.name} unknown`;
      const now = data[line.key].at(-1);
      return `${line.name} now ${this.#format(now)}, highest ${this.#format(Math.max(...values))}`;
    });
    setAttribute(this.picture, "aria-label", `${this.title}, ${descriptions.join("; ")}`);
  }

  #format = (value) => (value === null || value === undefined ? NONE : this.unit(value));

  #path(times, values) {
    const interval = times.length > 1 ? (times.at(-1) - times[0]) / (times.length - 1) : 1;
    let path = "";
    let before = null;
    times.forEach((ms, index) => {
      if (values[index] === null) before = null;
      else {
        const gap = before === null || ms - before > 4 * interval;
        path += `${gap ? "M" : "L"}${this.x(ms).toFixed(1)} ${this.y(values[index]).toFixed(1)}`;
        if (gap) path += "h0.1";
        before = ms;
      }
    });
    return path;
  }

  #axes(first, last, top, samples) {
    const marks = [0, top / 2, top].flatMap((value) => [
      svg("line", { x1: LEFT, x2: WIDE - 8, y1: this.y(value), y2: this.y(value) }),
      svg("text", { x: LEFT - 6, y: this.y(value) + 4, "text-anchor": "end" }, this.unit(value)),
    ]);
    const ends = samples
      ? [
          svg("text", { x: LEFT, y: HIGH - 6 }, time(first, false)),
          svg("text", { x: WIDE - 8, y: HIGH - 6, "text-anchor": "end" }, time(last, false)),
        ]
      : [svg("text", { x: WIDE / 2, y: HIGH / 2, "text-anchor": "middle" }, "no samples yet")];
    this.grid.replaceChildren(...marks, ...ends);
  }

  #legend(index) {
    this.lines.forEach((line, number) => setText(this.values[number], this.#format(this.data[line.key][index])));
    setText(this.when, index >= 0 ? `at ${time(this.data.time_ms[index], false)}` : "");
  }

  #point(event) {
    const times = this.data?.time_ms ?? [];
    if (!event || !times.length) {
      setAttribute(this.cursor, "visibility", "hidden");
      this.#legend(times.length - 1);
      return;
    }
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDE;
    let nearest = 0;
    times.forEach((ms, index) => {
      if (Math.abs(this.x(ms) - x) < Math.abs(this.x(times[nearest]) - x)) nearest = index;
    });
    setAttribute(this.cursor, "visibility", "visible");
    setAttribute(this.cursor, "x1", this.x(times[nearest]));
    setAttribute(this.cursor, "x2", this.x(times[nearest]));
    this.#legend(nearest);
  }
}

export class PartsBar {
  /** Parts of a whole, `names` in order, with their labels. */
  constructor(title, names, unit) {
    Object.assign(this, { title, names, unit });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDE} 16`, role: "img", preserveAspectRatio: "none" });
    this.rects = Object.keys(names).map((_, index) => svg("rect", { y: 1, height: 14, class: `part part-${index}` }));
    this.picture.append(...this.rects);
    this.values = Object.keys(names).map(() => h("span", { class: "number" }));
    const legend = Object.entries(names).map(([, label], index) =>
      h("li", {}, h("span", { class: `swatch part-${index}`, "aria-hidden": "true" }), `${label}: `, this.values[index]),
    );
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, title), this.picture, h("ul", { class: "legend" }, legend));
  }

  update(parts) {
    const keys = Object.keys(this.names);
    const sum = keys.reduce((total, key) => total + (parts[key] ?? 0), 0);
    let x = 0;
    const descriptions = keys.map((key, index) => {
      const share = sum ? (parts[key] ?? 0) / sum : 0;
      setAttribute(this.rects[index], "x", x);
      setAttribute(this.rects[index], "width", share * WIDE);
      x += share * WIDE;
      const text = sum ? `${Math.round(share * 100)} % (${this.unit(parts[key] ?? 0)})` : NONE;
      setText(this.values[index], text);
      return `${this.names[key]} ${text}`;
    });
    setAttribute(this.picture, "aria-label", `${this.title}: ${descriptions.join(", ")}`);
  }
}
