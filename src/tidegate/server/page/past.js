/**
 * The tabs of a changefeed: a table each, asked for when the tab is open and not before.
 *
 *     tables partitions ddls schema changes letters snapshots timeline settings
 *
 * The address of the page names the tab (view), the table and the moment, so that each can be sent to somebody.
 */
import * as api from "./api.js";
import { unpark } from "./actions.js";
import { h, mark, say } from "./dom.js";
import { Changes, Letters, Schema } from "./look.js";
import { operationColumns } from "./overview.js";
import { Table } from "./table.js";
import { NONE, count, span, textTime, tsoMs, tsoTime } from "./words.js";

/** A tab that shows one table of what `ask` answers. */
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
      key: (one) => one.name,
      columns: [
        { name: "name", title: "Table", head: true, text: (one) => one.name, link: (one) => link(id, "schema", one.name) },
        { name: "state", title: "State", long: true, text: (one) => (one.parked ? `parked: ${one.parked.code}: ${one.parked.message}` : "follows") },
        { name: "rows", title: "Rows", number: true, text: (one) => count(one.rows), value: (one) => one.rows },
        { name: "complete", title: "Complete up to", text: (one) => tsoTime(one.complete), value: (one) => one.complete },
        { name: "lag", title: "Lag", number: true, text: (one) => span(one.lag), value: (one) => one.lag },
        { name: "applied", title: "Last change in a round at", text: (one) => tsoTime(one.applied_ts), value: (one) => one.applied_ts },
        { name: "tail", title: "Changes", text: () => "changes", link: (one) => link(id, "changes", one.name) },
        {
          name: "unpark",
          title: "Let it go on",
          button: (one) => (one.parked ? { label: "Let it go on…", press: () => unpark(id, one.name) } : null),
        },
      ],
    }),
    (data) => tableRows(data),
  );

/** Tables with what each is complete up to: all stand at the checkpoint but those that are parked. */
export function tableRows(data) {
  const parked = new Map((data.progress.parked ?? []).map((one) => [one.table, one]));
  const rows = data.table_rows.map((one) => ({ ...one, parked: parked.get(one.name) }));
  for (const one of parked.values())
    if (!rows.some((row) => row.name === one.table)) rows.push({ name: one.table, rows: 0, applied_ts: null, parked: one });
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
      key: (one) => `${one.topic}/${one.partition}`,
      columns: [
        { name: "partition", title: "Partition", head: true, text: (one) => `${one.topic}/${one.partition}` },
        { name: "resolved", title: "Resolved", text: (one) => tsoTime(one.resolved_ts), value: (one) => one.resolved_ts ?? "" },
        { name: "lag", title: "Lag", number: true, text: (one) => span(one.lag), value: (one) => one.lag },
        { name: "offset", title: "Read up to", number: true, text: (one) => count(one.offset), value: (one) => one.offset },
        { name: "high", title: "End", number: true, text: (one) => count(one.high), value: (one) => one.high },
        {
          name: "behind",
          title: "Messages to read",
          number: true,
          text: (one) => (one.high === null ? NONE : count(Math.max(0, one.high - one.offset))),
          value: (one) => one.high - one.offset,
        },
      ],
    }),
    (data) =>
      (data.progress.partitions ?? []).map((one) => {
        const ms = tsoMs(one.resolved_ts);
        return { ...one, lag: data.running && ms !== null ? Math.max(0, data.now_ms - ms) / 1000 : null };
      }),
  );

const DDL_STATES = { upstream: "runs upstream", waiting: "waits for its turn", doing: "is being done", stopped: "not done: the changefeed rests" };

const ddls = (id) =>
  new Listed(
    new Table({
      caption: "DDLs, those in flight first, then the newest",
      filter: "Find a DDL",
      empty: "No DDLs; a changelog keeps them for its retention time.",
      key: (one) => `${one.commit_ts} ${one.schema} ${one.table} ${one.query}`,
      columns: [
        { name: "time", title: "Commit", text: (one) => tsoTime(one.commit_ts), value: (one) => one.commit_ts },
        { name: "ts", title: "Commit ts", text: (one) => (one.commit_ts === "0" ? NONE : one.commit_ts) },
        { name: "table", title: "Table", text: (one) => [one.schema, one.table].filter(Boolean).join(".") },
        { name: "query", title: "Statement", head: true, text: (one) => one.query || one.error },
        { name: "state", title: "State", text: (one) => DDL_STATES[one.state] ?? one.state, shape: (one) => `ddl-${one.state.replace(" ", "-")}` },
        {
          name: "steps",
          title: "States upstream",
          long: true,
          text: (one) => one.steps.map((step) => `${step.state} ${tsoTime(step.commit_ts, false)}`).join(" → "),
        },
      ],
    }),
    async () => (await api.part(id, "ddls", { limit: 200 })).items,
  );

const snapshots = (id) =>
  new Listed(
    new Table({
      caption: "Snapshots: in each, all tables are of one moment",
      empty: "Only a lake keeps snapshots.",
      key: (one) => one.number,
      columns: [
        { name: "number", title: "Number", head: true, text: (one) => one.number },
        { name: "complete", title: "Complete up to", text: (one) => tsoTime(one.checkpoint_ts) },
        { name: "ts", title: "Checkpoint ts", text: (one) => one.checkpoint_ts },
        { name: "published", title: "Published", text: (one) => textTime(one.published) },
        { name: "tables", title: "Tables", number: true, text: (one) => count(one.tables) },
        {
          name: "changed",
          title: "Changed",
          long: true,
          text: (one) => [...one.changed, ...one.gone.map((name) => `−${name}`), one.changed_count > 20 ? `and ${one.changed_count - 20} more` : ""].filter(Boolean).join(", "),
        },
      ],
    }),
    async () => (await api.part(id, "snapshots", { limit: 50 })).items,
  );

const timeline = () => {
  const moments = new Table({
    caption: "Events, the newest first",
    empty: "No events yet.",
    key: (one) => `${one.time} ${one.kind} ${one.text}`,
    columns: [
      { name: "time", title: "Time", text: (one) => textTime(one.time), value: (one) => one.time },
      { name: "kind", title: "What", head: true, text: (one) => one.kind, shape: (one) => `state ${one.kind}` },
      { name: "text", title: "Text", long: true, text: (one) => one.text },
      { name: "who", title: "Who", text: (one) => one.who },
    ],
  });
  const done = new Table({
    caption: "Who did what to it",
    empty: "No operations on it yet.",
    key: (one) => `${one.time} ${one.operation}`,
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
      caption: "Effective settings, those that differ from the defaults first",
      filter: "Find a setting",
      size: 100,
      key: (one) => one.key,
      columns: [
        { name: "key", title: "Key", head: true, text: (one) => one.key },
        { name: "value", title: "Value", code: true, text: (one) => one.value, shape: (one) => (one.changed ? "changed" : "") },
        { name: "default", title: "Default", code: true, text: (one) => one.default ?? NONE },
      ],
    }),
    (data) => data.config,
  );

const VIEWS = {
  tables: ["Tables", tables],
  partitions: ["Partitions", partitions],
  ddls: ["DDLs", ddls],
  schema: ["Schema", (id, at, go) => new Schema(id, at, go)],
  changes: ["Changes", (id, at, go) => new Changes(id, at, go)],
  letters: ["Dead letters", (id) => new Letters(id)],
  snapshots: ["Snapshots", snapshots],
  timeline: ["Timeline", timeline],
  settings: ["Settings", settings],
};

const link = (feed, view, table) => `/?${new URLSearchParams({ feed, view, ...(table ? { table } : {}) })}`;

/** The tabs: arrow keys move between them, as in any list of tabs. */
export class Tabs {
  constructor(id, at, go) {
    Object.assign(this, { id, go });
    this.heads = Object.entries(VIEWS).map(([view, [name]]) =>
      h("button", { type: "button", role: "tab", id: `tab-${view}`, "aria-controls": "panel", onclick: () => go({ view }) }, name),
    );
    const list = h("div", { role: "tablist", "aria-label": "What is known of it", onkeydown: (event) => this.#key(event) }, this.heads);
    this.fault = h("p", { role: "alert", class: "fault", hidden: true });
    this.panel = h("div", { role: "tabpanel", id: "panel", tabindex: "0" });
    this.element = h("section", { class: "tabs", "aria-label": "Details" }, list, this.fault, this.panel);
    this.#open(at);
  }

  /** Show what another address of the page names. */
  async moved(at) {
    this.#open(at);
    if (this.data) await this.refresh(this.data);
  }

  #open(at) {
    const view = VIEWS[at.view] ? at.view : "tables";
    this.view = view;
    this.heads.forEach((head) => {
      const mine = head.id === `tab-${view}`;
      mark(head, "aria-selected", String(mine));
      mark(head, "tabindex", mine ? "0" : "-1");
    });
    mark(this.panel, "aria-labelledby", `tab-${view}`);
    const held = this.panel.contains(document.activeElement) ? document.activeElement.id : "";
    this.shown = VIEWS[view][1](this.id, at, this.go);
    this.panel.replaceChildren(this.shown.element);
    if (held) document.getElementById(held)?.focus();
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = this.heads.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = this.heads[(at + step + this.heads.length) % this.heads.length];
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
      say(this.fault, `${error.message}${error.code ? ` (${error.code})` : ""}`);
      this.fault.hidden = false;
    }
  }
}
