// What an operator does in the console. The argument `story` names one of the functions below; each returns what the test
// looks at.

const { PAGES, confirm, connected, message, open, snapshots, tell, texts, violations } = require("./console_steps.js");

const stories = {
  /** Every page opens, in the light and in the dark, and axe-core finds nothing to improve. */
  async pages(page) {
    const found = [];
    await connected(page);
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const name of PAGES) {
        await open(page, name);
        if (name === "Overview") await page.locator(".plot canvas").first().waitFor();
        found.push(...await violations(page, `${name}, ${scheme}`));
      }
    }
    return found;
  },

  /** Every page on a phone. Returns what is wider than the screen, rows as tall as a column, and hidden links. */
  async phone(page, { user }) {
    const found = [];
    await page.setViewportSize({ width: 390, height: 844 });
    await connected(page);
    for (const name of PAGES) {
      await open(page, name);
      if (name === "Entitlements") {
        await page.getByLabel("User").fill(user);
        await page.getByRole("button", { name: "Show" }).click();
        await page.locator("td button.link").first().click();
        await page.getByRole("region", { name: /^Sources of/ }).waitFor();
      }
      if (name === "Events") await page.getByRole("button", { name: "Discard" }).waitFor();
      if (["Counts", "Limits", "Pots", "Entitlements"].includes(name)) await page.locator("tbody tr").first().waitFor();
      found.push(...await page.evaluate((title) => {
        const link = document.querySelector("[aria-current]").getBoundingClientRect();
        const wide = document.documentElement.scrollWidth - window.innerWidth;
        const tall = Math.max(0, ...[...document.querySelectorAll("tbody tr")].map((row) => row.offsetHeight));
        return [
          wide > 0 && `${title} is ${wide} px too wide`,
          tall > 130 && `${title} has a row of ${tall} px`,
          (link.left < 0 || link.right > window.innerWidth) && `${title} is out of sight in the navigation`,
        ].filter(Boolean);
      }, name));
    }
    return found;
  },

  async overview(page) {
    await connected(page);
    const engines = page.getByRole("region", { name: "Engines" });
    await page.getByText(/\d+ requests? in \d+ commits?/).waitFor();
    return { engines: await texts(engines.locator("tbody tr")), version: await page.locator("#version").innerText() };
  },

  /** Sorts a table by the keyboard and lets snapshots arrive. Returns the order and where the focus is then. */
  async sorting(page, { title, table, column }) {
    await connected(page);
    await open(page, title);
    await snapshots(page, 1);
    const head = page.getByRole("region", { name: table }).locator("th", { hasText: new RegExp(`^${column}$`) });
    await head.getByRole("button").focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Enter");
    const before = await texts(page.getByRole("region", { name: table }).locator("tbody tr"));
    await snapshots(page, 2);
    return {
      order: await head.getAttribute("aria-sort"),
      focus: await page.evaluate(() => document.activeElement.textContent),
      before: before.map(([first]) => first),
      after: (await texts(page.getByRole("region", { name: table }).locator("tbody tr"))).map(([first]) => first),
    };
  },

  /** What the page of events says about what was sent. */
  async deliveries(page, { wanted }) {
    await connected(page);
    await open(page, "Events");
    const rows = page.getByRole("region", { name: "Deliveries" }).locator("tbody tr");
    for (const name of wanted) await rows.filter({ hasText: name }).filter({ hasText: "nothing waits" }).waitFor();
    await rows.filter({ hasText: wanted[0] }).getByRole("cell", { name: "1", exact: true }).first().waitFor();
    return texts(rows);
  },

  /** Opens, replays and discards dead letters. Returns what the page says after each step. */
  async letter(page, { kind, opened, replayed, discarded, why }) {
    const seen = { opened: {} };
    await connected(page);
    await open(page, "Events");
    const section = page.locator("section.kind", { has: page.getByRole("heading", { name: `${kind} (` }) });
    const row = (id) => section.getByRole("row", { name: id });
    for (const id of opened) {
      await section.getByRole("button", { name: id, exact: true }).click();
      const card = section.locator(".card");
      await card.getByRole("heading", { name: `${kind}/${id}` }).waitFor();
      seen.opened[id] = await card.innerText();
    }
    await row(replayed).getByRole("button", { name: "Replay", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await row(replayed).getByRole("button", { name: "Replay", exact: true }).click();
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    seen.first = await section.getByRole("heading", { level: 2 }).first().innerText();
    await confirm(page, row(replayed), "Replay", "Replay");
    await row(replayed).waitFor({ state: "detached" });
    seen.line = await confirm(page, row(discarded), "Discard", "Discard", (dialog) => dialog.getByLabel("Why").fill(why));
    await row(discarded).waitFor({ state: "detached" });
    const done = page.getByRole("region", { name: "What was done" }).locator("tbody tr");
    await done.filter({ hasText: "discard" }).first().waitFor();
    seen.done = (await texts(done)).map((cells) => cells.slice(2));
    seen.heading = await section.getByRole("heading", { level: 2 }).first().innerText();
    seen.empty = await page.getByText(/^None: /).innerText();
    seen.all = await page.getByRole("button", { name: "Replay all" }).count();
    return seen;
  },

  /** PostgreSQL is stopped and started while the page is open. Returns what it says each time. */
  async outage(page, { levers }) {
    const row = async (state) => {
      const cell = page.getByRole("region", { name: "Engines" }).getByRole("cell", { name: state, exact: true });
      await cell.first().waitFor();
      return cell.first().evaluate((one) => [...one.parentElement.cells].map((other) => other.textContent));
    };
    await connected(page);
    await row("up");
    await fetch(`${levers}/stop`, { method: "POST" });
    await page.locator("#alarm p").first().waitFor();
    const alarm = await page.locator("#alarm p").first().textContent();
    const down = await row("down");
    const found = await violations(page, "the alarm");
    await page.evaluate(() => {
      window.redrawn = 0;
      new MutationObserver((changes) => { window.redrawn += changes.length; })
        .observe(document.getElementById("alarm"), { childList: true, subtree: true, characterData: true });
    });
    const said = page.locator("#alarm");
    const before = await said.textContent();
    await snapshots(page, 3);
    const redrawn = before === await said.textContent() ? await page.evaluate(() => window.redrawn) : "it said something else";
    await fetch(`${levers}/start`, { method: "POST" });
    const up = await row("up");
    await page.locator("#alarm p").first().waitFor({ state: "detached" });
    return { alarm, down, up, redrawn, violations: found };
  },

  /** The server is stopped and started while the page is open. Returns what the red line says in between. */
  async absence(page, { levers }) {
    await connected(page);
    await fetch(`${levers}/stop`, { method: "POST" });
    await page.locator("#alarm p").waitFor();
    const alarm = await page.locator("#alarm p").textContent();
    await fetch(`${levers}/start`, { method: "POST" });
    await page.locator("#alarm p").waitFor({ state: "detached" });
    await snapshots(page, 1);
    return { alarm };
  },

  /** Pages through the dead letters of a kind and replays them all. */
  async letters(page, { kind }) {
    await open(page, "Events");
    const list = page.locator("section", { has: page.getByRole("heading", { level: 2, name: `${kind} (` }) }).last();
    const letters = list.getByRole("region", { name: `Dead letters: ${kind}` }).locator("tbody tr");
    const rows = [];
    for (const wanted of [100, 200]) {
      await letters.nth(wanted - 1).waitFor();
      rows.push(await letters.count());
      if (wanted === 100) await list.getByRole("button", { name: "Load more" }).click();
    }
    const heading = await list.getByRole("heading", { level: 2 }).innerText();
    await confirm(page, list, "Replay all", "Replay all");
    const progress = list.getByText(/^Done: /);
    await progress.waitFor();
    const end = await progress.innerText();
    const actions = page.getByRole("region", { name: "What was done" }).locator("tbody tr", { hasText: "replay" });
    await actions.first().waitFor();
    const done = await actions.first().evaluate((row) => [...row.cells].map((cell) => cell.textContent));
    return { rows, heading, progress: end, done };
  },

  async counts(page, { item, big }) {
    const lines = {};
    await open(page, "Counts");
    await page.getByLabel("New count").fill(item);
    lines.create = await confirm(page, page, "Create", "Create");
    await page.getByLabel("Search by prefix").fill(item);
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("region", { name: "Counts" }).getByRole("button", { name: item, exact: true }).click();
    const card = page.locator("section.card.wide");
    await card.getByLabel("Amount").fill("5");
    lines.increase = await confirm(page, card, "Increase", "Increase");
    await message(page, "is 5 now");
    await card.getByLabel("Amount").fill("2");
    await confirm(page, card, "Decrease", "Decrease");
    await message(page, "is 3 now");
    await card.getByLabel("Value").fill(big);
    await confirm(page, card, "Set", "Set");
    const shown = BigInt(big).toLocaleString("en-US");
    await card.getByText(shown, { exact: true }).waitFor();
    await confirm(page, card, "Reset to 0", "Reset");
    await message(page, "is 0 now");
    return lines;
  },

  async deleteCount(page, { item }) {
    await open(page, "Counts");
    await page.getByLabel("Search by prefix").fill(item);
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("region", { name: "Counts" }).getByRole("button", { name: item, exact: true }).click();
    await confirm(page, page.locator("section.card.wide"), "Delete", "Delete");
    await page.getByText("No count begins like this.").waitFor();
    return true;
  },

  async limits(page, { user }) {
    await open(page, "Limits");
    await page.getByLabel("User", { exact: true }).fill(user);
    await page.getByLabel("Messages").fill("7");
    const line = await confirm(page, page, "Set limit", "Set");
    const row = page.getByRole("row", { name: user });
    await row.waitFor();
    const shown = await row.innerText();
    const resets = await row.locator("time").getAttribute("datetime");
    await confirm(page, row, "Delete", "Delete");
    await row.waitFor({ state: "detached" });
    return { line, shown, resets };
  },

  async entitlements(page, { user }) {
    await open(page, "Entitlements");
    await page.getByLabel("User").fill(user);
    await page.getByRole("button", { name: "Show" }).click();
    await page.getByLabel("Unit").fill("item1");
    await page.getByLabel("Purchase").fill("p_1");
    await confirm(page, page, "Grant", "Grant");
    const row = page.getByRole("region", { name: `Entitlements of ${user}` }).getByRole("row", { name: "item1" });
    await row.getByText("ACTIVE").waitFor();
    await row.getByRole("button", { name: "item1" }).click();
    await page.getByRole("region", { name: "Sources of item1" }).getByText("purchase p_1").waitFor();
    await page.getByLabel("Reason").fill("refund");
    await confirm(page, page, "Revoke", "Revoke");
    await row.getByText("REVOKED").waitFor();
    return true;
  },

  async pots(page, { name }) {
    await open(page, "Pots");
    await page.getByLabel("New pot").fill(name);
    await page.getByLabel("Room for").fill("10");
    await confirm(page, page, "Create", "Create");
    await page.getByRole("button", { name, exact: true }).click();
    await page.getByLabel("Kind").selectOption("GOLD");
    await page.getByLabel("Coins", { exact: true }).fill("4");
    await confirm(page, page, "Add", "Add");
    await message(page, "added 4 gold");
    await page.getByLabel("Coins", { exact: true }).fill("1");
    await confirm(page, page, "Draw at random", "Draw");
    await message(page, "drew 1 gold");
    await page.getByRole("row", { name }).getByText("3 of 10").waitFor();
    return true;
  },

  async dialogs(page, { one, other }) {
    await open(page, "Dialogs");
    await page.getByLabel("One", { exact: true }).fill(one);
    await page.getByLabel("Other", { exact: true }).fill(other);
    await page.getByRole("button", { name: "Use these names" }).click();
    const receiver = page.locator("section.card").nth(1);
    await page.getByLabel(`Message to ${other}`).fill("Hello <b>there</b>");
    await page.locator("section.card").first().getByRole("button", { name: "Send" }).click();
    await receiver.locator(".badge.some", { hasText: "1" }).waitFor();
    await receiver.getByText("Hello <b>there</b>").waitFor();
    await receiver.getByRole("button", { name: "Mark all read" }).click();
    await receiver.locator(".badge:not(.some)", { hasText: "0" }).waitFor();
    return true;
  },

  /** Checks every service. Returns what the page says about each. */
  async verify(page) {
    const seen = {};
    await open(page, "Verify");
    await page.getByRole("button", { name: /^Check / }).first().waitFor();
    for (const card of await page.locator("section.card").all()) {
      const check = card.getByRole("button", { name: /^Check / });
      await check.click();
      await card.locator(".good, .bad").waitFor();
      seen[await check.innerText()] = await card.getByRole("status").innerText();
    }
    return seen;
  },

};

module.exports = tell(stories);
