// Server-sent events over fetch: EventSource cannot send an Authorization header, and a key does not belong into a URL.

import { headers } from "./api.js";

const LEAST_MS = 500;
const MOST_MS = 10000;

/**
 * Follows an event stream until stop() is called. `onEvent(data)` gets each event's data as an object, `onState(state)`
 * hears "live", "lost" or "refused" (with the status). Reconnects by itself and goes on after the last event.
 */
export function follow(path, { onEvent, onState = () => {}, extra = {} }) {
  const aborter = new AbortController();
  let last = "";
  let pause = LEAST_MS;
  let timer = null;

  function take(block) {
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id:")) last = line.slice(3).trim();
      if (line.startsWith("data:")) data += line.slice(5).trim();
    }
    if (data) onEvent(JSON.parse(data));
  }

  async function read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      pause = LEAST_MS;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      blocks.forEach(take);
    }
  }

  async function connect() {
    try {
      const answer = await fetch(path, {
        headers: headers({ ...extra, ...(last ? { "Last-Event-ID": last } : {}) }),
        signal: aborter.signal,
      });
      if (answer.status === 401 || answer.status === 403) {
        onState("refused", answer.status);
        return;
      }
      if (answer.ok) {
        onState("live");
        await read(answer.body);
      }
    } catch {
      // Lost, or stopped: both are handled below.
    }
    if (aborter.signal.aborted) return;
    onState("lost");
    timer = setTimeout(connect, pause);
    pause = Math.min(MOST_MS, pause * 2);
  }

  connect();
  return function stop() {
    clearTimeout(timer);
    aborter.abort();
  };
}
