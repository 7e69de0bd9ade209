// A page whose origin is not listed: the browser hides every answer from it and sends none of its changes.
module.exports = async (context, { page: address, server, alice, bob }) => {
  const page = await context.newPage();
  await page.goto(address);
  return page.evaluate(async ([server, alice, bob]) => {
    const attempt = (path, options) => fetch(server + path, options).then((answer) => answer.status, (error) => error.name);
    const headers = { Authorization: `Bearer ${alice.token}`, "Content-Type": "application/json" };
    return [
      await attempt("/healthz", {}),
      await attempt("/dialogs/send", {
        method: "POST", headers, body: JSON.stringify({ receiverId: bob.name, text: "Hello!" }),
      }),
    ];
  }, [server, alice, bob]);
};
