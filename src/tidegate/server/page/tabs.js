/**
 * The tabs of a changefeed: a table each, requested only while the tab is open.
 *
 *     tables partitions ddls schema changes letters snapshots timeline settings
 *
 * The address of the page names the tab (view), the table and the time, so that it can be shared.
 */
import * as api from "./api.js";
import { unpark } from "./actions.js";
import { h, setAttribute, setText } from "./dom.js";
import { Changes, Letters, Schema } from "./views.js";
import { operationColumns } from "./overview.js";
import { Table } from "./table.js";
import { NONE, count, span, textTime, tsoMs, tsoTime } from "./format.js";

/** A tab with one table of the items that `ask` returns. */
class Listed {
  constructor(table, ask) {
    Object.assign(this, { table, ask, element: table.element });
  }

  async refresh(data) {
    this.table.update(await this.ask(data));
  }
}

const tables = (id) =>
  new Listed(
    new Table({
      caption: "Tables with changes in this run, those furthest behind first",
      filter: "Find a table",
      empty: "No table has changed since this run started.",
      sort: "applied",
      key: (item) => item.name,
      columns: [
        { name: "name", title: "Table", head: true, text: (item) => item.name, link: (item) => link(id, "schema", item.name) },
        { name: "state", title: "State", long: true, text: (item) => (item.parked ? `parked: ${item.parked.code}: ${item.parked.message}` : "follows") },
        { name: "rows", title: "Rows", number: true, text: (item) => count(item.rows), value: (item) => item.rows },
        { name: "complete", title: "Complete up to", text: (item) => tsoTime(item.complete), value: (item) => item.complete },
        { name: "lag", title: "Lag", number: true, text: (item) => span(item.lag), value: (item) => item.lag },
        { name: "applied", title: "Last change in a round at", text: (item) => tsoTime(item.applied_ts), value: (item) => item.applied_ts },
        { name: "tail", title: "Changes", text: () => "changes", link: (item) => link(id, "changes", item.name) },
        {
          name: "unpark",
          title: "Resume table",
          button: (item) => (item.parked ? { label: "Resume table…", press: () => unpark(id, item.name) } : null),
        },
      ],
    }),
    (data) => tableRows(data),
  );

/** Tables with the ts up to which each is complete: the checkpoint, except for parked tables. */
export function tableRows(data) {
  const parked = new Map((data.progress.parked ?? []).map((table) => [table.table, table]));
  const rows = data.table_rows.map((table) => ({ ...table, parked: parked.get(table.name) }));
  for (const table of parked.values())
    if (!rows.some((row) => row.name === table.table)) rows.push({ name: table.table, rows: 0, applied_ts: null, parked: table });
  for (const row of rows) {
    row.complete = row.parked ? row.parked.commit_ts : data.checkpoint_ts;
    const ms = tsoMs(row.complete);
    row.lag = data.lag_s === null || ms === null ? null : Math.max(0, data.now_ms - ms) / 1000;
  }
  return rows;
}

const partitions = () =>
  new Listed(
    new Table({
      caption: "Partitions, the slowest first: all tables wait for it",
      empty: "This source has no partitions.",
      sort: "resolved",
      key: (item) => `${item.topic}/${item.partition}`,
      columns: [
        { name: "partition", title: "Partition", head: true, text: (item) => `${item.topic}/${item.partition}` },
        { name: "resolved", title: "Resolved", text: (item) => tsoTime(item.resolved_ts), value: (item) => item.resolved_ts ?? "" },
        { name: "lag", title: "Lag", number: true, text: (item) => span(item.lag), value: (item) => item.lag },
        { name: "offset", title: "Read up to", number: true, text: (item) => count(item.offset), value: (item) => item.offset },
        { name: "high", title: "End", number: true, text: (item) => count(item.high), value: (item) => item.high },
        {
          name: "behind",
          title: "Messages to read",
          number: true,
          text: (item) => (item.high === null ? NONE : count(Math.max(0, item.high - item.offset))),
          value: (item) => item.high - item.offset,
        },
      ],
    }),
    (data) =>
      (data.progress.partitions ?? []).map((item) => {
        const ms = tsoMs(item.resolved_ts);
        return { ...item, lag: data.running && ms !== null ? Math.max(0, data.now_ms - ms) / 1000 : null };
      }),
  );

const DDL_STATES = { upstream: "runs upstream", waiting: "waiting", doing: "running", stopped: "not run: the changefeed is stopped" };

const ddls = (id) =>
  new Listed(
    new Table({
      caption: "DDLs, those in flight first, then the newest",
      filter: "Find a DDL",
      empty: "No DDLs; a changelog keeps them for its retention time.",
      key: (item) => `${item.commit_ts} ${item.schema} ${item.table} ${item.query}`,
      columns: [
        { name: "time", title: "Commit", text: (item) => tsoTime(item.commit_ts), value: (item) => item.commit_ts },
        { name: "ts", title: "Commit ts", text: (item) => (item.commit_ts === "0" ? NONE : item.commit_ts) },
        { name: "table", title: "Table", text: (item) => [item.schema, item.table].filter(Boolean).join(".") },
        { name: "query", title: "Statement", head: true, text: (item) => item.query || item.error },
        { name: "state", title: "State", text: (item) => DDL_STATES[item.state] ?? item.state, shape: (item) => `ddl-${item.state.replace(" ", "-")}` },
        {
          name: "steps",
          title: "States upstream",
          long: true,
          text: (item) => item.steps.map((step) => `${step.state} ${tsoTime(step.commit_ts, false)}`).join(" → "),
        },
      ],
    }),
    async () => (await api.part(id, "ddls", { limit: 200 })).items,
  );

const snapshots = (id) =>
  new Listed(
    new Table({
      caption: "Snapshots: in each, all tables are at one timestamp",
      empty: "Only a lake keeps snapshots.",
      key: (item) => item.number,
      columns: [
        { name: "number", title: "Number", head: true, text: (item) => item.number },
        { name: "complete", title: "Complete up to", text: (item) => tsoTime(item.checkpoint_ts) },
        { name: "ts", title: "Checkpoint ts", text: (item) => item.checkpoint_ts },
        { name: "published", title: "Published", text: (item) => textTime(item.published) },
        { name: "tables", title: "Tables", number: true, text: (item) => count(item.tables) },
        {
          name: "changed",
          title: "Changed",
          long: true,
          text: (item) => [...item.changed, ...item.gone.map((name) => `−${name}`), item.changed_count > 20 ? `and ${item.changed_count - 20} more` : ""].filter(Boolean).join(", "),
        },
      ],
    }),
    async () => (await api.part(id, "snapshots", { limit: 50 })).items,
  );

const timeline = () => {
  const moments = new Table({
    caption: "Events, the newest first",
    empty: "No events yet.",
    key: (item) => `${item.time} ${item.kind} ${item.text}`,
    columns: [
      { name: "time", title: "Time", text: (item) => textTime(item.time), value: (item) => item.time },
      { name: "kind", title: "What", head: true, text: (item) => item.kind, shape: (item) => `state ${item.kind}` },
      { name: "text", title: "Text", long: true, text: (item) => item.text },
      { name: "who", title: "Who", text: (item) => item.who },
    ],
  });
  const done = new Table({
    caption: "Operations on it",
    empty: "No operations on it yet.",
    key: (item) => `${item.time} ${item.operation}`,
    columns: operationColumns(false),
  });
  return {
    element: h("div", {}, moments.element, done.element),
    refresh: (data) => (moments.update(data.moments), done.update(data.operations)),
  };
};

const settings = () =>
  new Listed(
    new Table({
      caption: "Parameters of the sink, then the effective settings; those that differ from the defaults first",
      filter: "Find a setting",
      size: 100,
      key: (item) => `${item.of} ${item.key}`,
      columns: [
        { name: "of", title: "Of", text: (item) => item.of },
        { name: "key", title: "Key", head: true, text: (item) => item.key, tip: (item) => item.about },
        { name: "value", title: "Value", code: true, text: (item) => item.shown, shape: (item) => (item.changed ? "changed" : "") },
        { name: "exact", title: "Exactly", code: true, text: (item) => (item.shown === item.value ? "" : item.value) },
        { name: "default", title: "Default", code: true, text: (item) => item.default ?? NONE },
      ],
    }),
    (data) => [...data.parameters.map((item) => ({ ...item, of: "sink" })), ...data.config.map((item) => ({ ...item, of: "changefeed" }))],
  );

const VIEWS = {
  tables: ["Tables", tables],
  partitions: ["Partitions", partitions],
  ddls: ["DDLs", ddls],
  schema: ["Schema", (id, address, go) => new Schema(id, address, go)],
  changes: ["Changes", (id, address, go) => new Changes(id, address, go)],
  letters: ["Dead letters", (id) => new Letters(id)],
  snapshots: ["Snapshots", snapshots],
  timeline: ["Timeline", timeline],
  settings: ["Settings", settings],
};

const link = (feed, view, table) => `/?${new URLSearchParams({ feed, view, ...(table ? { table } : {}) })}`;

/** The tabs: arrow keys move between them, as in any list of tabs. */
export class Tabs {
  constructor(id, address, go) {
    Object.assign(this, { id, go });
    this.heads = Object.entries(VIEWS).map(([view, [name]]) =>
      h("button", { type: "button", role: "tab", id: `tab-${view}`, "aria-controls": "panel", onclick: () => go({ view }) }, name),
    );
    const list = h("div", { role: "tablist", "aria-label": "Details of the changefeed", onkeydown: (event) => this.#key(event) }, this.heads);
    this.fault = h("p", { role: "alert", class: "fault", hidden: true });
    this.panel = h("div", { role: "tabpanel", id: "panel", tabindex: "0" });
    this.element = h("section", { class: "tabs", "aria-label": "Details" }, list, this.fault, this.panel);
    this.#open(address);
  }

  /** Follow a changed address of the page. */
  async moved(address) {
    this.#open(address);
    if (this.data) await this.refresh(this.data);
  }

  #open(address) {
    const view = VIEWS[address.view] ? address.view : "tables";
    this.view = view;
    this.heads.forEach((head) => {
      const selected = head.id === `tab-${view}`;
      setAttribute(head, "aria-selected", String(selected));
      setAttribute(head, "tabindex", selected ? "0" : "-1");
    });
    setAttribute(this.panel, "aria-labelledby", `tab-${view}`);
    const focused = this.panel.contains(document.activeElement) ? document.activeElement.id : "";
    this.shown = VIEWS[view][1](this.id, address, this.go);
    this.panel.replaceChildren(this.shown.element);
    if (focused) document.getElementById(focused)?.focus();
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const index = this.heads.indexOf(document.activeElement);
    if (!step || index < 0) return;
    event.preventDefault();
    const next = this.heads[(index + step + this.heads.length) % this.heads.length];
    next.focus();
    next.click();
  }

  async refresh(data) {
    this.data = data;
    const shown = this.shown;
    try {
      await shown.refresh(data);
      if (shown === this.shown) this.fault.hidden = true;
    } catch (error) {
      if (!error.status) throw error;
      setText(this.fault, `${error.message}${error.code ? ` (${error.code})` : ""}`);
      this.fault.hidden = false;
    }
  }
}
