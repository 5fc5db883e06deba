/**
 * Elements: created by `h` and `svg`, updated only where they differ.
 *
 * No text is ever parsed as HTML: data of databases and messages goes into text nodes and attributes.
 */

import { tsoMs, tsoOf, tsoTime } from "./format.js";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element; attributes that start with "on" are listeners. */
export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** Set the text of an element if it differs, so that a selection in it stays. */
export function setText(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}

/** Set an attribute, or remove it. */
export function setAttribute(element, name, value) {
  if (value === null || value === false || value === undefined) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Characters of a value beyond which it gets a line of its own. */
const WIDE = 24;

/** A definition list whose values are updated in place. `rows` are a term, a function of the data, and, for a link, the
 * address of a text. */
export class Facts {
  constructor(label, rows) {
    this.rows = rows.map(([term, value, href]) => ({ value, href, node: h(href ? "a" : "span"), term: h("dt", {}, term) }));
    const shown = this.rows.map((row) => h("div", {}, row.term, h("dd", {}, row.node)));
    this.element = h("dl", { class: "facts", "aria-label": label }, shown);
  }

  update(data) {
    for (const row of this.rows) {
      const text = row.value(data);
      row.term.parentElement.hidden = text === null;
      if (text === null) continue;
      setText(row.node, text);
      setAttribute(row.term.parentElement, "class", text.length > WIDE ? "wide" : null);
      if (row.href) setAttribute(row.node, "href", row.href(text));
    }
  }
}

/** A labelled field of a form; `input.blame(text)` marks it as wrong, and "" as right again. */
export function field(label, input, hint = "") {
  const id = `f-${label.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  input.id = id;
  const note = h("small", { id: `${id}-hint` }, hint);
  const fault = h("small", { id: `${id}-fault`, class: "fault", role: "alert", hidden: true });
  input.setAttribute("aria-describedby", `${note.id} ${fault.id}`);
  input.blame = (text) => {
    setText(fault, text);
    fault.hidden = !text;
    setAttribute(input, "aria-invalid", text ? "true" : null);
  };
  return h("p", { class: "field" }, h("label", { for: id }, label), input, fault, note);
}

/** A field of a time: a TSO, or a time in ISO or in this zone; `tso()` throws for another text. Both are shown. */
export function moment(label, hint) {
  const input = h("input", { autocomplete: "off", spellcheck: "false" });
  const shown = h("output", { class: "quiet" });
  const element = field(label, input, `A TSO or a time, such as 2026-01-31 10:00 (here) or 2026-01-31T10:00:00Z. ${hint}`);
  input.addEventListener("input", () => {
    const ts = tsoOf(input.value);
    setText(shown, tsoMs(ts) ? `${tsoTime(ts)} is TSO ${ts}` : "");
  });
  const tso = () => {
    const ts = tsoOf(input.value);
    if (ts === null) throw new FieldError(input, `“${input.value.trim()}” is neither a TSO nor a time`);
    return ts;
  };
  element.append(shown);
  return { element, input, tso };
}

/** What is wrong with a field, before the server is asked. */
export class FieldError extends Error {
  constructor(input, message) {
    super(message);
    this.input = input;
  }
}

/** Which field an error of the server is about, by its code and text: the first that matches. */
const ABOUT = [
  ["name", /AlreadyExists|changefeed_id/],
  ["target", /target[-_ ]?ts/i],
  ["start", /start[-_ ]?ts/i],
  ["source", /source[-_]uri|pd_addrs/],
  ["rules", /Filter/],
  ["settings", /replica_config|Filter/],
  ["sink", /sink|protocol|topic/i],
  ["settings", /ReplicaConfig/],
];

/** Mark the field of `inputs` that an error is about; false if there is none. No error: mark none. */
export function blame(inputs, error = null) {
  for (const input of Object.values(inputs)) input.blame("");
  if (!error) return false;
  const text = `${error.code ?? ""} ${error.message}`;
  const input = error.input ?? inputs[ABOUT.find(([name, pattern]) => inputs[name] && pattern.test(text))?.[0]];
  input?.blame(`${error.message}${error.code ? ` (${error.code})` : ""}`);
  input?.focus();
  return Boolean(input);
}
