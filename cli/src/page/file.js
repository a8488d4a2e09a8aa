// The frame of a page in one file: its view, and at the foot the command that wrote it.

import { el, fill } from './dom.js';
import { recorded } from './recorded.js';
import { route } from './route.js';

/** Shows the view of the file, which `create` creates as in the page of a server. */
export function open(create) {
  const { view, name, command, version } = recorded.about;
  const main = document.getElementById('main');
  const title = `${view}-title`;
  const root = el('section', { id: view, 'aria-labelledby': title }, el('h1', { id: title }, name));
  main.append(root);
  fill(document.getElementById('foot'), `Written by portolan ${version}: `, el('code', null, command));
  document.getElementById('skip').addEventListener('click', (event) => {
    event.preventDefault(); // The fragment is the state.
    main.focus();
  });
  const shown = create(root);
  const show = () => shown.show(route().params);
  addEventListener('hashchange', show);
  show();
}
