// Opens a browser, lets a script use it, and prints what the script returns as JSON:
//
//   node run.js CHROMIUM DEADLINE_MS SCRIPT ARGUMENTS
//
// A script exports an async function that gets the browser context and its arguments (JSON). What a page throws and nobody
// catches fails the run.
const path = require("path");
const { chromium } = require("playwright-core");

async function main(executablePath, deadline, script, args) {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  const context = await browser.newContext();
  const failed = new Promise((_, reject) => {
    context.on("weberror", (error) => reject(new Error(`the page failed: ${error.error()}`)));
  });
  context.setDefaultTimeout(Number(deadline));
  try {
    const result = await Promise.race([require(path.resolve(script))(context, JSON.parse(args)), failed]);
    process.stdout.write(JSON.stringify(result) + "\n");
  } finally {
    await browser.close();
  }
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
