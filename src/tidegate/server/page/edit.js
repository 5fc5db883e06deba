/**
 * Changing a changefeed: its addresses and its settings, in one dialog, and going on with them.
 *
 *     paused, failed     changed and, if asked, resumed        `mend` is the parameter that its error advises, filled in
 *     else               it says so, and offers to pause
 */
import * as api from "./api.js";
import { question } from "./actions.js";
import { FieldError, field, h } from "./dom.js";

/** An address with a parameter set. */
function withParameter(uri, name, value) {
  const [base, query = ""] = uri.split("?");
  const others = query.split("&").filter((part) => part && part.split("=")[0] !== name);
  return `${base}?${[...others, `${name}=${encodeURIComponent(value)}`].join("&")}`;
}

const text = (value, rows) => Object.assign(h("textarea", { rows, spellcheck: "false", autocomplete: "off" }), { value });

/** Ask for other addresses and settings of a changefeed with these details. */
export function edit(id, data, mend = null) {
  if (!["stopped", "failed"].includes(data.state)) {
    question({
      title: `Edit ${id}`,
      text: "Only a paused or failed changefeed can be changed, and this one is neither. Pause it first; it keeps its checkpoint.",
      verb: "Pause",
      run: () => api.act(id, "pause"),
    });
    return;
  }
  const proposed = (of) => (mend?.of === of ? withParameter(data[of], mend.name, mend.value) : data[of]);
  const inputs = { sink: text(proposed("sink_uri"), 2), source: text(proposed("source_uri"), 2), settings: text(data.edited, 10) };
  const resumes = h("input", { type: "checkbox", checked: true });
  question({
    title: mend ? `Edit ${id} and resume` : `Edit ${id}`,
    text: mend ? `Its error advises ${mend.name}=${mend.value}, which is filled in.` : "What is not changed stays as it is, also what is shown as xxxxx.",
    verb: "Save",
    inputs,
    content: [
      field("Sink URI", inputs.sink, "With its parameters."),
      field("Source URI", inputs.source),
      field("Settings", inputs.settings, 'JSON of TiCDC\'s replica_config; a key that is absent has its default. Durations in ns, or as "10m".'),
      field("Resume afterwards", resumes),
    ],
    run: async () => {
      const settings = inputs.settings.value.trim() || "{}";
      try {
        JSON.parse(settings);
      } catch (error) {
        throw new FieldError(inputs.settings, error.message);
      }
      const now = { sink_uri: inputs.sink.value.trim(), source_uri: inputs.source.value.trim() };
      const same = now.sink_uri === data.sink_uri && now.source_uri === data.source_uri && settings === data.edited;
      if (!same) await api.update(id, now, settings);
      if (resumes.checked) await api.act(id, "resume", {});
    },
    report: () => `${id} is changed`,
  });
}
