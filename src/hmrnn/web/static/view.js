// Rows of symbols; under each row the segments of every level as blocks, the norms of every layer as a heat map, and the
// bits of each symbol as bars, unless they are left out. Only rows near the screen are filled.

import { shown, superscript } from "/static/segmentation.js";

const VIRIDIS = ["#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e", "#1f988b",
  "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725"].map((colour) =>
  [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
const TEXT = 23, LEVEL = 15, HEAT = 13, BITS = 16, SPACE = 4;
const WIDEST = 120; // pixels of a symbol
const MOST_BITS = 12; // bits of the highest bar
const COLUMNS = 90; // as in the paper
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe]/;
const WIDE = /^[^\u0000-\u2fff\ua4d0-\uabff\ud800-\uf8ff\ufb00-\ufe6f\uffe0-\uffff]/u; // as East Asian characters and emoji
const GRAPHEMES = new Intl.Segmenter();
const MARK = /^\p{M}$/u, ARABIC = /^(?=\p{L})\p{Script=Arabic}$/u, LAST = /^[ءآأؤإاةدذرزژوى]$/u; // joined to no letter after them
const JOINER = "\u200d";
const TIED = /^[\p{M}\p{Emoji_Modifier}\u200c\u200d\u{e0020}-\u{e007f}]$/u; // to the symbol before
const PAIRED = /^\p{Regional_Indicator}$/u;

export function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const k = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const mixed = VIRIDIS[k].map((value, i) => Math.round(value + (VIRIDIS[k + 1][i] - value) * (at - k)));
  return `rgb(${mixed.join(" ")})`;
}

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export class View {
  // `onCursor(index | null, rectangle, keys)` is called when the pointer or the keys move to a symbol or away.
  constructor(label, onCursor, { bits = true, words = false } = {}) {
    this.words = words;
    this.bits = bits ? BITS : 0; // pixels
    this.root = element("div", "view");
    this.root.tabIndex = 0;
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", `${label}: the symbols and their segments. Arrow keys walk from symbol to symbol.`);
    this.onCursor = onCursor;
    this.found = null;
    this.rows = []; // {start, end, element, filled}
    this.cursor = null;
    this.mark = element("div", "cursor");
    this.near = new IntersectionObserver((entries) => this.#seen(entries), { rootMargin: "800px" });
    new ResizeObserver(() => this.#resized()).observe(this.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#repaint());
    this.root.addEventListener("pointermove", (event) => this.#point(event));
    this.root.addEventListener("pointerdown", (event) => this.#point(event));
    this.root.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.moveTo(null));
    this.root.addEventListener("keydown", (event) => this.#key(event));
    this.root.addEventListener("blur", () => this.moveTo(null));
  }

  // Mark the ends that `other`, the segmentation by another model, does not have; null marks nothing.
  compare(other) {
    if (this.other === other && this.otherLength === other?.length) return;
    this.other = other;
    this.otherLength = other?.length;
    if (this.found) this.#layout(0);
  }

  // Show `found`; if it was shown before, only symbols from `from` on are new.
  show(found, from = 0) {
    const same = this.found === found;
    this.found = found;
    const before = JSON.stringify(this.limits), wide = found.symbols.filter((symbol) => WIDE.test(symbol)).length;
    this.root.classList.toggle("broad", !this.words && 2 * wide > found.length);
    this.limits = found.limits();
    if (this.words) { // as wide as the longest symbol
      const longest = found.symbols.reduce((most, symbol) => Math.max(most, symbol.length), 1);
      this.root.style.setProperty("--cell", `${Math.max(10, Math.min(9 * longest, WIDEST))}px`);
    }
    this.#layout(same ? from : 0);
    if (same && JSON.stringify(this.limits) !== before) this.#repaint();
    if (this.cursor !== null) this.moveTo(this.cursor < found.length ? this.cursor : null);
  }

  moveTo(index, { quiet = false, keys = false } = {}) {
    const row = index === null ? undefined : this.rows.find(({ start, end }) => start <= index && index < end);
    for (const block of this.root.querySelectorAll(".block.here")) block.classList.remove("here");
    if (!row) {
      this.cursor = null;
      this.mark.remove();
      if (!quiet) this.onCursor(null, null, keys);
      return;
    }
    this.cursor = index;
    this.#fill(row);
    const cells = row.element.querySelector(".cells");
    cells.append(this.mark);
    this.mark.style.insetInlineStart = `${(index - row.start) * this.cell}px`;
    for (const block of this.root.querySelectorAll(".block")) {
      block.classList.toggle("here", block.first <= index && index < block.last);
    }
    if (!quiet) this.onCursor(index, this.mark.getBoundingClientRect(), keys);
  }

  get cell() { return parseFloat(getComputedStyle(this.root).getPropertyValue("--cell")); }
  get gutter() { return parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--gutter")); }
  get height() { return TEXT + this.found.levels.length * LEVEL + SPACE + this.found.layers.length * HEAT + this.bits; }

  #columns() {
    return Math.max(this.words ? 1 : 10, Math.min(COLUMNS, Math.floor((this.root.clientWidth - this.gutter - 4) / this.cell)));
  }

  // Lay out rows from the one before symbol `from` on. A row ends after a line feed if half full, else after a space, else
  // when full.
  #layout(from) {
    const columns = this.#columns();
    if (columns !== this.columns) from = 0;
    this.columns = columns;
    let keep = this.rows.findIndex(({ end }) => end >= from); // a block at the end of that row may continue
    keep = Math.max(0, keep < 0 ? this.rows.length - 1 : keep);
    for (const row of this.rows.splice(keep)) {
      this.near.unobserve(row.element);
      row.element.remove();
    }
    const { symbols } = this.found;
    let start = this.rows.length ? this.rows[this.rows.length - 1].end : 0;
    const fragment = document.createDocumentFragment();
    const added = [];
    while (start < symbols.length) {
      const limit = Math.min(start + this.columns, symbols.length);
      let end = limit;
      const half = start + Math.floor(this.columns / 2);
      for (let t = half; t < limit; t++) if (symbols[t] === "\n") { end = t + 1; break; }
      if (end === limit && limit < symbols.length) {
        for (let t = limit - 1; t > limit - 18 && t > start; t--) if (symbols[t] === " ") { end = t + 1; break; }
        while (end > half && TIED.test(symbols[end])) end--; // a row begins with no mark
      }
      const row = { start, end, element: element("div", "row"), filled: false };
      row.element.row = row;
      row.element.style.height = `${this.height}px`;
      fragment.append(row.element);
      added.push(row);
      start = end;
    }
    this.root.append(fragment);
    this.rows.push(...added);
    for (const row of added) this.near.observe(row.element);
    if (added.length < 12) for (const row of added) this.#fill(row); // at once, so that nothing flickers
  }

  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.#fill(target.row);
      else if (target.row.filled) {
        target.replaceChildren();
        target.row.filled = false;
      }
    }
  }

  #fill(row) {
    if (row.filled) return;
    row.filled = true;
    const { found } = this;
    const cells = element("div", "cells");
    cells.dir = rightToLeft(found.symbols.slice(row.start, row.end)) ? "rtl" : "ltr";
    cells.append(this.#symbols(row));
    for (let level = 0; level < found.levels.length; level++) {
      cells.append(this.#blocks(row, level));
      const fires = `ends of segments of level ${level + 1}: where the detector of layer ${level + 1} fires`;
      row.element.append(label(`z${superscript(level + 1)}`, TEXT + level * LEVEL, fires));
    }
    const canvas = element("canvas");
    canvas.setAttribute("aria-hidden", "true");
    cells.append(canvas);
    const top = TEXT + found.levels.length * LEVEL + SPACE;
    for (let l = 0; l < found.layers.length; l++) {
      row.element.append(label(`h${superscript(l + 1)}`, top + l * HEAT - 1, `norm of the state of layer ${l + 1}`));
    }
    if (this.bits) row.element.append(label("bits", top + found.layers.length * HEAT + 3, "how much each symbol surprised the model"));
    row.element.append(cells);
    this.#paint(row);
  }

  #symbols(row) {
    const line = element("div", "symbols"), { symbols } = this.found;
    for (let t = row.start; t < row.end; t++) {
      const { text, kind } = shown(symbols[t]);
      const count = this.words ? 1 : together(symbols, t, row.end);
      const span = element("span", kind, shaped(count > 1 ? symbols.slice(t, t + count).join("") : text, symbols, t));
      if (WIDE.test(text)) span.className = "wide";
      if (t < this.found.given) span.classList.add("given");
      line.append(span);
      if (count === 1) continue;
      span.style.width = `${count * this.cell}px`;
      t += count - 1;
      for (let k = 1; k < count; k++) line.append(element("span", "rest")); // one for each symbol
    }
    return line;
  }

  #blocks(row, level) {
    const line = element("div", `level level-${level % 4 + 1}`);
    const ends = this.#ends(level);
    let k = firstAbove(ends, row.start);
    for (let first = k ? ends[k - 1] : 0; first < row.end; first = ends[k++]) {
      const last = ends[k];
      const left = Math.max(first, row.start), right = Math.min(last, row.end);
      const block = element("span", `block${k % 2 ? " odd" : ""}${first < left ? " from" : ""}${last > right ? " open" : ""}`);
      if (last <= row.end && last < this.found.length && this.found.alone(level, last, this.other)) block.classList.add("alone");
      block.first = first;
      block.last = last;
      block.style.insetInlineStart = `${(left - row.start) * this.cell + (first < left ? 0 : 1)}px`;
      block.style.width = `${(right - left) * this.cell - (first < left ? 0 : 1) - (last > right ? 0 : 1)}px`;
      line.append(block);
      if (last >= row.end) break;
    }
    return line;
  }

  #ends(level) {
    if (this.known?.found !== this.found || this.known.length !== this.found.length) {
      this.known = { found: this.found, length: this.found.length, ends: [] };
    }
    return (this.known.ends[level] ??= this.found.ends(level));
  }

  #paint(row) {
    const canvas = row.element.querySelector("canvas");
    const { cell, found } = this;
    const scale = window.devicePixelRatio || 1;
    const width = (row.end - row.start) * cell, height = found.layers.length * HEAT + this.bits;
    canvas.width = Math.ceil(width * scale);
    canvas.height = Math.ceil(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    const bars = getComputedStyle(document.documentElement).getPropertyValue("--bits").trim();
    for (let t = row.start; t < row.end; t++) {
      const x = (t - row.start) * cell;
      found.layers.forEach(({ norms }, l) => {
        const [low, high] = this.limits[l];
        context.fillStyle = norms[t] === null ? bars : colour((norms[t] - low) / (high - low));
        context.fillRect(x, l * HEAT, cell + 0.3, HEAT - 1);
      });
      if (!this.bits) continue;
      const bits = Math.max(0, Math.min(found.bits[t] ?? 0, MOST_BITS)) / MOST_BITS * (BITS - 3);
      context.fillStyle = bars;
      context.fillRect(x + 1.5, height - bits, cell - 3, bits);
    }
  }

  #repaint() {
    for (const row of this.rows) if (row.filled) this.#paint(row);
  }

  #resized() {
    if (this.found && this.columns !== this.#columns()) this.#layout(0);
  }

  #point(event) {
    const row = event.target.closest?.(".row")?.row;
    const cells = row?.element.querySelector(".cells");
    if (!cells) return;
    const { left, right } = cells.getBoundingClientRect();
    const column = Math.floor((cells.dir === "rtl" ? right - event.clientX : event.clientX - left) / this.cell);
    if (column >= 0 && column < row.end - row.start) this.moveTo(row.start + column);
  }

  #key(event) {
    const last = (this.found?.length ?? 0) - 1;
    if (last < 0) return;
    const at = this.cursor;
    const row = this.rows.findIndex(({ start, end }) => start <= (at ?? 0) && (at ?? 0) < end);
    const jump = (to) => {
      const target = this.rows[to];
      return target ? Math.min(target.start + (at ?? 0) - this.rows[row].start, target.end - 1) : at ?? 0;
    };
    const on = () => at === null ? 0 : Math.min(at + 1, last), back = () => Math.max((at ?? 1) - 1, 0);
    const turned = this.rows[row].element.querySelector(".cells")?.dir === "rtl";
    const moves = {
      ArrowRight: turned ? back : on, ArrowLeft: turned ? on : back,
      ArrowDown: () => jump(row + 1), ArrowUp: () => jump(row - 1), Home: () => 0, End: () => last, Escape: () => null,
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    this.moveTo(moves[event.key](), { keys: true });
    this.mark.scrollIntoView?.({ block: "nearest" });
  }
}

function label(text, top, title) {
  const made = element("span", "label", text);
  made.title = title;
  made.style.top = `${top}px`;
  return made;
}

// Whether most letters of these symbols are written from right to left.
function rightToLeft(symbols) {
  const letters = symbols.filter((symbol) => /^\p{L}/u.test(symbol));
  return 2 * letters.filter((symbol) => RIGHT_TO_LEFT.test(symbol)).length > letters.length;
}

// How many symbols from `t` on, before `end`, are one character to a reader, such as a letter and its marks.
function together(symbols, t, end) {
  if (!TIED.test(symbols[t + 1] ?? "") && !PAIRED.test(symbols[t])) return 1;
  const near = symbols.slice(t, Math.min(end, t + 32));
  const [{ segment }] = GRAPHEMES.segment(near.join(""));
  let count = 0, length = 0;
  while (length < segment.length) length += near[count++].length;
  return length === segment.length ? count : 1;
}

// The text of symbol `t`, and of its marks, in a cell of its own: a letter of an Arabic script keeps the shape that it has
// between its neighbours.
function shaped(text, symbols, t) {
  if (!ARABIC.test(symbols[t])) return text;
  let before = t - 1, after = t + 1;
  while (before >= 0 && MARK.test(symbols[before])) before--;
  while (after < symbols.length && MARK.test(symbols[after])) after++;
  const from = symbols[t] !== "ء" && ARABIC.test(symbols[before] ?? "") && !LAST.test(symbols[before]);
  const on = !LAST.test(symbols[t]) && ARABIC.test(symbols[after] ?? "") && symbols[after] !== "ء";
  return (from ? JOINER : "") + text + (on ? JOINER : "");
}

// Index of the first of the sorted `ends` that lies above `position`.
function firstAbove(ends, position) {
  let low = 0, high = ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > position) high = middle;
    else low = middle + 1;
  }
  return low;
}
