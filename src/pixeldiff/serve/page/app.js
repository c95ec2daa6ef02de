// The page: reads images, gets their edges from the engine, draws and saves them.
import * as engine from "./engine.js";
import { strongest, thin as thinned, to8Bit } from "./maps.js";

const at = (id) => document.getElementById(id);
let image = null; // {blob, name, bitmap}
let result = null; // {width, height, map, inputSize}
let arrival = 0; // the last image wins
let turn = 0; // so does the last detection

function say(text, wrong = false) {
  at("message").textContent = text;
  at("message").classList.toggle("wrong", wrong);
}

const settings = () => ({
  model: at("model").value,
  max_size: at("max_size").value,
  nms: at("nms").checked,
  background: at("background").value,
  threshold: at("threshold").value > 0 ? at("threshold").value / 100 : null,
});

// Enable the controls of detection once there is an image, those of drawing once there are edges.
function allow(busy = false) {
  at("how").disabled = busy || !image;
  at("look").disabled = busy || !result;
  at("stage").setAttribute("aria-busy", busy);
}

async function take(blob, name) {
  stopCamera();
  const mine = ++arrival;
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" });
  } catch {
    say("This file is not an image that the browser can show. Try a JPEG, PNG or WebP.", true);
    return;
  }
  if (mine !== arrival) return;
  image = { blob, name: name.replace(/\.[^.]*$/, "") || "image", bitmap };
  result = null;
  at("divider").hidden = at("split").hidden = true;
  const photo = at("photo");
  [photo.width, photo.height] = [bitmap.width, bitmap.height];
  photo.getContext("2d").drawImage(bitmap, 0, 0);
  at("edges").getContext("2d").clearRect(0, 0, at("edges").width, at("edges").height);
  at("stage").hidden = false;
  await detect();
}

async function detect() {
  if (!image) return;
  const mine = ++turn;
  allow(true);
  say("Detecting edges …");
  const start = performance.now();
  try {
    const detected = await engine.edges(image.blob, settings(), image.bitmap);
    if (mine !== turn) return;
    result = detected;
    draw();
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    const [width, height] = detected.inputSize;
    const shrunk = width !== detected.width || height !== detected.height;
    const note = shrunk ? `; shrunk to ${width} × ${height} for detection` : "";
    say(`${detected.width} × ${detected.height} pixels, ${seconds} s${note}`);
    at("stage").dataset.done = String(mine);
  } catch (error) {
    if (mine !== turn) return;
    say(`No edges: ${error.message}`, true);
    if (error.refused) image = result = null;
  } finally {
    if (mine === turn) allow();
  }
}

// Gray levels; with a threshold black and white, thin lines one pixel wide, as in the command's files.
function levels() {
  const { threshold, nms } = settings();
  const { map, width, height } = result;
  if (threshold === null) return to8Bit(map);
  const lowest = Math.fround(threshold);
  let mask = Uint8Array.from(map, (value) => (value >= lowest ? 1 : 0));
  if (nms) mask = thinned(mask, height, width);
  return mask.map((set) => 255 * set);
}

function split() {
  const slider = at("view").value === "slider";
  at("split").hidden = at("divider").hidden = !slider;
  at("edges").style.clipPath = slider ? `inset(0 0 0 ${at("split").value}%)` : "none";
  at("divider").style.left = `${at("split").value}%`;
}

function draw() {
  at("threshold-value").textContent = settings().threshold?.toFixed(2) ?? "off";
  split();
  if (!result) return;
  const { width, height, inputSize } = result;
  // Lines one pixel wide vanish when the browser scales a large image down; they are drawn wider.
  const step = settings().nms ? Math.max(1, Math.round(width / inputSize[0])) : 1;
  paint(at("edges"), ...strongest(levels(), width, height, step));
}

// "overlay" keeps the image visible where there is no edge.
function paint(canvas, edges, width, height) {
  const white = settings().background === "white";
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const image = pen.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer); // alpha, then three times the gray level
  const overlay = (edge) => (edge << 24) | (white ? 0 : 0xffffff);
  const plain = (edge) => 0xff000000 | ((white ? 255 - edge : edge) * 0x010101);
  const color = at("view").value === "overlay" ? overlay : plain;
  const ink = Uint32Array.from({ length: 256 }, (_, edge) => color(edge));
  for (let index = 0; index < edges.length; index++) pixels[index] = ink[edges[index]];
  pen.putImageData(image, 0, 0);
  return canvas;
}

function save(blob, suffix) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${image.name}.edges.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Of the image's size, whatever is shown.
const wholeEdges = () => paint(document.createElement("canvas"), levels(), result.width, result.height);

async function savePng() {
  if (!result) return;
  if (at("view").value !== "overlay") {
    try {
      const file = await engine.png(image.blob, settings());
      if (file) save(file, "png");
      else wholeEdges().toBlob((blob) => save(blob, "png"));
    } catch (error) {
      say(`No file: ${error.message}`, true);
    }
    return;
  }
  const both = document.createElement("canvas");
  [both.width, both.height] = [result.width, result.height];
  const pen = both.getContext("2d");
  pen.drawImage(at("photo"), 0, 0);
  pen.drawImage(wholeEdges(), 0, 0);
  both.toBlob((blob) => save(blob, "png"));
}

async function saveSvg() {
  if (!image) return;
  try {
    save(await engine.svg(image.blob, settings()), "svg");
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
    say("No camera, or this page may not use it. Cameras need https or a page from this machine.", true);
    return;
  }
  film.hidden = false;
  at("stage").hidden = true;
  at("camera").textContent = "take the image";
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
  else say("That holds no image.", true);
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
  at("file").addEventListener("change", (event) => {
    takeFirst(event.target.files);
    event.target.value = ""; // the same file may be chosen again
  });
  at("camera").addEventListener("click", useCamera);
  for (const id of ["model", "max_size", "nms"]) at(id).addEventListener("change", detect);
  for (const id of ["view", "threshold", "background"]) at(id).addEventListener("input", draw);
  at("split").addEventListener("input", split);
  at("png").addEventListener("click", savePng);
  at("svg").addEventListener("click", saveSvg);
  at("controls").addEventListener("submit", (event) => event.preventDefault());
}

async function start() {
  at("promise").textContent = engine.promise;
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
