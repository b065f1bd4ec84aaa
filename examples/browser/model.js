// Models of hmrnn export --onnx, computed by onnxruntime-web: nothing leaves the browser.

import { InferenceSession, Tensor, env } from "./ort.wasm.bundle.min.mjs";

const MOST_POINTS = 80; // of a letter

env.wasm.numThreads = 1; // more would need headers that a static file server does not send
env.wasm.wasmBinary = await unpacked("ort-wasm-simd-threaded.wasm.gz");

async function unpacked(name) {
  const { body } = await fetch(name);
  return new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

const whole = (numbers) => new Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
const one = (number) => new Tensor("int64", [BigInt(number)], [1]);

class Model {
  static async load(name) {
    const about = await (await fetch(`${name}.json`)).json();
    const model = new this(about, await InferenceSession.create(await unpacked(`${name}.onnx.gz`)));
    await model.prepare();
    return model;
  }

  constructor(about, session) {
    Object.assign(this, about, { session });
  }

  async prepare() {}

  // The state at the start of a sequence.
  start() {
    return Object.fromEntries(Object.entries(this.state).map(([name, n]) => [name, new Tensor("float32", new Float32Array(n), [1, n])]));
  }

  // What the model makes of one symbol or point, and the state after it.
  async step(given, state) {
    const out = await this.session.run({ ...given, ...state });
    return { out, state: Object.fromEntries(Object.keys(state).map((name) => [name, out[`next.${name}`]])) };
  }
}

export class Reader extends Model {
  // What stood before the paragraphs of training is read before a text.
  async prepare() {
    this.steps = []; // of the text read last
    this.first = this.start();
    for (const sign of " .\n") if (this.reads.symbols.includes(sign)) this.first = (await this.#read(sign, this.first)).state;
  }

  // For each character, whether a segment of each level ends with it. What an earlier text began with is not read again;
  // null if `stale` says that this text is not wanted any more.
  async ends(text, stale = () => false) {
    const characters = [...text];
    let same = 0;
    while (same < this.steps.length && this.steps[same].character === characters[same]) same++;
    this.steps.length = same;
    for (const character of characters.slice(same)) {
      const { out, state } = await this.#read(character, this.steps.at(-1)?.state ?? this.first);
      if (this.steps.length % 32 === 0) await new Promise((next) => setTimeout(next)); // keys that were pressed meanwhile
      if (stale()) return null;
      this.steps.push({ character, state, ends: Array.from(out.boundaries.data, (z) => z > 0.5) });
    }
    return this.steps.map(({ ends }) => ends);
  }

  // The segments of each level, the lowest first.
  async segments(text, stale) {
    const ends = await this.ends(text, stale);
    const levels = Array.from({ length: this.config.model.num_layers - 1 }, () => [""]);
    for (const [k, character] of ends === null ? [] : [...text].entries()) {
      levels.forEach((segments, level) => {
        if (k > 0 && ends[k - 1][level]) segments.push("");
        segments[segments.length - 1] += character;
      });
    }
    return ends === null ? null : levels;
  }

  #read(character, state) {
    const { symbols, unknown } = this.reads;
    const known = symbols.indexOf(symbols.includes(character) ? character : character.normalize("NFD")[0]); // é as e
    return this.step({ x: one(known >= 0 ? known : unknown ? symbols.length : symbols.indexOf(" ")) }, state);
  }
}

export class Writer extends Model {
  // The points {x, y, up} of a line that says `text`, one after the other; `random` gives numbers between 0 and 1.
  async *write(text, { style = 0, bias = 1, random = Math.random } = {}) {
    const { alphabet } = this.config.model;
    const { mean, deviation } = this.reads;
    const letters = [...text].map((letter) => alphabet.indexOf(letter) + 1);
    const given = { text: whole(letters), condition: one(style) };
    let point = [-mean[0] / deviation[0], -mean[1] / deviation[1], 0]; // a line begins with a step of (0, 0)
    let [state, x, y] = [this.start(), 0, 0];
    for (let k = 0; k < MOST_POINTS * letters.length; k++) {
      const step = await this.step({ ...given, x: new Tensor("float32", point, [1, 3]) }, state);
      point = drawn(step.out, bias, random);
      const halt = random() < sigmoid(step.out.halt.data[0]);
      state = step.state;
      [x, y] = [x + point[0] * deviation[0] + mean[0], y + point[1] * deviation[1] + mean[1]];
      yield { x, y, up: point[2] === 1 };
      const past = step.out.past.data[0];
      if ((halt && past > -0.5) || (point[2] === 1 && past > 0.5)) return;
    }
  }
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// A point (Δx, Δy, pen up) from a mixture of Gaussians; a larger bias writes neater (Graves, 2013).
function drawn(out, bias, random) {
  const [ofComponent, ofPen, ofRadius, ofAngle] = [random(), random(), random(), random()];
  const logs = Array.from(out.log_weights.data, (log) => log * (1 + bias));
  const largest = Math.max(...logs);
  let left = ofComponent * logs.reduce((sum, log) => sum + Math.exp(log - largest), 0);
  let k = 0;
  while (k < logs.length - 1 && (left -= Math.exp(logs[k] - largest)) >= 0) k++;
  const radius = Math.sqrt(-2 * Math.log1p(-ofRadius));
  const [a, b] = [radius * Math.cos(2 * Math.PI * ofAngle), radius * Math.sin(2 * Math.PI * ofAngle)];
  const [means, logDeviations] = [out.means.data, out.log_deviations.data];
  const dx = means[2 * k] + Math.exp(logDeviations[2 * k] - bias) * a;
  const across = out.correlation.data[k] * a + Math.sqrt(out.rest.data[k]) * b;
  const dy = means[2 * k + 1] + Math.exp(logDeviations[2 * k + 1] - bias) * across;
  return [dx, dy, Number(ofPen < sigmoid(out.pen.data[0]))];
}
