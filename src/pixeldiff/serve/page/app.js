// The page: takes pictures in, asks the engine for edges, draws them, hands them out.
import * as engine from "./engine.js";

const at = (id) => document.getElementById(id);
let picture = null; // {blob, name, bitmap}
let result = null; // {width, height, levels}
let arrival = 0; // the last picture wins
let turn = 0; // so does the last detection

function say(text, wrong = false) {
  at("message").textContent = text;
  at("message").classList.toggle("wrong", wrong);
}

const settings = () => ({
  model: at("model").value,
  thin: at("thin").checked,
  invert: at("invert").checked,
  threshold: at("threshold").value / 100,
});

async function take(blob, name) {
  stopCamera();
  const mine = ++arrival;
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" });
  } catch {
    say("This file is not a picture that the browser can show. Try a JPEG, PNG or WebP.", true);
    return;
  }
  if (mine !== arrival) return;
  picture = { blob, name: name.replace(/\.[^.]*$/, "") || "picture", bitmap };
  result = null;
  const photo = at("photo");
  [photo.width, photo.height] = [bitmap.width, bitmap.height];
  photo.getContext("2d").drawImage(bitmap, 0, 0);
  at("edges").getContext("2d").clearRect(0, 0, at("edges").width, at("edges").height);
  at("stage").hidden = false;
  await detect();
}

async function detect() {
  if (!picture) return;
  const mine = ++turn;
  at("work").disabled = true;
  at("stage").setAttribute("aria-busy", "true");
  say("Finding edges …");
  const start = performance.now();
  try {
    const found = await engine.edges(picture.blob, settings(), picture.bitmap);
    if (mine !== turn) return;
    result = found;
    draw();
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    say(`${found.width} × ${found.height} pixels, ${seconds} s`);
    at("stage").dataset.done = String(mine);
  } catch (error) {
    if (mine === turn) say(`No edges: ${error.message}`, true);
  } finally {
    if (mine === turn) {
      at("work").disabled = false;
      at("stage").removeAttribute("aria-busy");
    }
  }
}

// Grey levels after threshold and inversion; "overlay" keeps the picture visible where there is no edge.
function draw() {
  const { threshold, invert } = settings();
  at("threshold-value").textContent = threshold > 0 ? threshold.toFixed(2) : "off";
  const view = at("view").value;
  at("split-label").hidden = view !== "slider";
  at("edges").style.clipPath = view === "slider" ? `inset(0 0 0 ${at("split").value}%)` : "none";
  if (!result) return;
  const canvas = at("edges");
  [canvas.width, canvas.height] = [result.width, result.height];
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const image = pen.createImageData(result.width, result.height);
  const pixels = image.data;
  const lowest = Math.ceil(255 * threshold);
  result.levels.forEach((level, index) => {
    const edge = threshold > 0 ? (level >= lowest ? 255 : 0) : level;
    const ink = view === "overlay" ? (invert ? 0 : 255) : invert ? 255 - edge : edge;
    pixels.fill(ink, 4 * index, 4 * index + 3);
    pixels[4 * index + 3] = view === "overlay" ? edge : 255;
  });
  pen.putImageData(image, 0, 0);
}

function save(blob, suffix) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${picture.name}.edges.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function savePng() {
  if (!result) return;
  if (at("view").value !== "overlay") return at("edges").toBlob((blob) => save(blob, "png"));
  const both = document.createElement("canvas");
  [both.width, both.height] = [result.width, result.height];
  const pen = both.getContext("2d");
  pen.drawImage(at("photo"), 0, 0);
  pen.drawImage(at("edges"), 0, 0);
  both.toBlob((blob) => save(blob, "png"));
}

async function saveSvg() {
  if (!picture) return;
  try {
    save(await engine.svg(picture.blob, settings()), "svg");
  } catch (error) {
    say(`No vector lines: ${error.message}`, true);
  }
}

async function useCamera() {
  const film = at("viewfinder");
  if (film.srcObject) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [film.videoWidth, film.videoHeight];
    canvas.getContext("2d").drawImage(film, 0, 0);
    canvas.toBlob((blob) => take(blob, "camera"), "image/png");
    return;
  }
  try {
    film.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch {
    say("There is no camera, or this page may not use it. Cameras need https or this very machine.", true);
    return;
  }
  film.hidden = false;
  at("stage").hidden = true;
  at("camera").textContent = "take the picture";
  await film.play();
}

function stopCamera() {
  const film = at("viewfinder");
  film.srcObject?.getTracks().forEach((track) => track.stop());
  film.srcObject = null;
  film.hidden = true;
  at("camera").textContent = "use the camera";
}

function takeFirst(files) {
  const file = [...(files ?? [])].find((one) => one.type.startsWith("image/")) ?? files?.[0];
  if (file) take(file, file.name);
  else say("There was no picture in that.", true);
}

function listen() {
  const drop = at("drop");
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    takeFirst(event.dataTransfer?.files);
  });
  document.addEventListener("paste", (event) => takeFirst(event.clipboardData?.files));
  at("file").addEventListener("change", (event) => takeFirst(event.target.files));
  at("camera").addEventListener("click", useCamera);
  for (const id of ["model", "thin"]) at(id).addEventListener("change", detect);
  for (const id of ["view", "split", "threshold", "invert"]) at(id).addEventListener("input", draw);
  at("png").addEventListener("click", savePng);
  at("svg").addEventListener("click", saveSvg);
  at("controls").addEventListener("submit", (event) => event.preventDefault());
}

async function start() {
  at("promise").textContent = engine.promise;
  at("thin-label").hidden = !engine.canThin;
  at("svg").hidden = !engine.canVector;
  listen();
  draw();
  try {
    for (const { name, default: chosen } of await engine.models()) {
      at("model").add(new Option(name, name, chosen, chosen));
    }
    document.body.dataset.ready = "yes";
  } catch (error) {
    say(error.message, true);
  }
}

start();
