// Requests to the server. Answers in parts come as lines of JSON.

export class Refused extends Error {
  constructor(error, message, retryAfter = 0) {
    super(message);
    this.error = error;
    this.retryAfter = retryAfter;
  }
}

export async function models() {
  const response = await fetch("/api/models");
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// The answer as a blob, for a download.
export async function file(path, request) {
  const response = await post(path, request);
  return response.blob();
}

// The lines of an answer, one by one. A busy server is asked again up to 20 times, until `signal` aborts.
export async function* lines(path, request, signal, onBusy = () => {}) {
  const response = await patiently(path, request, signal, onBusy);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const complete = (rest + value).split("\n");
      rest = complete.pop();
      for (const line of complete) {
        const record = JSON.parse(line);
        if (record.error) throw new Refused(record.error, record.message);
        ended = ended || record.end === true;
        yield record;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (!ended) throw new Refused("cut off", "the answer broke off; is the server still there?");
}

async function patiently(path, request, signal, onBusy) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await post(path, request, signal);
    } catch (error) {
      if (error.error !== "busy" || attempt >= 20) throw error;
      onBusy();
      await pause(error.retryAfter * 1000 * (0.5 + Math.random()), signal);
    }
  }
}

async function post(path, request, signal) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request), signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("unreachable", "the server does not answer; is hmrnn explore still running?");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  try {
    const { error, message } = await response.json();
    return new Refused(error, message, Number(response.headers.get("Retry-After") || 1));
  } catch {
    return new Refused("defect", `the server answered ${response.status}`);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}
