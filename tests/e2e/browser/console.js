// What an operator does in the console. The argument `story` names one of the functions below; each returns what the test
// looks at. Errors on the browser's own console, and requests to any other server, fail the story.

const axe = require.resolve("axe-core/axe.min.js");
const PAGES = ["Overview", "Counts", "Limits", "Entitlements", "Events", "Pots", "Dialogs", "Verify"];

const open = async (page, name) => {
  await page.getByRole("navigation").getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { level: 1, name }).waitFor();
};

const connected = (page) => page.getByText("live", { exact: true }).waitFor();

/** Presses a button that asks first, looks at the curl line, and says yes. Returns the line. */
async function confirm(page, scope, label, verb, fill = async () => {}) {
  await scope.getByRole("button", { name: label, exact: true }).click();
  const dialog = page.getByRole("dialog");
  await fill(dialog);
  const line = await dialog.getByLabel("The same request with curl").innerText();
  await dialog.getByRole("button", { name: verb, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  return line;
}

/** Waits until the page has taken so many more snapshots. */
const snapshots = (page, count) => page.evaluate(async (wanted) => {
  const { live } = await import("/console/live.js");
  await new Promise((resolve) => {
    let seen = -1; // the first call tells of the snapshot that is already there
    const stop = live.watch(() => ++seen === wanted && (stop(), resolve()));
  });
}, count);

const texts = (rows) => rows.evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));

const message = (page, text) => page.locator(".message", { hasText: text }).waitFor();

// ---- stories

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
        await page.evaluate(require("fs").readFileSync(axe, "utf8"));
        const { violations } = await page.evaluate(() => window.axe.run());
        for (const { id, nodes } of violations) found.push(`${name}, ${scheme}: ${id}: ${nodes[0].html}`);
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
    return { alarm, down, up, redrawn };
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

  async verify(page, { service }) {
    await open(page, "Verify");
    const card = page.locator("section.card", { hasText: `Check ${service}` });
    await card.getByRole("button", { name: `Check ${service}` }).click();
    await card.locator(".good, .bad").waitFor();
    return card.getByRole("status").innerText();
  },

  /** The page asks for a key by itself, and offers what the key opens. */
  async key(page, { key }) {
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("API key").fill("qk_nobody_0000");
    await dialog.getByRole("button", { name: "Use key" }).click();
    await dialog.getByText("The server does not know this key.").waitFor();
    await dialog.getByLabel("API key").fill(key);
    await dialog.getByRole("button", { name: "Use key" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("button", { name: /^Key: / }).waitFor();
    const links = page.getByRole("navigation").getByRole("link");
    const offered = await links.allInnerTexts();
    const stored = await page.evaluate(() => [
      { ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML,
    ]);
    return { offered, stored: JSON.stringify(stored) };
  },

  /** Returns what the markup that somebody has planted in names and messages has done. */
  async planted(page, { holder, user, other }) {
    await open(page, "Counts");
    await page.getByRole("region", { name: "Counts" }).getByRole("button").first().waitFor();
    await page.getByRole("region", { name: "Counts" }).locator("td button").first().click();
    await open(page, "Entitlements");
    await page.getByLabel("User").fill(holder);
    await page.getByRole("button", { name: "Show" }).click();
    await page.getByRole("region").locator("td button").first().click();
    await page.locator(".timeline li").first().waitFor();
    await open(page, "Limits");
    await page.getByRole("region", { name: "Limits" }).locator("td").first().waitFor();
    await open(page, "Dialogs");
    await page.getByLabel("One", { exact: true }).fill(user);
    await page.getByLabel("Other", { exact: true }).fill(other);
    await page.getByRole("button", { name: "Use these names" }).click();
    await page.locator(".talk li").first().waitFor();
    return page.evaluate(() => ({ ran: window.planted === true, images: document.images.length }));
  },

  async screenshots(page, { folder }) {
    await connected(page);
    for (const name of ["Overview", "Counts", "Events", "Dialogs"]) {
      await open(page, name);
      if (name === "Overview") await page.waitForTimeout(20000);
      if (name === "Counts") {
        await page.getByRole("region", { name: "Counts" }).locator("td button").first().click();
        await page.waitForTimeout(8000);
      }
      await page.waitForTimeout(500);
      await page.screenshot({ path: `${folder}/console-${name.toLowerCase()}.png` });
    }
    return true;
  },
};

module.exports = async (context, { story, server, ...rest }) => {
  const page = await context.newPage();
  const faults = [];
  await page.setViewportSize({ width: 1280, height: 860 });
  page.on("console", (line) => {
    if (line.type() === "error" && !(rest.mayFail || []).some((text) => line.text().includes(text))) faults.push(line.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(server)) faults.push(`a request to ${request.url()}`);
  });
  await page.goto(`${server}/`);
  const result = await stories[story](page, rest);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return result;
};
