// One button per service: checks its rows page by page, and lists what contradicts the rules.

import { ask, change, may } from "./api.js";
import { button, el, plural, replace, table } from "./dom.js";

const LIMIT = 1000;

function section(service) {
  const state = el("p", { class: "quiet", role: "status" }, "not checked yet");
  const found = el("div");
  const check = button(`Check ${service}`, run, { class: "primary" });
  const progress = el("progress", { hidden: true, "aria-label": `Checking ${service}` });

  const repair = (row) => service === "unread" && may("POST", "/operator/verify/unread/{userId}/repair") &&
    button("Repair", async () => {
      if (await change(`Repair the counter of ${row.id}`, "POST",
        `/operator/verify/unread/${encodeURIComponent(row.id)}/repair`, { verb: "Repair" })) run();
    });

  function draw(differences) {
    replace(found, differences.length > 0 && table(`Differences of ${service}`, [
      { name: "Id", value: (row) => row.id },
      { name: "What", value: (row) => row.what },
      { name: "Detail", value: (row) => row.detail },
      { name: "", show: (row) => repair(row) || "" },
    ], differences, ""));
  }

  async function run() {
    let checked = 0;
    let after = "";
    let differences = [];
    check.disabled = true;
    progress.hidden = false;
    try {
      do {
        const query = after ? `?limit=${LIMIT}&after=${encodeURIComponent(after)}` : `?limit=${LIMIT}`;
        const { body } = await ask("GET", `/operator/verify/${service}${query}`);
        checked += body.checked;
        differences = differences.concat(body.differences);
        after = body.next;
        state.textContent = `${plural(checked, "row")} checked, ${plural(differences.length, "difference")}`;
        draw(differences);
      } while (after);
      state.className = differences.length ? "bad" : "good";
    } catch (error) {
      state.className = "bad";
      state.textContent = `stopped after ${plural(checked, "row")}: ${error.message}`;
    }
    progress.hidden = true;
    check.disabled = false;
  }
  return el("section", { class: "card wide" }, el("h2", {}, service), el("div", { class: "row" }, check, progress, state),
    found);
}

function render(main) {
  const list = el("div", { class: "stack" });
  main.append(el("p", { class: "quiet" },
    "A check reads every row of a service while it serves, and reports rows that contradict its rules. It changes " +
    "nothing."), list);
  ask("GET", "/operator/verify").then(({ body }) => replace(list, body.services.map(section)),
    (error) => replace(list, el("p", { class: "problem" }, error.message)));
}

export const verify = { name: "verify", title: "Verify", offered: () => may("GET", "/operator/verify/{service}"), render };
