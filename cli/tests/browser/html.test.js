// Pages in one file, which `--html` writes: opened from the disk, without a server.

import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { before, test } from 'node:test';
import { NARROW, picture, settle, until, visit, WIDE } from './browser.js';
import { hostile, large, MARKUP, node, pod, RIGHT_TO_LEFT, SHOWN } from './clusters.js';
import { pages } from './server.js';

const MIDDLE = { width: 500, height: 800 };

const cluster = () => [
  ...[0, 1, 2, 3].map((at) => node(`general-${at}`, { zone: `z${at % 2}` })),
  node('gpu-0', { pool: 'gpu', taints: [{ key: 'gpu', value: 'yes', effect: 'NoSchedule' }] }),
  ...[0, 1, 2, 3, 4, 5].map((at) => pod(`web-${at}`, `general-${at % 4}`, { cpu: '6' })),
  pod('large', undefined, { cpu: '12' }),
  pod('huge', undefined, { cpu: '64' }),
  pod('elsewhere', undefined, { nodeSelector: { disk: 'ssd' } }),
];

/** Pods that run from a minute to another one; the third waits for the first. */
const trace = () =>
  [
    ['a', 0, 30],
    ['b', 5, 30],
    ['c', 10, 30],
    ['d', 50, 70],
  ].map(([name, from, to]) => {
    const found = pod(name, undefined, { cpu: '10' });
    const time = (minute) => new Date(Date.UTC(2025, 4, 3, 22, minute)).toISOString();
    Object.assign(found.metadata, { creationTimestamp: time(from), deletionTimestamp: time(to) });
    return found;
  });

const packed = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`;

const nodes = () => [node('n0', { cpu: '16' }), node('n1', { cpu: '12', pool: 'spot' })];
const arriving = () => Array.from({ length: 30 }, (_, at) => pod(`p${at}`, undefined, { cpu: '1' }));

/** The words of each command. */
const COMMANDS = {
  explain: ['explain', '-f', 'cluster.json', '--pod', 'default/large'],
  pending: ['explain', '-f', 'cluster.json', '--pending'],
  drain: ['what-if', '-f', 'cluster.json', '--drain', 'general-0', '--force'],
  upgrade: ['what-if', '-f', 'cluster.json', '--upgrade', 'all', '--max-surge', '1', '--force'],
  each: ['what-if', '-f', 'cluster.json', '--each', 'node'],
  audit: ['audit', '-f', 'cluster.json'],
  replay: ['replay', '--nodes', 'nodes.json', '--pods', 'trace.json', '--mode', 'timed'],
  fill: ['replay', '--nodes', 'nodes.json', '--pods', 'pods.json'],
  compare: ['compare', '--config', 'default', 'packed.yaml', '--nodes', 'nodes.json', '--pods', 'pods.json'],
};

const written = {};
let write;

before(async () => {
  const files = { 'cluster.json': cluster(), 'nodes.json': nodes(), 'pods.json': arriving() };
  write = await pages({ ...files, 'trace.json': trace(), 'packed.yaml': packed });
  for (const [name, words] of Object.entries(COMMANDS)) written[name] = await write(...words);
});

const shown = (page) => page.locator('main section:visible').first();
const headline = (page) => page.locator('.headline:visible').first();

for (const name of Object.keys(COMMANDS)) {
  for (const scheme of ['light', 'dark']) {
    for (const size of [NARROW, MIDDLE, WIDE]) {
      test(`${name} is readable, ${scheme}, ${size.width} px wide`, () =>
        visit(written[name].address, '', { size, scheme }, async (page, check) => {
          await shown(page).waitFor();
          await settle(page);
          await check(`html-${name}-${scheme}-${size.width}`);
        }));
    }
  }

  test(`${name}: the headline is the first line of the answer, and the command is at the foot`, () =>
    visit(written[name].address, '', {}, async (page) => {
      const { stdout, command } = written[name];
      const title = await page.title();
      if (!['replay', 'fill'].includes(name)) assert.equal(title, stdout.split('\n')[0]);
      // An explanation has the pod above its headline.
      const text = await headline(page).textContent();
      assert.ok(title.endsWith(text), `${title} ends with ${text}`);
      assert.equal(await page.locator('#foot code').textContent(), command);
      assert.match(await page.locator('#foot').textContent(), /portolan \d+\.\d+\.\d+/);
    }));
}

test('an explanation has the picture of the nodes, and offers nothing that needs a server', () =>
  visit(written.explain.address, '', {}, async (page) => {
    const canvas = page.locator('.heat canvas');
    await canvas.hover({ position: { x: 5, y: 5 } });
    await page
      .locator('.heat .tip')
      .getByText(/general-|gpu-/)
      .waitFor();
    await canvas.click({ position: { x: 5, y: 5 } });
    await page.getByRole('table', { name: 'Changes that would make the pod fit' }).waitFor();
    assert.equal(new URL(page.url()).hash, '');
    assert.deepEqual(await page.getByRole('button').allTextContents(), ['Download JSON']);
    assert.equal(await page.locator('nav').count(), 0);
  }));

test('the answer can be downloaded', () =>
  visit(written.audit.address, '', {}, async (page) => {
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download JSON' }).click();
    assert.equal((await download).suggestedFilename(), 'audit.json');
  }));

test('pending pods link to their explanations', () =>
  visit(written.pending.address, '', {}, async (page) => {
    assert.equal(await page.locator('form').count(), 0);
    await page.locator('a.group', { hasText: 'huge' }).click();
    await page.getByRole('heading', { name: 'default/huge' }).waitFor();
    await page.locator('.heat canvas').waitFor();
    await page.goBack();
    await page.locator('a.group', { hasText: 'elsewhere' }).waitFor();
  }));

test('the largest groups of many pending pods have links', async () => {
  const pending = Array.from({ length: 12 }, (_, at) => pod(`p${at}`, undefined, { cpu: `${20 + at}` }));
  const many = await pages({ 'many.json': [node('n0'), ...pending] });
  const { address } = await many('explain', '-f', 'many.json', '--pending');
  await visit(address, '', {}, async (page, check) => {
    await page.getByText('This file explains the largest groups.').waitFor();
    assert.equal(await page.locator('a.group').count(), 10);
    assert.equal(await page.locator('div.group').count(), 2);
    await check('html-many-pending');
  });
});

/** Pods of a controller, which are created again, one on each node. */
const owned = () => {
  const metadata = { name: 'web', namespace: 'default', uid: 'web' };
  const template = { metadata: { labels: { app: 'web' } }, spec: pod('web').spec };
  const owner = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web', uid: 'web', controller: true };
  const pods = [0, 1, 2].map((at) => pod(`web-${at}`, `n${at}`, { cpu: '4', labels: { app: 'web' } }));
  for (const it of pods) it.metadata.ownerReferences = [owner];
  const selector = { matchLabels: { app: 'web' } };
  const spec = { replicas: 3, selector, template };
  return [
    node('n0'),
    node('n1', { cpu: '4' }),
    node('n2'),
    { apiVersion: 'apps/v1', kind: 'ReplicaSet', metadata, spec },
    ...pods,
  ];
};

test('a change shows the nodes before and after it', async () => {
  const { address } = await (await pages({ 'owned.json': owned() }))('what-if', '-f', 'owned.json', '--drain', 'n0');
  await visit(address, '', {}, async (page, check) => {
    const [before, after] = ['Before', 'After'].map((side) =>
      page.getByRole('application', { name: `${side}: 3 nodes` }),
    );
    await settle(page);
    const [left, right] = [await before.boundingBox(), await after.boundingBox()];
    assert.ok(left.y === right.y && left.x + left.width < right.x, 'side by side');
    await page.getByText('After: 3 nodes, 33 % of cpu requested').waitFor();
    const row = (name) => page.getByRole('row', { name });
    assert.match(await row(/^n0/).textContent(), /^n0cordoned25 % → 0 %1 → 0default\/web-0 → n2$/);
    assert.match(await row(/^n2/).textContent(), /^n225 % → 50 %1 → 2default\/web-0 from n0$/);
    assert.equal(await row(/^n1/).count(), 0, 'it does not change');
    assert.equal(await page.getByText('Nodes that lose and gain').count(), 0, 'the maps show it');
    // A node that is pointed at, and a move, are shown on both maps.
    const shown = () => Promise.all([before, after].map(picture));
    const differs = (old, what) =>
      until(shown, (next) => next.every((it, at) => it !== old[at]), what);
    const still = await shown();
    await before.hover({ position: { x: 40, y: 60 } });
    await page.locator('.tip:visible').getByText('default/web-0 → n2').waitFor();
    const pointed = await differs(still, 'both outline the node');
    await before.press('+');
    await differs(pointed, 'both are zoomed');
    // A frame of one map for its outline does not undo what a person does on the other at the same time.
    await after.evaluate((other) => {
      const [map] = document.querySelectorAll('.sides canvas');
      const { x, y } = other.getBoundingClientRect();
      other.dispatchEvent(new PointerEvent('pointermove', { clientX: x + 5, clientY: y + 5 }));
      map.dispatchEvent(new KeyboardEvent('keydown', { key: '0' }));
    });
    await before.evaluate(async (map) => {
      const press = (key) => map.dispatchEvent(new KeyboardEvent('keydown', { key }));
      press('+');
      await new Promise(requestAnimationFrame);
      press('0');
    });
    await before.hover({ position: { x: 41, y: 60 } });
    await until(shown, ([, right]) => right === pointed[1], 'both show all nodes again');
    await after.click({ position: { x: 40, y: 60 } });
    await page.getByRole('table', { name: 'Changes of n0' }).waitFor();
    assert.equal(await row(/^n2/).count(), 0);
    await after.press('Enter');
    await page.getByRole('table', { name: 'Changed nodes' }).waitFor();
    const cpu = await shown();
    await page.getByLabel('Fill by').selectOption('memory');
    await differs(cpu, 'both are filled by memory');
    await row(/^n0/).getByText('3 % → 0 %').waitFor();
    await check('html-before-and-after');
  });
});

test('the maps of a narrow window are one below the other', () =>
  visit(written.upgrade.address, '', { size: NARROW }, async (page) => {
    const [before, after] = await Promise.all(
      [/Before: 5 nodes/, /After/].map((name) => page.getByRole('application', { name }).boundingBox()),
    );
    assert.ok(before.x === after.x && before.y + before.height < after.y);
    await page.getByRole('row', { name: /^general-0 removed/ }).waitFor();
    await page.getByRole('row', { name: /^general-0-upgraded added/ }).waitFor();
  }));

test('an answer that changes no node has no maps', () =>
  visit(written.each.address, '', {}, async (page) => {
    await headline(page).waitFor();
    assert.equal(await page.getByRole('application').count(), 0);
  }));

test('an upgrade and failures are drawn as in the page of a server', async () => {
  await visit(written.upgrade.address, '', {}, async (page) => {
    await page.getByRole('table', { name: 'Steps of the upgrade' }).waitFor();
    assert.ok((await page.locator('.gantt rect').count()) >= 5);
  });
  await visit(written.each.address, '', {}, async (page) => {
    await page.getByRole('table', { name: 'Failures, the worst first' }).waitFor();
  });
});

test('a replay has dates, pools and causes', () =>
  visit(written.replay.address, '', {}, async (page) => {
    const [requested, waiting] = await page.getByRole('application').all();
    assert.match(await waiting.getAttribute('aria-label'), /Insufficient cpu, at most 1/);
    assert.match(await requested.locator('text').allTextContents().then(String), /3 May|22:\d\d/);
    await requested.press('Home');
    await page
      .getByText(/3 May 2025, 22:00:00 UTC/)
      .first()
      .waitFor();
    await requested.press('ArrowRight');
    assert.match(await page.locator('#announce').textContent(), /22:05:00 UTC, cpu 71/);
    const choice = page.getByLabel('Pool');
    assert.deepEqual(await choice.locator('option').allTextContents(), [
      'all nodes (2)',
      'general (1)',
      'spot (1)',
    ]);
    await choice.selectOption('spot (1)');
    const label = await page.getByRole('application').first().getAttribute('aria-label');
    assert.match(label, /cpu, at most 83\.?\d* %/);
    await page.getByText('the last pod ends after 1 h 10 min').waitFor();
  }));

test('a comparison draws both runs, and its tables fit', () =>
  visit(written.compare.address, '', { size: MIDDLE }, async (page) => {
    const used = page.getByRole('application', { name: /Nodes in use/ });
    assert.equal(await used.locator('path.line').count(), 2);
    const box = await used.boundingBox();
    await used.hover({ position: { x: box.width / 4, y: 80 } });
    const tip = page.locator('.chart .tip:visible');
    assert.match(await tip.textContent(), /pods arrived.*default[12].*packed\.yaml[12]/);
    const wide = await page
      .locator('.scroll')
      .evaluateAll((all) => all.filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.textContent));
    assert.deepEqual(wide, []);
    assert.ok((await page.getByRole('table').count()) >= 3);
  }));

test('only the own script runs', () =>
  visit(written.audit.address, '', { expected: /Content Security Policy/ }, async (page) => {
    await page.evaluate(() => {
      const script = document.createElement('script');
      script.textContent = 'globalThis.isHacked = 1';
      document.body.append(script);
    });
    assert.equal(await page.evaluate(() => globalThis.isHacked), undefined);
  }));

const CLOSING = '</script><script>globalThis.isHacked=1</script><!--<script>';

test('hostile names are text', async () => {
  const objects = [
    ...hostile(),
    node(`n${CLOSING}`, { zone: CLOSING, pool: CLOSING }),
    pod(`pending${CLOSING}`, undefined, { cpu: '99' }),
    pod(`running${CLOSING}`, `n${CLOSING}`),
  ];
  const hostiles = await pages({ 'cluster.json': objects, 'pods.json': objects.slice(-2) });
  const files = ['-f', 'cluster.json'];
  const replayed = ['--nodes', 'cluster.json', '--pods', 'pods.json'];
  const commands = [
    [['explain', ...files, '--pod', `default/pending${CLOSING}`], `pending${CLOSING}`],
    [['explain', ...files, '--pending'], `pending${SHOWN}`],
    [['what-if', ...files, '--each', 'node'], `running${CLOSING}`],
    [['what-if', ...files, '--fail-node', `b${RIGHT_TO_LEFT}`], `running${SHOWN}`],
    [['audit', ...files], MARKUP],
    [['replay', ...replayed], `p${MARKUP}`],
    [['compare', '--config', 'default', 'default', ...replayed], `p${MARKUP}`],
  ];
  for (const [words, name] of commands) {
    const { address } = await hostiles(...words);
    await visit(address, '', {}, async (page, check) => {
      await shown(page).waitFor();
      await settle(page);
      const text = await page.evaluate(() => document.body.textContent);
      assert.ok(text.includes(name), `${words.join(' ')}: ${name}`);
      const rest = await page.evaluate(() => {
        document.querySelector('#recorded').remove();
        return document.body.innerText + document.title;
      });
      assert.doesNotMatch(rest, /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/);
      assert.equal(await page.locator('img, iframe, [onerror], [onmouseover]').count(), 0);
      await check(`html-hostile-${words[0]}`);
      assert.equal(await page.evaluate(() => globalThis.isHacked), undefined);
    });
  }
});

test('the file of a large cluster is small enough to be mailed', async () => {
  const many = await pages({ 'large.json': [...large(5000), pod('huge', undefined, { cpu: '64' })] });
  for (const words of [
    ['explain', '-f', 'large.json', '--pod', 'huge'],
    ['what-if', '-f', 'large.json', '--drain', 'node-00000', '--force'],
  ]) {
    const { address } = await many(...words);
    const { size } = await stat(address);
    console.log(`${words[0]}: ${(size / 1e6).toFixed(1)} MB for 5,000 nodes`);
    assert.ok(size < 5e6, `${size} bytes`);
    await visit(address, '', {}, async (page) => {
      await headline(page).waitFor();
      await settle(page);
    });
  }
});
