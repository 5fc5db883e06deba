/**
 * What can be done to a changefeed.  Each action asks first, is sent under the name of who is logged in, and the server
 * notes it; what it refuses is told where the question was asked.
 */
import * as api from "./api.js";
import { field, h, say } from "./dom.js";
import { base64Of, bytesOf, hexLines, textOf } from "./words.js";

/** Who asks, as the server knows; each answer tells it. */
export const session = { who: "anonymous" };

/** Tell something to whoever listens, without taking the focus. */
export function announce(text) {
  say(document.getElementById("said"), text);
}

/**
 * Ask, and do it: `run` returns a promise; the dialog stays open until it has succeeded or somebody cancels.  Then the
 * page says `told` of its result, and goes to `href` of it.
 */
export function question({ title, text, verb, danger = false, content = [], run, told = () => `${title}: done`, href = null }) {
  const fault = h("p", { role: "alert", class: "fault", hidden: true });
  const yes = h("button", { type: "submit", class: danger ? "danger" : "strong" }, verb);
  const no = h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Cancel");
  const send = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    fault.hidden = true;
    try {
      const done = await run();
      dialog.close();
      announce(told(done));
      document.dispatchEvent(href ? new CustomEvent("go", { detail: href(done) }) : new CustomEvent("acted"));
    } catch (error) {
      const rights = error.status === 401 || error.status === 403 ? "You may not do this. " : "";
      say(fault, `${rights}${error.message}${error.code ? ` (${error.code})` : ""}`);
      fault.hidden = false;
      yes.disabled = false;
    }
  };
  const form = h(
    "form",
    { onsubmit: send },
    h("h2", { id: "asked" }, title),
    h("p", {}, text),
    content,
    h("p", { class: "quiet" }, `Done as ${session.who}; the server records it.`),
    fault,
    h("p", { class: "buttons" }, yes, no),
  );
  const dialog = h("dialog", { "aria-labelledby": "asked", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
}

export const pause = (id) =>
  question({
    title: `Pause ${id}`,
    text: "It stops between two rounds and keeps its checkpoint. Meanwhile the source may drop changes that have not been read yet.",
    verb: "Pause",
    run: () => api.act(id, "pause"),
  });

export function resume(id) {
  const at = h("input", { inputmode: "numeric", pattern: "[0-9]*", autocomplete: "off", spellcheck: "false" });
  question({
    title: `Resume ${id}`,
    text: "It continues from its checkpoint.",
    verb: "Resume",
    content: [field("Another checkpoint", at, "A TSO; empty: its own. A lake keeps its own checkpoint and refuses another.")],
    run: () => api.act(id, "resume", at.value ? { overwrite_checkpoint_ts: at.value.trim() } : {}),
  });
}

export function startLoad(id) {
  const from = h("input", { autocomplete: "off", spellcheck: "false" });
  const tables = h("input", { autocomplete: "off", spellcheck: "false" });
  question({
    title: `Load the tables of ${id}`,
    text: "All rows as of now are read, in place of what the target has of these tables; then the changes go on.",
    verb: "Load",
    danger: true,
    content: [
      field("Database", from, "mysql://USER:PASSWORD@HOST:4000/; empty: the one that it was loaded from."),
      field("Tables", tables, "Rules such as shop.*, with commas between; empty: all."),
    ],
    run: () => api.load(id, "start", { load_from: from.value.trim(), tables: tables.value.split(",").map((rule) => rule.trim()).filter(Boolean) }),
  });
}

export const cancelLoad = (id) =>
  question({
    title: `Cancel the load of ${id}`,
    text: "Tables that are not whole are dropped from the target; a lake keeps those that it shows. The changefeed is stopped.",
    verb: "Cancel the load",
    danger: true,
    run: () => api.load(id, "cancel"),
  });

export const remove = (id) =>
  question({
    title: `Remove ${id}`,
    text: "The changefeed and its checkpoint are removed. The data in its sink stays.",
    verb: "Remove",
    danger: true,
    run: () => api.remove(id),
    href: () => "/",
  });

export const unpark = (id, table) =>
  question({
    title: `Let ${table} go on`,
    text: "Its changes since it was parked are applied. Remove the cause first, such as schema-change: a table that is refused again stays parked.",
    verb: "Let it go on",
    run: () => api.unpark(id, table),
    told: (done) => `${done.tables.join(", ")} will go on`,
  });

/** The place of a message as tidegate's commands write it. */
export const placeOf = (letter) => `${letter.topic}/${letter.partition}/${letter.offset}`;

const bodyOf = ({ topic, partition, offset }) => ({ topic, partition, offset });

/** A message with its bytes. */
export function message(letter) {
  const part = (name, base64, size) => {
    if (base64 === null) return h("p", {}, `${name}: none`);
    const bytes = bytesOf(base64);
    const cut = size > Math.min(bytes.length, 512) ? `, the first ${Math.min(bytes.length, 512)} shown` : "";
    const told = `${name}: ${size.toLocaleString("en-US")} bytes${cut}`;
    return h("div", {}, h("p", {}, told), h("pre", { tabindex: "0", "aria-label": told }, hexLines(bytes)));
  };
  return h(
    "div",
    { class: "message" },
    h("p", {}, h("strong", {}, placeOf(letter)), ` ${letter.code} at byte ${letter.error_offset}: ${letter.reason}`),
    part("Key", letter.key_b64, letter.key_size),
    part("Value", letter.value_b64, letter.value_size),
  );
}

export const skip = (id, letter) =>
  question({
    title: `Skip ${placeOf(letter)} and resume`,
    text: "The message is skipped and kept as a dead letter; the changefeed continues after it. Its rows do not reach the sink unless it is replayed in time.",
    verb: "Skip and resume",
    danger: true,
    content: [message(letter)],
    run: async () => {
      await api.decide(id, "skip", bodyOf(letter));
      await api.act(id, "resume", {});
    },
    told: () => `${placeOf(letter)} is skipped, ${id} continues`,
  });

export function replay(id, letter, { then = true } = {}) {
  const bytes = bytesOf(letter.value_b64);
  const whole = letter.value_size === bytes.length;
  const text = whole ? textOf(bytes) : null;
  const value = h("textarea", { rows: "8", spellcheck: "false", autocomplete: "off" });
  value.value = text ?? (whole ? letter.value_b64 : "");
  const before = value.value;
  const form = text === null ? "base64" : "text";
  question({
    title: `Replay ${placeOf(letter)}`,
    text: "The bytes below are read instead of the message. Unchanged, the message itself is read again.",
    verb: then ? "Replay and resume" : "Replay",
    content: [
      h("p", {}, `${letter.code}: ${letter.reason}`),
      field("Value", value, `As ${form}${whole ? "" : "; the message is longer than shown, so enter all of it"}.`),
    ],
    run: async () => {
      const given = form === "text" ? base64Of(new TextEncoder().encode(value.value)) : value.value.trim();
      const changed = value.value === before ? {} : { value_b64: given };
      const done = await api.decide(id, "replay", { ...bodyOf(letter), ...changed });
      if (then) await api.act(id, "resume", {});
      return done;
    },
    told: (done) => (done.waits_for_resume ? `${placeOf(letter)} is read again` : `${placeOf(letter)}: ${done.rows} rows appended`),
  });
}
