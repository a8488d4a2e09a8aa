// The frame: navigation, summary of the cluster, session banner, and changes of the cluster.
//
// A view is an object with `show(params)`, which a change of the address calls, and `refresh(generation)`, which a new
// generation of the cluster calls. `show` returns whether it loads everything anew. Views are created when they are
// first opened and stay in the document.

import { get, Latest } from './api.js';
import { answer, bar, brief, count, el, fill, percent, used, whole } from './dom.js';
import { moment } from './moment.js';
import { href, place, route, session, VIEWS } from './route.js';
import { admit } from './login.js';
import { banner } from './sessions.js';
import { Times } from './times.js';
import duel from './duel.js';
import fleet from './fleet.js';
import pending from './pending.js';
import studio from './studio.js';
import resilience from './resilience.js';

const create = { fleet, pending, 'what-if': studio, resilience, duel };
const views = {};
const newest = new Latest();
const AGAIN = 5_000; // Milliseconds until a refused event stream is opened again.
let times;
let last = { view: null, place: undefined };
let shown = null; // The reading that the views show or load: its generation and time.
let summarized; // The newest summary, as a promise.

function open() {
  const { view, params } = route();
  const now = place();
  for (const id of VIEWS) document.getElementById(id).hidden = id !== view;
  for (const link of document.querySelectorAll('nav a')) {
    link.href = href(link.dataset.view);
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
    if (link.dataset.view === view) link.parentElement.scrollLeft = link.offsetLeft - innerWidth / 2;
  }
  times.show();
  if (now !== last.place) {
    identify();
    summarized = summarize().then(follow);
  }
  const moved = view !== last.view && last.view !== null;
  last = { view, place: now };
  const root = document.getElementById(view);
  document.title = `${root.querySelector('h1').textContent} · portolan`;
  views[view] ??= create[view](root, times);
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
        found.replay
          ? [moment(found.replay), progress(found.replay)]
          : el('time', { datetime: found.taken }, new Date(found.taken).toLocaleString()),
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

/** Whether a replay goes on. An older reading does not tell. */
function progress({ is_playing: isPlaying }) {
  if (!isPlaying) return ' · the end';
  return place() === null && ' · playing';
}

/** Shows why the source could not be read again. */
function trouble(error) {
  const box = document.getElementById('trouble');
  box.hidden = !error;
  const text = error ? `The source could not be read again: ${error}` : '';
  // An equal text must not be read aloud again.
  if (box.dataset.text !== text) fill(box, text && el('p', { role: 'alert' }, text));
  box.dataset.text = text;
}

/** Remembers the reading of a summary that the views follow. A session and an older reading do not follow. */
function follow(found) {
  if (found && place() === null) shown = found;
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
// other, and not while it is hidden. Sessions and older readings do not change. Views that are not open follow when they
// are opened.
const stale = new Set();
let announced = null; // The generation of the newest event.
let isNewer = false;
let isFollowing = false;
async function changed() {
  isNewer = true;
  VIEWS.forEach((view) => views[view] && stale.add(view));
  if (isFollowing) return;
  isFollowing = true;
  while (isNewer && place() === null) {
    await new Promise((done) => setTimeout(done, 2000));
    if (document.hidden)
      await new Promise((done) => document.addEventListener('visibilitychange', done, { once: true }));
    isNewer = false;
    if (place() !== null) break;
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
      const reading = JSON.parse(data);
      announced = reading.generation;
      times.add(reading);
      await summarized;
      // A server that has restarted counts its generations from the beginning.
      if (announced !== shown?.generation || reading.taken !== shown.taken) changed();
    });
    events.addEventListener('error', () => {
      if (events?.readyState !== EventSource.CLOSED) return;
      // The server refuses: if the login has ended, this question notices it.
      get('summary').catch(() => {});
      setTimeout(listen, AGAIN);
    });
    events.addEventListener('failure', ({ data }) => trouble(JSON.parse(data).error));
  }
}

document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault(); // The fragment is the state.
  document.getElementById('main').focus();
});
admit(() => {
  addEventListener('hashchange', open);
  addEventListener('missing', identify);
  document.addEventListener('visibilitychange', listen);
  times = new Times(document.getElementById('times'), open);
  listen();
  open();
});
