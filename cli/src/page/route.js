// The address is the state: `#/VIEW?session=ID&node=NAME&…`.
//
// A copied link restores the view, the session or the time, and the selection. The state is in the fragment, which
// browsers do not send, so the names of nodes and pods stay out of the logs of proxies.

/** The ids of the views in the order of the navigation; the first one is the default. */
export const VIEWS = ['fleet', 'pending', 'what-if', 'resilience', 'duel'];

/** Returns the view and the parameters of the address. */
export function route() {
  const [path, query = ''] = split(location.hash.replace(/^#\/?/, ''));
  const view = VIEWS.includes(path) ? path : VIEWS[0];
  return { view, params: Object.fromEntries(new URLSearchParams(query)) };
}

/** The id of the active session, or null. */
export function session() {
  return route().params.session ?? null;
}

/** The generation of the older reading that is shown, or null for the newest one. A session has its own. */
export function generation() {
  const { session, generation } = route().params;
  return session || !/^\d+$/.test(generation) ? null : Number(generation);
}

/** What the shown cluster is: a session, an older reading, or the newest one. Equal places have equal clusters. */
export const place = () => session() ?? generation();

/**
 * Returns the fragment of a view. The session or the time is kept unless `params` has another one; null removes a
 * parameter.
 */
export function href(view, params = {}) {
  const query = new URLSearchParams();
  const all = { session: session(), generation: generation(), ...params };
  if (all.session) all.generation = null;
  for (const [key, value] of Object.entries(all)) {
    if (value !== null && value !== undefined && value !== '') query.set(key, value);
  }
  const text = query.toString();
  return `#/${view}${text && '?'}${text}`;
}

/** Opens a view as a new entry of the history. */
export function go(view, params) {
  const to = href(view, params);
  // An equal fragment causes no event, but a question that is asked again must run again.
  if (to === location.hash) dispatchEvent(new HashChangeEvent('hashchange'));
  else location.hash = to;
}

/** Changes parameters of the view without a new entry of the history and without an event. */
export function note(params) {
  const now = route();
  history.replaceState(null, '', href(now.view, { ...now.params, ...params }));
}

function split(text) {
  const at = text.indexOf('?');
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}
