/**
 * All changefeeds: counts by state, then a row each, errors first.
 */
import * as api from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { Table } from "./table.js";
import { NONE, rate, counted, span, stateWord, textTime, tsoTime, worst } from "./format.js";

const ORDER = ["failed", "warning", "normal", "stopped", "finished"];

/** The reason of the state, or of a delay. */
function reason(item) {
  if (item.error && item.state !== "normal") return `${item.error.code}: ${item.error.message}`;
  const reasons = [];
  if (item.ddl) reasons.push("a DDL is running");
  if (item.parked) reasons.push(`${counted(item.parked, "table")} parked`);
  if (item.left_out) reasons.push(`${counted(item.left_out, "table")} not replicated`);
  if (item.dead_letters) reasons.push(counted(item.dead_letters, "dead letter"));
  if (item.warnings) reasons.push(counted(item.warnings, "warning"));
  return reasons.join(", ");
}

/** Seconds since the checkpoint, which a paused changefeed has, too; a finished one is not behind. */
const age = (item) => (item.state === "finished" ? null : item.checkpoint_age_s);

export class Overview {
  title = "Changefeeds";

  constructor() {
    this.only = "";
    this.heading = h("h1", { tabindex: "-1" }, "Changefeeds");
    this.counts = Object.fromEntries(ORDER.map((state) => [state, this.#button(state)]));
    this.feeds = new Table({
      caption: "Changefeeds, those in trouble first",
      filter: "Find",
      shape: "glance",
      size: 100,
      sort: "state",
      key: (item) => `${item.namespace}/${item.id}`,
      columns: [
        {
          name: "id",
          title: "Changefeed",
          head: true,
          text: (item) => (item.namespace === "default" ? item.id : `${item.namespace}/${item.id}`),
          link: (item) => `/?${new URLSearchParams({ feed: `${item.namespace}/${item.id}` })}`,
        },
        {
          name: "state",
          title: "State",
          text: (item) => stateWord(item.state),
          value: (item) => worst(item.state),
          shape: (item) => `state ${item.state}`,
        },
        { name: "why", title: "Why", long: true, brief: true, text: reason },
        { name: "since", title: "Since", text: (item) => (item.state === "normal" ? "" : textTime(item.error?.since).replace(NONE, "")) },
        {
          name: "lag",
          title: "Lag",
          number: true,
          text: (item) => span(age(item)),
          value: age,
          shape: (item) => (item.lag_s === null ? "quiet" : ""),
          tip: (item) => `checkpoint ${tsoTime(item.checkpoint_ts)} (${item.checkpoint_ts})`,
        },
        {
          name: "rate",
          title: "Rows/s",
          number: true,
          text: (item) => (item.running ? rate(item.rows_per_s) : NONE),
          value: (item) => item.rows_per_s,
        },
        { name: "tables", title: "Tables", number: true, text: (item) => item.tables },
        { name: "way", title: "From → to", long: true, brief: true, text: (item) => `${item.source} →\n${item.sink}` },
      ],
    });
    const states = h("div", { class: "counts", role: "group", "aria-label": "Changefeeds by state" }, Object.values(this.counts));
    this.done = new Table({
      caption: "Operations",
      size: 10,
      empty: "No operations yet.",
      key: (item) => `${item.time} ${item.operation} ${item.feed.name}`,
      columns: operationColumns(true),
    });
    this.element = h("div", {}, this.heading, states, this.feeds.element, h("h2", {}, "Operations"), this.done.element);
  }

  #button(state) {
    const press = () => {
      this.only = this.only === state ? "" : state;
      this.#show();
    };
    const number = h("span", { class: "big" }, "0");
    const button = h("button", { type: "button", class: `count ${state}`, "aria-pressed": "false", onclick: press }, number, ` ${stateWord(state)}`);
    return Object.assign(button, { number });
  }

  async refresh() {
    const [overview, done] = await Promise.all([api.overview(), api.operations()]);
    this.items = overview.items;
    this.done.update(done.items);
    this.#show();
    return overview;
  }

  #show() {
    for (const state of ORDER) {
      setText(this.counts[state].number, this.items.filter((item) => item.state === state).length);
      setAttribute(this.counts[state], "aria-pressed", String(this.only === state));
    }
    this.feeds.empty = this.only ? `No changefeed is ${stateWord(this.only)}.` : "No changefeed here. “New changefeed” above creates one.";
    this.feeds.update(this.only ? this.items.filter((item) => item.state === this.only) : this.items);
  }
}

/** Columns of operations; with the changefeed if the table has several. */
export function operationColumns(withFeed) {
  const columns = [
    { name: "time", title: "Time", text: (item) => textTime(item.time), value: (item) => item.time },
    { name: "operation", title: "Operation", head: true, text: (item) => item.operation },
    { name: "feed", title: "Changefeed", text: (item) => `${item.feed.namespace}/${item.feed.name}` },
    { name: "who", title: "Who", text: (item) => item.who },
    { name: "result", title: "Result", long: true, brief: true, text: (item) => [item.result, item.error].filter(Boolean).join(": ") },
    { name: "details", title: "Details", long: true, brief: true, text: (item) => item.details },
  ];
  return withFeed ? columns : columns.filter((column) => column.name !== "feed");
}
