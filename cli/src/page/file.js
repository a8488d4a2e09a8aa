// The frame of a page in one file: its views, and at the foot the command that wrote it.

import { el, fill } from './dom.js';
import { recorded } from './recorded.js';
import { href, route } from './route.js';

/** Shows the views of the file. `create` has a function for each, as in the page of a server. */
export function open(create) {
  const { views, command, version } = recorded.about;
  const main = document.getElementById('main');
  const nav = document.getElementById('views');
  const roots = new Map();
  const shown = new Map();
  for (const { view, name } of views) {
    if (roots.has(view)) continue;
    const title = `${view}-title`;
    roots.set(view, el('section', { id: view, 'aria-labelledby': title }, el('h1', { id: title }, name)));
  }
  main.append(...roots.values());
  fill(document.getElementById('foot'), `Written by portolan ${version}: `, el('code', null, command));
  document.getElementById('skip').addEventListener('click', (event) => {
    event.preventDefault(); // The fragment is the state.
    main.focus();
  });
  let last = null;

  function show() {
    const [, asked] = /^#\/([\w-]+)/.exec(location.hash) ?? [];
    const params = asked ? route().params : {};
    const isShown = ({ view, session }) => view === asked && session === (params.session ?? null);
    const now = views.find(isShown) ?? views[0];
    // A link to the same view keeps its parameters, so that a person can compare. They change without an event.
    const to = (it) => href(it.view, { ...(it.view === now.view && route().params), session: it.session });
    const aim = (it) => (event) => event.currentTarget.setAttribute('href', to(it));
    const link = (it) =>
      el('a', { href: to(it), 'aria-current': it === now && 'page', onclick: aim(it) }, it.name);
    if (views.length > 1) fill(nav, views.map(link));
    else nav.remove();
    for (const [view, root] of roots) root.hidden = view !== now.view;
    fill(roots.get(now.view).firstChild, now.name);
    if (!shown.has(now.view)) shown.set(now.view, create[now.view](roots.get(now.view)));
    shown.get(now.view).show(params);
    // The focus follows a navigation, so that a screen reader begins to read the new view.
    if (last && last !== now) main.focus({ preventScroll: true });
    last = now;
  }

  addEventListener('hashchange', show);
  show();
}
