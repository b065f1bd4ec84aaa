// The page: its tabs, the models, and its state, which the fragment of the URL holds.

import { models } from "/static/api.js";
import { element } from "/static/view.js";

const MOST = 6000; // longest value of a field in a link, in characters
const FIELDS = document.querySelectorAll("[data-link]"); // the attribute is the name in the link
const id = (name) => document.getElementById(name);

class Page {
  // `parts`: by tab, what a script of a kind of data made of it; `restored(fresh)` is called when a link was read, and
  // `opened()` when the tab is shown, where a part has them.
  constructor({ limits }) {
    this.limits = limits;
    this.parts = {};
    this.tabs = [...document.querySelectorAll("[role=tabpanel]")].map((section) => section.id);
    for (const tab of this.tabs) {
      const button = element("button", "", id(tab).dataset.title);
      button.id = `tab-${tab}`;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", tab);
      button.addEventListener("click", () => this.open(tab));
      button.addEventListener("keydown", (event) => this.#walk(event, tab));
      document.querySelector(".tabs").append(button);
    }
    id("share").addEventListener("click", () => this.#share());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the fragment is the page's state
      id("main").focus();
    });
  }

  // Load the script of each kind of data, with the models of the kind.
  async load(models) {
    for (const script of new Set(models.map((model) => model.script))) {
      const { open } = await import(script);
      Object.assign(this.parts, open(this, models.filter((model) => model.script === script)));
    }
    addEventListener("hashchange", () => this.#restore());
    this.#restore();
  }

  open(tab) {
    this.tab = tab;
    for (const each of this.tabs) {
      id(each).hidden = each !== tab;
      id(`tab-${each}`).setAttribute("aria-selected", each === tab);
      id(`tab-${each}`).tabIndex = each === tab ? 0 : -1;
    }
    this.parts[tab].opened?.();
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
    for (const { dataset, value, defaultValue } of FIELDS) {
      if (value && value !== defaultValue && value.length <= MOST) values.set(dataset.link, value);
    }
    const link = new URL(location);
    link.hash = values;
    return link;
  }

  #restore() {
    const values = new URLSearchParams(location.hash.slice(1));
    const missing = [];
    for (const field of FIELDS) {
      const value = values.get(field.dataset.link);
      if (value === null && field.hidden && field.value) this.#set(field, ""); // such as a drawing that the link lacks
      if (value === null) continue;
      const known = field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value);
      if (!known) missing.push(value);
      this.#set(field, known ? value : field.value);
    }
    id("notice").hidden = missing.length === 0;
    id("notice").textContent = `the link names ${missing.join(", ")}, which this page was not started with`;
    for (const part of Object.values(this.parts)) part.restored?.(!values.size);
    this.open(this.tabs.includes(values.get("tab")) ? values.get("tab") : this.tabs[0]);
  }

  #set(field, value) {
    field.value = value;
    field.dispatchEvent(new Event("input"));
  }

  async #share() {
    const link = this.#link();
    history.replaceState(null, "", link);
    const long = [...FIELDS].filter(({ value }) => value.length > MOST).map(({ dataset }) => dataset.what);
    const left = long.length ? ` (without ${long.join(", ")}: too long for a link)` : "";
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
    const at = this.tabs.indexOf(tab), last = this.tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = this.tabs[to];
    this.open(next);
    id(`tab-${next}`).focus();
  }
}

try {
  const found = await models();
  await new Page(found).load(found.models);
  document.documentElement.dataset.ready = "true";
} catch (error) {
  id("notice").hidden = false;
  id("notice").textContent = error.message;
}
