// Sessions: copies of the cluster, each with a change. The active one is in the address, so a link shares it.

import { drop, get, Latest } from './api.js';
import { announce, answer, count, el, empty, failure, fill, LISTED, rest } from './dom.js';
import { go, route, session } from './route.js';
import { inWords } from './question.js';

const latestBanner = new Latest();
const latestTree = new Latest();

/** Opens the view with another session, or with the cluster as loaded. What the other cluster may lack is left out. */
export function enter(id, view = route().view) {
  go(view, { session: id });
}

/** The id of a session as it is shown. */
export const brief = (id) => id.slice(0, 8);

/**
 * Shows the active session above all views, or hides the banner. Returns whether the session has ended, or undefined if
 * a newer question has replaced this one.
 */
export async function banner(box) {
  const id = session();
  box.hidden = !id;
  if (!id) {
    latestBanner.cancel();
    fill(box);
    return false;
  }
  const leave = el('button', { type: 'button', onclick: () => enter(null) }, 'Back to the cluster');
  try {
    const path = `sessions/${encodeURIComponent(id)}`;
    const found = await latestBanner.run((signal) => get(path, { signal }));
    if (!found) return undefined;
    const undo = el('button', { type: 'button', onclick: () => enter(found.parent) }, 'Undo');
    fill(
      box,
      el(
        'p',
        null,
        el('b', null, `Session ${brief(id)}: `),
        inWords(found.change),
        el(
          'small',
          null,
          ` on generation ${found.generation}`,
          found.parent && ` and session ${brief(found.parent)}`,
          ', ends an hour after its last use',
        ),
      ),
      undo,
      found.parent && leave,
    );
    return false;
  } catch (error) {
    const hasEnded = error.status === 404;
    const [title, detail] = hasEnded
      ? ['This session has ended', 'A session ends an hour after its last use, or when it is dropped.']
      : [error.title, error.detail];
    fill(box, el('p', { role: 'alert' }, el('b', null, `${title}. `), detail), leave);
    return hasEnded;
  }
}

/** Shows the tree of the sessions in `box`. */
export function tree(box) {
  return answer(
    box,
    'Loading the sessions…',
    () => latestTree.run((signal) => get('sessions', { signal })),
    ({ sessions: all }) => {
      if (!all.length)
        return empty(
          'No sessions',
          'Ask a question and keep its answer as a session: later questions then start from the changed cluster.',
        );
      const sessions = newest(all);
      const known = new Set(sessions.map(({ id }) => id));
      const branch = (parent) => {
        const children = sessions.filter((it) =>
          parent === null ? !known.has(it.parent) : it.parent === parent,
        );
        return (
          children.length > 0 &&
          el(
            'ul',
            { class: 'tree' },
            children.map((it) => el('li', null, line(it, box, sessions), branch(it.id))),
          )
        );
      };
      return [
        el(
          'div',
          { class: 'session' },
          el(
            'button',
            {
              type: 'button',
              class: 'link',
              'aria-current': session() === null && 'true',
              onclick: () => enter(null),
            },
            'The cluster as loaded',
          ),
        ),
        branch(null),
        rest(all.length),
      ];
    },
  );
}

/** The newest sessions, and the active one. A session whose parent is left out stands at the top. */
function newest(all) {
  const shown = [...all].sort((a, b) => Date.parse(b.created) - Date.parse(a.created)).slice(0, LISTED);
  const active = all.find((it) => it.id === session());
  if (active && !shown.includes(active)) shown.push(active);
  return all.filter((it) => shown.includes(it));
}

function line({ id, change }, box, sessions) {
  const children = sessions.filter((it) => it.parent === id).length;
  const remove = async () => {
    try {
      await drop(`sessions/${encodeURIComponent(id)}`);
    } catch (error) {
      fill(
        box,
        failure(error, () => tree(box)),
      );
      return;
    }
    announce(`Session ${brief(id)} dropped`);
    // The children of a session are dropped with it, and the active one may be one of them.
    const left = await get('sessions').catch(() => ({ sessions: [] }));
    if (session() && !left.sessions.some((it) => it.id === session())) enter(null);
    else tree(box);
  };
  return el(
    'div',
    { class: 'session' },
    el(
      'button',
      { type: 'button', class: 'link', 'aria-current': session() === id && 'true', onclick: () => enter(id) },
      `${brief(id)}: ${inWords(change)}`,
    ),
    el(
      'button',
      {
        type: 'button',
        class: 'plain',
        'aria-label': `Drop session ${brief(id)}${children ? ` and ${count(children, 'session')} below it` : ''}`,
        onclick: remove,
      },
      'Drop',
    ),
  );
}
