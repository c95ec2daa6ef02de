// The page of `pixeldiff serve`, with an engine that runs in the browser, as a static folder.
import { copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { defineConfig } from "vite";
import { describe } from "./network.js";

const TASK = "edges"; // what the page shows
const here = import.meta.dirname;
const page = resolve(here, "../src/pixeldiff/serve/page");
const weights = resolve(here, "..", process.env.PIXELDIFF_WEIGHTS ?? "src/pixeldiff/weights"); // make runs this in web/
const out = resolve(here, "..", process.env.PIXELDIFF_WEB_OUT ?? "web/dist");

// One page, two engines: the import of ./engine.js means the file here.
const localEngine = {
  name: "local-engine",
  enforce: "pre",
  resolveId: (source) => (source === "./engine.js" ? resolve(here, "engine.js") : null),
};

// The two builds of the engine, the networks and what they are called, beside the page.
const engines = ["engine.wasm", "threads"];
const networks = {
  name: "networks",
  buildStart() {
    const missing = engines.find((file) => !existsSync(resolve(here, file)));
    if (missing) throw new Error(`web/${missing} is missing; run make web`);
  },
  closeBundle() {
    mkdirSync(resolve(out, "models"), { recursive: true });
    for (const file of engines) cpSync(resolve(here, file), resolve(out, file), { recursive: true });
    const found = readdirSync(weights).filter((file) => file.endsWith(".safetensors")).sort();
    const isShown = (file) => describe(readFileSync(resolve(weights, file))).task === TASK;
    const list = found.filter(isShown).map((file) => ({ name: file.slice(0, -".safetensors".length) }));
    if (!list.length) throw new Error(`no network for ${TASK} in ${weights}`);
    for (const { name } of list) {
      copyFileSync(resolve(weights, `${name}.safetensors`), resolve(out, `models/${name}.safetensors`));
    }
    (list.find((one) => one.name === "tiny") ?? list[0]).default = true;
    writeFileSync(resolve(out, "models/index.json"), JSON.stringify(list));
    // The policy of the server's page, as far as a page can say it itself. WebAssembly needs a word of its own.
    const policy =
      "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; " +
      "worker-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; base-uri 'none'; form-action 'none'";
    const file = resolve(out, "index.html");
    const meta = `<meta http-equiv="Content-Security-Policy" content="${policy}">`;
    writeFileSync(file, readFileSync(file, "utf8").replace("<head>", `<head>\n${meta}`));
  },
};

export default defineConfig({
  root: page,
  base: "./",
  plugins: [localEngine, networks],
  worker: { format: "es" },
  build: { outDir: out, emptyOutDir: true, target: "es2022", assetsInlineLimit: 0 },
});
