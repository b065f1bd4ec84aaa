// Read: the text is sent while it is typed, one request per panel at a time. What was read before a change stays shown.

import { file, lines } from "/static/api.js";
import { Panel } from "/static/panel.js";
import { Segmentation } from "/static/segmentation.js";
import { Words } from "/static/text/words.js";

const EXAMPLE = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
  + "it was the epoch of belief, it was the epoch of incredulity.";
const PATIENT = 2000; // symbols: when the text changes, a longer request is aborted and a shorter one finishes
const FIELDS = ["read", "other"]; // fields of the condition: of the model, and of the one it is compared with

export class Read {
  constructor(page, models) {
    this.page = page;
    this.models = models;
    this.text = document.getElementById("text");
    this.status = document.getElementById("read-status");
    this.host = document.getElementById("read-panels");
    this.model = document.getElementById("read-model");
    this.other = document.getElementById("read-other");
    this.panels = [];
    page.fill(this.model, models);
    page.fill(this.other, models, "none");
    this.text.addEventListener("input", () => this.changed());
    const section = document.getElementById("read"), chosen = document.getElementById("file");
    document.getElementById("open-file").addEventListener("click", () => chosen.click());
    chosen.addEventListener("change", () => {
      this.#open(chosen.files[0]);
      chosen.value = ""; // so that the same file can be opened again
    });
    section.addEventListener("dragover", (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    section.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return; // a passage of text goes to the field
      event.preventDefault();
      this.#open(event.dataTransfer.files[0]);
    });
    this.button = document.getElementById("compare");
    this.button.hidden = models.length < 2;
    this.button.addEventListener("click", () => {
      this.other.value = this.other.value ? "" : this.#another();
      this.open();
    });
    this.model.addEventListener("change", () => {
      if (this.other.value === this.model.value) this.other.value = this.#another();
      this.open();
    });
    this.other.addEventListener("change", () => this.open());
    for (const field of FIELDS) document.getElementById(`${field}-condition`).addEventListener("change", () => this.open());
  }

  // Show what the fields hold; on a page without a link, an example in symbols that the first model knows.
  restored(fresh) {
    const known = this.models[0].alphabet;
    if (fresh) this.text.value = known ? [...EXAMPLE].filter((symbol) => known.includes(symbol)).join("") : EXAMPLE;
    this.open();
  }

  // Read a text.
  read(text, model) {
    this.text.value = text;
    this.model.value = model;
    this.page.open("read");
    this.open();
  }

  // Read a file, if it is a text that the page takes.
  async #open(file) {
    try {
      this.text.value = await textOf(file, this.page.limits.text);
      this.file = { name: file.name.replace(/\.[^.]*$/, ""), text: this.text.value };
      this.changed();
    } catch (error) {
      this.page.problem("read", error.message);
    }
  }

  // The first model beside the chosen one; none if there is no other.
  #another() {
    return this.models.find(({ name }) => name !== this.model.value)?.name ?? "";
  }

  // Make a panel for each chosen model, and read.
  open() {
    for (const { stop } of this.panels) stop?.abort();
    const chosen = [this.model.value, this.other.value].filter((name) => name !== "")
      .map((name) => this.models.find((each) => each.name === name));
    FIELDS.forEach((field, place) => this.page.offer(field, chosen[place]));
    this.panels = chosen.map((model, place) => {
      const field = FIELDS[place];
      const request = () => ({ model: model.model, text: this.text.value, ...this.page.condition(field, model) });
      const words = new Words();
      const options = {
        called: () => this.file?.text === this.text.value ? `${this.file.name} ${model.name}` : model.name,
        others: () => this.panels.map(({ panel }) => panel),
        downloads: [
          { name: "Words (TXT)", ending: "txt", make: () => new Blob([words.spaced]) },
          { name: "Lexicon (TSV)", ending: "tsv", make: () => new Blob([words.tsv]) },
          { name: "Figure (SVG)", ending: "svg", make: () => file("/api/text/figure", request()) },
          { name: "Segmentation (JSON)", ending: "json", make: () => file("/api/text/segmentation", request()) },
        ],
        fail: (error) => this.page.problem("read", error.message),
      };
      const panel = new Panel(model, options);
      if (model.layers.length > 1) panel.root.insertBefore(words.root, panel.view.root);
      return { panel, words, field, shown: "", notes: [], running: null, stop: null };
    });
    this.host.classList.toggle("two", chosen.length > 1);
    this.button.setAttribute("aria-pressed", chosen.length > 1);
    this.host.replaceChildren();
    document.getElementById("inspector").hidden = true;
    this.changed();
  }

  changed() {
    const limit = this.page.limits.text;
    const length = [...this.text.value].length;
    document.getElementById("count").textContent = `${length.toLocaleString("en")} of ${limit.toLocaleString("en")} characters`;
    this.page.remember();
    this.page.problem("read", null);
    for (const each of this.panels) each.notes = [];
    this.#note();
    if (!this.text.value) {
      this.host.replaceChildren();
      this.status.textContent = "";
    }
    for (const each of this.panels) this.#update(each);
  }

  async #update(each) {
    if (each.running !== null) {
      if (each.running.length > PATIENT || !this.text.value) each.stop.abort();
      return; // the running request compares the text again when it ends
    }
    while (this.panels.includes(each) && this.text.value && each.shown !== this.text.value) {
      const text = this.text.value;
      each.running = text;
      each.stop = new AbortController();
      try {
        await this.#read(each, text);
      } catch (error) {
        if (error.name !== "AbortError" && text === this.text.value) this.#failed(each, error); // else the new text is read
      } finally {
        each.running = null;
      }
    }
    if (!this.text.value) each.shown = "";
  }

  async #read(each, text) {
    const { panel } = each;
    const keep = commonPrefix(each.shown, text);
    const found = new Segmentation();
    const began = performance.now();
    this.status.textContent = "";
    let painted = 0, until = 0; // when the panel was last shown, and how many symbols
    const request = { model: panel.model.model, text, ...this.page.condition(each.field, panel.model) };
    for await (const part of lines("/api/text/read", request, each.stop.signal, () => { this.status.textContent = "busy, waiting"; })) {
      if (!part.end) found.add(part);
      else each.notes = part.notes ?? [];
      // what is on the screen stays until as much of the new text has been read
      if (part.end || (found.length > keep && performance.now() - painted > 60)) {
        if (!panel.root.isConnected && this.panels.includes(each)) this.#place();
        panel.show(found, until);
        this.#compare();
        until = found.length;
        painted = performance.now();
      }
      if (!part.end) this.status.textContent = found.length > PATIENT ? `${found.length.toLocaleString("en")} read` : "";
    }
    if (found.levels.length) each.words.show(found);
    each.shown = text;
    this.#note();
    this.status.textContent = `read in ${Math.round(performance.now() - began)} ms`;
  }

  // Each of two panels marks the ends that the other does not have.
  #compare() {
    const [first, second] = this.panels.map(({ panel }) => panel);
    if (!second) return;
    first.compare(second.found ?? null);
    second.compare(first.found ?? null);
  }

  #place() {
    this.host.replaceChildren(...this.panels.map(({ panel }) => panel.root));
  }

  #failed(each, error) {
    each.shown = this.text.value; // not tried again until the text changes
    each.panel.root.classList.add("stale");
    this.status.textContent = "";
    const name = this.panels.length > 1 ? `${each.panel.model.name}: ` : "";
    this.page.problem("read", name + error.message);
  }

  // Say which symbols the models read as others.
  #note() {
    const two = this.panels.length > 1;
    const notes = this.panels.flatMap(({ panel, notes }) => notes.map((note) => (two ? `${panel.model.name}: ` : "") + note));
    const box = document.getElementById("read-note");
    box.hidden = notes.length === 0;
    box.textContent = notes.join("; ");
  }
}

// The text of a file in UTF-8, of at most so many characters.
async function textOf(file, most) {
  const instead = `hmrnn segment --file ${file.name} reads it in a terminal`;
  if (file.size > 4 * most) throw new Error(`${file.name} is longer than the ${most.toLocaleString("en")} characters that the page takes; ${instead}`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not a text in UTF-8`);
  }
  const length = [...text].length;
  if (length > most) throw new Error(`${file.name} has ${length.toLocaleString("en")} characters, and the page takes ${most.toLocaleString("en")}; ${instead}`);
  if (!text.trim()) throw new Error(`there is nothing to read in ${file.name}: it is empty or holds white space alone`);
  return text;
}

function commonPrefix(a, b) {
  const [first, second] = [[...a], [...b]];
  let n = 0;
  while (n < first.length && n < second.length && first[n] === second[n]) n++;
  return n;
}
