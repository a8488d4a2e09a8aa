// The frame: navigation, summary of the cluster, session banner, and changes of the cluster.
//
// A view is an object with `show(params)`, which a change of the address calls, and `refresh(generation)`, which a new
// generation of the cluster calls. `show` returns whether it loads everything anew. Views are created when they are
// first opened and stay in the document.

import { get, Latest } from './api.js';
import { answer, bar, brief, count, el, fill, percent, used, whole } from './dom.js';
import { href, route, session, VIEWS } from './route.js';
import { admit } from './login.js';
import { banner } from './sessions.js';
import duel from './duel.js';
import fleet from './fleet.js';
import pending from './pending.js';
import studio from './studio.js';
import resilience from './resilience.js';

const create = { fleet, pending, 'what-if': studio, resilience, duel };
const views = {};
const newest = new Latest();
const EVERY = 30_000; // Milliseconds until the summary is read again: a failed reading causes no event.
let last = { view: null, session: undefined };
let shown = null; // The reading that the views show or load: its generation and time.
let summarized; // The newest summary, as a promise.

function open() {
  const { view, params } = route();
  const now = params.session ?? null;
  for (const id of VIEWS) document.getElementById(id).hidden = id !== view;
  for (const link of document.querySelectorAll('nav a')) {
    link.href = href(link.dataset.view);
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (now !== last.session) {
    identify();
    summarized = summarize().then(follow);
  }
  const moved = view !== last.view && last.view !== null;
  last = { view, session: now };
  const root = document.getElementById(view);
  document.title = `${root.querySelector('h1').textContent} · portolan`;
  views[view] ??= create[view](root);
  const isLoading = views[view].show(params);
  if (stale.delete(view) && !isLoading) views[view].refresh?.(announced);
  // The focus follows a navigation, so that a screen reader begins to read the new view.
  if (moved) document.getElementById('main').focus({ preventScroll: true });
}

/** Shows the session. One that has ended has no answers: then no view shows its failure beside the banner. */
async function identify() {
  const hasEnded = await banner(document.getElementById('banner'));
  if (hasEnded === undefined) return;
  for (const id of ['summary', 'main']) document.getElementById(id).hidden = hasEnded;
}

function summarize(isRefresh = false) {
  const box = document.getElementById('summary');
  return answer(
    box,
    isRefresh ? null : 'Loading the cluster…',
    () => newest.run((signal) => get('summary', { signal })),
    (found) => {
      trouble(found.error);
      const badge = document.getElementById('pending-count');
      badge.hidden = !found.pending;
      fill(badge, whole(found.pending), el('span', { class: 'quiet' }, ' pods'));
      fill(
        document.getElementById('source'),
        found.source,
        ' · generation ',
        whole(found.generation),
        ' · ',
        el('time', { datetime: found.taken }, new Date(found.taken).toLocaleString()),
      );
      const resources = found.resources.filter((it) => it.allocatable > 0 && it.name !== 'pods');
      return el(
        'dl',
        null,
        item('nodes', whole(found.nodes)),
        item('pods', whole(found.pods), `${whole(found.pending)} pending`),
        ...resources.map((it) => {
          const share = it.requested / it.allocatable;
          return item(brief(it.name), percent(share), used(it.requested, it.allocatable, it), share);
        }),
        found.notes.length > 0 && notes(found.notes),
      );
    },
  );
}

/** Shows why the source could not be read again. An older server does not know. */
function trouble(error) {
  const box = document.getElementById('trouble');
  box.hidden = !error;
  const text = error ? `The source could not be read again: ${error}` : '';
  // An equal text must not be read aloud again.
  if (box.dataset.text !== text) fill(box, text && el('p', { role: 'alert' }, text));
  box.dataset.text = text;
}

/** Remembers the reading of a summary that the views follow. A session has its own. */
function follow(found) {
  if (found && !session()) shown = found;
  return found;
}

function item(name, value, more, share) {
  return el(
    'div',
    null,
    el('dt', null, name),
    el('dd', null, el('b', null, value), share !== undefined && bar(share), more && el('small', null, more)),
  );
}

function notes(all) {
  return el(
    'div',
    null,
    el('dt', null, 'notes'),
    el(
      'dd',
      null,
      el(
        'details',
        null,
        el('summary', null, count(all.length, 'note')),
        el(
          'ul',
          null,
          all.map((note) => el('li', null, note)),
        ),
      ),
    ),
  );
}

// A cluster may change hundreds of times a second; the page follows it at most every two seconds, one refresh after the
// other, and not while it is hidden. A session does not change. Views that are not open follow when they are opened.
const stale = new Set();
let announced = null; // The generation of the newest event.
let isNewer = false;
let isFollowing = false;
async function changed() {
  isNewer = true;
  VIEWS.forEach((view) => views[view] && stale.add(view));
  if (isFollowing) return;
  isFollowing = true;
  while (isNewer && !session()) {
    await new Promise((done) => setTimeout(done, 2000));
    if (document.hidden)
      await new Promise((done) => document.addEventListener('visibilitychange', done, { once: true }));
    isNewer = false;
    if (session()) break;
    const { view } = route();
    stale.delete(view);
    await (summarized = summarize(true).then(follow));
    await views[view]?.refresh?.(announced);
  }
  isFollowing = false;
}

let events = null;

/** Listens to the server while the page is visible. A connection begins with the generation of the server. */
function listen() {
  if (document.hidden) {
    events?.close();
    events = null;
  } else if (!events || events.readyState === EventSource.CLOSED) {
    events = new EventSource('api/v1/events');
    events.addEventListener('generation', async ({ data }) => {
      announced = JSON.parse(data).generation;
      await summarized;
      if (announced !== shown?.generation) changed();
    });
    // The server may have restarted, and then counts its generations from the beginning.
    events.addEventListener('error', () => {
      shown = null;
      // The server refuses: if the login has ended, this question notices it.
      if (events.readyState === EventSource.CLOSED) get('summary').catch(() => {});
    });
  }
}

/** Shows a reading that failed, or a server that has restarted while the page was hidden. */
async function check() {
  listen();
  // A question about a session would keep it alive.
  if (document.hidden || session() || isFollowing) return;
  const found = await summarize(true);
  const isOther = found?.generation === shown?.generation && found?.taken !== shown?.taken;
  if (isOther && !session()) changed();
}

document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault(); // The fragment is the state.
  document.getElementById('main').focus();
});
admit(() => {
  addEventListener('hashchange', open);
  addEventListener('missing', identify);
  document.addEventListener('visibilitychange', check);
  setInterval(check, EVERY);
  listen();
  open();
});
