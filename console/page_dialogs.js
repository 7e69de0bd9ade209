// Two people and their badges: what one writes moves the badge of the other, over the real event stream.

import { ask, curl, may } from "./api.js";
import { button, el, field, number, replace } from "./dom.js";
import { follow } from "./stream.js";

const SEND = "/dialogs/send";
const READ = "/dialogs/read-batch";
const AT_ONCE = 1000;

/** A request in the name of a user. It keeps its Idempotency-Key until it has succeeded, so it can be sent again. */
function request(me, path, body) {
  let key = crypto.randomUUID();
  const options = () => ({ headers: { "X-User-Id": me, "Idempotency-Key": key }, body: body() });
  return {
    line: () => curl("POST", path, options()),
    async send() {
      await ask("POST", path, options());
      key = crypto.randomUUID();
    },
  };
}

function pane(me, other) {
  const badge = el("span", { class: "badge", role: "status", "aria-label": "unread messages" }, "0");
  const list = el("ol", { class: "talk" });
  const text = field(`Message to ${other}`, { required: true });
  const problem = el("p", { class: "problem", role: "alert" });
  const as = { headers: { "X-User-Id": me } };
  let unread = [];
  const sending = request(me, SEND, () => ({ receiverId: other, text: text.input.value }));
  const reading = request(me, READ, () => ({ messageIds: unread.slice(0, AT_ONCE) }));
  const lines = el("pre", { tabIndex: 0, "aria-label": `The requests of ${me} with curl` });

  function drawLines() {
    lines.textContent = [sending.line(), ...(unread.length > 0 ? [reading.line()] : [])].join("\n\n");
  }

  async function attempt(work) {
    problem.textContent = "";
    try {
      await work();
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  const load = () => attempt(async () => {
    const { body } = await ask("GET", `/dialogs/list?receiverId=${encodeURIComponent(other)}&limit=50`, as);
    unread = body.filter((message) => message.receiverId === me && !message.isRead).map(({ id }) => id);
    replace(list, body.map((message) => el("li", { class: message.senderId === me ? "mine" : "" },
      el("span", {}, message.text), el("small", { class: "quiet" }, message.isRead ? "read" : "unread"))));
    list.scrollTop = list.scrollHeight;
    drawLines();
  });

  const send = (event) => {
    event.preventDefault();
    return attempt(async () => {
      await sending.send();
      text.input.value = "";
      await load();
    });
  };

  const read = () => attempt(async () => {
    await load();
    if (unread.length > 0) await reading.send();
    await load();
  });

  const stop = follow(`/counters/user/${encodeURIComponent(me)}/stream`, {
    onEvent: (counter) => {
      badge.textContent = number(counter.count);
      badge.classList.toggle("some", counter.count > 0);
      load();
    },
  });
  text.input.addEventListener("input", drawLines);
  drawLines();
  load();
  return {
    element: el("section", { class: "card" }, el("h2", {}, me, " ", badge), list,
      el("form", { class: "row", onsubmit: send }, text, el("button", { type: "submit", class: "primary" }, "Send"),
        button("Mark all read", read)), problem,
      el("details", {}, el("summary", {}, "With curl"), lines)),
    stop,
  };
}

function render(main) {
  const first = field("One", { value: "ana" });
  const second = field("Other", { value: "ben" });
  const place = el("div", { class: "columns" });
  let panes = [];
  const stop = () => panes.forEach((one) => one.stop());
  const start = () => {
    stop();
    panes = [pane(first.input.value, second.input.value), pane(second.input.value, first.input.value)];
    replace(place, panes.map((one) => one.element));
  };
  main.append(
    el("p", { class: "quiet" }, "This page really sends messages in the name of these two users. Each badge follows the event " +
      "stream of the user's counter."),
    el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); start(); } }, first, second,
      el("button", { type: "submit" }, "Use these names")),
    place);
  start();
  return stop;
}

export const dialogs = {
  name: "dialogs", title: "Dialogs", render,
  offered: () => may("POST", SEND) && may("GET", "/counters/user/{userId}/stream"),
};
