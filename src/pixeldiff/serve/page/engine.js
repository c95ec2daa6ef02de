// Edges from the API of the server. The page without a server has another file of this name.
//
// models() -> [{name, default}]; edges(blob, {model, nms, max_size}) -> {width, height, map, inputSize}: values in
// [0, 1], and the width and height at which the network ran; svg and png(blob, settings) -> Blob, the file of the
// command, or null if the page has to make the file. An error is `refused` if no setting would help.

export const promise = "Edges of an image, detected by this server. Images are not stored.";
export const canVector = true;

export async function models() {
  return (await asked("api/models")).json();
}

export async function edges(blob, { model, nms, max_size }) {
  const answer = await post(blob, { model, nms, max_size, format: "png" });
  const inputSize = answer.headers.get("X-Pixeldiff-Input-Size").split("x").map(Number);
  return { ...(await mapOf(await answer.blob())), inputSize };
}

export async function svg(blob, { model, max_size, threshold, background }) {
  return (await post(blob, { model, max_size, threshold, background, format: "svg" })).blob();
}

export async function png(blob, settings) {
  return (await post(blob, { ...settings, format: "png" })).blob();
}

function post(blob, settings) {
  const options = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== null));
  const headers = { "Content-Type": blob.type.startsWith("image/") ? blob.type : "application/octet-stream" };
  return asked(`api/edges?${new URLSearchParams(options)}`, { method: "POST", body: blob, headers });
}

async function asked(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  const reason = await answer.json().then((body) => body.error).catch(() => answer.statusText);
  throw Object.assign(new Error(reason), { refused: [413, 415, 422].includes(answer.status) });
}

async function mapOf(file) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(bitmap, 0, 0);
  const { data } = pen.getImageData(0, 0, bitmap.width, bitmap.height);
  const map = new Float32Array(bitmap.width * bitmap.height);
  for (let index = 0; index < map.length; index++) map[index] = data[4 * index] / 255;
  return { width: bitmap.width, height: bitmap.height, map };
}
