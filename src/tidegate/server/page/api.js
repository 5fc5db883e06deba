/**
 * Requests to this server.  An answer that is no success throws its own words; the browser keeps nothing but the
 * token of writes.
 */

/** What the server said was wrong. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

const TOKEN = "tidegate-token";

/** The token that the printed address brings moves into this browser's storage of this very address, and out of sight. */
function takeToken() {
  const brought = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!brought) return;
  localStorage.setItem(TOKEN, brought);
  history.replaceState(history.state, "", location.pathname + location.search);
}
takeToken();
addEventListener("hashchange", takeToken);

async function ask(method, path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = localStorage.getItem(TOKEN);
  if (token && method !== "GET") headers.Authorization = `Bearer ${token}`;
  const given = body === undefined ? {} : { body: json(body) };
  const answer = await fetch(path, { method, cache: "no-store", headers, ...given });
  const text = await answer.text();
  if (answer.status === 401) localStorage.removeItem(TOKEN);
  if (answer.ok) return text ? JSON.parse(text) : {};
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    told = { error_msg: text || answer.statusText };
  }
  throw new Refused(answer.status, told.error_code ?? "", (told.error_msg ?? "").replace(/^\[[^\]]*\]/, ""));
}

/** JSON in which a TSO given as text is a number of all its digits, as TiCDC's API takes it. */
const json = (body) => JSON.stringify(body).replace(/"(start_ts|target_ts|overwrite_checkpoint_ts)":"(\d+)"/g, '"$1":$2');

const words = (given) => {
  const found = Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return found.length ? `?${new URLSearchParams(found)}` : "";
};

/** The path of a changefeed, given as namespace/name. */
function place(root, feed, rest, given = {}) {
  const [namespace, name] = feed.split("/");
  return `${root}/changefeeds/${encodeURIComponent(name)}${rest}${words({ namespace, ...given })}`;
}

const OURS = "/api/tidegate/v1";
const TICDC = "/api/v2";

export const overview = () => ask("GET", `${OURS}/overview`);
export const operations = () => ask("GET", `${OURS}/operations`);
export const feed = (id) => ask("GET", place(OURS, id, ""));
export const part = (id, what, given) => ask("GET", place(OURS, id, `/${what}`, given));
export const decide = (id, what, body) => ask("POST", place(OURS, id, `/dead_letters/${what}`), body);
export const unpark = (id, table) => ask("POST", place(OURS, id, "/tables/unpark"), { table });
export const load = (id, what, body) => ask("POST", place(OURS, id, `/load/${what}`), body);
export const act = (id, what, body) => ask("POST", place(TICDC, id, `/${what}`), body);
export const remove = (id) => ask("DELETE", place(TICDC, id, ""));
export const verify = (body) => ask("POST", `${TICDC}/verify_table`, body);
export const create = (body) => ask("POST", `${TICDC}/changefeeds`, body);
