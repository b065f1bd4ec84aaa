// Write: the network continues a prompt. Symbols are queued and shown at the chosen pace.

import { lines } from "/static/api.js";
import { Panel } from "/static/panel.js";
import { Segmentation, superscript } from "/static/segmentation.js";
import { element } from "/static/view.js";

const id = (name) => document.getElementById(name);

export class Write {
  constructor(page, models, reader) {
    this.page = page;
    this.models = models;
    this.model = id("write-model");
    page.fill(this.model, models);
    id("length").max = page.limits.length;
    for (const range of [id("temperature"), id("top-p")]) {
      range.addEventListener("input", () => {
        document.querySelector(`output[for="${range.id}"]`).textContent = range.value;
        page.remember();
      });
    }
    const offer = () => page.offer("write", models.find(({ name }) => name === this.model.value));
    this.model.addEventListener("input", offer);
    offer();
    for (const field of [id("prompt"), id("length"), id("seed"), id("pace"), id("write-condition"), this.model]) {
      field.addEventListener("input", () => page.remember());
    }
    id("write-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.start();
    });
    id("stop").addEventListener("click", () => this.stop?.abort());
    id("to-read").addEventListener("click", () => reader.read(this.found.symbols.join(""), this.model.value));
  }

  async start() {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    const model = this.models.find(({ name }) => name === this.model.value);
    const panel = new Panel(model);
    const found = this.found = new Segmentation();
    this.page.problem("write", null);
    this.#note([]);
    id("write-panels").replaceChildren(panel.root);
    this.#lamps(model);
    id("go").disabled = true;
    id("stop").disabled = false;
    id("to-read").disabled = true;
    id("write-status").textContent = "";
    const waiting = { parts: [], from: 0, done: false };
    const showing = this.#show(waiting, found, panel, stop.signal);
    try {
      const answer = lines("/api/text/write", this.#request(model), stop.signal, () => {
        id("write-status").textContent = "busy, waiting";
      });
      for await (const part of answer) {
        if (!part.end) waiting.parts.push(part);
        else this.#note(part.notes ?? []);
      }
    } catch (error) {
      if (error.name !== "AbortError") this.page.problem("write", error.message);
    }
    waiting.done = true;
    await showing;
    if (this.stop !== stop) return;
    id("go").disabled = false;
    id("stop").disabled = true;
    id("to-read").disabled = found.length === 0;
    const count = found.length - found.given;
    id("write-status").textContent = found.length ? `${count.toLocaleString("en")} symbols` : "";
  }

  // Say which symbols of the prompt the model read as others.
  #note(notes) {
    id("write-note").hidden = notes.length === 0;
    id("write-note").textContent = notes.join("; ");
  }

  #request(model) {
    const seed = id("seed").value.trim();
    return {
      model: model.model, prompt: id("prompt").value, length: Number(id("length").value),
      temperature: Number(id("temperature").value), top_p: Number(id("top-p").value) < 1 ? Number(id("top-p").value) : null,
      seed: seed === "" ? null : Number(seed), ...this.page.condition("write", model),
    };
  }

  // Show queued symbols, frame by frame, until the answer has ended and the queue is empty.
  async #show(waiting, found, panel, signal) {
    let owed = 0, last = performance.now();
    while (!signal.aborted && !(waiting.done && waiting.parts.length === 0)) {
      await new Promise((resolve) => setTimeout(resolve, 16));
      const pace = Number(id("pace").value), now = performance.now();
      owed = Math.min(owed + (now - last) / 1000 * pace, 50);
      last = now;
      const from = found.length;
      while (waiting.parts.length && (pace === 0 || owed >= 1 || found.length < found.given)) {
        const part = waiting.parts[0], left = part.segmentation.symbols.length - waiting.from;
        const prompted = Math.max(0, (part.given ?? 0) - waiting.from); // a prompt is shown at once
        const count = pace === 0 ? left : prompted || Math.min(left, Math.floor(owed));
        if (count < 1) break;
        found.add(part, waiting.from, count);
        waiting.from += count;
        owed -= prompted ? 0 : count;
        if (waiting.from >= part.segmentation.symbols.length) {
          waiting.parts.shift();
          waiting.from = 0;
        }
      }
      if (found.length > from) {
        panel.show(found, from);
        this.#light(found, from);
      }
    }
  }

  #lamps(model) {
    this.lights = model.layers.map((_, l) => {
      const lamp = element("div", "lamp"), light = element("i");
      lamp.append(light, element("span", "", l < model.layers.length - 1 ? `layer ${l + 1}, z${superscript(l + 1)}` : `layer ${l + 1}`));
      return { lamp, light };
    });
    id("lamps").replaceChildren(...this.lights.map(({ lamp }) => lamp));
  }

  // A lamp per layer: it lights up when the layer changes, and flashes when a segment of its level ends.
  #light(found, from) {
    const style = getComputedStyle(document.documentElement);
    this.lights.forEach(({ light }, l) => {
      const moved = /[UF]/.test(found.layers[l].operations.slice(from));
      const fired = found.levels[l]?.boundaries.slice(from).some(Boolean);
      if (!moved && !fired) return;
      const colour = style.getPropertyValue(fired ? "--here" : `--level-${l % 4 + 1}b`).trim();
      const rest = style.getPropertyValue("--line").trim();
      const grown = fired && !matchMedia("(prefers-reduced-motion: reduce)").matches ? "scale(1.5)" : "none";
      light.animate([{ background: colour, transform: grown }, { background: rest, transform: "none" }],
        { duration: fired ? 500 : 220, easing: "ease-out" });
    });
  }
}
