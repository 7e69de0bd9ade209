// Outboxes, deliveries, and dead letters: what could not be delivered, why, and what to do about it.

import { ask, change, get, may, nextPage } from "./api.js";
import { button, el, number, pager, plural, rate, replace, table, time } from "./dom.js";
import { live } from "./live.js";

const KINDS = "/operator/dlq";
const ALL_AT_ONCE = 100;

// ---- outboxes and deliveries

function byLabel(label, families) {
  const rows = new Map();
  for (const [column, name] of Object.entries(families)) {
    for (const [labels, value] of live.samples(name)) {
      const key = labels[label] ?? "";
      rows.set(key, { ...(rows.get(key) || { name: key }), [column]: value });
    }
  }
  return [...rows.values()];
}

function numbers(caption, first, columns, empty) {
  return table(caption, [
    { name: first, value: (row) => row.name },
    ...Object.entries(columns).map(([column, name]) => ({
      name, value: (row) => row[column] || 0, numeric: true,
      show: (row) => (column === "waiting" && !row.waiting ? "nothing waits" : number(row[column] || 0)),
    })),
  ], [], empty);
}

const outboxTable = () => numbers("Outboxes", "Outbox", {
  waiting: "Waiting", oldest: "Oldest (s)", published: "Published", retried: "Retried", failed: "Given up",
  lost: "Claims lost",
}, "No outbox has sent anything yet.");

const outboxes = () => byLabel("outbox", {
  waiting: "quipu_outbox_pending", oldest: "quipu_outbox_oldest_seconds", published: "quipu_outbox_published_total",
  retried: "quipu_outbox_retried_total", failed: "quipu_outbox_failed", lost: "quipu_outbox_lost_claims_total",
});

const deliveryTable = () => numbers("Deliveries", "What", {
  waiting: "Waiting", busy: "Under way", oldest: "Oldest (s)", sent: "Sent", retried: "Retried", givenUp: "Given up",
}, "This process sends neither notifications nor messages.");

/** What waits is counted in the store; what was sent is kept no longer, and counted since the process began. */
function delivery(name, family, prefix) {
  const one = (metric) => live.samples(metric).reduce((sum, [, value]) => sum + value, 0);
  const states = Object.fromEntries(live.samples(family).map(([labels, value]) => [labels.state, value]));
  return {
    name,
    waiting: (states.PENDING || 0) + (states.QUEUED || 0),
    busy: (states.PROCESSING || 0) + (states.SENDING || 0),
    oldest: one(`${prefix}_oldest_seconds`),
    sent: one(`${prefix}_sent_total`),
    retried: one(`${prefix}_retried_total`),
    givenUp: one(`${prefix}_given_up_total`),
  };
}

function deliveries() {
  const roles = live.now.roles.split(",");
  const has = (role) => roles.includes(role) || roles.includes("all");
  return [
    has("notifications") && delivery("notifications", "quipu_notifications", "quipu_notifications"),
    has("sender") && delivery("messages", "quipu_sender_messages", "quipu_sender"),
  ].filter(Boolean);
}

// ---- dead letters

/** Payloads are base64. Shows them decoded where they are text; MassTransit's envelopes and JSON in full. */
function decode(payload) {
  let text;
  try {
    const raw = Uint8Array.from(atob(payload), (c) => c.charCodeAt(0));
    text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    return { how: "base64", text: payload };
  }
  try {
    const value = JSON.parse(text);
    return { how: value.messageType && value.message ? "MassTransit" : "JSON", text: JSON.stringify(value, null, 2) };
  } catch {
    return /[\x00-\x08\x0e-\x1f]/.test(text) ? { how: "base64", text: payload } : { how: "text", text };
  }
}

function showLetter(letter, place) {
  const { id, kind, payload, ...rest } = letter;
  const known = Object.entries(rest).filter(([, value]) => typeof value === "object" && value !== null);
  const shown = decode(payload || "");
  replace(place, el("section", { class: "card wide" }, el("h2", {}, `${kind}/${id}`),
    el("dl", {}, Object.entries(rest).filter(([, value]) => typeof value !== "object").flatMap(([name, value]) =>
      [el("dt", {}, name), el("dd", {}, name.endsWith("_at") ? time(value) : String(value))])),
    known.map(([name, value]) => el("div", {}, el("h3", {}, name), el("pre", { tabIndex: 0 }, JSON.stringify(value, null, 2)))),
    el("h3", {}, `payload (${shown.how})`), el("pre", { tabIndex: 0, "aria-label": "Payload" }, shown.text)));
}

const path = (letter, verb = "") => `${KINDS}/${letter.kind}/${encodeURIComponent(letter.id)}${verb}`;

const mayReplay = () => may("POST", `${KINDS}/{kind}/{id}/replay`);
const mayDiscard = () => may("POST", `${KINDS}/{kind}/{id}/discard`);

/** The letters of one kind. Calls `onChange` after each change, so that the rest of the page says the same. */
function deadLetters(kind, onChange) {
  const place = el("div");
  const heading = el("h2");
  const progress = el("p", { class: "quiet", role: "status" });
  let loaded = [];
  const changed = async () => {
    replace(place);
    await list.start();
    await onChange();
  };
  const view = table(`Dead letters: ${kind}`, [
    { name: "Id", value: (row) => row.id, show: (row) => button(row.id, async () => {
      const answer = await get(path(row));
      if (answer) showLetter(answer.body, place);
    }, { class: "link" }) },
    { name: "Event", value: (row) => row.event_type },
    { name: "About", value: (row) => row.aggregate_key },
    { name: "Reason", value: (row) => row.error },
    { name: "Attempts", value: (row) => row.attempt_count, show: (row) => number(row.attempt_count), numeric: true },
    { name: "Since", value: (row) => row.created_at, show: (row) => time(row.created_at) },
    { name: "", show: (row) => el("span", { class: "row" },
      mayReplay() && button("Replay", async () => {
        if (await change(`Replay ${row.id}`, "POST", path(row, "/replay"), { verb: "Replay" })) changed();
      }),
      mayDiscard() && button("Discard", async () => {
        if (await change(`Discard ${row.id}`, "POST", path(row, "/discard"), {
          verb: "Discard", danger: true, reason: "Why", body: {},
        })) changed();
      }, { class: "danger" })) },
  ], [], "Nothing waits here.");
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${KINDS}/${kind}?limit=100`);
    if (!answer) return null;
    loaded = cursor ? loaded : answer.body.letters;
    return { rows: answer.body.letters, next: nextPage(answer) };
  }, view);

  /** One after the other, in the order of the list, until none is left: what fails again stays and is counted. */
  async function replayAll() {
    const first = loaded[0];
    if (!first || !(await change(`Replay all dead letters of ${kind}`, "POST", path(first, "/replay"), {
      verb: "Replay all", warning: "Sends this request for each of them, one after the other.",
    }))) return;
    let done = 1;
    let failed = 0;
    let after = first.id;
    for (;;) {
      const { body } = await ask("GET", `${KINDS}/${kind}?limit=${ALL_AT_ONCE}&after=${encodeURIComponent(after)}`);
      if (body.letters.length === 0) break;
      for (const letter of body.letters) {
        after = letter.id;
        try {
          await ask("POST", path(letter, "/replay"), { headers: { "Idempotency-Key": crypto.randomUUID() } });
          done++;
        } catch {
          failed++;
        }
        progress.textContent = `${plural(done, "letter")} replayed${failed ? `, ${number(failed)} refused` : ""}`;
      }
    }
    progress.textContent = `Done: ${plural(done, "letter")} replayed${failed ? `, ${number(failed)} refused` : ""}.`;
    await changed();
  }
  const all = mayReplay() && button("Replay all", () => replayAll().catch((error) => {
    progress.textContent = error.message;
  }));
  list.start();
  return {
    element: el("section", { class: "kind" }, el("div", { class: "row" }, heading, all, progress), place, list.element),
    count(waiting) {
      heading.textContent = `${kind} (${number(waiting)})`;
      if (all) all.hidden = waiting === 0;
    },
  };
}

/** A section for each kind that has letters, or had some while the page was open; the other kinds share one line. */
function kinds(onChange) {
  const sections = new Map();
  const list = el("div", { class: "stack" });
  const empty = el("p", { class: "quiet" });
  async function draw() {
    const answer = await get(KINDS);
    if (!answer) return;
    for (const { kind, waiting } of answer.body.kinds) {
      if (waiting > 0 && !sections.has(kind)) {
        sections.set(kind, deadLetters(kind, onChange));
        list.append(sections.get(kind).element);
      }
      sections.get(kind)?.count(waiting);
    }
    const names = answer.body.kinds.map(({ kind }) => kind).filter((kind) => !sections.has(kind));
    empty.textContent = names.length > 0 ? `None: ${names.join(", ")}` : "";
  }
  return { element: el("section", {}, el("h2", {}, "Dead letters"), list, empty), draw };
}

// ---- what was done

const ACTIONS = "/operator/actions";

function actions() {
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${ACTIONS}?limit=20`);
    return answer && { rows: answer.body.actions, next: nextPage(answer) };
  }, table("What was done", [
    { name: "When", value: (row) => row.at, show: (row) => time(row.at) },
    { name: "Who", value: (row) => row.who ?? "", show: (row) => row.who ?? "not recorded" },
    { name: "What", value: (row) => row.action },
    { name: "Target", value: (row) => row.target },
    { name: "Detail", value: (row) => row.detail },
  ], [], "Nobody has replayed, discarded, resent or erased anything yet."));
  return { element: el("section", {}, el("h2", {}, "What was done"), list.element), draw: list.start };
}

function render(main) {
  const outbox = outboxTable();
  const sending = deliveryTable();
  const speed = el("p", { class: "quiet" });
  const done = may("GET", ACTIONS) ? actions() : null;
  const letters = kinds(() => Promise.all([letters.draw(), done?.draw()]));
  main.append(speed,
    el("section", {}, el("h2", {}, "Outboxes"), outbox),
    el("section", {}, el("h2", {}, "Deliveries"), sending),
    letters.element, done?.element || "");
  letters.draw();
  done?.draw();
  return live.watch(() => {
    outbox.refill(outboxes());
    sending.refill(deliveries());
    speed.textContent = `${rate(live.latest?.published || 0)} events published per second`;
  });
}

export const events = { name: "events", title: "Events", offered: () => may("GET", `${KINDS}/{kind}`), render };
