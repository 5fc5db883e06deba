/**
 * A table that stays responsive: rows are kept by key and changed cell by cell, and only one page of them exists.
 *
 *     items ── filter ── sort ── page ──► rows in the document      at most `size`, whatever the number of items
 *
 * A column is {name, title, text, value, number, head, link, button, shape}:
 *   text(item)    text of the cell              value(item)   sort key; default: the text
 *   link(item)    makes the cell a link           button(item)  makes it a button; null: none
 *   number, head, code, long, brief              style; head names the row; brief shows two lines, and all as a tooltip
 *   shape(item)   a class for the cell              tip(item)     its tooltip
 */
import { h, setAttribute, setText } from "./dom.js";
import { counted } from "./format.js";

export class Table {
  constructor({ caption, columns, key, size = 50, sort = null, down = false, empty = "Nothing here", filter = "", shape = "" }) {
    Object.assign(this, { columns, key, size, sort, down, empty });
    this.rows = new Map();
    this.items = [];
    this.page = 0;
    this.search = "";
    this.body = h("tbody");
    this.heads = columns.map((column) => this.#head(column));
    const table = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, this.heads)), this.body);
    const scroll = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, table);
    this.nothing = h("p", { class: "quiet", role: "status" });
    this.before = h("button", { type: "button", onclick: () => this.#turn(-1) }, "Previous");
    this.after = h("button", { type: "button", onclick: () => this.#turn(1) }, "Next");
    this.range = h("span", { role: "status" });
    this.pages = h("nav", { class: "pages", "aria-label": `Pages of: ${caption}` }, this.before, this.range, this.after);
    this.element = h("div", { class: `table ${shape}`.trim() }, filter && this.#search(filter), scroll, this.nothing, this.pages);
  }

  /** Show other items. */
  update(items) {
    this.items = items;
    this.#draw();
  }

  #search(label) {
    const typed = (event) => {
      this.search = event.target.value.trim().toLowerCase();
      this.page = 0;
      this.#draw();
    };
    return h("p", { class: "search" }, h("label", {}, `${label} `, h("input", { type: "search", oninput: typed })));
  }

  #head(column) {
    const shown = column.title ?? column.name;
    if (column.button) return h("th", { scope: "col" }, h("span", { class: "unseen" }, shown));
    const press = () => {
      this.down = this.sort === column.name ? !this.down : Boolean(column.number);
      this.sort = column.name;
      this.page = 0;
      this.#draw();
    };
    const shape = column.number ? "number" : null;
    return h("th", { scope: "col", class: shape }, h("button", { type: "button", class: "sort", onclick: press }, shown));
  }

  #turn(by) {
    this.page += by;
    this.#draw();
  }

  #chosen() {
    let items = this.items;
    if (this.search) {
      const matches = (item) => this.columns.some((column) => column.text && String(column.text(item)).toLowerCase().includes(this.search));
      items = items.filter(matches);
    }
    const by = this.columns.find((column) => column.name === this.sort);
    if (!by) return items;
    const value = by.value ?? by.text;
    const pairs = items.map((item, index) => [value(item), index, item]);
    const order = (a, b) => (a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : a < b ? -1 : 1);
    pairs.sort(([a, i], [b, j]) => (this.down ? -order(a, b) : order(a, b)) || i - j);
    return pairs.map(([, , item]) => item);
  }

  #draw() {
    const chosen = this.#chosen();
    const last = Math.max(0, Math.ceil(chosen.length / this.size) - 1);
    this.page = Math.min(Math.max(this.page, 0), last);
    const shown = chosen.slice(this.page * this.size, (this.page + 1) * this.size);
    const before = this.rows;
    this.rows = new Map();
    let next = this.body.firstChild;
    for (const item of shown) {
      let key = String(this.key(item));
      while (this.rows.has(key)) key += "'"; // two operations of one millisecond are two rows
      const row = before.get(key) ?? this.#row();
      before.delete(key);
      this.rows.set(key, row);
      this.#fill(row, item);
      if (row.element === next) next = next.nextSibling;
      else this.body.insertBefore(row.element, next);
    }
    for (const row of before.values()) row.element.remove();
    this.heads.forEach((head, number) => {
      const sorted = this.columns[number].name === this.sort;
      setAttribute(head, "aria-sort", sorted ? (this.down ? "descending" : "ascending") : null);
    });
    const missed = this.search && this.items.length;
    setText(this.nothing, chosen.length ? "" : missed ? `No hit for “${this.search}” in ${counted(this.items.length, "row")}.` : this.empty);
    this.body.parentElement.hidden = chosen.length === 0;
    this.pages.hidden = chosen.length <= this.size;
    setText(this.range, ` ${this.page * this.size + 1} to ${this.page * this.size + shown.length} of ${chosen.length} `);
    this.before.disabled = this.page === 0;
    this.after.disabled = this.page === last;
  }

  #row() {
    const row = { item: null };
    row.cells = this.columns.map((column) => {
      const inner = column.link
        ? h("a", { "data-nav": true })
        : column.button
          ? h("button", { type: "button", onclick: () => column.button(row.item)?.press() })
          : column.brief
            ? h("span", { class: "brief" })
            : null;
      const shape = [column.number && "number", column.code && "code", column.long && "long"].filter(Boolean).join(" ");
      const place = { "data-column": column.name };
      const cell = column.head ? h("th", { scope: "row", ...place }, inner) : h("td", { class: shape || null, ...place }, inner);
      return { cell, inner, shape };
    });
    row.element = h("tr", {}, row.cells.map(({ cell }) => cell));
    return row;
  }

  #fill(row, item) {
    row.item = item;
    this.columns.forEach((column, number) => {
      const { cell, inner, shape } = row.cells[number];
      if (column.button) {
        const offered = column.button(item);
        inner.hidden = !offered;
        if (offered) setText(inner, offered.label);
        return;
      }
      const text = column.text(item);
      setText(inner ?? cell, text);
      if (column.brief || column.tip) setAttribute(cell, "title", column.tip ? column.tip(item) : text || null);
      if (column.link) setAttribute(inner, "href", column.link(item));
      if (column.shape) setAttribute(cell, "class", `${shape} ${column.shape(item)}`.trim());
    });
  }
}
