// Takes pictures of the console, for scripts/screenshots.py.

const { connected, open, snapshots, tell } = require("./console_steps.js");

const SIZES = { wide: { width: 1280, height: 860 }, phone: { width: 390, height: 844 } };

/** Opens what makes a page worth a picture. */
const prepare = {
  async Counts(page) {
    await page.getByRole("button", { name: "views:home" }).click();
    await snapshots(page, 32); // the plot is full
  },
  async Limits(page) {
    await page.getByLabel("Would a send be allowed for").fill("1002");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText("left until").waitFor();
  },
  async Entitlements(page) {
    await page.getByLabel("User").fill("u_123");
    await page.getByRole("button", { name: "Show" }).click();
    await page.locator("td button.link").first().click();
    await page.getByRole("region", { name: /^Sources of/ }).waitFor();
  },
  async Events(page) {
    await page.getByRole("button", { name: "Discard" }).first().waitFor();
  },
  async Pots(page) {
    await page.locator("td button.link").first().click();
  },
  async Dialogs(page) {
    await page.locator(".talk li").first().waitFor();
    await page.locator(".badge.some").first().waitFor();
  },
  async Verify(page) {
    for (const check of await page.getByRole("button", { name: /^Check / }).all()) await check.click();
    await page.locator(".good").nth(3).waitFor();
  },
};

/** Each of `pictures` is {file, title, scheme, size}. */
async function take(page, { pictures }) {
  await connected(page);
  await snapshots(page, 118); // the plots are full
  for (const { file, title, scheme, size } of pictures) {
    await page.setViewportSize(SIZES[size]);
    await page.emulateMedia({ colorScheme: scheme });
    await open(page, title);
    await prepare[title]?.(page);
    await snapshots(page, 2);
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.screenshot({ path: file });
  }
  return true;
}

module.exports = tell({ take });
