// Segments as one types, and lines written by hand.

import { Reader, Writer } from "./model.js";

const id = (name) => document.getElementById(name);
const [reader, writer] = await Promise.all([Reader.load("english-small"), Writer.load("writing-small")]);

async function segment() {
  const text = id("text").value;
  const levels = await reader.segments(text, () => id("text").value !== text);
  if (levels === null) return; // a key was pressed meanwhile
  id("levels").replaceChildren(...levels.map((segments) => {
    const row = document.createElement("p");
    row.append(...segments.map((one) => Object.assign(document.createElement("span"), { textContent: one })));
    return row;
  }));
}

let writing = 0; // the number of the line that is written now
async function write() {
  const now = ++writing;
  const [said, style, bias] = [id("said").value, id("style").selectedIndex, Number(id("bias").value)];
  const unknown = [...said].find((letter) => !writer.config.model.alphabet.includes(letter));
  id("status").textContent = unknown ? `The model has never seen ${unknown} written.` : "";
  if (unknown || !said.trim()) return;
  const points = [{ x: 0, y: 0, up: false }];
  for await (const point of writer.write(said, { style, bias })) {
    if (now !== writing) return;
    points.push(point);
    if (points.length % 4 === 0) await draw(points);
  }
  await draw(points);
  id("status").textContent = `${points.length - 1} points`;
}

async function draw(points) {
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [width, height] = [Math.max(...xs) - left, Math.max(...ys) - top];
  const edge = 0.1 * height + 1;
  id("line").setAttribute("viewBox", `${left - edge} ${top - edge} ${width + 2 * edge} ${height + 2 * edge}`);
  id("line").firstElementChild.setAttribute("d", points.map(({ x, y }, k) => `${k && !points[k - 1].up ? "L" : "M"}${x} ${y}`).join(""));
  await new Promise(requestAnimationFrame);
}

id("style").append(...writer.config.model.classes.map((name) => new Option(name)));
id("text").addEventListener("input", segment);
id("write").addEventListener("submit", (event) => { event.preventDefault(); write(); });
await segment();
document.documentElement.dataset.ready = "";
id("status").textContent = "";
