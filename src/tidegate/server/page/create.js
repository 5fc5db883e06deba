/**
 * A form for a new changefeed, which the server checks (verify_table) and then creates.
 */
import * as api from "./api.js";
import { question } from "./actions.js";
import { field, h, setText } from "./dom.js";
import { counted } from "./format.js";

const input = (more = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...more });

export class CreatePage {
  title = "New changefeed";

  constructor() {
    this.heading = h("h1", { tabindex: "-1" }, "New changefeed");
    this.name = input({ pattern: "[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*", maxlength: "128" });
    this.sink = input({ required: true });
    this.source = input();
    this.start = input({ inputmode: "numeric", pattern: "[0-9]*" });
    this.target = input({ inputmode: "numeric", pattern: "[0-9]*" });
    this.rules = h("textarea", { rows: "3", spellcheck: "false" });
    this.more = h("textarea", { rows: "5", spellcheck: "false" });
    this.result = h("div", { role: "status", "aria-live": "polite" });
    this.fault = h("p", { role: "alert", class: "fault", hidden: true });
    const check = h("button", { type: "button", onclick: () => this.#check() }, "Check");
    const create = h("button", { type: "submit", class: "strong" }, "Create…");
    const form = h(
      "form",
      { class: "form", onsubmit: (event) => this.#create(event), "aria-label": "New changefeed" },
      field("Name", this.name, "Letters, digits and single hyphens; empty: the server chooses one"),
      field("Sink URI", this.sink, "delta:///srv/lake, or kafka://host:9092/topic?protocol=canal-json"),
      field("Source URI", this.source, "Empty: the server's own upstream"),
      field("Start ts", this.start, "A TSO; empty: now"),
      field("Target ts", this.target, "A TSO at which it ends; empty: never"),
      field("Filter rules", this.rules, "One per line, such as shop.*; empty: all tables"),
      field("Further settings", this.more, "JSON of TiCDC's replica_config"),
      this.fault,
      h("p", { class: "buttons" }, check, create),
    );
    this.element = h("div", {}, this.heading, form, this.result);
  }

  /** The form itself needs no refresh. */
  async refresh() {
    return api.overview();
  }

  #body() {
    const config = this.more.value.trim() ? JSON.parse(this.more.value) : {};
    const rules = this.rules.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (rules.length) config.filter = { ...config.filter, rules };
    const body = {
      changefeed_id: this.name.value.trim(),
      sink_uri: this.sink.value.trim(),
      source_uri: this.source.value.trim(),
      start_ts: this.start.value.trim(),
      target_ts: this.target.value.trim(),
      replica_config: config,
    };
    return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== ""));
  }

  /** Ask the server which tables it would replicate; true if it can be created. */
  async #check() {
    this.fault.hidden = true;
    this.result.replaceChildren();
    try {
      const checked = await api.verify(this.#body());
      this.#tables(checked.eligible_tables ?? [], checked.ineligible_tables ?? []);
      return true;
    } catch (error) {
      setText(this.fault, `${error.message}${error.code ? ` (${error.code})` : ""}`);
      this.fault.hidden = false;
      return false;
    }
  }

  #tables(eligible, ineligible) {
    const names = (tables) => tables.slice(0, 200).map((table) => h("li", {}, `${table.database_name}.${table.table_name}`));
    const summary = eligible.length + ineligible.length ? `It would replicate ${counted(eligible.length, "table")}.` : "The settings are valid. The tables of this source are known once it is read.";
    const parts = [h("h2", {}, "Checked"), h("p", {}, summary), h("ul", { class: "names" }, names(eligible))];
    if (ineligible.length)
      parts.push(h("p", { class: "fault" }, "These tables have no key that identifies rows, and are skipped unless forced:"), h("ul", { class: "names" }, names(ineligible)));
    this.result.replaceChildren(...parts);
  }

  async #create(event) {
    event.preventDefault();
    if (!(await this.#check())) return;
    const body = this.#body();
    question({
      title: `Create ${body.changefeed_id ?? "a changefeed"}`,
      text: `It starts at once, into ${body.sink_uri.replace(/:[^:@/]*@/, ":xxxxx@")}.`,
      verb: "Create",
      content: [this.result.cloneNode(true)],
      run: () => api.create(body),
      report: (created) => `${created.id} is created`,
      href: (created) => `/?${new URLSearchParams({ feed: `${created.namespace}/${created.id}` })}`,
    });
  }
}
