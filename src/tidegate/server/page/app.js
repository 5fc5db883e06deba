/**
 * The page: its address decides what is shown, and every few seconds what is shown is asked for again.
 *
 *     /                      all changefeeds
 *     /?feed=default/shop    one; &view= a tab, &table= a table, &ts= a moment
 *     /?new                  the form of a new one
 *
 * The age of what is shown stands at the top; when the server does not answer, what was known stays, with that age.
 */
import { Overview } from "./overview.js";
import { FeedPage } from "./feed.js";
import { CreatePage } from "./create.js";
import { session } from "./actions.js";
import { say } from "./dom.js";
import { span } from "./words.js";

const EVERY_MS = 5000;
const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const shown = { page: null, key: "", asking: false, again: false, got_ms: 0 };

/** What the address says. */
function place() {
  const words = new URLSearchParams(location.search);
  const said = Object.fromEntries(words);
  if (words.has("new")) return { key: "new" };
  if (!/^[^/]+\/[^/]+$/.test(said.feed ?? "")) return { key: "all" };
  return { ...said, key: `feed ${said.feed}` };
}

/** Go to an address of the page. */
function go(href) {
  if (href !== location.pathname + location.search) history.pushState(null, "", href);
  return route(true);
}

/** Change words of the address of the changefeed that is shown. */
function goWithin(words) {
  const found = new URLSearchParams({ feed: place().feed, ...words });
  for (const [name, value] of [...found]) if (!value) found.delete(name);
  history.pushState(null, "", `/?${found}`);
  return route(false);
}

async function route(byUser) {
  const at = place();
  if (at.key === shown.key) {
    await shown.page.moved?.(at);
    return;
  }
  shown.key = at.key;
  shown.got_ms = 0;
  shown.page = at.key === "all" ? new Overview() : at.key === "new" ? new CreatePage() : new FeedPage(at, goWithin);
  document.title = `${shown.page.title} · Tidegate`;
  main.replaceChildren(shown.page.element);
  if (byUser) shown.page.heading.focus();
  await refresh();
}

async function refresh() {
  if (shown.asking) {
    shown.again = true;
    return;
  }
  shown.asking = true;
  const page = shown.page;
  try {
    const found = await page.refresh();
    if (page === shown.page) shown.got_ms = Date.now();
    tellAge();
    session.who = found.who;
    say(document.getElementById("server"), `${found.server.addr} · ${found.server.version} · ${found.who}`);
    trouble.hidden = true;
  } catch (error) {
    const code = error.code ? ` (${error.code})` : "";
    say(trouble, error.status ? `${error.message}${code}` : `The server does not answer: ${error.message}. The data shown may be old.`);
    trouble.hidden = false;
  } finally {
    shown.asking = false;
    document.body.dataset.loaded = String(Number(document.body.dataset.loaded ?? 0) + 1);
  }
  if (shown.again || page !== shown.page) {
    shown.again = false;
    await refresh();
  }
}

/** How old what is shown is. */
function tellAge() {
  const age_s = Math.round((Date.now() - shown.got_ms) / 1000);
  say(document.getElementById("age"), !shown.got_ms ? "loading…" : age_s < 1 ? "updated now" : `updated ${span(age_s)} ago`);
}

/** The themes in their turn: what the system says, light, dark. */
const THEMES = ["system", "light", "dark"];

function theme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  say(document.getElementById("theme"), `Theme: ${chosen}`);
  try {
    localStorage.setItem("theme", chosen);
  } catch {
    // a browser that keeps nothing asks again the next time
  }
}

function keptTheme() {
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
setInterval(tellAge, 1000);
theme(keptTheme());
say(document.getElementById("zone"), `Times are in your time zone, ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`);
route(false);
