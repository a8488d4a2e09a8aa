// Resilience: zones and nodes fail in turn, pools are upgraded, and the cluster is audited.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, replaced, until, visit, WIDE } from './browser.js';
import { large, node, pod } from './clusters.js';
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

test('failures are shown while others are simulated', async () => {
  const { address } = await serveFile([...large(1500), pod('alone', 'node-00007')]);
  await visit(address, '#/resilience', {}, async (page, check) => {
    const begin = page.getByRole('button', { name: 'Fail each node' });
    await begin.click();
    const progress = page.getByText(/^[\d,]+ of 1,500 nodes failed…$/);
    await progress.waitFor();
    const ended = () => progress.textContent().then((text) => Number.parseInt(text.replace(',', ''), 10));
    const first = await ended();
    await until(ended, (now) => now > first, 'more failures have ended');
    await page.getByRole('table', { name: /nodes whose failure/ }).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Nothing failed yet').waitFor();
    await check('resilience-cancelled');
  });
});

const LIGHT = { hangs: /^hangs in step \d+$/, harms: /^pods (unschedulable|lost): \d+/, good: /^can be upgraded$/ };

/** Presses the button of the upgrades. Returns their part of the page. */
async function upgrade(page) {
  const part = page.getByRole('region', { name: 'Upgrades' });
  await part.getByRole('button', { name: 'Try to upgrade each pool' }).focus();
  await page.keyboard.press('Enter');
  return part;
}

/** The lights by the name of the pool. */
const lights = (part) =>
  part.getByRole('row').evaluateAll((rows) =>
    rows.slice(1).map((row) => [row.cells[0].firstChild.textContent, row.cells[1].textContent]),
  );

for (const [name, options] of [
  ['wide', {}],
  ['narrow', { size: NARROW, scheme: 'dark' }],
]) {
  test(`each pool has the light of its upgrade: ${name}`, () =>
    visit(address, '#/resilience', options, async (page, check) => {
      const part = await upgrade(page);
      await part.getByText('1 of 3 pools can be upgraded', { exact: true }).waitFor();
      const { pools } = await ask(address, 'nodes');
      const found = await lights(part);
      assert.deepEqual(
        found.map(([pool]) => pool),
        pools.map((pool) => pool.name),
      );
      for (const [at, [pool, light]] of found.entries()) {
        const answer = await ask(address, 'what-if', { upgrade: pools[at].selector });
        const kind = answer.ok ? 'good' : answer.upgrade.failed_step ? 'hangs' : 'harms';
        assert.match(light, LIGHT[kind], pool);
        const row = part.getByRole('row', { name: new RegExp(`^${pool}`) });
        await row.getByText(answer.headline, { exact: true }).waitFor();
        for (const { budget, why } of answer.budgets)
          await row.getByText(`budget ${budget}${why}`, { exact: true }).waitFor();
      }
      assert.equal(new Set(found.map(([, light]) => light)).size, 3, 'an upgrade of each kind');
      const edge = await part
        .getByRole('row')
        .nth(1)
        .evaluate((row) => row.cells[1].getBoundingClientRect().right);
      assert.ok(edge <= (options.size ?? WIDE).width, `the lights are in view: ${edge}`);
      await part.scrollIntoViewIfNeeded();
      await check(`resilience-pools-${name}`);
      await part.getByRole('link', { name: 'Open in What-if' }).first().click();
      const { headline } = await ask(address, 'what-if', { upgrade: pools[0].selector });
      await page.getByRole('region', { name: 'Answer' }).getByText(headline, { exact: true }).waitFor();
    }));
}

test('pools are upgraded in a session', async () => {
  const change = { scale: ['deployment/licence=4'], namespace: 'shop' };
  const { id } = await ask(address, 'sessions', change);
  await visit(address, `#/resilience?session=${id}`, { expected: /status of 422/ }, async (page, check) => {
    const part = await upgrade(page);
    await part.getByText(/of 3 pools can be upgraded/).waitFor();
    const row = part.getByRole('row', { name: /^general/ });
    const found = await ask(address, `what-if?session=${id}`, { upgrade: 'pool=general' });
    const before = await ask(address, 'what-if', { upgrade: 'pool=general' });
    assert.notEqual(found.headline, before.headline);
    await row.getByText(found.headline, { exact: true }).waitFor();
    await check('resilience-pools-session');
    await page.goto(new URL('#/resilience', address).href);
    await part.getByText('No upgrade tried yet').waitFor();
  });
});

test('upgrades end when they are cancelled, and keep the lights that they have', () =>
  visit(address, '#/resilience', {}, async (page, check) => {
    // The second question does not end.
    let asked = 0;
    let isHeld = true;
    await page.route(/what-if/, (route) => (isHeld && (asked += 1) === 2 ? undefined : route.continue()));
    const part = await upgrade(page);
    await part.getByText('1 of 3 pools tried…', { exact: true }).waitFor();
    const running = await lights(part);
    assert.match(running[0][1], LIGHT.hangs);
    assert.deepEqual(running.slice(1).map(([, light]) => light), ['trying…', 'not tried']);
    await part.getByRole('button', { name: 'Cancel' }).click();
    await part.getByText('Cancelled: 1 of 3 pools tried', { exact: true }).waitFor();
    const left = await lights(part);
    assert.deepEqual(left[0], running[0]);
    assert.deepEqual(left.slice(1).map(([, light]) => light), ['not tried', 'not tried']);
    assert.equal(asked, 2);
    await check('resilience-pools-cancelled');
    isHeld = false;
    await upgrade(page);
    await part.getByText('1 of 3 pools can be upgraded', { exact: true }).waitFor();
  }));

test('a pool whose question is refused does not end the others', async () => {
  const { address } = await serveFile([
    node('n0', { pool: 'not a value' }),
    node('n1', { pool: 'web', labels: { 'eks.amazonaws.com/nodegroup': 'web' } }),
    node('n2', { pool: 'web' }),
  ]);
  await visit(address, '#/resilience', { expected: /status of 422/ }, async (page, check) => {
    const part = await upgrade(page);
    await part.getByText('2 of 3 pools can be upgraded', { exact: true }).waitFor();
    assert.deepEqual(await lights(part), [
      ['not a value', 'no answer'],
      ['web', 'can be upgraded'],
      ['web', 'can be upgraded'],
    ]);
    await part.getByText('is not a label requirement', { exact: false }).waitFor();
    await check('resilience-pools-refused');
  });
});

test('a cluster without pools says so', async () => {
  const { metadata, ...rest } = node('n0');
  const { address } = await serveFile([{ ...rest, metadata: { name: metadata.name } }]);
  await visit(address, '#/resilience', {}, async (page, check) => {
    const part = await upgrade(page);
    await part.getByText('No pools', { exact: true }).waitFor();
    await check('resilience-pools-none');
  });
});

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
