/**
 * Actions on a changefeed.  Each asks for confirmation and is sent under the user's name, which the server records; errors
 * are shown in the dialog.
 */
import * as api from "./api.js";
import { blame, field, h, moment, setText } from "./dom.js";
import { base64Of, bytesOf, hexLines, textOf } from "./format.js";

/** The user, as reported by each response. */
export const session = { who: "anonymous" };

/** Announce a text to screen readers without taking the focus. */
export function announce(text) {
  setText(document.getElementById("announcement"), text);
}

/**
 * Ask for confirmation and run: `run` returns a promise; the dialog stays open until it succeeds or is cancelled.  Then
 * the page announces `report(result)`, and goes to `href(result)`.
 */
export function question({ title, text, verb, danger = false, content = [], inputs = {}, run, report = () => `${title}: done`, href = null }) {
  const fault = h("p", { role: "alert", class: "fault", hidden: true });
  const yes = h("button", { type: "submit", class: danger ? "danger" : "strong" }, verb);
  const no = h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Cancel");
  const send = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    fault.hidden = true;
    blame(inputs);
    try {
      const done = await run();
      dialog.close();
      announce(report(done));
      document.dispatchEvent(href ? new CustomEvent("go", { detail: href(done) }) : new CustomEvent("acted"));
    } catch (error) {
      const rights = error.status === 401 || error.status === 403 ? "You may not do this. " : "";
      setText(fault, `${rights}${error.message}${error.code ? ` (${error.code})` : ""}`);
      fault.hidden = !rights && blame(inputs, error);
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
  const checkpoint = moment("Another checkpoint", "Empty: its own. A lake keeps its own checkpoint and refuses another.");
  question({
    title: `Resume ${id}`,
    text: "It continues from its checkpoint.",
    verb: "Resume",
    content: [checkpoint.element],
    inputs: { checkpoint: checkpoint.input },
    run: async () => api.act(id, "resume", checkpoint.input.value.trim() ? { overwrite_checkpoint_ts: checkpoint.tso() } : {}),
  });
}

/** Ask for the database and the tables of a load, which `run` sends, and whether readers get rows once more. */
function loading(run, { empty = "; empty: all", resends = false, ...words }) {
  const resend = h("input", { type: "checkbox" });
  const from = h("input", { autocomplete: "off", spellcheck: "false" });
  const tables = h("input", { autocomplete: "off", spellcheck: "false" });
  question({
    ...words,
    content: [
      field("Database", from, "mysql://USER:PASSWORD@HOST:4000/; empty: the one that it was loaded from."),
      field("Tables", tables, `Rules such as shop.*, with commas between${empty}.`),
      resends && field("Resend", resend, "Topics, webhooks, callbacks: readers get all rows once more, as INSERTs."),
    ],
    run: () =>
      run({
        load_from: from.value.trim(),
        tables: tables.value.split(",").map((rule) => rule.trim()).filter(Boolean),
        ...(resend.checked ? { resend: true } : {}),
      }),
  });
}

export const startLoad = (id) =>
  loading((body) => api.load(id, "start", body), {
    title: `Load the tables of ${id}`,
    text: "All rows as of now are read, in place of what the target has of these tables; then the changes go on.",
    verb: "Load",
    danger: true,
  });

export const reloadTables = (id) =>
  loading((body) => api.tables(id, "reload", body), {
    title: `Reload tables of ${id}`,
    text: "All rows as of now are read again beside the changefeed. Readers see the tables of before until the new ones are whole.",
    verb: "Reload",
    resends: true,
  });

export const addTables = (id) =>
  loading((body) => api.tables(id, "add", body), {
    title: `Add tables to ${id}`,
    text: "The filter takes them from now on, and their rows are read beside the changefeed.",
    verb: "Add",
    empty: "",
  });

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
    title: `Resume table ${table}`,
    text: "Its changes since it was parked are applied. Fix the cause first, such as schema-change: a table that fails again stays parked.",
    verb: "Resume table",
    run: () => api.tables(id, "unpark", { table }),
    report: (done) => `${done.tables.join(", ")} will resume`,
  });

/** The position of a message as in tidegate's commands. */
export const positionOf = (letter) => `${letter.topic}/${letter.partition}/${letter.offset}`;

const bodyOf = ({ topic, partition, offset }) => ({ topic, partition, offset });

/** A message with its bytes. */
export function message(letter) {
  const part = (name, base64, size) => {
    if (base64 === null) return h("p", {}, `${name}: none`);
    const bytes = bytesOf(base64);
    const cut = size > Math.min(bytes.length, 512) ? `, the first ${Math.min(bytes.length, 512)} shown` : "";
    const label = `${name}: ${size.toLocaleString("en-US")} bytes${cut}`;
    return h("div", {}, h("p", {}, label), h("pre", { tabindex: "0", "aria-label": label }, hexLines(bytes)));
  };
  return h(
    "div",
    { class: "message" },
    h("p", {}, h("strong", {}, positionOf(letter)), ` ${letter.code} at byte ${letter.error_offset}: ${letter.reason}`),
    part("Key", letter.key_b64, letter.key_size),
    part("Value", letter.value_b64, letter.value_size),
  );
}

export const skip = (id, letter) =>
  question({
    title: `Skip ${positionOf(letter)} and resume`,
    text: "The message is skipped and kept as a dead letter; the changefeed continues after it. Its rows do not reach the sink unless it is replayed in time.",
    verb: "Skip and resume",
    danger: true,
    content: [message(letter)],
    run: async () => {
      await api.decide(id, "skip", bodyOf(letter));
      await api.act(id, "resume", {});
    },
    report: () => `${positionOf(letter)} is skipped, ${id} continues`,
  });

export function replay(id, letter, { andResume = true } = {}) {
  const bytes = bytesOf(letter.value_b64);
  const whole = letter.value_size === bytes.length;
  const text = whole ? textOf(bytes) : null;
  const value = h("textarea", { rows: "8", spellcheck: "false", autocomplete: "off" });
  value.value = text ?? (whole ? letter.value_b64 : "");
  const before = value.value;
  const form = text === null ? "base64" : "text";
  question({
    title: `Replay ${positionOf(letter)}`,
    text: "The bytes below are read instead of the message. Unchanged, the message itself is read again.",
    verb: andResume ? "Replay and resume" : "Replay",
    content: [
      h("p", {}, `${letter.code}: ${letter.reason}`),
      field("Value", value, `As ${form}${whole ? "" : "; the message is longer than shown, so enter all of it"}.`),
    ],
    run: async () => {
      const bytes64 = form === "text" ? base64Of(new TextEncoder().encode(value.value)) : value.value.trim();
      const changed = value.value === before ? {} : { value_b64: bytes64 };
      const done = await api.decide(id, "replay", { ...bodyOf(letter), ...changed });
      if (andResume) await api.act(id, "resume", {});
      return done;
    },
    report: (done) => (done.waits_for_resume ? `${positionOf(letter)} is read again` : `${positionOf(letter)}: ${done.rows} rows appended`),
  });
}
