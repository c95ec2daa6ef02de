// Two builds of the static page in a headless Chromium, in turns: what a visit loads, when the first map of a 600 x 400
// picture is there, and how long further ones take.
//
//     node benchmarks/page.mjs CHROMIUM BEFORE AFTER [ROUNDS] [RESULT.json]
//
// BEFORE and AFTER are folders that `make web` made; AFTER comes once more with the headers that switch threads on.
// Every round opens each page anew. Milliseconds by the clock, and CPU time of the page's process, which other
// programs disturb less; medians, and the ratios of them.
import { execFileSync } from "node:child_process";
import { createReadStream, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { cpus } from "node:os";
import { extname, join } from "node:path";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("playwright-core");
const [executablePath, before, after, rounds = "5", result] = process.argv.slice(2);
const FURTHER = 4; // pictures after the first
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking";
const ISOLATED = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

function served(folder, headers = {}) {
  const state = { bytes: 0 };
  const server = createServer((request, response) => {
    const path = join(folder, new URL(request.url, "http://page").pathname.replace(/\/$/, "/index.html"));
    try {
      state.bytes += statSync(path).size;
      response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "application/octet-stream", ...headers });
      createReadStream(path).pipe(response);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({ server, state, port: server.address().port })));
}

// Drops a picture; resolves when its map is drawn.
async function dropped(seed) {
  const canvas = new OffscreenCanvas(600, 400);
  const pen = canvas.getContext("2d");
  for (let k = 0; k < 60; k++) {
    pen.fillStyle = `hsl(${(k * 47 + seed * 31) % 360} 60% ${30 + ((k * 13) % 50)}%)`;
    pen.fillRect((k * 83 + seed * 7) % 560, (k * 59) % 370, 30 + ((k * 29) % 90), 20 + ((k * 17) % 70));
  }
  const blob = await canvas.convertToBlob({ type: "image/png" });
  const given = new DataTransfer();
  given.items.add(new File([blob], "picture.png", { type: "image/png" }));
  const stage = document.getElementById("stage");
  const start = performance.now();
  await new Promise((done) => {
    const watch = new MutationObserver(() => (watch.disconnect(), done()));
    watch.observe(stage, { attributes: true, attributeFilter: ["data-done"] });
    document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: given, bubbles: true }));
  });
  return performance.now() - start;
}

async function visit(browser, site) {
  const session = await browser.newBrowserCDPSession();
  const context = await browser.newContext();
  const page = await context.newPage();
  const cpu = async () => {
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    return processInfo.filter((one) => one.type === "renderer");
  };
  const between = (earlier, later) => {
    const before = new Map(earlier.map((one) => [one.id, one.cpuTime])); // an isolated page moves to another process
    return 1000 * later.reduce((sum, one) => sum + one.cpuTime - (before.get(one.id) ?? 0), 0);
  };
  site.state.bytes = 0;
  await page.goto(`http://127.0.0.1:${site.port}/`);
  await page.waitForSelector("body[data-ready]");
  const taken = [];
  for (let picture = 0; picture <= FURTHER; picture++) {
    const used = await cpu();
    const clock = await page.evaluate(dropped, picture);
    taken.push({ clock, cpu: between(used, await cpu()) });
  }
  await context.close();
  return { bytes: site.state.bytes, first: taken[0], further: taken.slice(2) }; // the second one still compiles
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

async function measured() {
  const sites = { before: await served(before), after: await served(after), threads: await served(after, ISOLATED) };
  const visits = { before: [], after: [], threads: [] };
  for (let round = 0; round < Number(rounds); round++) {
    for (const [name, site] of Object.entries(sites)) {
      const browser = await chromium.launch({ executablePath, args: FLAGS.split(" ") });
      visits[name].push(await visit(browser, site));
      await browser.close();
    }
  }
  for (const { server } of Object.values(sites)) server.close();
  const summary = {};
  for (const [name, own] of Object.entries(visits)) {
    summary[name] = { bytes: own[0].bytes };
    for (const unit of ["clock", "cpu"]) {
      summary[name][`first_${unit}_ms`] = Math.round(median(own.map((one) => one.first[unit])));
      summary[name][`further_${unit}_ms`] = Math.round(median(own.flatMap((one) => one.further.map((two) => two[unit]))));
    }
  }
  return summary;
}

const summary = await measured();
const ratio = (name) => ([key, value]) => [key, Number((value / summary[name][key]).toFixed(2))];
const ratios = (name) => Object.fromEntries(Object.entries(summary.before).map(ratio(name)));
const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim();
const report = { commit, cpu: cpus()[0].model, cores: cpus().length, rounds: Number(rounds), ...summary };
report.ratios = { after: ratios("after"), threads: ratios("threads") };
console.log(JSON.stringify(report, null, 2));
if (result) writeFileSync(result, `${JSON.stringify(report, null, 2)}\n`);
