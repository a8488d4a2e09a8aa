// The token that a server on a network asks for. The page exchanges it for a cookie, which scripts cannot read.

import { drop, get, post } from './api.js';
import { el, fill } from './dom.js';

/** Calls `start` if the server answers this page, and asks for the token otherwise. */
export async function admit(start) {
  // If the server does not answer, the views show it.
  const { is_admitted: isAdmitted, expires } = await get('login').catch(() => ({}));
  if (isAdmitted === false) return form(document.getElementById('login'));
  const leave = document.getElementById('leave');
  leave.hidden = !expires;
  leave.addEventListener('click', async () => {
    await drop('login').catch(() => {});
    location.reload();
  });
  return start();
}

function form(box) {
  document.body.classList.add('locked');
  box.hidden = false;
  document.title = 'Log in · portolan';
  const token = el('input', {
    id: 'token',
    type: 'password',
    autocomplete: 'current-password',
    required: true,
    'aria-describedby': 'refused',
  });
  const refused = el('p', { id: 'refused', role: 'alert' });
  const button = el('button', { class: 'primary' }, 'Log in');
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await post('login', { token: token.value.trim() });
      location.reload();
    } catch (error) {
      fill(refused, error.detail ?? error.title);
      button.disabled = false;
      token.setAttribute('aria-invalid', 'true');
      token.select();
    }
  };
  box.append(
    el('p', null, 'The server asks for a token: that of its token file, or one of the cluster.'),
    el('form', { class: 'tools', onsubmit: submit }, el('label', { for: 'token' }, 'Token'), token, button),
    refused,
  );
  token.focus();
}
