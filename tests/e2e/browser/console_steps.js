// The steps that the stories of console*.js share. tell(stories) is what such a script exports: it plays the story that its
// argument names and returns what the story returns. Errors on the browser's own console, and requests to any other server,
// fail the story.

const fs = require("fs");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
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

/** Waits until the page has received `count` more snapshots. */
const snapshots = (page, count) => page.evaluate(async (wanted) => {
  const { live } = await import("/console/live.js");
  await new Promise((resolve) => {
    let seen = -1; // the first call tells of the snapshot that is already there
    const stop = live.watch(() => ++seen === wanted && (stop(), resolve()));
  });
}, count);

const texts = (rows) => rows.evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));

const message = (page, text) => page.locator(".message", { hasText: text }).waitFor();

/** What axe-core finds to improve, as lines that begin with `where`. */
async function violations(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run());
  return found.violations.map(({ id, nodes }) => `${where}: ${id}: ${nodes[0].html}`);
}

const tell = (stories) => async (context, { story, server, ...rest }) => {
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

module.exports = { PAGES, confirm, connected, message, open, snapshots, tell, texts, violations };
