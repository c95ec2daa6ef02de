// Drops a picture on the page in a headless Chromium and writes what the page shows.
//
//     node web/test/drop.mjs CHROMIUM URL PICTURE MAP [SCREENSHOT] [dark|light] [WIDTHxHEIGHT]
//
// MAP becomes width and height (two little-endian 32-bit numbers) and one grey level per pixel. Exit code 1 and the
// reasons if the page reports an error, breaks its own security policy, or talks to another host.
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { chromium } from "playwright-core";

const [executablePath, url, picture, map, screenshot, colorScheme = "light", window = "1100x900"] = process.argv.slice(2);
const [width, height] = window.split("x").map(Number);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const problems = [];
try {
  const page = await browser.newPage({ colorScheme, viewport: { width, height } });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("request", (request) => {
    const outside = !request.url().startsWith(url) && !/^(blob|data):/.test(request.url());
    if (outside) problems.push(`asked for ${request.url()}`);
  });
  await page.goto(url);
  await page.waitForSelector("body[data-ready]", { timeout: 60000 });
  const bytes = readFileSync(picture).toString("base64");
  const type = picture.endsWith(".png") ? "image/png" : "image/jpeg";
  await page.evaluate(
    ([content, name, kind]) => {
      const file = new File([Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0))], name, { type: kind });
      const dropped = new DataTransfer();
      dropped.items.add(file);
      document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true }));
    },
    [bytes, basename(picture), type],
  );
  await page.waitForSelector("#stage[data-done], #message.wrong", { timeout: 120000 });
  const wrong = await page.$("#message.wrong");
  if (wrong) problems.push(await wrong.textContent());
  if (screenshot) await page.screenshot({ path: screenshot });
  await page.selectOption("#view", "edges");
  const shown = await page.evaluate(() => {
    const canvas = document.getElementById("edges");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return { size: [canvas.width, canvas.height], levels: Array.from(data.filter((_, index) => index % 4 === 0)) };
  });
  writeFileSync(map, Buffer.concat([Buffer.from(new Uint32Array(shown.size).buffer), Buffer.from(shown.levels)]));
} finally {
  await browser.close();
}
if (problems.length) {
  console.error(problems.join("\n"));
  process.exit(1);
}
