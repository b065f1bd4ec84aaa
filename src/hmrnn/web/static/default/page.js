// Data: the panel that fits all kinds. It shows the segments of a sequence in a file that is pasted or dropped, how well
// the file is predicted, and what the model continues the sequence with.

import { file, lines } from "/static/api.js";
import { Panel } from "/static/panel.js";
import { Segmentation } from "/static/segmentation.js";

const id = (name) => document.getElementById(name);
const PAUSE = 300; // milliseconds without a change before the data are read

export function open(page, models) {
  return { data: new Data(page, models) };
}

class Data {
  constructor(page, models) {
    this.page = page;
    this.models = models;
    page.fill(id("data-model"), models);
    id("data-length").max = page.limits.length;
    for (const name of ["data-text", "data-model", "data-sequence"]) {
      id(name).addEventListener("input", () => {
        clearTimeout(this.later);
        this.later = setTimeout(() => this.restored(), PAUSE);
      });
    }
    for (const field of document.querySelectorAll("#data [data-link]")) field.addEventListener("input", () => page.remember());
    id("data-text").addEventListener("dragover", (event) => event.preventDefault());
    id("data-text").addEventListener("drop", (event) => this.#drop(event));
    id("data-write").addEventListener("click", () => {
      const seed = id("data-seed").value.trim();
      const more = { length: Number(id("data-length").value), seed: seed === "" ? null : Number(seed) };
      this.#follow("write", { ...this.#request(), ...more }, 1);
    });
  }

  get model() { return this.models.find(({ name }) => name === id("data-model").value); }

  // Read what the fields hold.
  restored() {
    id("data-panels").replaceChildren();
    this.page.problem("data", null);
    if (id("data-text").value) this.#follow("read", this.#request(), 0);
  }

  async #drop(event) {
    const [dropped] = event.dataTransfer.files;
    if (!dropped) return; // a selection of text: the browser inserts it
    event.preventDefault();
    id("data-text").value = await dropped.text();
    id("data-text").dispatchEvent(new Event("input"));
  }

  #request() {
    return { model: this.model.model, data: id("data-text").value, sequence: Number(id("data-sequence").value) };
  }

  // Show the answer in the panel at a place: that of the data, or that of what was generated below it.
  async #follow(action, request, place) {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    const { model } = this, path = `/api/${model.reads}`;
    const downloads = [
      { name: "Figure (SVG)", ending: "svg", make: () => file(`${path}/figure`, request) },
      { name: "Segmentation (JSON)", ending: "json", make: () => file(`${path}/segmentation`, request) },
    ];
    const fail = (error) => this.page.problem("data", error.message);
    const panel = new Panel(model, { downloads: action === "read" ? downloads : [], fail, words: true });
    const found = new Segmentation(), panels = id("data-panels");
    this.page.problem("data", null);
    id("data-status").textContent = "";
    try {
      const answer = lines(`${path}/${action}`, request, stop.signal, () => { id("data-status").textContent = "busy, waiting"; });
      for await (const part of answer) {
        if (part.sequences) {
          id("data-status").textContent = `${part.bits.toFixed(3)} bits per ${model.unit} in ${part.sequences} sequences`;
        }
        if (part.end) continue;
        found.add(part);
        panels.replaceChildren(...[...panels.children].slice(0, place), panel.root);
        panel.show(found);
      }
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
    }
  }
}
