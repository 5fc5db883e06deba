/**
 * Three tabs that are asked for something: the definition of a table, its newest changes, a message.
 */
import * as api from "./api.js";
import * as actions from "./actions.js";
import { field, h, say } from "./dom.js";
import { Table } from "./table.js";
import { bytesOf, hexLines, tsoMs, tsoTime } from "./words.js";

const TAIL = 200;
const words = (values) => Object.entries(values).map(([name, value]) => `${name}=${value ?? "NULL"}`).join(", ");

/** Dead letters, and the bytes of the one that is opened. */
export class Letters {
  constructor(id) {
    this.id = id;
    this.whole = h("div", { "aria-live": "polite" });
    this.table = new Table({
      caption: "Messages that could not be read or were refused; those that block the changefeed first",
      empty: "No dead letters.",
      key: actions.placeOf,
      columns: [
        { name: "place", title: "Message", head: true, text: actions.placeOf },
        { name: "state", title: "State", text: (one) => one.state },
        { name: "code", title: "Code", text: (one) => one.code },
        { name: "reason", title: "Reason", long: true, text: (one) => one.reason },
        { name: "value", title: "First bytes", code: true, text: (one) => hexLines(bytesOf(one.value_b64), 16) },
        { name: "show", title: "Show", button: (one) => ({ label: "Show…", press: () => this.#open(one) }) },
        {
          name: "skip",
          title: "Skip",
          button: (one) => (one.state === "dead" ? null : { label: "Skip…", press: () => actions.skip(id, one) }),
        },
        {
          name: "replay",
          title: "Replay",
          button: (one) => ({ label: "Replay…", press: () => actions.replay(id, one, { then: one.state !== "dead" }) }),
        },
      ],
    });
    this.element = h("div", {}, this.table.element, this.whole);
  }

  async refresh() {
    this.table.update((await api.part(this.id, "dead_letters", { limit: 100 })).items);
  }

  #open(letter) {
    this.whole.replaceChildren(h("h3", {}, `Message ${actions.placeOf(letter)}`), actions.message(letter));
  }
}

/** Names of the tables of a changefeed, as something to choose from. */
class TableField {
  constructor(id, at, chosen) {
    this.id = id;
    this.names = h("datalist", { id: "names" });
    this.input = h("input", { list: "names", autocomplete: "off", spellcheck: "false", onchange: () => chosen(this.input.value.trim()) });
    this.input.value = at.table ?? "";
    this.element = h("div", {}, field("Table", this.input, "database.table"), this.names);
  }

  async refresh() {
    if (this.names.childElementCount) return;
    const found = await api.part(this.id, "schema");
    this.names.replaceChildren(...found.tables.slice(0, 1000).map((name) => h("option", { value: name })));
  }
}

/** The definition of a table as of a moment. */
export class Schema {
  constructor(id, at, go) {
    this.id = id;
    this.at = at;
    this.field = new TableField(id, at, (table) => go({ view: "schema", table, ts: this.ts.value.trim() }));
    this.ts = h("input", { autocomplete: "off", spellcheck: "false", onchange: () => go({ view: "schema", table: this.field.input.value.trim(), ts: this.ts.value.trim() }) });
    this.ts.value = at.ts ?? "";
    this.told = h("p", { "aria-live": "polite" });
    this.columns = new Table({
      caption: "Columns",
      size: 200,
      empty: "",
      key: (one) => one.name,
      columns: [
        { name: "name", title: "Column", head: true, text: (one) => one.name },
        { name: "type", title: "Type", code: true, text: (one) => one.type },
        { name: "nullable", title: "NULL", text: (one) => (one.nullable ? "yes" : "no") },
        { name: "key", title: "Key", text: (one) => (one.key ? "key" : "") },
        { name: "default", title: "Default", code: true, text: (one) => one.generated ?? one.default ?? "" },
        { name: "comment", title: "Comment", long: true, text: (one) => one.comment },
      ],
    });
    this.sql = h("pre", { class: "sql", tabindex: "0", "aria-label": "Statement that creates the table", hidden: true });
    const form = h("div", { class: "line" }, this.field.element, field("As of", this.ts, "A TSO or a time such as 2026-01-31T10:00:00Z; empty: now"));
    this.element = h("div", {}, form, this.told, this.columns.element, this.sql);
  }

  async refresh() {
    await this.field.refresh();
    const { table, ts } = this.at;
    if (!table) {
      say(this.told, "Choose a table.");
      this.columns.update([]);
      return;
    }
    const found = await api.part(this.id, "schema", { table, ts: ts || "latest" });
    const since = tsoMs(found.since_ts) === null ? "" : `, unchanged since ${tsoTime(found.since_ts)}`;
    say(this.told, `${found.table} as of ${tsoTime(found.as_of_ts)} (${found.as_of_ts})${since}. ${found.indexes.join("; ")}`);
    this.columns.update(found.columns.map((one) => ({ ...one, key: found.key.includes(one.name) })));
    this.sql.hidden = !found.statement;
    say(this.sql, found.statement);
  }
}

/** The newest changes, of all tables or of one, with new ones on top while it is live. */
export class Changes {
  constructor(id, at, go) {
    this.id = id;
    this.at = at;
    this.rows = [];
    this.after = "0";
    this.field = new TableField(id, at, (table) => go({ view: "changes", table }));
    this.live = h("input", { type: "checkbox", checked: true });
    this.table = new Table({
      caption: "Changes in commit order, the newest first",
      empty: "No change is known; a changelog keeps them until they are applied.",
      key: (one) => one.number,
      columns: [
        { name: "time", title: "Commit", text: (one) => tsoTime(one.commit_ts) },
        { name: "ts", title: "Commit ts", text: (one) => one.commit_ts },
        { name: "table", title: "Table", head: true, text: (one) => one.table },
        { name: "op", title: "Change", text: (one) => ({ I: "insert", U: "update", D: "delete" })[one.op] },
        { name: "values", title: "Row", long: true, text: (one) => words(one.values) },
        { name: "old", title: "Before", long: true, text: (one) => words(one.old) },
      ],
    });
    const live = h("p", { class: "field" }, h("label", {}, this.live, " Live"), h("small", {}, `At most the newest ${TAIL}; long values are truncated.`));
    this.element = h("div", {}, h("div", { class: "line" }, this.field.element, live), this.table.element);
  }

  async refresh() {
    await this.field.refresh();
    if (!this.live.checked && this.rows.length) return;
    const found = await api.part(this.id, "changes", { table: this.at.table, after: this.after, limit: this.rows.length ? 200 : 50 });
    if (found.items.length) {
      this.after = found.items.at(-1).commit_ts;
      this.made = this.made ?? 0;
      const newer = found.items.map((one) => ({ ...one, number: this.made++ })).reverse();
      this.rows = [...newer, ...this.rows].slice(0, TAIL);
    }
    this.table.update(this.rows);
  }
}
