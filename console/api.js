// Requests to the server, the API key, and what the key may do. The key stays in this module's memory: it is never
// stored, never part of a URL and gone when the page is closed.

import { button, el, field } from "./dom.js";

let key = "";
let access = { checked: false, caller: null, routes: [] };
let answered = () => {};

/** Is called with {ok, text} after every change, and with the problem of every request that fails. */
export function onMessage(listener) {
  answered = listener;
}

export function headers(extra = {}) {
  return key ? { Authorization: `Bearer ${key}`, ...extra } : extra;
}

export async function useKey(text) {
  key = text.trim();
  return loadAccess();
}

/** Returns whether the server has said what the caller may do. */
export async function loadAccess() {
  try {
    const answer = await fetch("/operator/console/access", { headers: headers() });
    if (!answer.ok) return false;
    access = await answer.json();
    return true;
  } catch {
    return false;
  }
}

export const caller = () => access;

/** Whether the caller may use a route: `may("POST", "/api/v1/internal/counts")`. */
export const may = (method, template) => access.routes.includes(`${method} ${template}`);

export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.msg || `the server answered with ${status}`);
    this.status = status;
    this.body = body;
  }
}

/** Counts go up to 2^63: integers that a number cannot hold exactly become BigInt, and are sent as they are. */
const exactly = (_, value, { source } = {}) =>
  (typeof value === "number" && source && /^-?\d+$/.test(source) && !Number.isSafeInteger(value) ? BigInt(source) : value);

const toJson = (body) => JSON.stringify(body, (_, value) =>
  (typeof value === "bigint" ? JSON.rawJSON(String(value)) : value));

async function read(answer) {
  const text = await answer.text();
  try {
    return text ? JSON.parse(text, exactly) : null;
  } catch {
    return { detail: text.slice(0, 200) };
  }
}

/** Sends a request and returns {body, headers}; throws a Problem. */
export async function ask(method, path, options = {}) {
  const extra = { ...options.headers };
  if (options.body !== undefined) extra["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: headers(extra),
      body: options.body === undefined ? undefined : toJson(options.body),
      signal: options.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the server cannot be reached" });
  }
  const body = await read(answer);
  if (!answer.ok) throw new Problem(answer.status, body);
  return { body, headers: answer.headers };
}

/** Reads something, and shows the problem instead of throwing it. Returns null then. */
export async function get(path, options) {
  try {
    return await ask("GET", path, options);
  } catch (error) {
    if (error.name !== "AbortError") answered({ ok: false, text: error.message });
    return null;
  }
}

/** The path of the next page, from the header Link; null at the end. */
export function nextPage(answer) {
  const link = answer.headers.get("Link") || "";
  const found = /<([^>]*)>\s*;\s*rel="?next"?/.exec(link);
  return found ? found[1] : null;
}

// ---- changes

/** Quotes text for a POSIX shell. */
function shell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function curl(method, path, options = {}) {
  const parts = ["curl", "-X", method];
  if (access.checked) parts.push("-H", '"Authorization: Bearer $QUIPU_KEY"');
  for (const [name, value] of Object.entries(options.headers || {})) parts.push("-H", shell(`${name}: ${value}`));
  if (options.body !== undefined) {
    parts.push("-H", shell("Content-Type: application/json"), "-d", shell(toJson(options.body)));
  }
  parts.push(shell(new URL(path, location.href).href));
  return parts.join(" ");
}

/**
 * Asks once, shows the request as a curl line, sends it with an Idempotency-Key, and says how it ended.
 * A request whose outcome is unknown can be repeated with the same key. Returns the answer, or null.
 */
export function change(title, method, path, options = {}) {
  const request = { ...options, headers: { "Idempotency-Key": crypto.randomUUID(), ...options.headers } };
  return new Promise((resolve) => {
    const problem = el("p", { class: "problem", role: "alert" });
    const reason = options.reason ? field(options.reason, { required: true, maxLength: 1024 }) : null;
    const line = el("pre", { tabIndex: 0, "aria-label": "The same request with curl" });
    const draw = () => {
      if (reason) request.body = { ...request.body, why: reason.input.value };
      line.textContent = curl(method, path, request);
    };
    const finish = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    const send = async (event) => {
      event.preventDefault();
      yes.disabled = true;
      try {
        const answer = await ask(method, path, request);
        answered({ ok: true, text: options.done ? options.done(answer.body) : `${title}: done` });
        finish(answer);
      } catch (error) {
        problem.textContent = error.message;
        yes.disabled = false;
      }
    };
    const yes = el("button", { type: "submit", class: options.danger ? "danger" : "primary" }, options.verb || "Send");
    const dialog = el("dialog", { "aria-labelledby": "ask-title", oncancel: () => finish(null) },
      el("form", { method: "dialog", onsubmit: send },
        el("h2", { id: "ask-title" }, title),
        options.warning ? el("p", {}, options.warning) : null,
        reason,
        line, problem,
        el("div", { class: "row end" }, button("Cancel", () => finish(null)), yes)));
    if (reason) reason.input.addEventListener("input", draw);
    draw();
    document.body.append(dialog);
    dialog.showModal();
  });
}
