/**
 * Elements: created by `h` and `svg`, updated only where they differ.
 *
 * No text is ever parsed as HTML: data of databases and messages goes into text nodes and attributes.
 */

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

/** A labelled field of a form. */
export function field(label, input, hint = "") {
  const id = `f-${label.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  input.id = id;
  const note = hint ? h("small", { id: `${id}-hint` }, hint) : null;
  if (note) input.setAttribute("aria-describedby", note.id);
  return h("p", { class: "field" }, h("label", { for: id }, label), input, note);
}
