/**
 * Formats numbers, times and lags.
 *
 * A TSO has 64 bits: milliseconds since 1970 above 18 bits of a counter.  It arrives as text, because a JavaScript
 * number has 53 bits, and is split as a BigInt.  Unknown values are shown as "–".
 */

export const NONE = "–";

/** The milliseconds of a TSO given as text; null where there is none (0, or from before TiDB). */
export function tsoMs(ts) {
  if (!ts) return null;
  const ms = Number(BigInt(ts) >> 18n);
  return ms >= 1420070400000 ? ms : null;
}

/** A time in the zone of the browser: 2026-01-31 10:00:00. */
export function time(ms, withDay = true) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return NONE;
  const date = new Date(ms);
  const padded = (n) => String(n).padStart(2, "0");
  const clock = `${padded(date.getHours())}:${padded(date.getMinutes())}:${padded(date.getSeconds())}`;
  return withDay ? `${date.getFullYear()}-${padded(date.getMonth() + 1)}-${padded(date.getDate())} ${clock}` : clock;
}

/** The time of a TSO. */
export const tsoTime = (ts, withDay = true) => time(tsoMs(ts), withDay);

/** The TSO of a text: itself, or that of a time in ISO or in the zone of the browser; "" for none, null for no time. */
export function tsoOf(text) {
  const word = text.trim();
  if (!word || /^\d+$/.test(word)) return word;
  const ms = Date.parse(/^\d+-\d+-\d+$/.test(word) ? `${word}T00:00` : word);
  return Number.isNaN(ms) ? null : String(BigInt(ms) << 18n);
}

/** A text such as 2026-01-31T10:00:00.123+00:00 as a time. */
export const textTime = (text) => (text ? time(Date.parse(text)) : NONE);

/** Seconds with one unit: 340 ms, 2.5 s, 14 min, 3 h, 5 d. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** A count with thousands separators. */
export function count(number) {
  return number === null || number === undefined ? NONE : Math.round(number).toLocaleString("en-US");
}

/** A size with one unit: 512 B, 1.5 MiB. */
export function size(bytes) {
  const power = bytes >= 1 ? Math.min(4, Math.floor(Math.log2(bytes) / 10)) : 0;
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** Rows a second; small rates keep a digit. */
export const rate = (number) => (number > 0 && number < 10 ? number.toFixed(1) : count(number));

/** One of counted, with its noun: 1 table, 2 tables. */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A state as a sign and a word, so that colour is never the only difference. */
export const STATES = {
  failed: "✕ failed",
  warning: "! warning",
  normal: "● normal",
  stopped: "‖ paused",
  finished: "✓ finished",
  removed: "– removed",
};
export const stateWord = (state) => STATES[state] ?? `● ${state || "normal"}`;

/** How bad a state is: the worst first. */
export const worst = (state) => ["failed", "warning", "normal", "stopped", "finished"].indexOf(state);

/** Bytes in rows of sixteen, as hex and as text. */
export function hexLines(bytes, limit = 512) {
  const lines = [];
  for (let offset = 0; offset < Math.min(bytes.length, limit); offset += 16) {
    const piece = [...bytes.slice(offset, offset + 16)];
    const hex = piece.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = piece.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${offset.toString(16).padStart(6, "0")}  ${hex.padEnd(48)}  ${text}`);
  }
  return lines.join("\n");
}

/** The bytes of a base64 text. */
export const bytesOf = (text) => Uint8Array.from(atob(text ?? ""), (char) => char.charCodeAt(0));

/** The base64 text of some bytes. */
export const base64Of = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/** The text of bytes that are printable UTF-8; null for others. */
export function textOf(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return /[\x00-\x08\x0e-\x1f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}
