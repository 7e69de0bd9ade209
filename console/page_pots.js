// Pots: how full each is, adding and drawing coins.

import { ask, change, may } from "./api.js";
import { bar, button, el, field, number, plural, replace, table, time } from "./dom.js";

const pot = (method) => `/twirp/pyggpot.pot.Pot/${method}`;
const coin = (method) => `/twirp/pyggpot.coin.Coin/${method}`;
const PAGE = 25;
const KINDS = ["BRONZE", "SILVER", "GOLD"];

const total = (coins) => coins.reduce((sum, { count }) => sum + count, 0);

function describe(coins) {
  return coins.length === 0 ? "no coins"
    : coins.map(({ kind, count }) => `${number(count)} ${kind.toLowerCase()}`).join(", ");
}

async function load(page) {
  const { body } = await ask("POST", pot("ListPots"), { body: { page, limit: PAGE } });
  const pots = body.pots || [];
  const coins = await Promise.all(pots.map(({ pot_id: id }) => ask("POST", coin("ListCoins"), { body: { pot_id: id } })));
  return {
    count: body.total_pot_count,
    rows: pots.map((row, i) => ({ ...row, coins: coins[i].body.coins || [] })),
  };
}

function creation(onChange) {
  if (!may("POST", pot("CreatePot"))) return null;
  const name = field("New pot", { placeholder: "holiday" });
  const most = field("Room for", { value: "100", inputMode: "numeric", class: "short" });
  return el("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    const body = { pot_name: name.input.value, max_coins: Number(most.input.value) };
    if (await change(`Create the pot ${body.pot_name}`, "POST", pot("CreatePot"), { body, verb: "Create" })) onChange();
  } }, name, most, el("button", { type: "submit" }, "Create"));
}

function render(main) {
  const list = el("div");
  const place = el("div");
  const count = el("p", { class: "quiet" });
  const pages = el("div", { class: "row" });
  let page = 1;

  function edit(row) {
    const kind = field("Kind", { options: KINDS });
    const amount = field("Coins", { value: "1", inputMode: "numeric", class: "short" });
    const send = async (title, method, body, verb, done) => {
      if (await change(title, "POST", coin(method), { body, verb, done })) draw();
    };
    const coins = () => Number(amount.input.value);
    replace(place, el("section", { class: "card wide" }, el("h2", {}, row.pot_name),
      bar(total(row.coins), row.max_coins, `${describe(row.coins)} of ${number(row.max_coins)}`),
      el("div", { class: "row" }, kind, amount,
        may("POST", coin("AddCoins")) && button("Add", () => send(`Add coins to ${row.pot_name}`, "AddCoins",
          { pot_id: row.pot_id, coins: [{ kind: kind.input.value, count: coins() }] }, "Add",
          (body) => `added ${describe(body.coins || [])}`)),
        may("POST", coin("RemoveCoins")) && button("Draw at random", () => send(`Draw coins from ${row.pot_name}`,
          "RemoveCoins", { pot_id: row.pot_id, count: coins() }, "Draw",
          (body) => `drew ${describe(body.coins || [])}`)))));
  }

  async function draw() {
    let loaded;
    try {
      loaded = await load(page);
    } catch (error) {
      replace(list, el("p", { class: "problem" }, error.message));
      return;
    }
    count.textContent = plural(loaded.count, "pot");
    replace(list, table("Pots", [
      { name: "Pot", value: (row) => row.pot_name, show: (row) => button(row.pot_name, () => edit(row), { class: "link" }) },
      { name: "Coins", value: (row) => total(row.coins) / row.max_coins,
        show: (row) => bar(total(row.coins), row.max_coins, `${number(total(row.coins))} of ${number(row.max_coins)}`) },
      { name: "What is in it", value: (row) => total(row.coins), show: (row) => describe(row.coins) },
      { name: "Created", value: (row) => row.create_time, show: (row) => time(row.create_time) },
    ], loaded.rows, "There are no pots yet."));
    replace(pages,
      page > 1 && button("Previous", () => { page--; draw(); }),
      page * PAGE < loaded.count && button("Next", () => { page++; draw(); }));
  }

  main.append(creation(draw) || "", place, count, list, pages);
  draw();
}

export const pots = { name: "pots", title: "Pots", offered: () => may("POST", pot("ListPots")), render };
