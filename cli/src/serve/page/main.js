// The frame: navigation, summary of the cluster, session banner, and changes of the cluster.
//
// A view is an object with `show(params)`, which a change of the address calls, and `refresh()`, which a new generation
// of the cluster calls. Views are created when they are first opened and stay in the document.

import { get, Latest } from './api.js';
import { answer, bar, brief, count, el, fill, percent, used, whole } from './dom.js';
import { href, route, session, VIEWS } from './route.js';
import { banner } from './sessions.js';
import fleet from './fleet.js';
import pending from './pending.js';
import studio from './studio.js';
import resilience from './resilience.js';

const create = { fleet, pending, 'what-if': studio, resilience };
const views = {};
const newest = new Latest();
let last = { view: null, session: undefined };

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
    summarize();
  }
  const moved = view !== last.view && last.view !== null;
  last = { view, session: now };
  const root = document.getElementById(view);
  document.title = `${root.querySelector('h1').textContent} · portolan`;
  views[view] ??= create[view](root);
  views[view].show(params);
  if (stale.delete(view)) views[view].refresh?.();
  // The focus follows a navigation, so that a screen reader begins to read the new view.
  if (moved) document.getElementById('main').focus({ preventScroll: true });
}

/** Shows the session. One that has ended has no answers: then no view shows its failure beside the banner. */
async function identify() {
  const hasEnded = await banner(document.getElementById('banner'));
  for (const id of ['summary', 'main']) document.getElementById(id).hidden = hasEnded;
}

function summarize(isRefresh = false) {
  const box = document.getElementById('summary');
  return answer(
    box,
    isRefresh ? null : 'Loading the cluster…',
    () => newest.run((signal) => get('summary', { signal })),
    (found) => {
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
// other, and not while it is hidden. A session is a fork and does not change. Views that are not open follow when they
// are opened.
const stale = new Set();
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
    const { view } = route();
    stale.delete(view);
    await summarize(true);
    await views[view]?.refresh?.();
  }
  isFollowing = false;
}

addEventListener('hashchange', open);
addEventListener('missing', identify);
document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault(); // The fragment is the state.
  document.getElementById('main').focus();
});
new EventSource('api/v1/events').addEventListener('generation', changed);
open();
