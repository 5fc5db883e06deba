/**
 * A new changefeed: a form that the server itself checks (verify_table), and then makes it of.
 */
import * as api from "./api.js";
import { question } from "./actions.js";
import { field, h, say } from "./dom.js";
import { several } from "./words.js";

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
    this.found = h("div", { role: "status", "aria-live": "polite" });
    this.fault = h("p", { role: "alert", class: "fault", hidden: true });
    const check = h("button", { type: "button", onclick: () => this.#check() }, "Check");
    const make = h("button", { type: "submit", class: "strong" }, "Create…");
    const form = h(
      "form",
      { class: "form", onsubmit: (event) => this.#make(event), "aria-label": "New changefeed" },
      field("Name", this.name, "Letters, digits and single hyphens; empty: the server chooses one"),
      field("Sink URI", this.sink, "delta:///srv/lake, or kafka://host:9092/topic?protocol=canal-json"),
      field("Source URI", this.source, "Empty: the server's own upstream"),
      field("Start ts", this.start, "A TSO; empty: now"),
      field("Target ts", this.target, "A TSO at which it ends; empty: never"),
      field("Filter rules", this.rules, "One per line, such as shop.*; empty: all tables"),
      field("Further settings", this.more, "JSON of TiCDC's replica_config"),
      this.fault,
      h("p", { class: "buttons" }, check, make),
    );
    this.element = h("div", {}, this.heading, form, this.found);
  }

  /** Nothing of it goes stale. */
  async refresh() {
    return api.overview();
  }

  #body() {
    const config = this.more.value.trim() ? JSON.parse(this.more.value) : {};
    const rules = this.rules.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (rules.length) config.filter = { ...config.filter, rules };
    const given = {
      changefeed_id: this.name.value.trim(),
      sink_uri: this.sink.value.trim(),
      source_uri: this.source.value.trim(),
      start_ts: this.start.value.trim(),
      target_ts: this.target.value.trim(),
      replica_config: config,
    };
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ""));
  }

  /** Ask the server what such a changefeed would carry; true if it can be made. */
  async #check() {
    this.fault.hidden = true;
    this.found.replaceChildren();
    try {
      const told = await api.verify(this.#body());
      this.#tables(told.eligible_tables ?? [], told.ineligible_tables ?? []);
      return true;
    } catch (error) {
      say(this.fault, `${error.message}${error.code ? ` (${error.code})` : ""}`);
      this.fault.hidden = false;
      return false;
    }
  }

  #tables(eligible, ineligible) {
    const names = (found) => found.slice(0, 200).map((one) => h("li", {}, `${one.database_name}.${one.table_name}`));
    const told = eligible.length + ineligible.length ? `It would replicate ${several(eligible.length, "table")}.` : "The settings are valid. The tables of this source are known once it is read.";
    const parts = [h("h2", {}, "Checked"), h("p", {}, told), h("ul", { class: "names" }, names(eligible))];
    if (ineligible.length)
      parts.push(h("p", { class: "fault" }, "These tables have no key that identifies rows, and are left out unless forced:"), h("ul", { class: "names" }, names(ineligible)));
    this.found.replaceChildren(...parts);
  }

  async #make(event) {
    event.preventDefault();
    if (!(await this.#check())) return;
    const body = this.#body();
    question({
      title: `Create ${body.changefeed_id ?? "a changefeed"}`,
      text: `It starts at once, into ${body.sink_uri.replace(/:[^:@/]*@/, ":xxxxx@")}.`,
      verb: "Create",
      content: [this.found.cloneNode(true)],
      run: () => api.create(body),
      told: (made) => `${made.id} is created`,
      href: (made) => `/?${new URLSearchParams({ feed: `${made.namespace}/${made.id}` })}`,
    });
  }
}
