/**
 * A form for a new changefeed, which the server checks (verify_table) and then creates.  An error stands beside its field.
 */
import * as api from "./api.js";
import { question } from "./actions.js";
import { FieldError, blame, field, h, moment, setText } from "./dom.js";
import { counted } from "./format.js";

const input = (more = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...more });

export class CreatePage {
  title = "New changefeed";

  constructor() {
    this.heading = h("h1", { tabindex: "-1" }, "New changefeed");
    this.kind = h("select", { onchange: () => this.#example() }, h("option", { value: "" }, "…"));
    this.start = moment("Start ts", "Empty: now.");
    this.target = moment("Target ts", "It ends there; empty: never.");
    this.inputs = {
      name: input({ pattern: "[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*", maxlength: "128" }),
      sink: input({ required: true }),
      source: input(),
      start: this.start.input,
      target: this.target.input,
      rules: h("textarea", { rows: "3", spellcheck: "false" }),
      settings: h("textarea", { rows: "5", spellcheck: "false" }),
    };
    this.result = h("div", { role: "status", "aria-live": "polite" });
    this.fault = h("p", { role: "alert", class: "fault", hidden: true });
    const { name, sink, source, rules, settings } = this.inputs;
    const check = h("button", { type: "button", onclick: () => this.#check() }, "Check");
    const create = h("button", { type: "submit", class: "strong" }, "Create…");
    const form = h(
      "form",
      { class: "form", onsubmit: (event) => this.#create(event), "aria-label": "New changefeed", novalidate: true },
      field("Name", name, "Letters, digits and single hyphens; empty: the server chooses one"),
      field("Kind of sink", this.kind, "Fills in an example of its address"),
      field("Sink URI", sink),
      field("Source URI", source, "Empty: the server's own upstream"),
      this.start.element,
      this.target.element,
      field("Filter rules", rules, "One per line, such as shop.*; empty: all tables"),
      field("Further settings", settings, "JSON of TiCDC's replica_config"),
      this.fault,
      h("p", { class: "buttons" }, check, create),
    );
    this.element = h("div", {}, this.heading, form, this.result);
  }

  /** The form itself needs no refresh; the kinds of sinks are those of the server. */
  async refresh() {
    if (!this.kinds) {
      this.kinds = (await api.sinks()).items;
      this.kind.append(...this.kinds.map((kind) => h("option", { value: kind.scheme }, `${kind.scheme}: ${kind.about}`)));
    }
    return api.overview();
  }

  /** Show an address of the chosen kind, unless another one was typed. */
  #example() {
    const { sink } = this.inputs;
    const chosen = this.kinds.find((kind) => kind.scheme === this.kind.value);
    if (chosen && (!sink.value || this.kinds.some((kind) => kind.example === sink.value))) sink.value = chosen.example;
  }

  #settings() {
    try {
      return JSON.parse(this.inputs.settings.value.trim() || "{}");
    } catch (error) {
      throw new FieldError(this.inputs.settings, error.message);
    }
  }

  #body() {
    const { name, sink, source, rules } = this.inputs;
    const config = this.#settings();
    const lines = rules.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (lines.length) config.filter = { ...config.filter, rules: lines };
    if (!sink.value.trim()) throw new FieldError(sink, "An address is needed");
    const body = {
      changefeed_id: name.value.trim(),
      sink_uri: sink.value.trim(),
      source_uri: source.value.trim(),
      start_ts: this.start.tso(),
      target_ts: this.target.tso(),
      replica_config: config,
    };
    return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== ""));
  }

  /** Ask the server which tables it would replicate, and whether it reaches the sink; null if it cannot be created, else the request. */
  async #check() {
    this.fault.hidden = true;
    blame(this.inputs);
    this.result.replaceChildren();
    try {
      const body = this.#body();
      const checked = await api.verify(body);
      this.#tables(checked.eligible_tables ?? [], checked.ineligible_tables ?? [], checked.sink_met);
      return body;
    } catch (error) {
      setText(this.fault, `${error.message}${error.code ? ` (${error.code})` : ""}`);
      this.fault.hidden = blame(this.inputs, error);
      return null;
    }
  }

  #tables(eligible, ineligible, met) {
    const names = (tables) => tables.slice(0, 200).map((table) => h("li", {}, `${table.database_name}.${table.table_name}`));
    const summary = eligible.length + ineligible.length ? `It would replicate ${counted(eligible.length, "table")}.` : "The settings are valid. The tables of this source are known once it is read.";
    const parts = [h("h2", {}, "Checked"), h("p", {}, summary), h("p", {}, met ? "The sink is there." : "The sink is tried once the changefeed is created."), h("ul", { class: "names" }, names(eligible))];
    if (ineligible.length)
      parts.push(h("p", { class: "fault" }, "These tables have no key that identifies rows, and are skipped unless forced:"), h("ul", { class: "names" }, names(ineligible)));
    this.result.replaceChildren(...parts);
  }

  async #create(event) {
    event.preventDefault();
    const body = await this.#check();
    if (!body) return;
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
