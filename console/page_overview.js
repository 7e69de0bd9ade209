// Roles, engines, and what the last two minutes were like.

import { may } from "./api.js";
import { bytes, duration, el, number, plural, rate, table } from "./dom.js";
import { live } from "./live.js";
import { plot } from "./plot.js";

const STREAM = "/operator/console/stream";

function card(title, figure, note, graph) {
  return el("section", { class: "card" }, el("h2", {}, title), figure, note, graph?.element);
}

function lanes() {
  const depth = new Map(live.samples("quipu_lane_depth").map(([labels, value]) => [labels.lane, value]));
  const parked = new Map(live.samples("quipu_parked_commands").map(([labels, value]) => [labels.lane, value]));
  const sums = new Map(live.samples("quipu_batch_size_sum").map(([labels, value]) => [labels.lane, value]));
  return live.samples("quipu_batch_size_count").map(([labels, commits]) => ({
    name: labels.lane, commits, changes: sums.get(labels.lane) || 0, depth: depth.get(labels.lane) || 0,
    parked: parked.get(labels.lane) || 0,
  }));
}

// ---- tables, which keep their order and the focus while their rows change every second

const engineTable = () => table("Engines", [
  { name: "Name", value: (row) => row.name },
  { name: "Engine", value: (row) => row.engine },
  { name: "State", value: (row) => (row.up ? "up" : "down"),
    show: (row) => el("span", { class: row.up ? "good" : "bad" }, row.up ? "up" : "down") },
  { name: "Latency", value: (row) => row.latency || 0, show: (row) => duration(row.latency), numeric: true },
], [], "This process uses no engine.");

const serviceTable = () => table("Requests per second by service", [
  { name: "Service", value: (row) => row[0] },
  ...["2xx", "4xx", "5xx"].map((name) => ({
    name: `${name}/s`, value: (row) => row[1][name] || 0, show: (row) => rate(row[1][name] || 0), numeric: true,
  })),
  { name: "Answers", value: (row) => row[2], show: (row) => number(row[2]), numeric: true },
], [], "No requests yet.");

const laneTable = () => table("Lanes", [
  { name: "Lane", value: (row) => row.name },
  { name: "Commits", value: (row) => row.commits, show: (row) => number(row.commits), numeric: true },
  { name: "Changes", value: (row) => row.changes, show: (row) => number(row.changes), numeric: true },
  { name: "Changes per commit", value: (row) => row.changes / row.commits,
    show: (row) => rate(row.changes / row.commits), numeric: true },
  { name: "Waiting", value: (row) => row.depth, show: (row) => number(row.depth), numeric: true },
  { name: "Parked", value: (row) => row.parked, show: (row) => number(row.parked), numeric: true },
], [], "Nothing was changed yet.");

function render(main) {
  const figures = {};
  for (const name of ["requests", "combining", "commit", "connections", "memory", "outbox"]) {
    figures[name] = { figure: el("p", { class: "figure" }, "–"), note: el("p", { class: "quiet" }) };
  }
  const plots = {
    requests: plot("Requests per second, and those answered with 5xx, over two minutes", ["requests/s", "5xx/s"],
      { format: rate }),
    combining: plot("Requests per commit over two minutes", ["requests per commit"], { format: rate }),
    commit: plot("Duration of commits over two minutes", ["99 % below", "half below"], { format: duration }),
    connections: plot("Connections over two minutes", ["connections"], { format: number }),
    memory: plot("Resident memory over two minutes", ["memory"], { format: bytes }),
    outbox: plot("Events waiting in outboxes over two minutes", ["waiting"], { format: rate }),
  };
  const titles = {
    requests: "Requests", combining: "Combining", commit: "Commits", connections: "Connections", memory: "Memory",
    outbox: "Outboxes",
  };
  const engines = engineTable();
  const services = serviceTable();
  const laneList = laneTable();
  const roles = el("p", { class: "quiet" });
  main.append(roles,
    el("div", { class: "cards" }, Object.keys(figures).map((name) =>
      card(titles[name], figures[name].figure, figures[name].note, plots[name]))),
    el("div", { class: "columns" },
      el("section", {}, el("h2", {}, "Engines"), engines),
      el("section", {}, el("h2", {}, "Services"), services)),
    el("section", {}, el("h2", {}, "Lanes"), laneList));

  const set = (name, figure, note) => {
    figures[name].figure.textContent = figure;
    figures[name].note.textContent = note;
  };

  const draw = () => {
    const { now, latest: last, history } = live;
    roles.textContent = `Roles: ${now.roles.replaceAll(",", ", ")}`;
    engines.refill(live.dependencies());
    laneList.refill(lanes());
    if (!last) return;
    services.refill(Object.entries(last.rates).map(([role, classes]) => [role, classes,
      Object.values(now.requests[role]).reduce((sum, value) => sum + value, 0)]));
    set("requests", `${rate(last.requests)}/s`,
      last.request99 === null ? "none in the last second" : `99 % answered within ${duration(last.request99)}`);
    set("combining", last.commits ? `${rate(last.combined / last.commits)} per commit` : "–",
      `${plural(Math.round(last.combined), "request")} in ${plural(last.commits, "commit")}`);
    set("commit", duration(last.commit99 ?? NaN), last.commit99 === null ? "none in the last second"
      : `99 % within this time, half within ${duration(last.commit50)}`);
    set("connections", number(last.connections), plural(last.streams, "event stream"));
    set("memory", bytes(last.memory), `${plural(last.depth, "change")} waiting, ${number(last.parked)} parked`);
    set("outbox", number(last.pending), `${rate(last.published)} published/s`);
    plots.requests.update(history.map((point) => [point.at, point.requests, point.refused]));
    plots.combining.update(history.map((point) => [point.at, point.commits ? point.combined / point.commits : null]));
    plots.commit.update(history.map((point) => [point.at, point.commit99, point.commit50]));
    plots.connections.update(history.map((point) => [point.at, point.connections]));
    plots.memory.update(history.map((point) => [point.at, point.memory]));
    plots.outbox.update(history.map((point) => [point.at, point.pending]));
  };
  const stop = live.watch(draw);
  return () => {
    stop();
    Object.values(plots).forEach((one) => one.end());
  };
}

export const overview = { name: "overview", title: "Overview", offered: () => may("GET", STREAM), render };
