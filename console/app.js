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
let leave = () => {};
let stopStream = () => {};

// ---- pages

function offered() {
  return pages.filter((page) => page.offered());
}

function current() {
  const name = location.hash.replace(/^#\//, "").split("?")[0];
  return offered().find((page) => page.name === name) || offered()[0];
}

function show() {
  const page = current();
  leave();
  document.querySelector(".message")?.remove();
  document.title = `${page.title} – Quipu`;
  replace($("pages"), offered().map((other) => el("li", {}, el("a", {
    href: `#/${other.name}`, "aria-current": other === page ? "page" : null,
  }, other.title))));
  $("pages").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
  replace($("main"), el("h1", {}, page.title));
  leave = page.render($("main")) || (() => {});
}

// ---- what is wrong

const advice = {
  store: "Requests that need it get 503 STORE_UNAVAILABLE and change nothing. Quipu reconnects by itself when the " +
    "database is back.",
  bus: "The gateway refuses sends while its bus is away; events of the other services wait in their outboxes and are " +
    "published when it is back.",
  cache: "Quipu serves everything from the store meanwhile: slower, and just as exact.",
};

/** A screen reader reads the alarm again whenever it is drawn, so it is drawn only when it says something else. */
function drawAlarm() {
  const lines = live.dependencies().filter((dependency) => !dependency.up).map(({ name, engine }) => el("p", {},
    el("strong", {}, `${name} (${engine}) cannot be used. `),
    advice[Object.keys(advice).find((kind) => name.includes(kind))] || "See the log for the reason."));
  if (lines.map((line) => line.textContent).join("") !== $("alarm").textContent) replace($("alarm"), lines);
}

function drawConnection(state) {
  const texts = { live: "live", lost: "connection lost, trying again", refused: "an API key is needed" };
  $("connection").className = state;
  $("connection").textContent = texts[state];
}

function followSnapshots() {
  stopStream();
  stopStream = follow("/operator/console/stream", {
    onEvent: (snapshot) => {
      $("version").textContent = snapshot.version;
      live.take(snapshot);
      drawAlarm();
    },
    onState: (state) => {
      drawConnection(state);
      if (state === "refused" && !caller().caller) askForKey();
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
    await useKey(key.input.value);
    if (!caller().caller) {
      problem.textContent = "The server does not know this key.";
      return;
    }
    dialog.close();
    dialog.remove();
    begin();
  };
  const dialog = el("dialog", { "aria-labelledby": "key-title", onclose: () => dialog.remove() },
    el("form", { onsubmit: use },
      el("h2", { id: "key-title" }, "API key"),
      el("p", {}, "It stays in the memory of this page and is gone when the page is closed. The pages offer what the " +
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
}

onMessage(drawMessage);
$("key-button").addEventListener("click", askForKey);
window.addEventListener("hashchange", () => {
  show();
  $("main").focus({ preventScroll: true });
});
loadAccess().catch(() => {}).then(begin);
