// Elements, tables, states and formats.
//
// Text reaches the document only as text nodes and attributes: names of objects in a cluster are chosen by others, and
// one may look like markup. Each text also passes `visible` and `isolated`, so that no name changes the order of the
// text beside it. Styles are set through classes or the CSSOM, since the page's policy excludes inline ones.

/** Returns an element. Properties that begin with `on` are listeners, others attributes; false and null set none. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : READ.has(key) ? visible(value) : value);
  }
  element.append(...present(children));
  return element;
}

/** Returns an element of a picture. */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

const present = (children) =>
  children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .flatMap((child) => (child instanceof Node ? child : isolated(visible(child))));

/** The attributes that people read. Others are identifiers, which stay as they are. */
const READ = new Set(['aria-label', 'title']);

/** Control characters, and those without a width that change the order of a text. */
const HIDDEN = /[\0-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** The text with its hidden characters as escapes: `\u{202e}`. */
export const visible = (text) =>
  String(text).replace(HIDDEN, (it) => `\\u{${it.codePointAt(0).toString(16)}}`);

/** Letters and digits from right to left: Hebrew, Arabic and their neighbors. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/**
 * The text as nodes, with a `bdi` around each word from right to left: a name has no spaces, and the server's sentences
 * contain names that the page cannot find. Within a word the base direction is left to right, as in code.
 */
function isolated(text) {
  if (!RIGHT_TO_LEFT.test(text)) return text;
  return text.split(/(\s+)/).map((word) => {
    if (!RIGHT_TO_LEFT.test(word)) return word;
    const isolate = document.createElement('bdi');
    isolate.dir = 'ltr';
    isolate.textContent = word;
    return isolate;
  });
}

/**
 * Replaces the children of an element with newer ones of the same kind, and keeps the focus, the open details and the
 * scrolled tables. What has no successor loses its state; the focus then moves to the element.
 */
export function refill(element, ...children) {
  const all = (selector) => [...element.querySelectorAll(selector)];
  const label = (it) => it.getAttribute('aria-label') ?? it.textContent;
  const { activeElement: focused } = document;
  const hadFocus = focused !== element && element.contains(focused);
  const open = all('details').map((it) => it.open);
  const scrolled = all('.scroll').map((it) => it.scrollLeft);
  fill(element, ...children);
  all('details').forEach((it, at) => {
    it.open = open[at] ?? it.open;
  });
  all('.scroll').forEach((it, at) => {
    it.scrollLeft = scrolled[at] ?? 0;
  });
  if (!hadFocus) return;
  const next = all(focused.localName).find((it) => label(it) === label(focused));
  (next ?? element).focus({ preventScroll: true });
}

/** The longest list that is shown. A longer one is cut, with a count of the rest. */
export const LISTED = 100;

/**
 * Returns a table. A column is `{ head, cell(row), number, prose }`; a cell is a text or nodes.
 *
 * Rows beyond `LISTED` are counted, not shown: the API has them all.
 */
export function table(caption, columns, rows, { limit = LISTED } = {}) {
  const head = columns.map(({ head, number }) => el('th', { scope: 'col', class: number && 'number' }, head));
  const body = rows.slice(0, limit).map((row) =>
    el(
      'tr',
      null,
      columns.map(({ cell, number, prose }) =>
        el('td', { class: number ? 'number' : prose && 'prose' }, cell(row) ?? ''),
      ),
    ),
  );
  const box = el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el(
      'table',
      null,
      el('caption', null, caption),
      el('thead', null, el('tr', null, head)),
      el('tbody', null, body),
    ),
  );
  return el('div', { class: 'table' }, box, rest(rows.length, limit));
}

/** Returns the line below a list that is cut, or null. */
export function rest(all, limit = LISTED) {
  return all > limit ? el('p', { class: 'rest' }, `${limit} of ${whole(all)} shown`) : null;
}

/** Returns the state of a failed question. */
export function failure(problem, retry) {
  return el(
    'div',
    { class: 'state error', role: 'alert' },
    el('p', { class: 'title' }, problem.title ?? 'The page failed'),
    el('p', null, problem.detail ?? (problem.title ? '' : problem.message)),
    retry && el('button', { type: 'button', onclick: retry }, 'Try again'),
  );
}

export const loading = (text) => el('div', { class: 'state loading' }, el('p', null, text));
export const empty = (title, text) =>
  el('div', { class: 'state' }, el('p', { class: 'title' }, title), text && el('p', null, text));

/**
 * Shows a question in `box`: the loading text, then the answer or the error.
 *
 * `show` returns the nodes of the answer. An answer that arrives within a moment replaces the previous one directly;
 * a loading text that flashes is worse than none. Without a text the previous answer is refreshed in place.
 */
export async function answer(box, text, question, show) {
  const slow = text && setTimeout(() => fill(box, loading(text)), box.childElementCount ? 300 : 0);
  box.setAttribute('aria-busy', 'true');
  try {
    const found = await question();
    clearTimeout(slow);
    if (found !== undefined) (text ? fill : refill)(box, show(found));
    return found;
  } catch (error) {
    clearTimeout(slow);
    if (!error.title) console.error(error);
    fill(
      box,
      failure(error, () => answer(box, text ?? 'Loading…', question, show)),
    );
    return undefined;
  } finally {
    box.removeAttribute('aria-busy');
  }
}

/** Reads a text aloud to users of a screen reader. */
export function announce(text) {
  document.getElementById('announce').textContent = visible(text);
}

const formats = [0, 1, 2].map((digits) => new Intl.NumberFormat('en', { maximumFractionDigits: digits }));

export const whole = (number) => formats[0].format(number);

/** An amount with at most three significant digits or all digits before the point: 0.25, 3.5, 1,204. */
export const short = (number) => formats[number >= 100 ? 0 : number >= 10 ? 1 : 2].format(number);

/** A count with its noun: 1 pod, 2 pods. */
export const count = (number, noun) => `${whole(number)} ${noun}${number === 1 ? '' : 's'}`;

/** An amount of a resource with its unit; memory grows to TiB, and counts have the name of the resource. */
export function amount(number, { unit, name }) {
  if (unit === 'GiB' && Math.abs(number) >= 1024) return `${short(number / 1024)} TiB`;
  return `${short(number)} ${unit || name}`;
}

/** An amount in the smallest unit of its resource. */
export function sized(resource, value) {
  if (resource === 'cpu') return amount(value / 1000, { unit: 'cores' });
  const isBytes = /^(memory|ephemeral-storage|hugepages-.*)$/.test(resource);
  return isBytes ? amount(value / 2 ** 30, { unit: 'GiB' }) : whole(value);
}

/** The part of an amount in the unit of the whole: 3.5 of 16 cores. Counts have no unit. */
export function used(part, whole, { unit }) {
  const scale = unit === 'GiB' && whole >= 1024 ? 1024 : 1;
  return `${short(part / scale)} of ${amount(whole, { unit, name: '' })}`;
}

/** A share as a percentage that does not round up to full: 99.6 % of a node is not a full node. */
export const percent = (share) => `${Number.isFinite(share) ? Math.floor(share * 100 + 1e-9) : 0} %`;

/** The name of a resource without its domain, for narrow places. */
export const brief = (name) => name.split('/').pop();

/** A meter whose length is a share of its track, for the eye; the text beside it carries the same number. */
export function bar(share, level = '') {
  const inner = el('span', { class: `level ${level}` });
  inner.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return el('span', { class: 'track', 'aria-hidden': 'true' }, inner);
}
