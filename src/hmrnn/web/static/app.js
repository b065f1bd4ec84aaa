// The page: its tabs, the models, and its state, which the fragment of the URL holds.

import { models } from "/static/api.js";
import { Draw } from "/static/draw.js";
import { Read } from "/static/read.js";
import { Write } from "/static/write.js";

const TABS = ["read", "write", "draw"];
const EXAMPLE = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
  + "it was the epoch of belief, it was the epoch of incredulity.";
const MOST = 6000; // longest text, in characters, and longest drawing, in letters of its code, in a link
const FIELDS = { // name in the link: id of the field
  m: "read-model", c: "read-other", t: "text", w: "write-model", p: "prompt", n: "length", k: "temperature", q: "top-p",
  s: "seed", v: "pace", d: "draw-model", b: "bias", o: "points", e: "draw-seed", z: "strokes",
  f: "read-condition", j: "other-condition", g: "write-condition", h: "draw-condition",
};
const id = (name) => document.getElementById(name);

class Page {
  constructor({ models: found, limits }) {
    this.models = found;
    this.limits = limits;
    this.texts = found.filter(({ reads }) => reads === "text");
    this.drawings = found.filter(({ reads }) => reads === "strokes");
    this.reader = new Read(this);
    this.writer = new Write(this);
    this.drawer = new Draw(this);
    for (const tab of TABS) {
      id(`tab-${tab}`).addEventListener("click", () => this.open(tab));
      id(`tab-${tab}`).addEventListener("keydown", (event) => this.#walk(event, tab));
    }
    id("share").addEventListener("click", () => this.#share());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the fragment is the page's state
      id("main").focus();
    });
    addEventListener("hashchange", () => this.#restore());
    this.#restore();
    if (!this.texts.length) {
      const none = "no text checkpoint was given at start: use hmrnn explore -m RUN with one, such as english-small";
      this.problem("read", none);
      this.problem("write", none);
      id("go").disabled = id("text").disabled = true;
    }
  }

  open(tab) {
    this.tab = tab;
    for (const each of TABS) {
      id(each).hidden = each !== tab;
      id(`tab-${each}`).setAttribute("aria-selected", each === tab);
      id(`tab-${each}`).tabIndex = each === tab ? 0 : -1;
    }
    if (tab === "draw") this.drawer.resize();
    this.remember();
  }

  // Fill a select with models; `none` is the label of an option without a model.
  fill(select, list, none = null) {
    if (none !== null) select.add(new Option(none, ""));
    for (const { name } of list) select.add(new Option(name, name));
  }

  // Show the field of a model's condition if it has one, and offer its classes. Fields are named by tab; "other": compared with.
  offer(field, model) {
    id(`${field}-given`).hidden = !model?.condition;
    id(`${field}-classes`).replaceChildren(...(model?.condition ?? []).map((name) => new Option(name, name)));
    if (model?.condition && !id(`${field}-condition`).value) id(`${field}-condition`).value = model.condition[0] ?? "";
  }

  // The condition in a field as a part of a request to a model.
  condition(field, model) {
    return model.condition ? { condition: id(`${field}-condition`).value } : {};
  }

  // Open the tab Read with a text.
  read(text, model) {
    id("text").value = text;
    id("read-model").value = model;
    this.open("read");
    this.reader.open();
  }

  problem(where, message) {
    const box = id(`${where}-problem`);
    box.hidden = message === null;
    box.querySelector("p").textContent = message ?? "";
  }

  // Put the state into the fragment, so that a reload or a link shows the same.
  remember() {
    clearTimeout(this.later);
    this.later = setTimeout(() => history.replaceState(null, "", this.#link().hash || "#"), 150);
  }

  #link() {
    const values = new URLSearchParams({ tab: this.tab });
    for (const [name, field] of Object.entries(FIELDS)) {
      const { value, defaultValue } = id(field);
      if (value && value !== defaultValue && value.length <= MOST) values.set(name, value);
    }
    const link = new URL(location);
    link.hash = values;
    return link;
  }

  #restore() {
    const values = new URLSearchParams(location.hash.slice(1));
    const missing = [];
    for (const [name, field] of Object.entries(FIELDS)) {
      const value = values.get(name);
      if (value === null && field === "strokes" && id(field).value) this.#set(field, ""); // a link without a drawing
      if (value === null) continue;
      const known = id(field).tagName !== "SELECT" || [...id(field).options].some((option) => option.value === value);
      if (!known) missing.push(value);
      this.#set(field, known ? value : id(field).value);
    }
    if (!values.size) id("text").value = this.#example();
    id("notice").hidden = missing.length === 0;
    id("notice").textContent = `the link names ${missing.join(", ")}, which this page was not started with`;
    this.open(TABS.includes(values.get("tab")) ? values.get("tab") : "read");
    this.reader.open();
  }

  #set(field, value) {
    id(field).value = value;
    id(field).dispatchEvent(new Event("input"));
  }

  // An example in symbols that the first model knows.
  #example() {
    const known = this.texts[0]?.alphabet;
    return known ? [...EXAMPLE].filter((symbol) => known.includes(symbol)).join("") : EXAMPLE;
  }

  async #share() {
    const link = this.#link();
    history.replaceState(null, "", link);
    const long = ["text", "prompt", "strokes"].filter((field) => id(field).value.length > MOST);
    const what = { text: "the text", prompt: "the prompt", strokes: "the drawing" };
    const left = long.length ? ` (without ${long.map((field) => what[field]).join(", ")}: too long for a link)` : "";
    try {
      await navigator.clipboard.writeText(link.href);
      this.#say(`link copied${left}`);
    } catch {
      this.#say(`copy it from the address bar${left}`);
    }
  }

  #say(message) {
    id("share").textContent = message;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { id("share").textContent = "Copy link"; }, 2500);
  }

  #walk(event, tab) {
    const at = TABS.indexOf(tab), last = TABS.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = TABS[to];
    this.open(next);
    id(`tab-${next}`).focus();
  }
}

models().then((found) => {
  const page = new Page(found);
  document.documentElement.dataset.ready = "true";
  return page;
}, (error) => {
  id("notice").hidden = false;
  id("notice").textContent = error.message;
});
