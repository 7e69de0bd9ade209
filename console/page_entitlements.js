// One user's entitlements: units with their sources, the audit, granting and revoking.

import { ask, change, get, may, nextPage } from "./api.js";
import { button, el, field, number, pager, replace, table, time } from "./dom.js";

const LIST = "/v1/users/{user_id}/entitlements";
const AUDIT = "/v1/users/{user_id}/entitlement-audit";
const of = (template, user) => template.replace("{user_id}", encodeURIComponent(user));

function sources(user, unit) {
  const place = el("div");
  ask("GET", `${of(LIST, user)}/${encodeURIComponent(unit)}`).then(({ body }) => replace(place,
    table(`Sources of ${unit}`, [
      { name: "Source", value: (row) => `${row.kind} ${row.source_id}` },
      { name: "Reason", value: (row) => row.reason },
      { name: "Status", value: (row) => row.status },
      { name: "Granted", value: (row) => row.granted_at, show: (row) => time(row.granted_at) },
      { name: "Ended", value: (row) => row.revoked_at || "", show: (row) => time(row.revoked_at) },
    ], body.sources, "It has no sources.")),
  (error) => replace(place, el("p", { class: "problem" }, error.message)));
  return el("section", { class: "card wide" }, el("h2", {}, unit), place);
}

function forms(user, onChange) {
  const unit = field("Unit", { required: true, placeholder: "item1" });
  const reason = field("Reason", { required: true, value: "purchase" });
  const purchase = field("Purchase", { placeholder: "p_456" });
  const send = async (verb, path) => {
    const body = { user_id: user, stock_keeping_unit: unit.input.value, reason: reason.input.value };
    if (purchase.input.value) body.purchase_id = purchase.input.value;
    const answer = await change(`${verb} ${body.stock_keeping_unit} of ${user}`, "POST", path, {
      body, verb, danger: verb === "Revoke",
      done: (entitlement) => `${entitlement.stock_keeping_unit} is ${entitlement.status} at version ${entitlement.version}`,
    });
    if (answer) onChange();
  };
  return el("div", { class: "row" }, unit, reason, purchase,
    may("POST", "/v1/entitlements/grants") && button("Grant", () => send("Grant", "/v1/entitlements/grants")),
    may("POST", "/v1/entitlements/revokes") && button("Revoke", () => send("Revoke", "/v1/entitlements/revokes"),
      { class: "danger" }));
}

function timeline() {
  const list = el("ol", { class: "timeline" });
  list.refill = (rows) => replace(list, rows.length === 0 ? el("li", { class: "quiet" }, "Nothing yet.")
    : rows.map((row) => el("li", {}, time(row.occurred_at || row.created_at), " ",
      el("strong", {}, row.action || row.event_type || row.status || ""), ` ${row.stock_keeping_unit}`,
      row.reason ? ` (${row.reason}${row.purchase_id ? ` ${row.purchase_id}` : ""})` : "",
      row.version ? `, version ${number(row.version)}` : "")));
  return list;
}

function show(user, place) {
  const units = el("div");
  const detail = el("div");
  const audit = may("GET", AUDIT) && pager(async (cursor) => {
    const answer = await get(cursor || `${of(AUDIT, user)}?limit=50`);
    return answer && { rows: answer.body.audit, next: nextPage(answer) };
  }, timeline());
  const draw = async () => {
    const answer = await get(of(LIST, user));
    if (!answer) return;
    replace(units, table(`Entitlements of ${user}`, [
      { name: "Unit", value: (row) => row.stock_keeping_unit,
        show: (row) => button(row.stock_keeping_unit, () => replace(detail, sources(user, row.stock_keeping_unit)),
          { class: "link" }) },
      { name: "Status", value: (row) => row.status,
        show: (row) => el("span", { class: row.status === "ACTIVE" ? "good" : "quiet" }, row.status) },
      { name: "Version", value: (row) => row.version, show: (row) => number(row.version), numeric: true },
      { name: "Changed", value: (row) => row.updated_at, show: (row) => time(row.updated_at) },
    ], answer.body.entitlements, "This user has no entitlements."));
    if (audit) audit.start();
  };
  replace(place, el("h2", {}, user), forms(user, draw), units, detail,
    audit && el("section", {}, el("h2", {}, "Audit"), audit.element));
  draw();
}

function render(main) {
  const user = field("User", { required: true, placeholder: "u_123" });
  const place = el("div", { class: "stack" });
  main.append(el("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    show(user.input.value, place);
  } }, user, el("button", { type: "submit", class: "primary" }, "Show")), place);
  user.input.focus();
}

export const entitlements = { name: "entitlements", title: "Entitlements", offered: () => may("GET", LIST), render };
