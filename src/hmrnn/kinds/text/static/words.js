// The words of a text, which are its segments of level 1: in their order, each with how sure its end is, and as a lexicon.

import { joined, printable } from "/static/segmentation.js";
import { element } from "/static/view.js";

const MOST = 200; // rows of the lexicon on the page; the file has all

export class Words {
  constructor() {
    this.root = element("div", "words");
    this.title = element("h3");
    this.running = element("div", "running");
    this.running.tabIndex = 0;
    this.running.setAttribute("role", "group");
    this.running.setAttribute("aria-label", "The text in words. The bar after a word is as full as its end is sure.");
    this.lexicon = element("details", "lexicon");
    this.lexicon.open = true;
    this.count = element("summary");
    this.table = element("table");
    const box = element("div", "box");
    box.append(this.table);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "The lexicon");
    this.lexicon.append(this.count, box);
    this.root.append(this.title, this.running, this.lexicon);
  }

  show(found) {
    const pieces = segments(found);
    this.lines = [[]];
    this.entries = new Map(); // by word: how often it occurs, and the sum of the probabilities of its ends
    for (const { text, sure } of pieces) {
      const word = text.trim();
      text.split("\n").forEach((part, k) => {
        if (k > 0) this.lines.push([]);
        if (part.trim()) this.lines.at(-1).push({ word: part.trim(), sure });
      });
      if (!word) continue;
      const entry = this.entries.get(word) ?? { count: 0, sum: 0 };
      this.entries.set(word, { count: entry.count + 1, sum: entry.sum + sure });
    }
    this.entries = [...this.entries].sort(([a, one], [b, other]) => other.count - one.count || (a < b ? -1 : 1));
    const total = this.entries.reduce((sum, [, { count }]) => sum + count, 0);
    this.title.textContent = counted(total, "word");
    this.running.replaceChildren(...this.lines.filter((line) => line.length).map(paragraph));
    this.#table();
  }

  // The lexicon as hmrnn segment --lexicon prints it, and the text as --format spaced does.
  get tsv() { return this.entries.map(([word, { count }]) => `${count}\t${word}\n`).join(""); }
  get spaced() { return `${this.lines.map((line) => line.map(({ word }) => word).join(" ")).join("\n")}\n`; }

  #table() {
    this.count.textContent = `Lexicon: ${counted(this.entries.length, "different word")}`
      + (this.entries.length > MOST ? `, the ${MOST} most frequent` : "");
    const head = element("tr");
    for (const name of ["word", "count", "end sure"]) {
      head.append(element("th", "", name));
      head.lastChild.scope = "col";
    }
    const rows = this.entries.slice(0, MOST).map(([word, { count, sum }]) => {
      const row = element("tr"), name = element("th");
      name.scope = "row";
      name.append(element("bdi", "", printable(word)));
      row.append(name, element("td", "", count.toLocaleString("en")), element("td", "", (sum / count).toFixed(2)));
      return row;
    });
    this.table.replaceChildren(element("caption", "hidden", "The words, how often they occur, and how sure their ends are"), head, ...rows);
  }
}

// The segments of level 1, and the probability of the end of each; the end of the text is certain.
function segments(found) {
  let start = 0;
  return found.ends(0).map((end) => {
    const text = joined(found.symbols.slice(start, end));
    start = end;
    return { text, sure: end === found.length ? 1 : found.levels[0].probabilities[end - 1] ?? 0 };
  });
}

const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

function paragraph(line) {
  const made = element("p");
  made.dir = "auto";
  for (const { word, sure } of line) {
    const span = element("span", "word", printable(word));
    span.title = `its end has probability ${sure.toFixed(2)}`;
    span.style.setProperty("--sure", sure);
    made.append(span, " ");
  }
  return made;
}
