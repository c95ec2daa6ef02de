// Where the edges come from on a page with a server: its API. The page without one has another file of this name.
//
// models() -> [{name, default}]; edges(blob, {model, thin}) -> {width, height, levels} with one grey level per pixel;
// svg(blob, options) -> Blob, or null where there is none.

export const promise = "Edges of a picture, found by this server. Pictures are not kept.";
export const canThin = true;
export const canVector = true;

export async function models() {
  return (await asked("api/models")).json();
}

export async function edges(blob, { model, thin }) {
  const answer = await post(blob, { model, thin, format: "png" });
  return levelsOf(await answer.blob());
}

export async function svg(blob, { model, threshold, invert }) {
  const options = { model, invert, format: "svg" };
  if (threshold > 0) options.threshold = threshold;
  return (await post(blob, options)).blob();
}

function post(blob, options) {
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
  throw new Error(reason);
}

async function levelsOf(png) {
  const bitmap = await createImageBitmap(png, { colorSpaceConversion: "none" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(bitmap, 0, 0);
  const { data } = pen.getImageData(0, 0, bitmap.width, bitmap.height);
  return { width: bitmap.width, height: bitmap.height, levels: data.filter((_, index) => index % 4 === 0) };
}
