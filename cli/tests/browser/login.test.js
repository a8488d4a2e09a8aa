// A server that asks for a token: the form, the cookie and the logout.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { NARROW, visit } from './browser.js';
import { folder, serve } from './server.js';

const TOKEN = 'correct-horse-battery';
/** Browsers report refused requests, and the test provokes some. */
const expected = /401 \(Unauthorized\)/;

async function withToken(...options) {
  const dir = await folder();
  const token = `${dir}/token`;
  await writeFile(token, TOKEN);
  return { token, address: await serve('--token-file', token, ...options) };
}

const logIn = async (page, token) => {
  await page.getByLabel('Token', { exact: true }).fill(token);
  await page.keyboard.press('Enter');
};

for (const [name, size, scheme] of [
  ['wide', undefined, 'light'],
  ['narrow', NARROW, 'dark'],
]) {
  test(`the page asks for the token, and shows the cluster until the logout: ${name}`, async () => {
    const { address } = await withToken();
    await visit(address, '#/pending', { size, scheme, expected }, async (page, check) => {
      const field = page.getByLabel('Token', { exact: true });
      await field.waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.id), 'token', 'the field has the focus');
      assert.equal(await field.getAttribute('type'), 'password');
      assert.equal(await page.getByRole('navigation').isVisible(), false, 'nothing else is shown');
      await check(`login-${name}`);
      await logIn(page, 'wrong-horse-battery');
      await page.getByRole('alert').getByText('the token is not valid').waitFor();
      await check(`login-refused-${name}`);
      await logIn(page, TOKEN);
      await page.getByRole('heading', { name: 'Pending pods' }).waitFor();
      assert.equal(await page.evaluate(() => document.cookie), '', 'scripts do not see the cookie');
      await check(`login-done-${name}`);
      await page.reload();
      await page.getByRole('button', { name: 'Log out' }).click();
      await field.waitFor();
      await page.reload();
      await field.waitFor();
    });
  });
}

test('the page asks again when the token was replaced', async () => {
  const { address, token } = await withToken();
  await visit(address, '', { expected }, async (page) => {
    await logIn(page, TOKEN);
    await page.getByRole('application', { name: /Map of/ }).waitFor();
    await writeFile(token, 'another-horse-battery');
    const field = page.getByLabel('Token', { exact: true });
    // The stream of events ends within seconds, and any question is refused.
    await field.waitFor();
    await logIn(page, 'another-horse-battery');
    await page.getByRole('application', { name: /Map of/ }).waitFor();
  });
});

test('a server without a token shows neither the form nor the logout', async () => {
  await visit(await serve(), '', {}, async (page) => {
    await page.getByRole('application', { name: /Map of/ }).waitFor();
    assert.equal(await page.getByLabel('Token', { exact: true }).count(), 0);
    assert.equal(await page.getByRole('button', { name: 'Log out' }).isVisible(), false);
  });
});

test('the cookie of a server with TLS belongs to its host alone', async (context) => {
  const dir = await folder();
  const [key, certificate] = [`${dir}/tls.key`, `${dir}/tls.crt`];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2'];
  const files = ['-keyout', key, '-out', certificate];
  const kind = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  try {
    execFileSync('openssl', ['req', ...kind, ...files, ...subject], { stdio: 'ignore' });
  } catch {
    return context.skip('openssl is not installed');
  }
  const { address } = await withToken('--tls-cert-file', certificate, '--tls-private-key-file', key);
  assert.equal(address.protocol, 'https:');
  await visit(address, '', { expected }, async (page) => {
    await logIn(page, TOKEN);
    await page.getByRole('application', { name: /Map of/ }).waitFor();
    const cookies = await page.context().cookies();
    const found = cookies.map(({ name, httpOnly, secure, sameSite }) => ({
      name,
      httpOnly,
      secure,
      sameSite,
    }));
    assert.deepEqual(found, [
      { name: '__Host-portolan-0', httpOnly: true, secure: true, sameSite: 'Strict' },
    ]);
  });
});
