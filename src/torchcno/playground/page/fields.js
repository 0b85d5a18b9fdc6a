"use strict";
/* Fields: what a reply holds, and how a field becomes a picture. */

/** A reply's words and fields: {words, fields: {name: {shape: [channel, y, x], values}}}. */
function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const fields = {};
  let start = 4 + length;
  for (const [name, shape] of Object.entries(header.fields)) {
    const size = shape[0] * shape[1] * shape[2];
    fields[name] = { shape, values: new Float32Array(buffer, start, size) };
    start += 4 * size;
  }
  return { words: header, fields };
}

/** sRGB of a colour of OKLCH, as one number of an ImageData's 32 bits. */
function colour(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const bytes = linear.map((c) => {
    const encoded = c <= 0.0031308 ? 12.92 * c : 1.055 * Math.max(c, 0) ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, encoded)));
  });
  return (255 << 24) | (bytes[2] << 16) | (bytes[1] << 8) | bytes[0];
}

const COLOURS = 256;

function lookup(rule) {
  return Uint32Array.from({ length: COLOURS }, (_, i) => colour(...rule(i / (COLOURS - 1))));
}

/** Colours of values with a sign, and of sizes; zero is the page's own colour. */
function makeColours(dark) {
  const signed = (t) => {
    const s = Math.abs(2 * t - 1);
    const hue = t < 0.5 ? 252 - 12 * s : 45 - 18 * s;
    return dark
      ? [0.2 + 0.62 * s, 0.165 * s ** 0.7 * (1 - 0.25 * s), hue]
      : [0.975 - 0.56 * s ** 1.15, 0.175 * s ** 0.85 * (1 - 0.2 * s), hue];
  };
  const size = (t) =>
    dark
      ? [0.2 + 0.72 * t, 0.17 * Math.sin(Math.PI * Math.min(t, 0.97)) ** 0.8, 330 + 130 * t]
      : [0.975 - 0.68 * t, 0.17 * Math.sin(Math.PI * t * 0.92) ** 0.8, 90 - 130 * t];
  return { signed: lookup(signed), size: lookup(size) };
}

/** The smallest and the largest value of a channel. */
function extremes(field, channel) {
  const n = field.shape[1] * field.shape[2];
  let low = Infinity, high = -Infinity;
  for (let i = channel * n; i < (channel + 1) * n; i++) {
    const v = field.values[i];
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return [low, high];
}

/** Draw a channel: row 0 at the bottom, colours from `low` to `high`. */
function paint(canvas, field, channel, colours, low, high) {
  const [, rows, columns] = field.shape;
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const scale = high > low ? (COLOURS - 1) / (high - low) : 0;
  const start = channel * rows * columns;
  for (let j = 0; j < rows; j++) {
    const row = (rows - 1 - j) * columns;
    for (let i = 0; i < columns; i++) {
      const place = scale ? (field.values[start + j * columns + i] - low) * scale : COLOURS / 2;
      pixels[row + i] = colours[Math.max(0, Math.min(COLOURS - 1, Math.round(place)))];
    }
  }
  context.putImageData(image, 0, 0);
}

/** A strip of colours with the numbers at its ends. */
function paintBar(bar, colours, low, high) {
  const values = Float32Array.from({ length: COLOURS }, (_, i) => i);
  const strip = { shape: [1, 1, COLOURS], values };
  paint(bar.querySelector("canvas"), strip, 0, colours, 0, COLOURS - 1);
  const [left, right] = bar.querySelectorAll("span");
  left.textContent = shortNumber(low);
  right.textContent = shortNumber(high);
}

function shortNumber(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e4 || size < 1e-2 ? value.toExponential(1) : String(+value.toPrecision(2));
  return text.replace("e+", "e").replace(/-/g, "−");
}

/** Σ|a − b| / Σ|b| where `counts` is not zero; b left out: Σ|a| / Σ|scale|. */
function relativeSize(difference, scale, counts) {
  let above = 0, below = 0;
  const n = counts ? counts.values.length : 0;
  for (let i = 0; i < difference.length; i++) {
    if (counts && !counts.values[i % n]) continue;
    above += Math.abs(difference[i]);
    below += Math.abs(scale[i]);
  }
  return above / below;
}
