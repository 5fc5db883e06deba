/**
 * All changefeeds at a glance: how many in each state, then a line each, the worst first.
 */
import * as api from "./api.js";
import { h, mark, say } from "./dom.js";
import { Table } from "./table.js";
import { NONE, rate, several, span, stateWord, textTime, tsoTime, worst } from "./words.js";

const ORDER = ["failed", "warning", "normal", "stopped", "finished"];

/** What stands beside the state: why, or what holds it up. */
function reason(item) {
  if (item.error && item.state !== "normal") return `${item.error.code}: ${item.error.message}`;
  const told = [];
  if (item.ddl) told.push("a DDL is being done");
  if (item.parked) told.push(`${several(item.parked, "table")} parked`);
  if (item.left_out) told.push(`${several(item.left_out, "table")} left out`);
  if (item.dead_letters) told.push(several(item.dead_letters, "dead letter"));
  if (item.warnings) told.push(several(item.warnings, "warning"));
  return told.join(", ");
}

export class Overview {
  title = "Changefeeds";

  constructor() {
    this.only = "";
    this.heading = h("h1", { tabindex: "-1" }, "Changefeeds");
    this.counts = Object.fromEntries(ORDER.map((state) => [state, this.#button(state)]));
    this.feeds = new Table({
      caption: "Changefeeds, those in trouble first",
      filter: "Find",
      empty: "No changefeed here. “New changefeed” above creates one.",
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
        { name: "why", title: "Why", long: true, text: reason },
        { name: "since", title: "Since", text: (item) => (item.state === "normal" ? "" : textTime(item.error?.since).replace(NONE, "")) },
        { name: "lag", title: "Lag", number: true, text: (item) => span(item.lag_s), value: (item) => item.lag_s },
        {
          name: "age",
          title: "Checkpoint age",
          number: true,
          text: (item) => span(item.checkpoint_age_s),
          value: (item) => item.checkpoint_age_s,
        },
        { name: "checkpoint", title: "Checkpoint", text: (item) => tsoTime(item.checkpoint_ts), value: (item) => item.checkpoint_ts },
        {
          name: "rate",
          title: "Rows/s",
          number: true,
          text: (item) => (item.running ? rate(item.rows_per_s) : NONE),
          value: (item) => item.rows_per_s,
        },
        { name: "tables", title: "Tables", number: true, text: (item) => item.tables },
        { name: "way", title: "From, to", text: (item) => `${item.source} → ${item.sink}` },
      ],
    });
    const states = h("div", { class: "counts", role: "group", "aria-label": "Changefeeds by state" }, Object.values(this.counts));
    this.done = new Table({
      caption: "Who did what",
      size: 10,
      empty: "No operations yet.",
      key: (one) => `${one.time} ${one.operation} ${one.feed.name}`,
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
    const [found, done] = await Promise.all([api.overview(), api.operations()]);
    this.items = found.items;
    this.done.update(done.items);
    this.#show();
    return found;
  }

  #show() {
    for (const state of ORDER) {
      say(this.counts[state].number, this.items.filter((item) => item.state === state).length);
      mark(this.counts[state], "aria-pressed", String(this.only === state));
    }
    this.feeds.update(this.only ? this.items.filter((item) => item.state === this.only) : this.items);
  }
}

/** Columns of operations; with the changefeed where several are shown. */
export function operationColumns(withFeed) {
  const columns = [
    { name: "time", title: "Time", text: (one) => textTime(one.time), value: (one) => one.time },
    { name: "operation", title: "Operation", head: true, text: (one) => one.operation },
    { name: "feed", title: "Changefeed", text: (one) => `${one.feed.namespace}/${one.feed.name}` },
    { name: "who", title: "Who", text: (one) => one.who },
    { name: "result", title: "Result", long: true, text: (one) => [one.result, one.error].filter(Boolean).join(": ") },
    { name: "details", title: "Details", long: true, text: (one) => one.details },
  ];
  return withFeed ? columns : columns.filter((column) => column.name !== "feed");
}
