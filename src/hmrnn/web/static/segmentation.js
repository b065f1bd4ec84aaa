// A segmentation, put together from parts in the JSON of Segmentation.to_json: symbols, bits, levels and layers.

export class Segmentation {
  constructor() {
    this.symbols = [];
    this.bits = [];
    this.products = []; // multiply-adds of each symbol
    this.levels = []; // {boundaries, probabilities}
    this.layers = []; // {operations, norms}; operations has the first letter of the operation at each symbol
    this.given = 0; // how many symbols belong to the prompt
  }

  get length() { return this.symbols.length; }

  // Append `count` symbols of a part, from its symbol `from` on.
  add({ segmentation, given = 0 }, from = 0, count = segmentation.symbols.length) {
    const cut = (list) => list.slice(from, from + count);
    this.symbols.push(...cut(segmentation.symbols));
    this.bits.push(...cut(segmentation.bits));
    this.products.push(...cut(segmentation.multiply_adds));
    this.given += Math.max(0, Math.min(given - from, count));
    segmentation.levels.forEach(({ boundaries, probabilities }, l) => {
      const level = this.levels[l] ??= { boundaries: [], probabilities: [] };
      level.boundaries.push(...cut(boundaries));
      level.probabilities.push(...cut(probabilities));
    });
    segmentation.layers.forEach(({ operations, norms }, l) => {
      const layer = this.layers[l] ??= { operations: "", norms: [] };
      layer.operations += cut(operations);
      layer.norms.push(...cut(norms));
    });
  }

  // Where the segments of a level end; the last end is the length.
  ends(level) {
    const ends = [], { boundaries } = this.levels[level];
    for (let t = 0; t < this.length - 1; t++) if (boundaries[t]) ends.push(t + 1);
    ends.push(this.length);
    return ends;
  }

  // Whether the segment of a level that ends at `end` ends there in this segmentation alone, not in `other`, which has
  // been read as far.
  alone(level, end, other) {
    return Boolean(other?.levels[level]) && end < other.length && !other.levels[level].boundaries[end - 1];
  }

  // The lowest and highest norm of each layer; zeros, which a layer has before its first update, are left out.
  limits() {
    return this.layers.map(({ norms }) => {
      let low = Infinity, high = -Infinity;
      for (const value of norms) {
        if (!value) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
      return high > low ? [low, high] : [Number.isFinite(low) ? low : 0, (Number.isFinite(low) ? low : 0) + 1];
    });
  }

  // Mean bits of the symbols that were predicted; null if there are none.
  meanBits() {
    const predicted = this.bits.filter((value) => value !== null);
    return predicted.length ? predicted.reduce((sum, value) => sum + value, 0) / predicted.length : null;
  }

  // Multiply-adds per symbol.
  meanProducts() {
    return this.products.reduce((sum, value) => sum + value, 0) / Math.max(1, this.length);
  }

  // Counts of the operations of each layer by their first letter: [{U, C, F}].
  counts() {
    return this.layers.map(({ operations }) => {
      const count = { U: 0, C: 0, F: 0 };
      for (const letter of operations) count[letter]++;
      return count;
    });
  }
}

const BYTE = /^\\x([0-9a-f]{2})$/;
const TIED = /^[\u200c\u200d\u{e0020}-\u{e007f}]$/u; // joiners and the tags of flags, which shape what they stand by

// Symbols as one string; bytes make characters where they are UTF-8, and are escapes elsewhere.
export function joined(symbols) {
  if (!symbols.some((symbol) => BYTE.test(symbol))) return symbols.join("");
  const bytes = symbols.map((symbol) => BYTE.test(symbol) ? parseInt(symbol.slice(2), 16) : symbol.codePointAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(new Uint8Array(bytes));
  } catch {
    return symbols.join("");
  }
}

// A text with signs for what cannot be seen, such as marks that turn the direction of what follows.
export function printable(text) {
  return [...text].map((symbol) => TIED.test(symbol) ? symbol : shown(symbol).text).join("");
}

const SIGNS = { "\n": "⏎", "\t": "⇥", "\u007f": "␡" };

// A symbol in printable characters: {text, kind}; kind is "sign" if it has no glyph, "wide" for the digits of a byte.
export function shown(symbol) {
  const byte = BYTE.exec(symbol);
  if (byte) return { text: byte[1], kind: "wide" };
  if (SIGNS[symbol]) return { text: SIGNS[symbol], kind: "sign" };
  const code = symbol.codePointAt(0);
  if (code < 32) return { text: String.fromCodePoint(0x2400 + code), kind: "sign" };
  if (symbol !== " " && /^\p{Zs}$/u.test(symbol)) return { text: "␣", kind: "sign" };
  if (/[\p{C}\p{Zl}\p{Zp}]/u.test(symbol)) return { text: "\ufffd", kind: "sign" };
  return { text: symbol, kind: "" };
}

export const superscript = (number) => String(number).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
