/**
 * Three tabs with their own requests: the definition of a table, its newest changes, dead letters.
 */
import * as api from "./api.js";
import * as actions from "./actions.js";
import { field, h, setText } from "./dom.js";
import { Table } from "./table.js";
import { bytesOf, hexLines, tsoMs, tsoTime } from "./format.js";

const TAIL = 200;
const assignments = (values) => Object.entries(values).map(([name, value]) => `${name}=${value ?? "NULL"}`).join(", ");

/** Dead letters, and the bytes of the opened one. */
export class Letters {
  constructor(id) {
    this.id = id;
    this.opened = h("div", { "aria-live": "polite" });
    this.table = new Table({
      caption: "Messages that could not be read or were refused; those that block the changefeed first",
      empty: "No dead letters.",
      key: actions.positionOf,
      columns: [
        { name: "position", title: "Message", head: true, text: actions.positionOf },
        { name: "state", title: "State", text: (item) => item.state },
        { name: "code", title: "Code", text: (item) => item.code },
        { name: "reason", title: "Reason", long: true, text: (item) => item.reason },
        { name: "value", title: "First bytes", code: true, text: (item) => hexLines(bytesOf(item.value_b64), 16) },
        { name: "show", title: "Show", button: (item) => ({ label: "Show…", press: () => this.#open(item) }) },
        {
          name: "skip",
          title: "Skip",
          button: (item) => (item.state === "dead" ? null : { label: "Skip…", press: () => actions.skip(id, item) }),
        },
        {
          name: "replay",
          title: "Replay",
          button: (item) => ({ label: "Replay…", press: () => actions.replay(id, item, { andResume: item.state !== "dead" }) }),
        },
      ],
    });
    this.element = h("div", {}, this.table.element, this.opened);
  }

  async refresh() {
    this.table.update((await api.part(this.id, "dead_letters", { limit: 100 })).items);
  }

  #open(letter) {
    this.opened.replaceChildren(h("h3", {}, `Message ${actions.positionOf(letter)}`), actions.message(letter));
  }
}

/** A field with the names of a changefeed's tables. */
class TableField {
  constructor(id, address, onChoose) {
    this.id = id;
    this.names = h("datalist", { id: "names" });
    this.input = h("input", { list: "names", autocomplete: "off", spellcheck: "false", onchange: () => onChoose(this.input.value.trim()) });
    this.input.value = address.table ?? "";
    this.element = h("div", {}, field("Table", this.input, "database.table"), this.names);
  }

  async refresh() {
    if (this.names.childElementCount) return;
    const schema = await api.part(this.id, "schema");
    this.names.replaceChildren(...schema.tables.slice(0, 1000).map((name) => h("option", { value: name })));
  }
}

/** The definition of a table at a timestamp. */
export class Schema {
  constructor(id, address, go) {
    this.id = id;
    this.address = address;
    this.field = new TableField(id, address, (table) => go({ view: "schema", table, ts: this.ts.value.trim() }));
    this.ts = h("input", { autocomplete: "off", spellcheck: "false", onchange: () => go({ view: "schema", table: this.field.input.value.trim(), ts: this.ts.value.trim() }) });
    this.ts.value = address.ts ?? "";
    this.summary = h("p", { "aria-live": "polite" });
    this.columns = new Table({
      caption: "Columns",
      size: 200,
      empty: "",
      key: (item) => item.name,
      columns: [
        { name: "name", title: "Column", head: true, text: (item) => item.name },
        { name: "type", title: "Type", code: true, text: (item) => item.type },
        { name: "nullable", title: "NULL", text: (item) => (item.nullable ? "yes" : "no") },
        { name: "key", title: "Key", text: (item) => (item.key ? "key" : "") },
        { name: "default", title: "Default", code: true, text: (item) => item.generated ?? item.default ?? "" },
        { name: "comment", title: "Comment", long: true, text: (item) => item.comment },
      ],
    });
    this.sql = h("pre", { class: "sql", tabindex: "0", "aria-label": "Statement that creates the table", hidden: true });
    const form = h("div", { class: "line" }, this.field.element, field("As of", this.ts, "A TSO or a time such as 2026-01-31T10:00:00Z; empty: now"));
    this.element = h("div", {}, form, this.summary, this.columns.element, this.sql);
  }

  async refresh() {
    await this.field.refresh();
    const { table, ts } = this.address;
    if (!table) {
      setText(this.summary, "Choose a table.");
      this.columns.update([]);
      return;
    }
    const definition = await api.part(this.id, "schema", { table, ts: ts || "latest" });
    const since = tsoMs(definition.since_ts) === null ? "" : `, unchanged since ${tsoTime(definition.since_ts)}`;
    setText(this.summary, `${definition.table} as of ${tsoTime(definition.as_of_ts)} (${definition.as_of_ts})${since}. ${definition.indexes.join("; ")}`);
    this.columns.update(definition.columns.map((item) => ({ ...item, key: definition.key.includes(item.name) })));
    this.sql.hidden = !definition.statement;
    setText(this.sql, definition.statement);
  }
}

/** The newest changes, of all tables or of item, with new ones on top while it is live. */
export class Changes {
  constructor(id, address, go) {
    this.id = id;
    this.address = address;
    this.rows = [];
    this.after = "0";
    this.field = new TableField(id, address, (table) => go({ view: "changes", table }));
    this.live = h("input", { type: "checkbox", checked: true });
    this.table = new Table({
      caption: "Changes in commit order, the newest first",
      empty: "No changes; a changelog keeps them until they are applied.",
      key: (item) => item.number,
      columns: [
        { name: "time", title: "Commit", text: (item) => tsoTime(item.commit_ts) },
        { name: "ts", title: "Commit ts", text: (item) => item.commit_ts },
        { name: "table", title: "Table", head: true, text: (item) => item.table },
        { name: "op", title: "Change", text: (item) => ({ I: "insert", U: "update", D: "delete" })[item.op] },
        { name: "values", title: "Row", long: true, text: (item) => assignments(item.values) },
        { name: "old", title: "Before", long: true, text: (item) => assignments(item.old) },
      ],
    });
    const live = h("p", { class: "field" }, h("label", {}, this.live, " Live"), h("small", {}, `At most the newest ${TAIL}; long values are truncated.`));
    this.element = h("div", {}, h("div", { class: "line" }, this.field.element, live), this.table.element);
  }

  async refresh() {
    await this.field.refresh();
    if (!this.live.checked && this.rows.length) return;
    const page = await api.part(this.id, "changes", { table: this.address.table, after: this.after, limit: this.rows.length ? 200 : 50 });
    if (page.items.length) {
      this.after = page.items.at(-1).commit_ts;
      this.shownCount = this.shownCount ?? 0;
      const newer = page.items.map((item) => ({ ...item, number: this.shownCount++ })).reverse();
      this.rows = [...newer, ...this.rows].slice(0, TAIL);
    }
    this.table.update(this.rows);
  }
}
