#!/usr/bin/env node
// A client of Quipu for Node 18 or later, without packages. docs/CLIENTS.md explains its rules.
//
//   node quipu-client.mjs increase visits [KEY]       an increase that counts once, however often it is sent
//   node quipu-client.mjs send 1001 'Hello!' [KEY]    a message that waits until the user's limit admits it
//   node quipu-client.mjs badge dave                  the number of unread messages, live
//
// QUIPU_SERVER is the server's address (http://127.0.0.1:8080), QUIPU_API_KEY a key, if it requires one.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const SERVER = process.env.QUIPU_SERVER ?? 'http://127.0.0.1:8080';
const AUTHORIZATION = process.env.QUIPU_API_KEY ? { Authorization: `Bearer ${process.env.QUIPU_API_KEY}` } : {};
const ANSWER_MS = 10_000;  // how long to wait for one answer; the server gives up after its --deadline, 5 s
const SILENCE_MS = 45_000; // a stream without a line for three heartbeats is dead
const RETRIED = [408, 429, 502, 503, 504];
const UNHEARD = [401, 403]; // the server looks at the key only of callers it knows: an earlier attempt may have happened
const UNCHANGED = ['OVERLOADED', 'STORE_UNAVAILABLE', 'BUS_UNAVAILABLE', 'RATE_LIMIT_EXCEEDED', 'REQUEST_TIMEOUT'];

class Refused extends Error {} // the server says no, and would say no again; nothing was changed
class GaveUp extends Error {}  // the server could not do it in time; nothing was changed
class Unknown extends Error {} // it may have happened; retrying later with the same key resolves it

/** One attempt: the status, Retry-After in seconds, and the answer. The status is 0 if no answer came. */
async function post(path, body, key) {
  try {
    const answer = await fetch(SERVER + path, {
      method: 'POST',
      headers: { ...AUTHORIZATION, 'Content-Type': 'application/json', 'Idempotency-Key': key },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    const text = await answer.text();
    const isJson = answer.headers.get('Content-Type')?.includes('json');
    return {
      status: answer.status,
      retryAfterS: Number(answer.headers.get('Retry-After') ?? 0),
      answer: isJson ? JSON.parse(text) : {},
    };
  } catch { // no connection, no answer, or only a part of it
    return { status: 0, retryAfterS: 0, answer: {} };
  }
}

/** Sends a change until it is answered for good. Every attempt carries the same key, so only one takes effect. */
async function change(path, body, key, patienceMs = 60_000) {
  const deadline = performance.now() + patienceMs;
  let backoffMs = 200;
  let mayHaveHappened = false;
  for (;;) {
    const { status, retryAfterS, answer } = await post(path, body, key);
    if (status >= 200 && status < 300) return answer;
    if (status !== 0 && !RETRIED.includes(status))
      throw new (mayHaveHappened && UNHEARD.includes(status) ? Unknown : Refused)(
        `${status} ${answer.code ?? ''}: ${answer.detail ?? ''}; key ${key}`);
    mayHaveHappened ||= !UNCHANGED.includes(answer.code); // no answer, OUTCOME_UNKNOWN, or a proxy's error
    const pauseMs = retryAfterS * 1000 + Math.random() * backoffMs;
    if (performance.now() + pauseMs > deadline)
      throw new (mayHaveHappened ? Unknown : GaveUp)(`${status} ${answer.code ?? 'no answer'}; key ${key}`);
    await sleep(pauseMs);
    backoffMs = Math.min(2 * backoffMs, 5000);
  }
}

async function increase(item, key) {
  return (await change(`/api/v1/counts/${encodeURIComponent(item)}/increase`, { amount: 1 }, key)).value;
}

/** Waits for the user's next window if this one is used up: 429 says in Retry-After how long that takes. */
async function send(user, message, key) {
  return (await change('/api/send', { userId: user, message }, key, 180_000)).messageId;
}

/** The lines of a stream. Throws if none comes for SILENCE_MS. */
async function* lines(body, abort) {
  const watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for await (const bytes of body) {
      watchdog.refresh();
      const parts = (rest + decoder.decode(bytes, { stream: true })).split('\n');
      rest = parts.pop();
      yield* parts;
    }
  } finally {
    clearTimeout(watchdog);
  }
}

/** Shows the events of one connection, and notes in `state` where the next one goes on. */
async function follow(user, state, show) {
  const abort = new AbortController();
  const answer = await fetch(`${SERVER}/counters/user/${encodeURIComponent(user)}/stream`, {
    headers: { ...AUTHORIZATION, Accept: 'text/event-stream', ...(state.id && { 'Last-Event-ID': state.id }) },
    signal: abort.signal,
  });
  if (!answer.ok && !RETRIED.includes(answer.status)) throw new Refused(`${answer.status}: ${await answer.text()}`);
  if (!answer.ok) return void await answer.arrayBuffer();
  let data = '';
  for await (const line of lines(answer.body, abort)) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === 'id') state.id = value;
    else if (name === 'retry') state.retryMs = Number(value);
    else if (name === 'data') data = value;
    else if (line === '' && data) { // only the empty line completes an event: half of one is not shown
      show(JSON.parse(data).count);
      data = '';
    }
  }
}

/** Follows the stream for ever. After a loss it asks for what is newer than the last event. */
async function badge(user, show) {
  const state = { id: '', retryMs: 2000 };
  for (;;) {
    try {
      await follow(user, state, show);
    } catch (error) {
      if (error instanceof Refused) throw error; // else the connection is lost, or nothing came for SILENCE_MS
    }
    await sleep(state.retryMs * (0.5 + Math.random()));
  }
}

const [verb, ...rest] = process.argv.slice(2);
try {
  // A job that must survive a restart of this program stores its key before the first attempt.
  if (verb === 'increase' && rest[0]) console.log(await increase(rest[0], rest[1] ?? randomUUID()));
  else if (verb === 'send' && rest[1]) console.log(await send(rest[0], rest[1], rest[2] ?? randomUUID()));
  else if (verb === 'badge' && rest[0]) await badge(rest[0], (count) => console.log(`${count} unread`));
  else throw new Refused('usage: increase ITEM [KEY] | send USER MESSAGE [KEY] | badge USER');
} catch (error) {
  if (error instanceof Unknown) console.error(`It may have happened; run this again with the key: ${error.message}`);
  else if (error instanceof Refused || error instanceof GaveUp) console.error(`Nothing was changed: ${error.message}`);
  else throw error;
  process.exitCode = error instanceof Unknown ? 2 : 1;
}
