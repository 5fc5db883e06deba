/**
 * The page: its address selects the view, which is refreshed every few seconds.
 *
 *     /                      all changefeeds
 *     /?feed=default/shop    one; &view= a tab, &table= a table, &ts= a time
 *     /?new                  the form for a new one
 *
 * The age of the data is shown at the top; while the server does not answer, or does so late, the last data stays, marked
 * as old.
 */
import { Overview } from "./overview.js";
import { FeedPage } from "./feed.js";
import { CreatePage } from "./create.js";
import { session } from "./actions.js";
import { setText } from "./dom.js";
import { span, time } from "./format.js";

const EVERY_MS = 5000;
const PATIENCE_MS = 3000;
const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const shown = { page: null, key: "", asked_ms: 0, again: false, got_ms: 0 };

/** The view that the address selects. */
function address() {
  const search = new URLSearchParams(location.search);
  const parameters = Object.fromEntries(search);
  if (search.has("new")) return { key: "new" };
  if (!parameters.feed) return { key: "all" };
  const feed = parameters.feed.includes("/") ? parameters.feed : `default/${parameters.feed}`;
  return { ...parameters, feed, key: `feed ${feed}` };
}

/** Go to an address of the page. */
function go(href) {
  if (href !== location.pathname + location.search) history.pushState(null, "", href);
  return route(true);
}

/** Change parameters of the address of the shown changefeed. */
function goWithin(changes) {
  const parameters = new URLSearchParams({ feed: address().feed, ...changes });
  for (const [name, value] of [...parameters]) if (!value) parameters.delete(name);
  history.pushState(null, "", `/?${parameters}`);
  return route(false);
}

async function route(byUser) {
  const target = address();
  if (target.key === shown.key) {
    await shown.page.moved?.(target);
    return;
  }
  shown.key = target.key;
  shown.got_ms = 0;
  shown.page = target.key === "all" ? new Overview() : target.key === "new" ? new CreatePage() : new FeedPage(target, goWithin);
  document.title = `${shown.page.title} · Tidegate`;
  main.replaceChildren(shown.page.element);
  if (byUser) shown.page.heading.focus();
  await refresh();
}

/** Say what is wrong with the server, and whether that makes the data old; nothing hides it. */
function tell(text, old = false) {
  setText(trouble, text);
  trouble.hidden = !text;
  document.body.toggleAttribute("data-old", old);
}

async function refresh() {
  if (shown.asked_ms) {
    shown.again = true;
    return;
  }
  shown.asked_ms = Date.now();
  const page = shown.page;
  try {
    const data = await page.refresh();
    if (page === shown.page) shown.got_ms = Date.now();
    shown.asked_ms = 0;
    tell("");
    showAge();
    session.who = data.who;
    setText(document.getElementById("server"), `${data.server.addr} · ${data.server.version} · ${data.who}`);
  } catch (error) {
    const code = error.code ? ` (${error.code})` : "";
    tell(error.status ? `${error.message}${code}` : `The server does not answer: ${error.message}. The data shown may be old.`, !error.status);
  } finally {
    shown.asked_ms = 0;
    document.body.dataset.loaded = String(Number(document.body.dataset.loaded ?? 0) + 1);
  }
  if (shown.again || page !== shown.page) {
    shown.again = false;
    await refresh();
  }
}

/** Show the age of the data, and since when an answer is due. */
function showAge() {
  const age_s = Math.round((Date.now() - shown.got_ms) / 1000);
  if (shown.asked_ms && Date.now() - shown.asked_ms > PATIENCE_MS)
    tell(`Waiting for the server since ${time(shown.asked_ms, false)}.${shown.got_ms ? " The data shown may be old." : ""}`, Boolean(shown.got_ms));
  setText(document.getElementById("age"), !shown.got_ms ? "loading…" : age_s < 1 ? "updated now" : `updated ${span(age_s)} ago`);
}

/** The themes in order: the system's, light, dark. */
const THEMES = ["system", "light", "dark"];

function theme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  setText(document.getElementById("theme"), `Theme: ${chosen}`);
  try {
    localStorage.setItem("theme", chosen);
  } catch {
    // a browser without storage starts with the system's theme
  }
}

function storedTheme() {
  try {
    return THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system";
  } catch {
    return "system";
  }
}

document.getElementById("theme").addEventListener("click", () => {
  theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length]);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-nav]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
document.addEventListener("go", (event) => go(event.detail));
document.addEventListener("acted", () => refresh());
document.addEventListener("visibilitychange", () => document.hidden || refresh());
addEventListener("popstate", () => route(false));
setInterval(() => document.hidden || refresh(), EVERY_MS);
setInterval(showAge, 1000);
theme(storedTheme());
setText(document.getElementById("zone"), `Times are in your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`);
route(false);
