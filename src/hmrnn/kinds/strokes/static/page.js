// Draw: the segments of strokes that are drawn on the pad or generated. Points are in pixels of the pad. The hidden field
// "strokes" holds the code of a drawing by hand, so that a link has it. Models that read handwriting say what is drawn.

import { file, lines } from "/static/api.js";
import { decoded, encoded } from "/static/strokes/code.js";
import { Panel } from "/static/panel.js";
import { Segmentation } from "/static/segmentation.js";
import { element } from "/static/view.js";

const id = (name) => document.getElementById(name);
const NEAR = 4; // pixels: a point closer to the last one is skipped
const MARGIN = 24;

export function open(page, models) {
  return { draw: new Draw(page, models) };
}

class Draw {
  constructor(page, models) {
    this.page = page;
    this.models = models.filter(({ reads }) => reads === "strokes");
    this.readers = models.filter(({ reads }) => reads === "transcripts");
    this.points = []; // {x, y, up}
    this.letters = []; // of each point, its place in this.text
    this.text = "";
    this.style = null; // the drawing in whose hand texts are written
    this.found = null;
    this.down = false;
    this.marked = null;
    page.fill(id("draw-model"), this.models);
    id("points").max = page.limits.points;
    id("bias").addEventListener("input", () => { document.querySelector('output[for="bias"]').textContent = id("bias").value; });
    for (const name of ["draw-model", "bias", "points", "draw-seed", "draw-condition", "draw-text", "draw-says"]) id(name).addEventListener("input", () => page.remember());
    id("draw-model").addEventListener("change", () => { this.#levels(); this.#read(); });
    id("draw-model").addEventListener("input", () => this.#offer());
    for (const name of ["draw-condition", "draw-says"]) id(name).addEventListener("change", () => this.#read());
    id("draw-level").addEventListener("change", () => this.#paint());
    id("compose").addEventListener("click", () => this.#compose());
    id("wipe").addEventListener("click", () => this.#wipe());
    id("strokes").addEventListener("input", () => this.#restore());
    this.pad = id("pad");
    this.pad.addEventListener("pointerdown", (event) => this.#start(event));
    this.pad.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) this.pad.addEventListener(end, () => this.#lift());
    new ResizeObserver(() => this.resize()).observe(this.pad);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
    for (const name of ["compose", "draw-model", "draw-level"]) id(name).disabled = !this.model;
    this.#offer();
    this.#levels();
  }

  get model() { return this.models.find(({ name }) => name === id("draw-model").value); }

  opened() { this.resize(); }

  resize() {
    if (!this.pad?.clientWidth) return;
    const scale = devicePixelRatio || 1;
    this.pad.width = this.pad.clientWidth * scale;
    this.pad.height = this.pad.clientHeight * scale;
    const { clientWidth, clientHeight } = this.pad;
    if (this.carried && this.points.some(({ x, y }) => Math.min(x, y) < 0 || x > clientWidth || y > clientHeight)) {
      this.points = this.#fitted(this.points); // it was drawn on a larger screen
    }
    this.carried = false;
    this.#paint();
  }

  // Show the fields that the model has a use for.
  #offer() {
    this.page.offer("draw", this.model);
    for (const field of document.querySelectorAll("#draw .writes")) field.hidden = !this.model?.writes;
    id("draw-points").hidden = Boolean(this.model?.writes);
  }

  #levels() {
    const chosen = id("draw-level").value;
    id("draw-level").replaceChildren();
    for (let level = 1; level < (this.model?.layers.length ?? 0); level++) {
      id("draw-level").add(new Option(`level ${level}`, String(level - 1)));
    }
    if (this.model?.writes) id("draw-level").add(new Option("letters", String(this.model.layers.length - 1)));
    const last = id("draw-level").options.length - 1; // the level of the longest segments, unless a valid one is chosen
    id("draw-level").value = chosen !== "" && chosen <= last ? chosen : last;
  }

  #wipe() {
    this.#clear();
    this.#keep("");
    this.#paint();
  }

  #clear() {
    this.stop?.abort();
    this.points = [];
    this.letters = [];
    this.text = "";
    this.found = null;
    this.written = false;
    this.style = null;
    id("draw-panels").replaceChildren();
    for (const name of ["draw-status", "draw-letters", "draw-read"]) id(name).textContent = "";
    this.page.problem("draw", null);
  }

  #start(event) {
    if (event.button) return;
    if (this.written) this.#wipe(); // a new drawing replaces generated strokes
    this.down = true;
    this.pad.setPointerCapture(event.pointerId);
    this.#put(event);
  }

  #move(event) {
    if (!this.down) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) this.#put(each);
  }

  #put({ clientX, clientY }) {
    const box = this.pad.getBoundingClientRect();
    const within = (place, most) => Math.min(Math.max(Math.round(place), 0), Math.floor(most));
    const point = { x: within(clientX - box.left, box.width), y: within(clientY - box.top, box.height), up: 0 };
    const last = this.points[this.points.length - 1];
    if (last && !last.up && Math.hypot(point.x - last.x, point.y - last.y) < NEAR) return;
    if (this.points.length >= this.page.limits.points) return;
    this.points.push(point);
    this.#paint();
  }

  #lift() {
    if (!this.down) return;
    this.down = false;
    this.points[this.points.length - 1].up = 1;
    this.#keep(encoded(this.points));
    this.#read();
  }

  #keep(code) {
    id("strokes").value = code;
    this.page.remember();
  }

  // Show the drawing of a link.
  #restore() {
    const points = decoded(id("strokes").value, this.page.limits.points);
    this.#clear();
    this.#levels(); // the link may have chosen another model
    if (points === null) {
      this.#keep("");
      this.#paint();
      this.page.problem("draw", "the drawing in the link cannot be read: the link was changed or cut off, "
        + "or it has too many points");
      return;
    }
    this.points = points;
    this.carried = true;
    this.resize();
    this.#read();
  }

  // The drawing as a request.
  #request() {
    const steps = this.points.map(({ x, y, up }, i) => {
      const before = this.points[i - 1] ?? { x, y };
      return [x - before.x, y - before.y, up];
    });
    const says = this.model?.writes ? { says: this.written ? this.text : id("draw-says").value } : {};
    return { model: this.model?.model, steps, ...says, ...(this.model ? this.page.condition("draw", this.model) : {}) };
  }

  async #read() {
    if (this.points.length < 2 || this.written) return this.#paint();
    if (this.readers.length) this.#transcribe();
    if (!this.model || (this.model.writes && !id("draw-says").value.trim())) return;
    const found = new Segmentation();
    await this.#follow("/api/strokes/read", this.#request(), found, () => {});
  }

  // Show what the points say, as the first model that reads handwriting has it.
  async #transcribe() {
    const steps = this.#request().steps, before = this.points;
    try {
      for await (const { text, probability } of lines("/api/transcripts/read", { model: this.readers[0].model, steps })) {
        if (this.points === before) id("draw-read").textContent = `reads “${text}” (${Math.round(100 * probability)} %)`;
      }
    } catch (error) {
      this.page.problem("draw", error.message);
    }
  }

  async #compose() {
    if (![id("points"), id("draw-seed")].every((field) => field.reportValidity())) return;
    const drawn = !this.written && this.points.length > 1 && id("draw-says").value.trim();
    const style = !this.model.writes ? null : drawn ? this.#request() : this.style;
    this.#wipe();
    this.written = true;
    this.style = style;
    this.text = this.model.writes ? id("draw-text").value : "";
    id("draw-letters").replaceChildren(...[...this.text].map((letter) => element("span", "", letter)));
    const seed = id("draw-seed").value.trim();
    const request = {
      model: this.model.model, points: this.model.writes ? this.page.limits.points : Number(id("points").value),
      bias: Number(id("bias").value), seed: seed === "" ? null : Number(seed),
      ...this.page.condition("draw", this.model), ...(this.model.writes ? { text: this.text, style } : {}),
    };
    const made = [];
    let x = 0, y = 0;
    await this.#follow("/api/strokes/write", request, new Segmentation(), (part) => {
      for (const [dx, dy, up] of part.steps) {
        x += dx;
        y += dy;
        made.push({ x, y, up });
      }
      this.letters.push(...(part.letters ?? []));
      this.points = this.#fitted(made);
      this.#point(this.letters.length - 1);
    });
    if (this.readers.length && this.written) this.#transcribe();
  }

  // Mark the letter that a point belongs to.
  #point(index) {
    [...id("draw-letters").children].forEach((letter, k) => letter.classList.toggle("here", k === this.letters[index]));
  }

  // Points moved and scaled to fill the pad.
  #fitted(points) {
    const xs = points.map(({ x }) => x), ys = points.map(({ y }) => y);
    const [left, top] = [Math.min(...xs), Math.min(...ys)];
    const [width, height] = [Math.max(...xs) - left || 1, Math.max(...ys) - top || 1];
    const scale = Math.min((this.pad.clientWidth - 2 * MARGIN) / width, (this.pad.clientHeight - 2 * MARGIN) / height);
    const up = (this.pad.clientHeight - height * scale) / 2;
    return points.map((point) => ({ x: MARGIN + (point.x - left) * scale, y: up + (point.y - top) * scale, up: point.up }));
  }

  async #follow(path, request, found, onPart) {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    this.page.problem("draw", null);
    const panel = new Panel(this.model, {
      bits: false, // those of a density may be negative
      legend: "o: the pen writes; ^: the pen is lifted after this point",
      at: (index) => {
        this.marked = index;
        this.#point(index ?? this.letters.length - 1);
        this.#paint();
      },
      downloads: [
        { name: "Drawing (SVG)", ending: "svg", make: () => this.#svg() },
        { name: "Segmentation (JSON)", ending: "json", make: () => file("/api/strokes/segmentation", this.#request()) },
      ],
      fail: (error) => this.page.problem("draw", error.message),
    });
    try {
      let from = 0, warning = "";
      for await (const part of lines(path, request, stop.signal, () => { id("draw-status").textContent = "busy, waiting"; })) {
        if (part.end) {
          warning = part.warning ? `: ${part.warning}` : "";
          break;
        }
        onPart(part);
        found.add(part);
        this.found = found;
        if (!panel.root.isConnected) id("draw-panels").replaceChildren(panel.root);
        panel.show(found, from);
        from = found.length;
        this.#paint();
      }
      id("draw-status").textContent = `${found.length.toLocaleString("en")} points${warning}`;
    } catch (error) {
      if (error.name !== "AbortError") this.page.problem("draw", error.message);
    }
  }

  // The lines from point to point, each with the number of its segment; null if it has not been read.
  *#strokes() {
    const boundaries = this.found?.levels[Number(id("draw-level").value)]?.boundaries
      ?? this.letters.map((letter, i) => letter !== this.letters[i + 1]);
    let segment = 0;
    for (let i = 0; i < this.points.length; i++) {
      const from = this.points[Math.max(0, i - 1)], to = this.points[i];
      if (i === 0 || !from.up) yield { from, to, segment: i < boundaries.length ? segment : null };
      else yield { from: to, to, segment: i < boundaries.length ? segment : null };
      if (boundaries[i]) segment++;
    }
  }

  #colours() {
    const style = getComputedStyle(document.documentElement);
    const level = Number(id("draw-level").value) % 4 + 1;
    const value = (name) => style.getPropertyValue(name).trim();
    const segments = [0, 1, 2, 3].map((k) => value(`--level-${(level - 1 + k) % 4 + 1}b`)); // neighbours differ
    return { segments, unread: value("--soft"), here: value("--here") };
  }

  #paint() {
    if (!this.pad?.width) return;
    const context = this.pad.getContext("2d");
    const scale = this.pad.width / this.pad.clientWidth;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.pad.clientWidth, this.pad.clientHeight);
    const { segments, unread, here } = this.#colours();
    context.lineWidth = 2.5;
    context.lineCap = context.lineJoin = "round";
    for (const { from, to, segment } of this.#strokes()) {
      context.strokeStyle = segment === null ? unread : segments[segment % segments.length];
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.lineTo(to.x, to.y + (from === to ? 0.1 : 0));
      context.stroke();
    }
    const mark = this.points[this.marked ?? -1];
    if (mark) {
      context.strokeStyle = here;
      context.beginPath();
      context.arc(mark.x, mark.y, 7, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  #svg() {
    const space = "http://www.w3.org/2000/svg";
    const root = document.createElementNS(space, "svg");
    root.setAttribute("viewBox", `0 0 ${this.pad.clientWidth} ${this.pad.clientHeight}`);
    root.setAttribute("stroke-width", "2.5");
    root.setAttribute("stroke-linecap", "round");
    const { segments, unread } = this.#colours();
    for (const { from, to, segment } of this.#strokes()) {
      const line = document.createElementNS(space, "line");
      const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
      for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value.toFixed(2));
      line.setAttribute("stroke", segment === null ? unread : segments[segment % segments.length]);
      root.append(line);
    }
    return new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" });
  }
}
