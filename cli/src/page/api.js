// Questions to the server, or to the answers of a file. Every answer is JSON; every failure is a `Problem`.

import { recorded } from './recorded.js';
import { generation, session } from './route.js';

/** A problem document (RFC 9457), or a failure of the connection in the same form. */
export class Problem extends Error {
  constructor({ title, detail, status }) {
    super(title);
    this.title = title;
    this.detail = detail;
    this.status = status;
  }
}

export const get = (path, options) => ask('GET', path, undefined, options);
export const post = (path, body, options) => ask('POST', path, body, options);
export const drop = (path, options) => ask('DELETE', path, undefined, options);

/**
 * Asks about the cluster of the active session, or of the time that is shown. With `online`, the answer comes in lines,
 * and it is called with each line before the last one. An aborted request rejects with an `AbortError`.
 *
 * Paths are relative to the page, so a proxy may serve it under a prefix.
 */
async function ask(method, path, body, { signal, online } = {}) {
  // Sessions, readings and logins belong to no session or time; a new session names its beginning in the body.
  const isOutside = /^(sessions|generations|diff|login)/.test(path);
  const id = isOutside ? null : session();
  const at = isOutside ? null : generation();
  const query = id ? `?session=${encodeURIComponent(id)}` : at !== null ? `?generation=${at}` : '';
  const url = `api/v1/${path}${query}`;
  if (recorded) return recall(question(method, url, body));
  const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
  if (online) headers.Accept = 'application/x-ndjson';
  const response = await fetch(url, {
    method,
    headers,
    body: body && JSON.stringify(body),
    signal,
  }).catch(broken);
  if (response.status === 204) return null;
  if (online && response.ok) return last(response.body, online);
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  const { title, detail } = answer ?? {};
  const status = response.status;
  if (status === 401 && path !== 'login') location.reload(); // The login has ended: the page asks for the token.
  if (id && status === 404) dispatchEvent(new Event('missing')); // The object, or the session.
  throw new Problem({ title: title ?? `The server answered with status ${status}`, detail, status });
}

function broken(error) {
  if (error.name === 'AbortError') throw error;
  throw new Problem({
    title: 'The server does not answer',
    detail: 'Check that portolan serve is running.',
  });
}

/** Reads an answer in lines. Returns the answer in the last one. */
async function last(body, online) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let begun = '';
  for (;;) {
    const { done, value } = await reader.read().catch(broken);
    if (done) throw new Problem({ title: 'The answer is incomplete', detail: 'Ask again.' });
    const [end, ...lines] = value.split('\n');
    begun += end;
    for (const line of lines) {
      const { answer, problem, ...more } = JSON.parse(begun);
      if (problem) throw new Problem(problem);
      if (answer) return answer;
      online(more);
      begun = line;
    }
  }
}

const question = (method, url, body) =>
  `${method} ${url}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`;

/** The answer of the file. */
function recall(key) {
  const found = recorded.answers[key];
  if (found) return found;
  throw new Problem({ title: 'This file does not have the answer', detail: key, status: 404 });
}

/** Whether a question about the cluster can be asked: a file has some answers. */
export const isAnswered = (method, path, body) =>
  !recorded || question(method, `api/v1/${path}`, body) in recorded.answers;

/** The newest question of its kind: a new one cancels the one before, whose answer would be stale. */
export class Latest {
  #controller = null;

  /** Runs `question(signal)`. Returns undefined if a newer question has replaced it or if it was cancelled. */
  async run(question) {
    this.cancel();
    const controller = (this.#controller = new AbortController());
    try {
      const answer = await question(controller.signal);
      return controller.signal.aborted ? undefined : answer;
    } catch (error) {
      if (controller.signal.aborted) return undefined;
      throw error;
    }
  }

  cancel() {
    this.#controller?.abort();
  }
}
