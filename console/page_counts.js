// Counts: search, live values, changes, and a plot of one of them.

import { ask, change, get, may, nextPage } from "./api.js";
import { button, el, field, number, pager, replace, table, time } from "./dom.js";
import { plot } from "./plot.js";

const LIST = "/api/v1/internal/counts";
const one = (id) => `${LIST}/${encodeURIComponent(id)}`;
const verb = (id, name) => `/api/v1/counts/${encodeURIComponent(id)}/${name}`;
const REFRESH_MS = 1000;
const AT_ONCE = 150; // more rows than a screen has, and a URL that the server accepts
const KEPT = 300;

/** The integer in an input, as a BigInt; null if there is none. */
function integerOf(input) {
  return /^\s*-?\d+\s*$/.test(input.value) ? BigInt(input.value) : null;
}

const bounds = ({ minValue, maxValue }) => (minValue === undefined && maxValue === undefined
  ? "" : `, minimum ${minValue ?? "none"}, maximum ${maxValue ?? "none"}`);

/** One count: its value, a plot of the last minutes, and what can be done with it. show(row) gets each new value. */
function detail(id, onChange, onDeleted) {
  const value = el("p", { class: "figure" }, "–");
  const note = el("p", { class: "quiet" });
  const graph = plot(`The count ${id} over the last minutes`, ["value"], { format: number, fromZero: false });
  const amount = field("Amount", { value: "1", inputMode: "numeric", class: "short" });
  const target = field("Value", { inputMode: "numeric", class: "short" });
  const history = [];

  function show(row) {
    value.textContent = row ? number(row.currentValue) : "–";
    if (!row) {
      replace(note, "deleted");
      return;
    }
    replace(note, "changed ", time(row.lastUpdatedAt), bounds(row));
    history.push([new Date(), Number(row.currentValue)]);
    if (history.length > KEPT) history.shift();
    graph.update(history);
  }
  const send = async (title, method, path, options) => {
    if (await change(title, method, path, options)) onChange();
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
      if (await change(`Delete ${id}`, "DELETE", one(id),
        { verb: "Delete", danger: true, warning: "The count and its value are gone for good." })) onDeleted();
    }, { class: "danger" }),
  ];
  return {
    id,
    element: el("section", { class: "card wide" }, el("h2", {}, id), value, note, graph.element,
      el("div", { class: "row" }, amount, actions)),
    show,
    stop: () => graph.end(),
  };
}

/**
 * Reads the values of the rows on the screen and of the open count once a second, in one request, while somebody can see the
 * page. So the cost of a viewer does not depend on how many counts there are or were loaded. Rows keep their places.
 */
function keepCurrent(view, openCount) {
  const aborter = new AbortController();
  let timer = null;
  let turn = 0;
  async function look() {
    const mine = ++turn; // a look that was asked for takes the place of one that is under way
    clearTimeout(timer);
    const rows = document.hidden ? [] : view.visible().slice(0, AT_ONCE);
    const open = document.hidden ? null : openCount();
    const ids = new Set([...(open ? [open.id] : []), ...rows.map((row) => row.itemId)]);
    try {
      const found = ids.size > 0 ? await read(ids) : null;
      if (found && mine === turn) take(found, rows, open);
    } catch {
      // The red line at the top says what is wrong; the values are current again when the server answers.
    }
    if (mine === turn && !aborter.signal.aborted) timer = setTimeout(look, REFRESH_MS);
  }
  async function read(ids) {
    const query = [...ids].map((id) => `itemIds=${encodeURIComponent(id)}`).join("&");
    const { body } = await ask("GET", `${LIST}?${query}`, { signal: aborter.signal });
    return new Map(body.map((row) => [row.itemId, row]));
  }
  function take(found, rows, open) {
    for (const row of rows) {
      Object.assign(row, found.get(row.itemId) || { currentValue: null });
      view.redraw(row);
    }
    if (open && open === openCount()) open.show(found.get(open.id));
  }
  timer = setTimeout(look, REFRESH_MS);
  return {
    look,
    stop() {
      clearTimeout(timer);
      aborter.abort();
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
  const close = () => {
    open?.stop();
    open = null;
    replace(place);
  };
  const choose = (id) => {
    close();
    open = detail(id, () => values.look(), () => {
      close();
      list.start();
    });
    replace(place, open.element);
    place.scrollIntoView({ block: "nearest" });
    values.look();
  };
  const view = table("Counts", [
    { name: "Count", value: (row) => row.itemId,
      show: (row) => button(row.itemId, () => choose(row.itemId), { class: "link" }) },
    { name: "Value", value: (row) => row.currentValue, numeric: true,
      show: (row) => (row.currentValue === null ? el("span", { class: "quiet" }, "deleted") : number(row.currentValue)) },
    { name: "Changed", value: (row) => row.lastUpdatedAt, show: (row) => time(row.lastUpdatedAt) },
  ], [], "No count begins like this.");
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${LIST}?limit=100&prefix=${encodeURIComponent(prefix.input.value)}`);
    return answer && { rows: answer.body, next: nextPage(answer) };
  }, view);
  const values = keepCurrent(view, () => open);
  main.append(
    el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); list.start(); } }, prefix,
      el("button", { type: "submit", class: "primary" }, "Search")),
    creation(() => list.start()) || "", place, list.element);
  list.start();
  return () => {
    values.stop();
    close();
  };
}

export const counts = { name: "counts", title: "Counts", offered: () => may("GET", LIST), render };
