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

function numbers(caption, first, columns, rows, empty) {
  return table(caption, [
    { name: first, value: (row) => row.name },
    ...Object.entries(columns).map(([column, name]) => ({
      name, value: (row) => row[column] || 0, show: (row) => number(row[column] || 0), numeric: true,
    })),
  ], rows, empty);
}

function drawFlow(outboxes, notifications, messages, speed) {
  replace(outboxes, numbers("Outboxes", "Outbox", {
    pending: "Waiting", oldest: "Oldest (s)", published: "Published", retried: "Retried", failed: "Given up",
    lost: "Claims lost",
  }, byLabel("outbox", {
    pending: "quipu_outbox_pending", oldest: "quipu_outbox_oldest_seconds", published: "quipu_outbox_published_total",
    retried: "quipu_outbox_retried_total", failed: "quipu_outbox_failed", lost: "quipu_outbox_lost_claims_total",
  }), "No outbox has sent anything yet."));
  replace(notifications, numbers("Notifications by state", "State", { count: "Notifications" },
    byLabel("state", { count: "quipu_notifications" }), "There are no notifications yet."));
  replace(messages, numbers("Messages by state", "State", { count: "Messages" },
    byLabel("state", { count: "quipu_sender_messages" }), "There are no messages yet."));
  speed.textContent = `${rate(live.latest?.published || 0)} events published per second`;
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
      [el("dt", {}, name), el("dd", {}, String(value))])),
    known.map(([name, value]) => el("div", {}, el("h3", {}, name), el("pre", { tabIndex: 0 }, JSON.stringify(value, null, 2)))),
    el("h3", {}, `payload (${shown.how})`), el("pre", { tabIndex: 0, "aria-label": "Payload" }, shown.text)));
}

const path = (letter, verb = "") => `${KINDS}/${letter.kind}/${encodeURIComponent(letter.id)}${verb}`;

function deadLetters({ kind, waiting }) {
  const place = el("div");
  const progress = el("p", { class: "quiet", role: "status" });
  let loaded = [];
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${KINDS}/${kind}?limit=100`);
    if (!answer) return null;
    return { rows: answer.body.letters, next: nextPage(answer) };
  }, (rows) => {
    loaded = rows;
    return table(`Dead letters: ${kind}`, [
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
        may("POST", `${KINDS}/{kind}/{id}/replay`) && button("Replay", async () => {
          if (await change(`Replay ${row.id}`, "POST", path(row, "/replay"), { verb: "Replay" })) list.start();
        }),
        may("POST", `${KINDS}/{kind}/{id}/discard`) && button("Discard", async () => {
          if (await change(`Discard ${row.id}`, "POST", path(row, "/discard"), {
            verb: "Discard", danger: true, reason: "Why", body: {},
          })) list.start();
        }, { class: "danger" })) },
    ], rows, "Nothing waits here.");
  });

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
    list.start();
  }
  list.start();
  return el("section", {}, el("div", { class: "row" }, el("h2", {}, `${kind} (${number(waiting)})`),
    may("POST", `${KINDS}/{kind}/{id}/replay`) && button("Replay all", () => replayAll().catch((error) => {
      progress.textContent = error.message;
    })), progress), place, list.element);
}

// ---- what was done

const ACTIONS = "/operator/actions";

function actions() {
  const list = pager(async (cursor) => {
    const answer = await get(cursor || `${ACTIONS}?limit=20`);
    return answer && { rows: answer.body.actions, next: nextPage(answer) };
  }, (rows) => table("What was done", [
    { name: "When", value: (row) => row.at, show: (row) => time(row.at) },
    { name: "Who", value: (row) => row.who ?? "", show: (row) => row.who ?? "not recorded" },
    { name: "What", value: (row) => row.action },
    { name: "On", value: (row) => row.target },
    { name: "Detail", value: (row) => row.detail },
  ], rows, "Nobody has replayed, discarded, resent or erased anything yet."));
  list.start();
  return el("section", {}, el("h2", {}, "What was done"), list.element);
}

function render(main) {
  const outboxes = el("div");
  const notifications = el("div");
  const messages = el("div");
  const speed = el("p", { class: "quiet" });
  const letters = el("div", { class: "stack" });
  main.append(speed,
    el("section", {}, el("h2", {}, "Outboxes"), outboxes),
    el("section", {}, el("h2", {}, "Notifications"), notifications),
    el("section", {}, el("h2", {}, "Messages"), messages),
    el("h2", {}, "Dead letters"), letters,
    ...(may("GET", ACTIONS) ? [actions()] : []));
  get(KINDS).then((answer) => answer && replace(letters, answer.body.kinds.map(deadLetters)));
  return live.watch(() => drawFlow(outboxes, notifications, messages, speed));
}

export const events = { name: "events", title: "Events", offered: () => may("GET", `${KINDS}/{kind}`), render };
