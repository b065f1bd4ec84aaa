// A panel: the name of a model, statistics, the view, its legend, the counts of operations, and downloads.

import { joined, printable, shown, superscript } from "/static/segmentation.js";
import { colour, element, View } from "/static/view.js";

const NAMES = { U: "UPDATE", C: "COPY", F: "FLUSH" };
const MEANINGS = {
  UPDATE: "takes in what came from below", COPY: "keeps its state, without work", FLUSH: "starts afresh after its boundary",
  changed: "share of the steps with an UPDATE or a FLUSH",
};

export class Panel {
  // `others()`: the panels whose cursors follow this one; `at(index)`: called when the cursor moves; `downloads`: files
  // to offer, as {name, ending, make}; `called()`: how the names of these begin; `fail(error)`: called if one cannot be
  // made; `bits`: show a row of them; `words`: symbols may be long; `legend`: what the symbols mean.
  constructor(model, {
    others = () => [], at = () => {}, downloads = [], called = () => model.name, fail = () => {}, bits = true, words = false, legend = "",
  } = {}) {
    this.model = model;
    this.root = element("article", "panel");
    const heading = element("h2", "", model.name);
    heading.append(element("small", "", facts(model)));
    this.stats = element("div", "stats");
    this.view = new View(model.name, (index, place, keys) => {
      for (const other of others()) if (other !== this) other.view.moveTo(index, { quiet: true });
      at(index);
      inspect(this, index, place, keys);
    }, { bits, words });
    this.meaning = legend;
    this.legend = element("div", "legend");
    this.table = element("table");
    this.plain = element("details");
    this.plain.append(element("summary", "", "Segments as text"));
    this.plain.addEventListener("toggle", () => this.#plainly());
    this.root.append(heading, this.stats, this.view.root, this.legend, this.table, this.plain);
    if (downloads.length) this.root.append(this.#downloads(downloads, called, fail));
  }

  show(found, from = 0) {
    this.found = found;
    this.root.classList.remove("stale");
    this.view.show(found, from);
    this.#numbers();
    this.#legend();
    this.#operations();
    if (this.plain.open) this.#plainly();
  }

  // Mark the ends that the segmentation `other` does not have; null marks nothing.
  compare(other) {
    this.view.compare(other);
    if (this.found) this.#legend();
  }

  #numbers() {
    const { found } = this;
    const stats = [];
    const bits = found.meanBits();
    if (bits !== null) stats.push([bits.toFixed(3), `bits per ${this.model.unit}`]);
    for (let level = 0; level < found.levels.length; level++) {
      const count = found.ends(level).length;
      stats.push([count.toLocaleString("en"), `segments at level ${level + 1}, ${(found.length / count).toFixed(1)} long`]);
    }
    const updates = found.counts().map(({ U, F }) => U + F);
    const total = updates.reduce((a, b) => a + b, 0), dense = found.length * found.layers.length;
    stats.push([`${dense ? Math.round((1 - total / dense) * 100) : 0} %`,
      `of ${dense.toLocaleString("en")} layer updates saved`]);
    stats.push([short(found.meanProducts()), `multiply-adds per ${this.model.unit}`]);
    this.stats.replaceChildren(...stats.map(([number, text]) => {
      const stat = element("div", "stat");
      stat.append(element("b", "", number), element("span", "", text));
      return stat;
    }));
  }

  #legend() {
    const items = [];
    for (let level = 0; level < this.found.levels.length; level++) {
      const item = element("div");
      const swatch = element("span", `swatch level-${level % 4 + 1}`);
      swatch.append(element("i"), element("i"));
      item.append(swatch, `z${superscript(level + 1)}: segments of level ${level + 1}`);
      const { other } = this.view;
      if (other) {
        const alone = this.found.ends(level).filter((end) => this.found.alone(level, end, other)).length;
        item.append(element("span", "alone", `${alone} only here`));
      }
      items.push(item);
    }
    if (this.meaning) items.push(element("div", "", this.meaning));
    this.view.limits.forEach(([low, high], l) => {
      const item = element("div");
      const bar = element("canvas");
      bar.width = 60;
      bar.height = 9;
      bar.setAttribute("aria-hidden", "true");
      const context = bar.getContext("2d");
      for (let x = 0; x < 60; x++) {
        context.fillStyle = colour(x / 59);
        context.fillRect(x, 0, 1, 9);
      }
      item.append(`‖h${superscript(l + 1)}‖ ${low.toFixed(2)}`, bar, high.toFixed(2));
      items.push(item);
    });
    this.legend.replaceChildren(...items);
  }

  #operations() {
    const head = element("tr"), names = this.model.operations;
    for (const name of ["layer", ...names, "changed"]) {
      head.append(header("col", name));
      head.lastChild.title = MEANINGS[name] ?? "";
    }
    const rows = this.found.counts().map((count, l) => {
      const row = element("tr");
      const share = (count.U + count.F) / Math.max(1, this.found.length);
      row.append(header("row", l + 1));
      const counts = names.map((name) => count[name[0]]);
      for (const value of [...counts, `${Math.round(share * 100)} %`]) row.append(element("td", "", value.toLocaleString("en")));
      const bar = element("span");
      bar.style.width = `${share * 100}%`;
      const cell = element("td", "bar");
      cell.setAttribute("aria-hidden", "true");
      cell.append(bar);
      row.append(cell);
      return row;
    });
    this.table.replaceChildren(element("caption", "hidden", "What each layer did, and how often"), head, ...rows);
  }

  #plainly() {
    if (!this.plain.open || !this.found) return;
    const lines = [];
    for (let level = 0; level < this.found.levels.length; level++) {
      let start = 0;
      const segments = this.found.ends(level).map((end) => {
        const text = printable(joined(this.found.symbols.slice(start, end)));
        start = end;
        return text.replace(/^ | $/g, "·");
      });
      lines.push(element("p", "plain", `level ${level + 1}: `));
      lines[level].append(element("bdi", "", segments.join("|")));
    }
    this.plain.replaceChildren(this.plain.firstChild, ...lines);
  }

  #downloads(files, called, fail) {
    const actions = element("div", "actions");
    for (const { name, ending, make } of files) {
      const button = element("button", "quiet", name);
      button.type = "button";
      button.addEventListener("click", async () => {
        button.disabled = true;
        try {
          save(await make(), `${called().replace(/[^\p{L}\p{N}]+/gu, "-")}.${ending}`);
        } catch (error) {
          fail(error);
        } finally {
          button.disabled = false;
        }
      });
      actions.append(button);
    }
    return actions;
  }
}

function header(scope, text) {
  const made = element("th", "", text);
  made.scope = scope;
  return made;
}

export function facts(model) {
  const sizes = model.layers.every((units) => units === model.layers[0]) ? model.layers.slice(0, 1) : model.layers;
  return `${model.layers.length} layers of ${sizes.join(", ")}; ${short(model.parameters)} parameters`;
}

function short(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(1)}M`;
  return number >= 1e4 ? `${Math.round(number / 1e3)}k` : Math.round(number).toLocaleString("en");
}

export function save(blob, name) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The card beside the cursor: what the network did at one symbol. A screen reader reads it if the cursor is moved by keys.
function inspect(panel, index, place, keys) {
  const card = document.getElementById("inspector");
  card.hidden = index === null;
  if (index === null) return;
  const { found, model } = panel;
  const { text } = shown(found.symbols[index]);
  const bits = found.bits[index];
  const head = element("div", "symbol");
  const unpredicted = "the first is not predicted";
  head.append(element("b", "", text === " " ? "␣" : text),
    element("span", "muted", `${model.unit} ${index + 1}, ${bits === null ? unpredicted : `${bits.toFixed(2)} bits`}`));
  const lines = [head];
  const words = [text === " " ? "space" : text, bits === null ? unpredicted : `${bits.toFixed(1)} bits`];
  for (let level = 0; level < found.levels.length; level++) {
    const p = found.levels[level].probabilities[index] ?? 0, fires = found.levels[level].boundaries[index];
    const line = element("div", fires ? "fact fires" : "fact");
    const meter = element("span", "meter"), fill = element("i");
    fill.style.width = `${p * 100}%`;
    meter.append(fill);
    line.append(element("span", "", `z${superscript(level + 1)}`), meter, element("span", "", p.toFixed(3)));
    lines.push(line);
    words.push(`level ${level + 1} ${fires ? "ends here" : "goes on"}, probability ${p.toFixed(2)}`);
  }
  for (let l = 0; l < found.layers.length; l++) {
    const line = element("div", "fact"), name = NAMES[found.layers[l].operations[index]];
    line.append(element("span", "", `h${superscript(l + 1)}`), element("span", "muted", name),
      element("span", "", found.layers[l].norms[index]?.toFixed(2) ?? "–"));
    lines.push(line);
    words.push(`layer ${l + 1} ${name}`);
  }
  card.replaceChildren(...lines);
  if (keys) document.getElementById("spoken").textContent = words.join("; ");
  const { width, height } = card.getBoundingClientRect();
  const below = place.bottom + 10 + height < innerHeight;
  card.style.left = `${Math.max(8, Math.min(place.left + 14, innerWidth - width - 8))}px`;
  card.style.top = `${below ? place.bottom + 10 : Math.max(8, place.top - height - 10)}px`;
}
