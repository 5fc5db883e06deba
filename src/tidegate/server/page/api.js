/**
 * Requests to this server.  An unsuccessful response throws its error message; the browser stores only the token
 * of writes.
 */

/** An error response of the server. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

const TOKEN = "tidegate-token";
/** Longest time that a request which only reads may take. */
const READ_MS = 60_000;

/** Move the token of the printed address into the browser's storage of this origin, and remove it from the address. */
function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  localStorage.setItem(TOKEN, token);
  history.replaceState(history.state, "", location.pathname + location.search);
}
takeToken();
addEventListener("hashchange", takeToken);

async function ask(method, path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = localStorage.getItem(TOKEN);
  if (token && method !== "GET") headers.Authorization = `Bearer ${token}`;
  const content = body === undefined ? {} : { body: typeof body === "string" ? body : json(body) };
  const signal = method === "GET" ? AbortSignal.timeout(READ_MS) : null;
  const response = await fetch(path, { method, cache: "no-store", headers, signal, ...content });
  const text = await response.text();
  if (response.status === 401) localStorage.removeItem(TOKEN);
  if (response.ok) return text ? JSON.parse(text) : {};
  let failure = {};
  try {
    failure = JSON.parse(text);
  } catch {
    failure = { error_msg: text || response.statusText };
  }
  throw new ApiError(response.status, failure.error_code ?? "", (failure.error_msg ?? "").replace(/^\[[^\]]*\]/, ""));
}

/** JSON in which a TSO in a string becomes a number with all digits, as in TiCDC's API. */
const json = (body) => JSON.stringify(body).replace(/"(start_ts|target_ts|overwrite_checkpoint_ts)":"(\d+)"/g, '"$1":$2');

const query = (parameters) => {
  const present = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return present.length ? `?${new URLSearchParams(present)}` : "";
};

/** The path of a changefeed, passed as namespace/name. */
function pathOf(root, feed, rest, parameters = {}) {
  const [namespace, ...name] = feed.split("/");
  return `${root}/changefeeds/${encodeURIComponent(name.join("/"))}${rest}${query({ namespace, ...parameters })}`;
}

const TIDEGATE = "/api/tidegate/v1";
const TICDC = "/api/v2";

export const overview = () => ask("GET", `${TIDEGATE}/overview`);
export const sinks = () => ask("GET", `${TIDEGATE}/sinks`);
export const operations = () => ask("GET", `${TIDEGATE}/operations`);
export const feed = (id) => ask("GET", pathOf(TIDEGATE, id, ""));
export const part = (id, what, parameters) => ask("GET", pathOf(TIDEGATE, id, `/${what}`, parameters));
export const decide = (id, what, body) => ask("POST", pathOf(TIDEGATE, id, `/dead_letters/${what}`), body);
export const tables = (id, what, body) => ask("POST", pathOf(TIDEGATE, id, `/tables/${what}`), body);
export const load = (id, what, body) => ask("POST", pathOf(TIDEGATE, id, `/load/${what}`), body);
export const act = (id, what, body) => ask("POST", pathOf(TICDC, id, `/${what}`), body);
/** Change addresses and settings; these are text, since a number of theirs may have 64 bits. */
export const update = (id, addresses, settings) =>
  ask("PUT", pathOf(TICDC, id, ""), `${JSON.stringify({ ...addresses, replica_config: 0 }).slice(0, -2)}${settings}}`);
export const remove = (id) => ask("DELETE", pathOf(TICDC, id, ""));
export const verify = (body) => ask("POST", `${TICDC}/verify_table?sink=true`, body);
export const create = (body) => ask("POST", `${TICDC}/changefeeds`, body);
