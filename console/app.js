// The frame of the console: navigation, the key, the red line at the top, messages.

import { caller, loadAccess, onMessage, useKey } from "./api.js";
import { button, el, field, replace } from "./dom.js";
import { live } from "./live.js";
import { follow } from "./stream.js";
import { overview } from "./page_overview.js";
import { counts } from "./page_counts.js";
import { limits } from "./page_limits.js";
import { entitlements } from "./page_entitlements.js";
import { events } from "./page_events.js";
import { pots } from "./page_pots.js";
import { dialogs } from "./page_dialogs.js";
import { verify } from "./page_verify.js";

const pages = [overview, counts, limits, entitlements, events, pots, dialogs, verify];
const $ = (id) => document.getElementById(id);
const RETRY_MS = 1000;
let leave = () => {};
let stopStream = () => {};

// ---- pages

function offered() {
  return pages.filter((page) => page.offered());
}

/** What a caller sees who may open none of the pages. */
const nothing = {
  name: "", title: "Nothing to show",
  render(main) {
    main.append(el("p", {}, caller().checked && !caller().caller
      ? "This server asks for an API key. A page is shown if the key may use its routes."
      : "The key may use none of the routes that the pages need."),
    el("p", { class: "quiet" }, "The live figures need a key with the scope internal. Events and Verify need the scope " +
      "admin. The page of a service needs a scope of its role, such as internal:counts."));
  },
};

/** The page that the address names, or the first one that the caller may open. */
function current() {
  const name = location.hash.replace(/^#\//, "").split("?")[0];
  return offered().find((page) => page.name === name) || offered()[0] || nothing;
}

function drawMissing() {
  const missing = pages.filter((page) => !page.offered()).map((page) => page.title);
  $("missing").textContent = missing.length === 0 || offered().length === 0 ? ""
    : `Not shown: ${missing.join(", ")}. ` +
      (caller().checked ? "The key may not use their routes, or this process does not run their role."
        : "This process does not run their role.");
}

function show() {
  const page = current();
  leave();
  document.querySelector(".message")?.remove();
  document.title = `${page.title} – Quipu`;
  replace($("pages"), offered().map((other) => el("li", {}, el("a", {
    href: `#/${other.name}`, "aria-current": other === page ? "page" : null,
  }, other.title))));
  drawMissing();
  $("pages").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  replace($("main"), el("h1", {}, page.title));
  leave = page.render($("main")) || (() => {});
}

// ---- what is wrong

// What users notice and what to do, as in deploy/prometheus/alerts.yml and docs/OPERATIONS.md; the first that fits the name.
const advice = [
  ["store", "Requests that need this store get 503 STORE_UNAVAILABLE and change nothing. Bring the database back, or free " +
    "space on its disk; Quipu reconnects by itself."],
  ["gateway-bus", "Without its bus, the gateway refuses sends with 503. Bring the bus back; Quipu reconnects by itself."],
  ["unread-bus", "Users see outdated numbers of unread messages; the messages themselves are sent and read. Bring the bus " +
    "back; the events that wait are then published by themselves."],
  ["bus", "Events wait in the outboxes, so notifications are late. Bring the bus back; the events are then published by " +
    "themselves."],
  ["cache", "Without its cache, Quipu serves everything from the store: slower, and just as exact. Bring the cache back; " +
    "Quipu reconnects by itself."],
];
const down = "The process serves nothing, or the network to it is broken. Check its log, and systemctl status quipu or " +
  "docker compose ps. This page reconnects by itself.";

function complaints() {
  if ($("connection").className === "lost") return [["The server does not answer.", down]];
  return live.dependencies().filter((dependency) => !dependency.up).map(({ name, engine }) => [
    `${name} (${engine}) cannot be used.`,
    advice.find(([part]) => name.includes(part))?.[1] || "See the log for the reason.",
  ]);
}

/** A screen reader reads the alarm again whenever it is drawn, so it is drawn only when it says something else. */
function drawAlarm() {
  const lines = complaints().map(([what, why]) => el("p", {}, el("strong", {}, `${what} `), why));
  if (lines.map((line) => line.textContent).join("") !== $("alarm").textContent) replace($("alarm"), lines);
}

function drawConnection(state) {
  const texts = {
    live: "live", lost: "connection lost, trying again", refused: "an API key is needed", still: "no live figures",
  };
  $("connection").className = state;
  $("connection").textContent = texts[state];
  $("connection").title = state === "still" ? "Live figures need a key with the scope internal for all roles." : "";
  drawAlarm();
}

function followSnapshots() {
  stopStream();
  if (!overview.offered()) {
    drawConnection(caller().caller ? "still" : "refused");
    return;
  }
  stopStream = follow("/operator/console/stream", {
    onEvent: (snapshot) => {
      $("version").textContent = snapshot.version;
      live.take(snapshot);
      drawAlarm();
    },
    onState: async (state) => {
      drawConnection(state);
      if (state === "refused" && await loadAccess() && !overview.offered()) begin(); // the key was changed or dropped
    },
  });
}

// ---- the key

function drawKeyButton() {
  const { checked, caller: name } = caller();
  $("key-button").hidden = !checked;
  $("key-button").textContent = name ? `Key: ${name}` : "API key";
}

function askForKey() {
  if (document.querySelector("dialog[open]")) return;
  const key = field("API key", { type: "password", autocomplete: "off", placeholder: "qk_…", required: true });
  const problem = el("p", { class: "problem", role: "alert" });
  const use = async (event) => {
    event.preventDefault();
    const answered = await useKey(key.input.value);
    if (!answered || !caller().caller) {
      problem.textContent = answered ? "The server does not know this key." : "The server does not answer.";
      return;
    }
    dialog.close();
    dialog.remove();
    begin();
  };
  const dialog = el("dialog", { "aria-labelledby": "key-title", onclose: () => dialog.remove() },
    el("form", { onsubmit: use },
      el("h2", { id: "key-title" }, "API key"),
      el("p", {}, "The console keeps the key in memory and forgets it when you close the page. It offers only what the " +
        "key may do."),
      key, problem,
      el("div", { class: "row end" }, button("Cancel", () => dialog.close()),
        el("button", { type: "submit", class: "primary" }, "Use key"))));
  document.body.append(dialog);
  dialog.showModal();
}

// ---- messages

function drawMessage({ ok, text }) {
  const message = el("p", { class: ok ? "message" : "message problem", role: "status" }, text,
    button("×", () => message.remove(), { "aria-label": "Close this message", class: "plain" }));
  document.querySelector(".message")?.remove();
  document.body.append(message);
  if (ok) setTimeout(() => message.remove(), 6000);
}

// ---- start

function begin() {
  drawKeyButton();
  followSnapshots();
  show();
  if (caller().checked && !caller().caller) askForKey();
}

/** Asks what the caller may do, again and again while the server does not answer, and begins with that. */
async function start() {
  if (await loadAccess()) {
    begin();
    return;
  }
  drawConnection("lost");
  setTimeout(start, RETRY_MS);
}

onMessage(drawMessage);
$("key-button").addEventListener("click", askForKey);
window.addEventListener("hashchange", () => {
  show();
  window.scrollTo(0, 0);
  $("main").focus({ preventScroll: true });
});
start();
