// An answer in other hands: as a file, and as a link.

import { announce, answer, el } from './dom.js';
import { recorded } from './recorded.js';

/** Returns the buttons of an answer; `name` is the name of the file. */
export function share(name, given) {
  const button = (text, action) => el('button', { type: 'button', class: 'link', onclick: action }, text);
  const download = () => {
    const file = new Blob([`${JSON.stringify(given, null, 2)}\n`], { type: 'application/json' });
    const href = URL.createObjectURL(file);
    el('a', { href, download: `${name.replace(/[^\w.-]+/g, '-')}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000); // After the browser has read it.
  };
  const copy = async ({ target }) => {
    const isCopied = await navigator.clipboard.writeText(location.href).then(
      () => true,
      () => false,
    );
    target.textContent = isCopied ? 'Link copied' : 'The browser refused: copy the address';
    announce(target.textContent);
  };
  // Browsers have a clipboard only for pages of the local host or over HTTPS. The address of a file is of no use to
  // others.
  return [button('Download JSON', download), !recorded && navigator.clipboard && button('Copy link', copy)];
}

/** Creates the view of a file: the answer to a question, and the button that saves it under a name. */
export function view(root, name, question, show) {
  const box = el('div', { class: 'result' });
  root.append(box);
  const all = (found) => [show(found), el('div', { class: 'tools' }, share(name, found))];
  return { show: () => answer(box, 'Loading…', question, all) };
}
