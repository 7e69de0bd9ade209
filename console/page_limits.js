// Limits: what each user has used of it, changing it, and what the next send would be told.

import { ask, change, get, may, nextPage } from "./api.js";
import { bar, button, el, field, number, pager, replace, table, time } from "./dom.js";

const LIST = "/api/config";
const LOOK = "/api/limits/{userId}";
const one = (user) => `${LIST}/${encodeURIComponent(user)}`;

/** When the window ends; time windows are in minutes. */
const resetsAt = (row) => new Date(new Date(row.lastRefreshTime).getTime() + row.timeWindow * 60000).toISOString();

function setting(onChange) {
  const user = field("User", { required: true, placeholder: "1001" });
  const limit = field("Messages", { value: "5", inputMode: "numeric", class: "short", required: true });
  const window = field("Window (minutes)", { value: "1", inputMode: "numeric", class: "short", required: true });
  const element = el("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    const body = { userId: user.input.value, rateLimit: Number(limit.input.value), timeWindow: Number(window.input.value) };
    const answer = await change(`Set the limit of ${body.userId}`, "POST", LIST, {
      body, verb: "Set", warning: "This also starts a new window, so what was used no longer counts.",
      done: () => `${body.userId} may send ${number(body.rateLimit)} per ${number(body.timeWindow)} min`,
    });
    if (answer) onChange();
  } }, user, limit, window, el("button", { type: "submit" }, "Set limit"));
  return {
    element,
    fill(row) {
      user.input.value = row.userId;
      limit.input.value = row.rateLimit;
      window.input.value = row.timeWindow;
      user.input.focus();
    },
  };
}

/** Looks without spending anything. */
function question() {
  const user = field("Would a send be allowed for", { required: true, placeholder: "1001" });
  const answer = el("p", { role: "status" });
  return el("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const { body } = await ask("GET", `/api/limits/${encodeURIComponent(user.input.value)}`);
      replace(answer, el("span", { class: body.allowed ? "good" : "bad" }, body.allowed ? "yes" : "no"),
        `, ${number(body.remaining)} left until `, time(body.resetAt));
    } catch (error) {
      replace(answer, el("span", { class: "bad" }, error.message));
    }
  } }, user, el("button", { type: "submit" }, "Ask"), answer);
}

function render(main) {
  const form = may("POST", LIST) ? setting(() => list.start()) : null;
  const remove = async (row) => {
    const answer = await change(`Delete the limit of ${row.userId}`, "DELETE", one(row.userId), {
      verb: "Delete", danger: true,
      warning: "This user's sends are then refused with 404, unless the server has a default limit.",
    });
    if (answer) list.start();
  };
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${LIST}?limit=100`);
    return answer && { rows: answer.body, next: nextPage(answer) };
  }, table("Limits", [
    { name: "User", value: (row) => row.userId },
    { name: "Used", value: (row) => row.currentCount / row.rateLimit,
      show: (row) => bar(row.currentCount, row.rateLimit, `${number(row.currentCount)} of ${number(row.rateLimit)}`) },
    { name: "Window", value: (row) => row.timeWindow, show: (row) => `${number(row.timeWindow)} min`, numeric: true },
    { name: "Resets", value: resetsAt, show: (row) => time(resetsAt(row)) },
    { name: "", show: (row) => el("span", { class: "row" },
      form && button("Change", () => form.fill(row)),
      may("DELETE", `${LIST}/{userId}`) && button("Delete", () => remove(row), { class: "danger" })) },
  ], [], "No user has a limit yet."));
  main.append(may("GET", LOOK) ? question() : "", form?.element || "", list.element);
  list.start();
}

export const limits = { name: "limits", title: "Limits", offered: () => may("GET", LIST), render };
