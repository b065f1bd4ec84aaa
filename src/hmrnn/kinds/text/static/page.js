// The panels of text: Read and Write.

import { Read } from "/static/text/read.js";
import { Write } from "/static/text/write.js";

export function open(page, models) {
  const read = new Read(page, models);
  return { read, write: new Write(page, models, read) };
}
