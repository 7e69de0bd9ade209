// Who uses the console and how: by keyboard, in other zones, with small keys, with names that are markup; and its buttons.

const { PAGES, confirm, connected, message, open, snapshots, tell, texts, violations } = require("./console_steps.js");

const focused = (page) => page.evaluate(() => {
  const { activeElement: at } = document;
  return at.labels?.[0]?.firstChild.textContent || at.getAttribute("aria-label") || at.textContent;
});

/** Presses Tab until something with this name has the focus. */
async function tabTo(page, name) {
  const passed = [];
  for (let i = 0; i < 80; i++) {
    await page.keyboard.press("Tab");
    passed.push(await focused(page));
    if (passed.at(-1) === name) return;
  }
  throw new Error(`Tab does not lead to ${name}, but to ${passed.join(", ")}`);
}

const region = (page, name) => page.getByRole("region", { name, exact: true });

/** Whether the page has run markup that somebody planted, or made elements of it. The only image is the one in the header. */
const harm = (page) => page.evaluate(() => window.planted === true || document.images.length > 1 ||
  document.querySelector("main script, main iframe, dialog img") !== null);

async function showUser(page, user) {
  await open(page, "Entitlements");
  await page.getByLabel("User").fill(user);
  await page.getByRole("button", { name: "Show" }).click();
  await region(page, `Entitlements of ${user}`).locator("td button").first().click();
  await page.locator(".timeline li").first().waitFor();
}

async function useNames(page, one, other) {
  await open(page, "Dialogs");
  await page.getByLabel("One", { exact: true }).fill(one);
  await page.getByLabel("Other", { exact: true }).fill(other);
  await page.getByRole("button", { name: "Use these names" }).click();
}

async function useKey(page, key) {
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("API key").fill(key);
  await dialog.getByRole("button", { name: "Use key" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: /^Key: / }).waitFor();
}

const stories = {
  /** The rows on the screen follow what others do. Returns which counts the page asks for, and what it asks while hidden. */
  async rows(page, { changed, deleted }) {
    await open(page, "Counts");
    const row = (id) => region(page, "Counts").getByRole("row", { name: id });
    await row(changed).getByRole("cell", { name: "0", exact: true }).waitFor();
    const asked = [];
    page.on("request", (request) => {
      if (request.url().includes("itemIds=")) asked.push(new URL(request.url()).searchParams.getAll("itemIds"));
    });
    await page.request.post(new URL(`/api/v1/counts/${changed}/increase`, page.url()).href, { data: { amount: 41 } });
    await row(changed).getByRole("cell", { name: "41", exact: true }).waitFor();
    await page.request.delete(new URL(`/api/v1/internal/counts/${deleted}`, page.url()).href);
    await row(deleted).getByText("deleted").waitFor();
    const seen = { asked: asked[0], loaded: await region(page, "Counts").locator("tbody tr").count() };
    await page.evaluate(() => Object.defineProperty(document, "hidden", { get: () => true }));
    await snapshots(page, 2); // a look that was under way has ended
    asked.length = 0;
    await snapshots(page, 3);
    return { ...seen, hidden: asked.length };
  },

  /** Creates and changes a count without a mouse. Returns where the focus is on the way. */
  async keyboard(page, { item }) {
    const seen = {};
    await connected(page);
    await page.keyboard.press("Tab");
    seen.first = await focused(page);
    await tabTo(page, "Counts");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Counts" }).waitFor();
    seen.opened = await page.evaluate(() => document.activeElement.id);
    await tabTo(page, "New count");
    await page.keyboard.type(item);
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await tabTo(page, "Create");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    seen.after = await focused(page);
    await page.getByRole("button", { name: item, exact: true }).waitFor();
    await tabTo(page, item);
    await page.keyboard.press("Space");
    await page.locator("section.card.wide").waitFor();
    await tabTo(page, "Close this message");
    await page.keyboard.press("Enter");
    seen.messages = await page.locator(".message").count();
    return seen;
  },

  /** What a time looks like to a reader in another zone. */
  async zone(page, { timezoneId }) {
    const abroad = await page.context().browser().newContext({ timezoneId, locale: "en-GB" });
    const other = await abroad.newPage();
    await other.goto(page.url());
    await open(other, "Counts");
    const time = other.locator("td time").first();
    await time.waitFor();
    const seen = {
      utc: await time.getAttribute("datetime"), hover: await time.getAttribute("title"), shown: await time.innerText(),
    };
    await abroad.close();
    return seen;
  },

  /** Goes wherever names and messages of users are shown. Returns the places where markup was more than text. */
  async planted(page, { markup, holder, user, other, letter }) {
    const found = [];
    const look = async (where, locator) => {
      await locator.first().waitFor();
      if (await harm(page)) found.push(where);
    };
    const shown = (scope) => scope.getByText(markup);
    await connected(page);
    await open(page, "Counts");
    await look("counts", shown(region(page, "Counts")));
    await region(page, "Counts").locator("td button").first().click();
    await look("a count", shown(page.locator("section.card")));
    await page.locator("section.card").getByRole("button", { name: "Increase" }).click();
    await look("a question", shown(page.getByRole("dialog")));
    await page.getByRole("dialog").getByRole("button", { name: "Increase" }).click();
    await look("a message", shown(page.locator(".message")));
    await open(page, "Limits");
    await look("limits", shown(region(page, "Limits")));
    await page.getByLabel("Would a send be allowed for").fill(markup);
    await page.getByRole("button", { name: "Ask" }).click();
    await look("the answer of a limit", page.getByRole("status").locator(".bad"));
    await showUser(page, holder);
    await look("sources", shown(page.getByRole("region", { name: /^Sources of/ })));
    await look("the audit", shown(page.locator(".timeline")));
    await open(page, "Events");
    await look("dead letters", shown(page.getByRole("region", { name: "Dead letters: poison" })));
    await page.getByRole("button", { name: letter, exact: true }).click();
    await look("the payload", page.getByLabel("Payload").getByText("window.planted"));
    await look("the event", shown(page.locator("dd")));
    await confirm(page, page.getByRole("row", { name: letter }), "Discard", "Discard",
      (dialog) => dialog.getByLabel("Why").fill(markup));
    await look("what was done", shown(region(page, "What was done")));
    await open(page, "Pots");
    await look("pots", shown(region(page, "Pots")));
    await region(page, "Pots").locator("td button").first().click();
    await look("a pot", shown(page.locator("section.card")));
    await useNames(page, user, other);
    await look("dialogs", shown(page.locator(".talk li")));
    await open(page, "Verify");
    await page.getByRole("button", { name: "Check counts" }).click();
    await look("differences", shown(region(page, "Differences of counts")));
    return found;
  },

  /** The page asks for a key by itself. Returns what it says without one, and what it offers with one. */
  async key(page, { key }) {
    const seen = {};
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    seen.violations = await violations(page, "the question for a key");
    await dialog.getByRole("button", { name: "Cancel" }).click();
    seen.without = await page.locator("main").innerText();
    await page.getByRole("button", { name: "API key" }).click();
    await dialog.getByLabel("API key").fill("qk_nobody_0000");
    await dialog.getByRole("button", { name: "Use key" }).click();
    await dialog.getByText("The server does not know this key.").waitFor();
    await useKey(page, key);
    seen.title = await page.getByRole("heading", { level: 1 }).innerText();
    seen.offered = await page.getByRole("navigation").getByRole("link").allInnerTexts();
    seen.missing = await page.locator("#missing").innerText();
    seen.connection = await page.locator("#connection").innerText();
    seen.violations.push(...await violations(page, "a small key"));
    seen.stored = JSON.stringify(await page.evaluate(() => [
      { ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML,
    ]));
    return seen;
  },

  /** An operator with a key discards a letter. Returns the curl line, and what the page says about it. */
  async operator(page, { key, letter, why }) {
    await useKey(page, key);
    await connected(page);
    await open(page, "Events");
    const line = await confirm(page, page.getByRole("row", { name: letter }), "Discard", "Discard",
      (dialog) => dialog.getByLabel("Why").fill(why));
    const done = region(page, "What was done").locator("tbody tr", { hasText: letter });
    await done.waitFor();
    return { line, done: (await texts(done))[0], at: await done.locator("time").getAttribute("datetime") };
  },

  /** The connection breaks after the server has got a change. Returns what the question says, and the keys that were sent. */
  async again(page, { item }) {
    const keys = [];
    await open(page, "Counts");
    await page.getByRole("button", { name: item, exact: true }).click();
    const card = page.locator("section.card.wide");
    await page.route("**/increase", async (route) => {
      keys.push(await route.request().headerValue("Idempotency-Key"));
      if (keys.length > 1) return route.continue();
      await route.fetch();
      return route.abort();
    });
    await card.getByRole("button", { name: "Increase" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Increase" }).click();
    await dialog.getByText("the server cannot be reached").waitFor();
    const line = await dialog.getByLabel("The same request with curl").innerText();
    await dialog.getByRole("button", { name: "Increase" }).click();
    await message(page, "is 1 now");
    await card.locator(".figure", { hasText: /^1$/ }).waitFor();
    return { keys, line };
  },

  /** Asks about a limit, and changes it from its row. */
  async limit(page, { user, nobody }) {
    const seen = {};
    await open(page, "Limits");
    const answer = page.locator("main").getByRole("status");
    const askFor = async (name, text) => {
      await page.getByLabel("Would a send be allowed for").fill(name);
      await page.getByRole("button", { name: "Ask" }).click();
      await answer.filter({ hasText: text }).waitFor();
      return answer.innerText();
    };
    seen.before = await askFor(user, "left until");
    const row = region(page, "Limits").getByRole("row", { name: user });
    await row.getByRole("button", { name: "Change" }).click();
    seen.filled = [await page.getByLabel("User", { exact: true }).inputValue(), await page.getByLabel("Messages").inputValue()];
    await page.getByLabel("Messages").fill("9");
    await confirm(page, page, "Set limit", "Set");
    await row.getByText("0 of 9").waitFor();
    seen.after = await askFor(user, "9 left");
    seen.nobody = await askFor(nobody, nobody);
    return seen;
  },

  /** Pages of pots, forward and back. */
  async potPages(page) {
    await open(page, "Pots");
    const rows = region(page, "Pots").locator("tbody tr");
    const names = async () => (await texts(rows)).map(([name]) => name);
    await page.getByRole("button", { name: "Next" }).waitFor();
    const first = await names();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByRole("button", { name: "Previous" }).waitFor();
    const second = await names();
    await page.getByRole("button", { name: "Previous" }).click();
    await page.getByRole("button", { name: "Next" }).waitFor();
    return { first, second, third: await names() };
  },

  /** Finds a counter that differs, and repairs it. */
  async repair(page, { user }) {
    await open(page, "Verify");
    const card = page.locator("section.card", { hasText: "Check unread" });
    await card.getByRole("button", { name: "Check unread" }).click();
    await card.getByRole("row", { name: user }).waitFor();
    const found = await violations(page, "differences");
    const line = await confirm(page, card.getByRole("row", { name: user }), "Repair", "Repair");
    await card.getByText("0 differences").waitFor();
    return { found, line };
  },

  /**
   * Opens whatever can be opened on each page, and waits for the known buttons. Returns all its buttons, what axe-core
   * finds, and tables that do not fit.
   */
  async buttons(page, { user, letter, known }) {
    const seen = {};
    const found = [];
    const opened = {
      Counts: () => page.locator("td button.link").first().click(),
      Entitlements: () => showUser(page, user),
      Events: () => page.getByRole("button", { name: letter, exact: true }).click(),
      Pots: () => page.locator("td button.link").first().click(),
      Dialogs: () => page.getByText("With curl").first().click(),
      Verify: () => page.getByRole("button", { name: "Check counts" }).waitFor(),
    };
    await connected(page);
    for (const name of PAGES) {
      await open(page, name);
      await opened[name]?.();
      for (const button of known[name])
        await page.locator("main").getByRole("button", { name: button, exact: true }).first().waitFor();
      const names = await page.locator("main").locator("button:not(.sort):not(.link):visible").allInnerTexts();
      seen[name] = [...new Set(names)].sort();
      found.push(...await violations(page, name));
      const wide = await page.locator(".scroll").evaluateAll((all) => all
        .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.getAttribute("aria-label")));
      found.push(...wide.map((table) => `${name}: the table ${table} does not fit`));
      const danger = page.locator("main").locator("button.danger:visible");
      if (await danger.count() > 0) {
        await danger.first().click();
        found.push(...await violations(page, `${name}, a question`));
        await page.keyboard.press("Escape");
      }
    }
    return { seen, found };
  },
};

module.exports = tell(stories);
