// Elements, text and times. Whatever users have typed reaches the page only through text nodes and properties, never as
// markup: nothing in the console assigns innerHTML.

/** Creates an element. Properties that begin with "on" are listeners; children are elements, strings or null. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/** A labelled input: `field("Prefix", {value: "a"})`. Returns the label; the input is its `control`. */
export function field(label, properties = {}) {
  const { options, ...rest } = properties;
  const control = options
    ? el("select", rest, options.map((option) => el("option", { value: option }, option)))
    : el("input", { type: "text", autocomplete: "off", spellcheck: false, ...rest });
  const element = el("label", { class: "field" }, el("span", {}, label), control);
  element.input = control;
  return element;
}

export function button(label, onclick, properties = {}) {
  return el("button", { type: "button", onclick, ...properties }, label);
}

/** A time in the reader's zone, with UTC on hover. */
export function time(text) {
  if (!text) return el("span", { class: "quiet" }, "–");
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return el("span", {}, String(text));
  const day = date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
  const clock = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return el("time", { dateTime: text, title: `${date.toISOString()} (UTC)` }, // a line may end only between the two
    el("span", {}, `${day},`), " ", el("span", {}, clock));
}

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

export const number = (value) => whole.format(value);
export const rate = (value) => (value >= 100 ? whole.format(value) : short.format(value));
export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many ?? `${one}s`}`;

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds >= 120) return `${short.format(seconds / 60)} min`;
  if (seconds >= 1) return `${short.format(seconds)} s`;
  if (seconds >= 0.001) return `${short.format(seconds * 1000)} ms`;
  return `${short.format(seconds * 1e6)} µs`;
}

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit++;
  }
  return `${short.format(count)} ${units[unit]}`;
}

/** A bar for `used` of `limit`, with the figures as its text. */
export function bar(used, limit, text) {
  const share = limit > 0 ? Math.min(1, Math.max(0, used / limit)) : 0;
  const meter = el("meter", { min: 0, max: 1, value: share, "aria-label": text, title: text });
  meter.classList.toggle("full", share >= 1);
  return el("span", { class: "bar" }, meter, el("span", {}, text));
}

/**
 * A table. Columns: {name, value(row) for sorting, show(row) for the cell, numeric}. Rows stay in order until sorted.
 * refill(rows) shows other rows: the order, and the rows and cells that say the same, stay, and with them the focus.
 * `key(row)` tells rows apart, and rows with the same key their order. After a refill, what a row's buttons do may depend on
 * nothing but the key; refill(rows, true) makes every row anew. visible() returns the rows that are on the screen, and
 * redraw(row) shows what has changed in one of them, where it stands.
 */
export function table(caption, columns, rows, empty, key = (row) => columns[0].value(row)) {
  const body = el("tbody");
  const nothing = el("tr", {}, el("td", { colSpan: columns.length, class: "quiet" }, empty));
  let lines = new Map();
  let sorted = null;
  let descending = false;
  const cell = (column, row) => el("td", { class: column.numeric ? "numeric" : "" },
    column.show ? column.show(row) : String(column.value(row)));
  const update = (line, row) => columns.forEach((column, i) => {
    const fresh = cell(column, row);
    if (fresh.textContent !== line.cells[i].textContent) line.cells[i].replaceWith(fresh);
  });
  const refill = (newRows, isNew = false) => {
    const before = isNew ? new Map() : lines;
    rows = newRows;
    lines = new Map();
    const order = [...rows];
    if (sorted) {
      order.sort((a, b) => (sorted.value(a) > sorted.value(b)) - (sorted.value(a) < sorted.value(b)));
      if (descending) order.reverse();
    }
    for (const row of order) {
      let name = String(key(row));
      while (lines.has(name)) name += "+";
      const old = before.get(name);
      if (old) update(old, row);
      const line = old || el("tr", {}, columns.map((column) => cell(column, row)));
      line.row = row;
      lines.set(name, line);
    }
    place(order.length === 0 ? [nothing] : [...lines.values()]);
  };
  /** A row that moves loses the focus, so it is put back. */
  const place = (wanted) => {
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const kept = new Set(wanted);
    for (const line of [...body.children]) if (!kept.has(line)) line.remove();
    let at = body.firstElementChild;
    for (const line of wanted) {
      if (line === at) at = at.nextElementSibling;
      else body.insertBefore(line, at);
    }
    if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  };
  const heads = columns.map((column) => {
    const head = el("th", { scope: "col", class: column.numeric ? "numeric" : "" });
    if (!column.value || column.fixed) {
      head.append(column.name || el("span", { class: "hidden" }, "Actions"));
      return head;
    }
    head.append(button(column.name, () => {
      descending = sorted === column ? !descending : Boolean(column.numeric);
      sorted = column;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      refill(rows);
    }, { class: "sort" }));
    return head;
  });
  const element = el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, heads)), body));
  element.refill = refill;
  element.visible = () => [...lines.values()].filter((line) => {
    const { top, bottom } = line.getBoundingClientRect();
    return bottom > top && bottom > 0 && top < window.innerHeight;
  }).map((line) => line.row);
  element.redraw = (row) => {
    for (const line of lines.values()) if (line.row === row) update(line, row);
  };
  refill(rows);
  return element;
}

/** Loads a list in pages: `load(cursor)` returns {rows, next}; `view` is an element whose refill(rows) draws them all. */
export function pager(load, view) {
  const list = el("div");
  const more = button("Load more", () => next(), { hidden: true });
  const element = el("div", {}, list, more);
  let rows = [];
  let cursor = null;
  async function next(isFirst = false) {
    const page = await load(isFirst ? null : cursor);
    if (!page) return;
    rows = isFirst ? page.rows : rows.concat(page.rows);
    cursor = page.next;
    more.hidden = !cursor;
    view.refill(rows, isFirst);
    if (view.parentNode !== list) replace(list, view);
  }
  return { element, start: () => next(true) };
}
