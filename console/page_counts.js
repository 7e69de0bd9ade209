// Counts: search, live values, changes, and a plot of one of them.

import { change, get, may, nextPage } from "./api.js";
import { button, el, field, number, pager, replace, table, time } from "./dom.js";
import { plot } from "./plot.js";

const LIST = "/api/v1/internal/counts";
const one = (id) => `${LIST}/${encodeURIComponent(id)}`;
const verb = (id, name) => `/api/v1/counts/${encodeURIComponent(id)}/${name}`;
const REFRESH_MS = 1000;
const KEPT = 300;

/** The integer in an input, as a BigInt; null if there is none. */
function integerOf(input) {
  return /^\s*-?\d+\s*$/.test(input.value) ? BigInt(input.value) : null;
}

/** Follows one count: its value once a second, a plot of the last minutes, and what can be done with it. */
function detail(id, onChange, onDeleted) {
  const value = el("p", { class: "figure" }, "–");
  const note = el("p", { class: "quiet" });
  const graph = plot(`The count ${id} over the last minutes`, ["value"],
    { format: number, seconds: 60, fromZero: false });
  const amount = field("Amount", { value: "1", inputMode: "numeric", class: "short" });
  const target = field("Value", { inputMode: "numeric", class: "short" });
  const history = [];
  const aborter = new AbortController();

  let isPaused = false;

  async function look() {
    if (isPaused) return;
    const answer = await get(one(id), { signal: aborter.signal });
    if (!answer) return;
    value.textContent = number(answer.body.currentValue);
    replace(note, "changed ", time(answer.body.lastUpdatedAt), bounds(answer.body));
    history.push([new Date(), Number(answer.body.currentValue)]);
    if (history.length > KEPT) history.shift();
    graph.update(history);
  }
  const bounds = ({ minValue, maxValue }) => (minValue === undefined && maxValue === undefined
    ? "" : `, between ${minValue ?? "no minimum"} and ${maxValue ?? "no maximum"}`);
  const send = async (title, method, path, options) => {
    const answer = await change(title, method, path, options);
    if (answer) {
      look();
      onChange();
    }
  };
  const step = (name) => {
    const count = integerOf(amount.input);
    if (count === null) {
      amount.input.focus();
      return;
    }
    send(`${name === "increase" ? "Increase" : "Decrease"} ${id} by ${number(count)}`, "POST", verb(id, name),
      { body: { amount: count }, verb: name === "increase" ? "Increase" : "Decrease",
        done: (body) => `${id} is ${number(body.value)} now` });
  };
  const actions = [
    may("POST", "/api/v1/counts/{itemId}/increase") && button("Increase", () => step("increase")),
    may("POST", "/api/v1/counts/{itemId}/decrease") && button("Decrease", () => step("decrease")),
    may("POST", "/api/v1/counts/{itemId}/reset") && button("Reset to 0", () => send(`Reset ${id} to 0`, "POST",
      verb(id, "reset"), { verb: "Reset", danger: true, done: () => `${id} is 0 now` })),
    may("PUT", "/api/v1/internal/counts/{itemId}") && el("span", { class: "row" }, target, button("Set", () => {
      const wanted = integerOf(target.input);
      if (wanted === null) target.input.focus();
      else send(`Set ${id} to ${number(wanted)}`, "PUT", one(id), { body: { value: wanted }, verb: "Set", danger: true });
    })),
    may("DELETE", "/api/v1/internal/counts/{itemId}") && button("Delete", async () => {
      isPaused = true;
      if (await change(`Delete ${id}`, "DELETE", one(id),
        { verb: "Delete", danger: true, warning: "The count and its value are gone for good." })) onDeleted();
      else isPaused = false;
    }, { class: "danger" }),
  ];
  const timer = setInterval(look, REFRESH_MS);
  look();
  return {
    element: el("section", { class: "card wide" }, el("h2", {}, id), value, note, graph.element,
      el("div", { class: "row" }, amount, actions)),
    stop() {
      clearInterval(timer);
      aborter.abort();
      graph.end();
    },
  };
}

function creation(onChange) {
  if (!may("POST", LIST)) return null;
  const id = field("New count", { placeholder: "visits" });
  const initial = field("Starts at", { value: "0", inputMode: "numeric", class: "short" });
  return el("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    const body = { itemId: id.input.value, initialValue: integerOf(initial.input) ?? 0 };
    const answer = await change(`Create the count ${body.itemId}`, "POST", LIST, { body, verb: "Create" });
    if (answer) onChange();
  } }, id, initial, el("button", { type: "submit" }, "Create"));
}

function render(main) {
  const prefix = field("Search by prefix", { type: "search", placeholder: "all counts" });
  const place = el("div");
  let open = null;
  const choose = (id) => {
    open?.stop();
    open = detail(id, list.start, () => {
      open.stop();
      open = null;
      replace(place);
      list.start();
    });
    replace(place, open.element);
    place.scrollIntoView({ block: "nearest" });
  };
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${LIST}?limit=100&prefix=${encodeURIComponent(prefix.input.value)}`);
    return answer && { rows: answer.body, next: nextPage(answer) };
  }, table("Counts", [
    { name: "Count", value: (row) => row.itemId,
      show: (row) => button(row.itemId, () => choose(row.itemId), { class: "link" }) },
    { name: "Value", value: (row) => row.currentValue, show: (row) => number(row.currentValue), numeric: true },
    { name: "Changed", value: (row) => row.lastUpdatedAt, show: (row) => time(row.lastUpdatedAt) },
  ], [], "No count begins like this."));
  main.append(
    el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); list.start(); } }, prefix,
      el("button", { type: "submit", class: "primary" }, "Search")),
    creation(() => list.start()), place, list.element);
  list.start();
  return () => open?.stop();
}

export const counts = { name: "counts", title: "Counts", offered: () => may("GET", LIST), render };
