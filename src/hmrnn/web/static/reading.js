// What a network did at every symbol of a text, put together from parts.

export class Reading {
  constructor() {
    this.symbols = [];
    this.boundaries = []; // per level
    this.probabilities = [];
    this.operations = []; // per layer, a letter per symbol: U, C, F
    this.norms = [];
    this.bits = [];
    this.given = 0; // how many symbols are a prompt's
  }

  get length() { return this.symbols.length; }
  get levels() { return this.boundaries.length; }
  get layers() { return this.norms.length; }

  // Append a part, or the first `count` symbols of what is left of it from `from` on.
  add(part, from = 0, count = part.symbols.length) {
    const cut = (list) => list.slice(from, from + count);
    this.symbols.push(...cut(part.symbols));
    this.bits.push(...cut(part.bits));
    this.given += Math.max(0, Math.min((part.given || 0) - from, count));
    for (const name of ["boundaries", "probabilities", "norms"]) {
      part[name].forEach((values, l) => (this[name][l] ??= []).push(...cut(values)));
    }
    part.operations.forEach((letters, l) => (this.operations[l] ??= []).push(...cut(letters)));
  }

  // Where the segments of a level end; the last end is the length.
  ends(level) {
    const ends = [];
    for (let t = 0; t < this.length - 1; t++) if (this.boundaries[level][t]) ends.push(t + 1);
    ends.push(this.length);
    return ends;
  }

  // The lowest and highest norm of each layer, once it has one: before its first update it is zero.
  limits() {
    return this.norms.map((values) => {
      let low = Infinity, high = -Infinity;
      for (const value of values) {
        if (!value) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
      return high > low ? [low, high] : [Number.isFinite(low) ? low : 0, (Number.isFinite(low) ? low : 0) + 1];
    });
  }

  // Mean bits of the symbols that were predicted; null if there is none.
  meanBits() {
    let sum = 0, count = 0;
    for (const value of this.bits) if (value !== null) { sum += value; count++; }
    return count ? sum / count : null;
  }

  // How often each layer did what: [{U, C, F}].
  counts() {
    return this.operations.map((letters) => {
      const count = { U: 0, C: 0, F: 0 };
      for (const letter of letters) count[letter]++;
      return count;
    });
  }
}

const SIGNS = { "\n": "⏎", "\t": "⇥", "\u007f": "␡" };

// A symbol as it can be shown: {text, kind}, where kind is "sign" for one that has no glyph, "wide" for a byte's digits.
export function shown(symbol) {
  const byte = /^\\x([0-9a-f]{2})$/.exec(symbol);
  if (byte) return { text: byte[1], kind: "wide" };
  if (SIGNS[symbol]) return { text: SIGNS[symbol], kind: "sign" };
  const code = symbol.codePointAt(0);
  if (code < 32) return { text: String.fromCodePoint(0x2400 + code), kind: "sign" };
  return { text: symbol, kind: "" };
}

export const superscript = (number) => String(number).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
