// Drops a picture on the page in a headless Chromium and writes what the page shows.
//
//     node web/test/drop.mjs CHROMIUM URL PICTURE MAP [SETTINGS] [SCREENSHOT] [dark|light] [WIDTHxHEIGHT]
//
// MAP becomes width and height (two little-endian 32-bit numbers) and one grey level per pixel, MAP.png what the page
// gives as download, MAP.numbers what a page without a server has from its engine, in float32. SETTINGS is JSON, what
// the controls are set to before: {"nms": true, "threshold": "30"}. Prints the page's message. Exit code 1 and the
// reasons if the page reports an error, breaks its own security policy, or talks to another host.
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { chromium } from "playwright-core";

const [executablePath, url, picture, map, settings = "{}", screenshot, ...look] = process.argv.slice(2);
const [colorScheme = "light", window = "1100x900"] = look;
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
  await page.addInitScript(() => {
    window.Worker = class extends Worker {
      constructor(...given) {
        super(...given);
        this.addEventListener("message", ({ data }) => (window.numbers = data.map?.slice()));
      }
    };
  });
  await page.goto(url);
  await page.waitForSelector("body[data-ready]", { timeout: 60000 });
  await page.evaluate((given) => {
    for (const [id, value] of Object.entries(given)) {
      document.getElementById(id)[typeof value === "boolean" ? "checked" : "value"] = value;
    }
  }, JSON.parse(settings));
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
  console.log(await page.textContent("#message"));
  const off = await page.evaluate(() => ["how", "look"].map((id) => document.getElementById(id).disabled));
  if (off.some((one) => one !== Boolean(wrong))) problems.push(`controls that are off: ${off}`);
  if (!wrong) {
    // The divider follows the mouse, then a key.
    const box = await (await page.$("#stage")).boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 4, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
    await page.keyboard.press("ArrowRight");
    const [value, clip] = await page.evaluate(() => [
      Number(document.getElementById("split").value),
      document.getElementById("edges").style.clipPath,
    ]);
    if (Math.abs(value - 26) > 1 || !clip.includes(`${value}%`)) problems.push(`dragged to 25, then a key: ${value}, ${clip}`);
    const [saved] = await Promise.all([page.waitForEvent("download"), page.click("#png")]);
    await saved.saveAs(`${map}.png`);
  }
  const shown = await page.evaluate(async () => {
    const text = async (array) => {
      const reader = new FileReader();
      await new Promise((done) => ((reader.onload = done), reader.readAsDataURL(new Blob([array]))));
      return reader.result.split(",")[1];
    };
    const canvas = document.getElementById("edges");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const levels = await text(data.filter((_, index) => index % 4 === 0));
    return { size: [canvas.width, canvas.height], levels, numbers: window.numbers && (await text(window.numbers)) };
  });
  const size = Buffer.from(new Uint32Array(shown.size).buffer);
  writeFileSync(map, Buffer.concat([size, Buffer.from(shown.levels, "base64")]));
  if (shown.numbers) writeFileSync(`${map}.numbers`, Buffer.from(shown.numbers, "base64"));
} finally {
  await browser.close();
}
if (problems.length) {
  console.error(problems.join("\n"));
  process.exit(1);
}
