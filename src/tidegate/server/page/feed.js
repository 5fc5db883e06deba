/**
 * One changefeed: its error and the remedies, progress, delays, and its history in tabs.
 *
 *     state, actions      an error first, with code, table, ts, position, next retry
 *     facts │ charts      checkpoint and resolved ts apart: a late source and a late sink look different
 *     tabs                tabs.js
 */
import * as api from "./api.js";
import * as actions from "./actions.js";
import { edit } from "./edit.js";
import { LineChart, PartsBar } from "./chart.js";
import { Facts, h, setAttribute, setText } from "./dom.js";
import { Tabs } from "./tabs.js";
import { NONE, count, rate, counted, size, span, stateWord, textTime, tsoMs, tsoTime } from "./format.js";

const RESTS = new Set(["stopped", "failed", "finished"]);
const PHASES = {
  read: "read and plan",
  write: "write rows",
  ddl: "run DDLs",
  publish: "publish",
  upkeep: "maintenance",
  wait: "idle",
};
const CATCH_UP_S = 86_400;
/** The time between two looks at the begin of the source. */
const SOURCE_MS = 60_000;

/** Seconds until the backlog of the topics is read, at the rate of the last minute; null if there is no estimate. */
export function catchUp(data) {
  const { time_ms: times, behind } = data.samples;
  const last = times.length - 1;
  if (last < 1 || !data.running || data.laggard || !behind[last]) return null;
  const from = Math.max(0, times.findIndex((ms) => times[last] - ms <= 60_000));
  const speed = (behind[from] - behind[last]) / ((times[last] - times[from]) / 1000);
  const left = behind[last] / speed;
  return speed > 0 && left < CATCH_UP_S ? left : null;
}

const FACTS = [
  ["Checkpoint", (d) => tsoTime(d.checkpoint_ts)],
  ["Checkpoint lag", (d) => (d.lag_s === null ? null : span(d.lag_s))],
  ["Resolved lag", (d) => (d.resolved_lag_s === null ? null : span(d.resolved_lag_s))],
  ["Rows a second", (d) => (d.running ? rate(d.rows_per_s) : null)],
  ["Bytes a second", (d) => (d.running && d.progress.bytes_written ? size(d.progress.bytes_per_s) : null)],
  ["Messages behind", (d) => (d.running && d.progress.partitions?.length ? count(d.behind) : null)],
  ["Caught up in", (d) => (catchUp(d) === null ? null : `about ${span(catchUp(d))}`)],
  ["Full load", (d) => d.loading || null],
  ["Beside the feed", (d) => d.reloading || null],
  ["History left", (d) => (tsoMs(d.begin_ts) === null ? null : span(Math.max(0, tsoMs(d.needed_ts) - tsoMs(d.begin_ts)) / 1000))],
  ["Last sync point", (d) => (d.sync_point ? `${tsoTime(d.sync_point.last_ts)}, every ${span(d.sync_point.interval_s)}` : null)],
  ["Rows, this run", (d) => count(d.progress.rows ?? 0)],
  ["DDLs, this run", (d) => count(d.progress.ddls ?? 0)],
  ["Dead letters", (d) => (d.dead_letters ? count(d.dead_letters) : null)],
];

const MORE = [
  ["Slow decode paths", (d) => d.slow || null],
  ["Checkpoint ts", (d) => d.checkpoint_ts],
  ["Resolved ts", (d) => d.resolved_ts],
  ["From", (d) => d.source_uri],
  ["To", (d) => d.sink_uri],
  ["Created", (d) => `${textTime(d.create_time)} by ${d.creator_version}`],
];

const ERROR = [
  ["Code", (d) => d.error.code, (code) => `/runbook#${code.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`],
  ["Message", (d) => d.error.message],
  ["Table", (d) => d.error.table || null],
  ["At ts", (d) => (d.error.commit_ts && d.error.commit_ts !== "0" ? `${d.error.commit_ts} (${tsoTime(d.error.commit_ts)})` : null)],
  ["Position", (d) => (d.error.topic ? actions.positionOf(d.error) : d.error.file || null)],
  ["Since", (d) => textTime(d.error.since)],
  ["Retries", (d) => (d.error.tries > 1 ? count(d.error.tries) : null)],
  ["Next retry", (d) => (d.error.next_try_s === null ? null : `${span(d.error.next_try_s)} after the last item`)],
];

/** The heading of an error, by the state that it has led to. */
const WRONG = { failed: "What is wrong", warning: "What it waits for" };

/** What the changefeed does not replicate, in lines. */
function leftOut(progress) {
  const counts = [[progress.ddls_left_out, "DDL"], [progress.rows_left_out, "row"]];
  const tables = (progress.left_out ?? []).map((item) => `${item.table}: ${item.why}`);
  return [...tables, ...counts.filter(([number]) => number).map(([number, what]) => `${counted(number, what)} excluded by filters`)];
}

export class FeedPage {
  constructor(address, go) {
    this.id = address.feed;
    this.title = this.id;
    this.state = null;
    this.heading = h("h1", { tabindex: "-1" }, this.id.replace(/^default\//, ""));
    this.badge = h("p", { class: "state" });
    this.running = h("p", { class: "quiet" });
    this.pause = h("button", { type: "button", onclick: () => actions.pause(this.id) }, "Pause…");
    this.resume = h("button", { type: "button", class: "strong", onclick: () => actions.resume(this.id) }, "Resume…");
    this.edit = h("button", { type: "button", onclick: () => edit(this.id, this.data) }, "Edit…");
    this.mend = h("button", { type: "button", class: "strong", onclick: () => edit(this.id, this.data, this.data.mend) });
    this.load = h("button", { type: "button", onclick: () => actions.startLoad(this.id) }, "Load…");
    this.reload = h("button", { type: "button", onclick: () => actions.reloadTables(this.id) }, "Reload tables…");
    this.add = h("button", { type: "button", onclick: () => actions.addTables(this.id) }, "Add tables…");
    this.cancel = h("button", { type: "button", class: "danger", onclick: () => actions.cancelLoad(this.id) }, "Cancel load…");
    this.remove = h("button", { type: "button", class: "danger", onclick: () => actions.remove(this.id) }, "Remove…");
    this.error = new Facts("What is wrong", ERROR);
    this.letter = h("details");
    this.skip = h("button", { type: "button", onclick: () => actions.skip(this.id, this.waiting) }, "Skip this message…");
    this.replay = h("button", { type: "button", onclick: () => actions.replay(this.id, this.waiting) }, "Replay with other bytes…");
    this.again = h("button", { type: "button", onclick: () => actions.resume(this.id) }, "Resume…");
    const buttons = h("p", { class: "buttons" }, this.skip, this.replay, this.mend, this.again);
    this.wrongHead = h("h2");
    this.wrong = h("section", { "aria-label": "Why it does not run well", hidden: true }, this.wrongHead, this.error.element, this.letter, buttons);
    this.laggard = h("p", { class: "laggard", hidden: true });
    this.bar = h("progress", { "aria-label": "Full load", hidden: true });
    this.doing = h("div", { class: "doing", hidden: true }, h("h2", {}, "DDL in flight"), (this.ddl = h("code", { class: "sql" })));
    this.warningList = h("ul");
    this.warnings = h("div", { class: "warnings", hidden: true }, h("h2", {}, "Warnings of this run"), this.warningList);
    this.missing = h("ul", { class: "names" });
    this.leftOut = h("div", { class: "warnings", hidden: true }, h("h2", {}, "Not replicated"), this.missing);
    this.facts = new Facts("Progress", FACTS);
    this.lag = new LineChart("Lag", [{ name: "checkpoint", key: "checkpoint_lag_s" }, { name: "resolved", key: "resolved_lag_s" }], span);
    this.speed = new LineChart("Rows a second", [{ name: "rows/s", key: "rows_per_s" }], rate);
    this.phases = new PartsBar("Time by phase since the run started", PHASES, span);
    this.more = new Facts("Identity", MORE);
    this.tabs = new Tabs(this.id, address, go);
    this.way = h("p", { class: "quiet" });
    this.why = h("p");
    this.absent = h("div", { class: "absent", hidden: true }, this.why, h("p", {}, h("a", { href: "/", "data-nav": true }, "All changefeeds")));
    const facts = h("div", {}, this.bar, this.facts.element, h("details", {}, h("summary", {}, "Addresses, timestamps"), this.more.element));
    this.present = h(
      "div",
      { hidden: true },
      h("p", { class: "buttons" }, this.resume, this.pause, this.edit, this.load, this.reload, this.add, this.cancel, this.remove),
      this.wrong,
      this.laggard,
      this.doing,
      this.warnings,
      this.leftOut,
      h("div", { class: "look" }, facts, h("div", { class: "charts" }, this.lag.element, this.speed.element, this.phases.element)),
      this.tabs.element,
    );
    this.element = h("div", {}, h("div", { class: "title" }, this.heading, this.badge, this.running, this.way), this.absent, this.present);
  }

  /** Follow a changed address of the page. */
  moved(address) {
    return this.tabs.moved(address);
  }

  async refresh() {
    let data;
    try {
      data = await api.feed(this.id);
    } catch (error) {
      if (error.status !== 400) throw error;
      this.#lacks(error);
      return api.overview();
    }
    await this.#letter(data);
    if (!(Date.now() - this.sourceMs < SOURCE_MS)) {
      this.sourceMs = Date.now();
      const told = (source) => this.facts.update({ ...this.data, ...(this.source = source) });
      api.part(this.id, "source").then(told, () => {}); // a broker may take long to answer
    }
    this.#show({ ...data, ...this.source });
    await this.tabs.refresh(data);
    return data;
  }

  /** There is no such changefeed, or none any more. */
  #lacks(error) {
    const missing = error.code === "CDC:ErrChangeFeedNotExists";
    setText(this.why, missing ? `This server has no changefeed ${this.id}: it was removed, or the address is mistyped.` : error.message);
    this.absent.hidden = false;
    this.present.hidden = true;
    for (const element of [this.badge, this.running, this.way]) setText(element, "");
  }

  /** The message at which the changefeed is halted, which its error names. */
  async #letter(data) {
    if (!data.error?.topic || data.state !== "failed") {
      this.waiting = null;
      return;
    }
    const position = actions.positionOf(data.error);
    if (this.waiting && actions.positionOf(this.waiting) === position) return;
    const letters = await api.part(this.id, "dead_letters", { limit: 50 });
    this.waiting = letters.items.find((item) => item.state !== "dead" && actions.positionOf(item) === position) ?? null;
  }

  #show(data) {
    if (this.state !== null && this.state !== data.state) actions.announce(`${this.id} is ${stateWord(data.state)} now`);
    this.state = data.state;
    this.data = data;
    this.absent.hidden = true;
    this.present.hidden = false;
    setText(this.way, `${data.source} → ${data.sink}`);
    setText(this.badge, stateWord(data.state));
    setAttribute(this.badge, "class", `state ${data.state}`);
    const phase = data.progress.phase;
    setText(this.running, data.running ? (phase === "running" ? "" : phase) : RESTS.has(data.state) ? "" : "not running");
    this.pause.hidden = RESTS.has(data.state);
    this.resume.hidden = !RESTS.has(data.state);
    const load = data.progress.load;
    this.load.hidden = this.reload.hidden = this.add.hidden = Boolean(load && load.chunks_done < load.chunks);
    const waits = phase === "starting" && data.config.some((setting) => setting.key === "source.load_from");
    this.cancel.hidden = !this.load.hidden && !waits;
    this.wrong.hidden = !data.error || data.state === "normal";
    setAttribute(this.wrong, "class", data.state === "failed" ? "wrong" : "wrong waits");
    setText(this.wrongHead, WRONG[data.state] ?? "Why it was stopped");
    if (!this.wrong.hidden) this.error.update(data);
    this.letter.hidden = !this.waiting;
    const shown = this.waiting && actions.positionOf(this.waiting);
    if (shown !== this.shown) {
      this.shown = shown;
      this.letter.replaceChildren(...(this.waiting ? [h("summary", {}, "Bytes of the message"), actions.message(this.waiting)] : []));
    }
    this.skip.hidden = this.replay.hidden = !this.waiting;
    this.mend.hidden = !data.mend;
    setAttribute(this.mend, "class", this.waiting ? null : "strong");
    setText(this.mend, data.mend ? `Edit and resume with ${data.mend.name}=${data.mend.value}…` : "");
    this.again.hidden = !RESTS.has(data.state);
    this.laggard.hidden = !data.laggard;
    setText(this.laggard, data.laggard ? `Held back: ${data.laggard}.` : "");
    this.doing.hidden = !data.progress.ddl;
    setText(this.ddl, data.progress.ddl ?? "");
    const warnings = (data.progress.warnings ?? []).filter((text) => this.wrong.hidden || !text.includes(data.error.message));
    this.warnings.hidden = !warnings.length;
    const newest = warnings.slice(-20);
    if (newest.length !== this.warningList.childElementCount || newest.at(-1) !== this.warningList.lastChild?.textContent)
      this.warningList.replaceChildren(...newest.map((text) => h("li", {}, text)));
    const missing = leftOut(data.progress);
    this.leftOut.hidden = !missing.length;
    this.missing.replaceChildren(...missing.map((text) => h("li", {}, text)));
    const part = load && load.chunks_done < load.chunks ? load : data.progress.reload?.load;
    this.bar.hidden = !part || part.chunks_done >= part.chunks;
    if (!this.bar.hidden) Object.assign(this.bar, { max: part.chunks, value: part.chunks_done });
    this.facts.update(data);
    this.more.update(data);
    this.lag.update(data.samples);
    this.speed.update(data.samples);
    this.phases.update(data.progress.spent_s ?? {});
  }
}
