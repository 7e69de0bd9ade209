// A badge on a page of another origin: it shows the counter, and follows a message that the same page sends.
const shows = (page, text) =>
  page.waitForFunction((wanted) => document.getElementById("badge").textContent === wanted, text);

module.exports = async (context, { page: address, server, bob, alice }) => {
  const page = await context.newPage();
  await page.goto(address);
  await page.evaluate(([server, bob]) => {
    window.ended = follow(server, bob.name, bob.token, (count) => {
      document.getElementById("badge").textContent = count;
    });
  }, [server, bob]);
  await shows(page, "0");
  const sent = await page.evaluate(async ([server, bob, alice]) => {
    const answer = await fetch(`${server}/dialogs/send`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${alice.token}`,
        "Content-Type": "application/json",
        "Idempotency-Key": "from-a-page",
        "X-Request-Id": "seen-by-the-page",
      },
      body: JSON.stringify({ receiverId: bob.name, text: "Hello!" }),
    });
    return { status: answer.status, requestId: answer.headers.get("X-Request-Id"), body: await answer.json() };
  }, [server, bob, alice]);
  await shows(page, "1");
  return sent;
};
