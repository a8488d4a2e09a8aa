// Resilience: zones and nodes fail in turn, and the cluster is audited.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, replaced, until, visit, WIDE } from './browser.js';
import { node, pod } from './clusters.js';
import { ask, serve, serveFile } from './server.js';

let address;
before(async () => {
  address = await serve();
});

for (const [domain, size] of [
  ['zone', undefined],
  ['node', NARROW],
]) {
  test(`each ${domain} fails in turn, the worst first`, () =>
    visit(address, '#/resilience', { size }, async (page, check) => {
      const button = page.getByRole('button', { name: `Fail each ${domain}` });
      await button.focus();
      await page.keyboard.press('Enter');
      const table = page.getByRole('table', { name: new RegExp(`${domain}s whose failure`) });
      await table.waitFor();
      const expected = await ask(address, 'what-if', { each: domain });
      await page.getByText(expected.headline, { exact: true }).first().waitFor();
      const harms = await table
        .getByRole('row')
        .evaluateAll((rows) =>
          rows.slice(1).map((row) => Number(row.cells[2].textContent.replaceAll(',', ''))),
        );
      assert.ok(harms.length > 0 && harms.length <= 10);
      const edge = await table
        .getByRole('row')
        .nth(1)
        .evaluate((row) => row.cells[4].getBoundingClientRect().right);
      assert.ok(edge <= (size ?? WIDE).width, `the figures are in view: ${edge}`);
      await until(() => button.isEnabled(), Boolean, 'another question can be asked');
      await check(`resilience-${domain}`);
    }));
}

/** A cluster with findings: a pod that fits no node, and budgets that match no pod or the same pod twice. */
async function audited(use) {
  const budget = (name, app) => ({
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: { name, namespace: 'default' },
    spec: { minAvailable: 1, selector: { matchLabels: { app } } },
  });
  const { address } = await serveFile([
    node('n0'),
    node('n1'),
    pod('web', 'n0', { labels: { app: 'web' } }),
    pod('large', undefined, { cpu: '64' }),
    pod('lost', 'no-such-node'),
    budget('one', 'web'),
    budget('two', 'web'),
    budget('none', 'nobody'),
  ]);
  await visit(address, '#/resilience', {}, (page, check) => use(page, check, address));
}

test('the audit lists all findings with their remedies', () =>
  audited(async (page, check, address) => {
    const { findings } = await ask(address, 'audit');
    assert.ok(findings.length > 2, JSON.stringify(findings));
    const section = page.getByRole('region', { name: 'Audit' }).first();
    await section.getByRole('table').first().waitFor();
    const text = await section.textContent();
    for (const { object, problem } of findings.slice(0, 20)) {
      assert.ok(text.includes(object) && text.includes(problem), `${object}: ${problem}`);
    }
    await section.scrollIntoViewIfNeeded();
    await check('resilience-audit');
  }));

test('failures are simulated in a session', async () => {
  const { id } = await ask(address, 'sessions', { fail_zone: ['eu-1a'] });
  await visit(address, `#/resilience?session=${id}`, { expected: /status of 422/ }, async (page, check) => {
    await page.getByRole('region', { name: 'Session' }).getByText('fail zone eu-1a').waitFor();
    await page.getByRole('button', { name: 'Fail each zone' }).click();
    await page.locator('.headline:visible').first().waitFor();
    const found = await ask(address, `what-if?session=${id}`, { each: 'zone' });
    await page.getByText(found.headline, { exact: true }).first().waitFor();
    await check('resilience-session');
  });
});

test('the audit of a session says why there is none', async () => {
  const { id } = await ask(address, 'sessions', { fail_zone: ['eu-1a'] });
  await visit(address, 'page/page.css', { expected: /status of 422/ }, async (page, check) => {
    const detail = 'the audit examines the cluster as it was read, not that of a session';
    await replaced(page, 'audit', () => ({ title: 'Unprocessable Entity', status: 422, detail }), 422);
    await page.goto(new URL(`#/resilience?session=${id}`, address).href);
    await page
      .getByText('The audit examines the cluster as it was read, not that of a session.', { exact: true })
      .waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    await check('resilience-session-audit');
  });
});
