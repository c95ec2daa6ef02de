import { readFileSync } from "node:fs";

// What a weights file says of its network: ModelProto.metadata_props (14), an entry's key (1) and value (2).
export function described(file) {
  for (const [number, entry] of fields(readFileSync(file))) {
    if (number !== 14) continue;
    const texts = new Map(fields(entry));
    if (String(texts.get(1)) === "pixeldiff") return JSON.parse(String(texts.get(2)));
  }
  throw new Error(`${file} does not describe its network; export it again`);
}

// The fields of a protobuf message: a key (number << 3 | kind), then a number or so many bytes.
function* fields(message) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = message[at++];
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const key = varint();
    const size = { 0: () => (varint(), 0), 1: () => 8, 2: varint, 5: () => 4 }[key % 8]();
    yield [Math.floor(key / 8), message.subarray(at, at + size)];
    at += size;
  }
}
