// Symbols that a model has never seen, in others that it knows: without accents, with the signs of a typewriter, in lower
// case; what has no such form is left out. The signs are those of hmrnn.data.plain.

const SIGNS = {
  "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u2032": "'", "\u00b4": "'", "\u2039": "'", "\u203a": "'",
  "\u201c": "\"", "\u201d": "\"", "\u201e": "\"", "\u2033": "\"", "\u00ab": "\"", "\u00bb": "\"",
  "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2212": "-", "\u2026": "...", "\u2044": "/",
  "\u00d7": "x", "\u00df": "ss", "\u00e6": "ae", "\u00c6": "Ae", "\u0153": "oe", "\u0152": "Oe", "\u00f8": "o",
  "\u00d8": "O", "\u0142": "l", "\u0141": "L", "\u0111": "d", "\u0110": "D", "\u0131": "i", "\t": " "
};

export function inKnownSymbols(text, known) {
  const parted = known.has("\u2014") ? text : text.replace(/ ?[\u2014\u2015] ?/g, " - ");
  return [...parted].map((symbol) => known.has(symbol) ? symbol : [...simpler(symbol)].map((each) => nearest(each, known)).join("")).join("");
}

function simpler(symbol) {
  const letters = (SIGNS[symbol] ?? symbol).normalize("NFKD").replace(/\p{M}/gu, "");
  return SIGNS[letters] ?? letters;
}

function nearest(symbol, known) {
  return [symbol, symbol.toLowerCase()].find((each) => known.has(each)) ?? "";
}
