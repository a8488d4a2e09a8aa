// The fleet: found, opened and selected with the keyboard, the pointer and the table.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, picture, replaced, settle, until, visit } from './browser.js';
import { serve } from './server.js';

let address;
before(async () => {
  address = await serve();
});

const map = (page) => page.getByRole('application', { name: /Map of 36 nodes/ });
const panel = (page) => page.getByRole('complementary', { name: 'Node' });
const selection = (page) => page.getByRole('group', { name: 'Selection' });
const fragment = (page) => new URL(page.url()).hash;

test('a search counts the nodes that match, and selects them for a drain', () =>
  visit(address, '', {}, async (page, check) => {
    await page.getByLabel('Find nodes').fill('gpu-');
    await page.getByText('6 of 36 nodes').waitFor();
    await check('fleet-search');
    await page.getByRole('button', { name: 'Select these' }).click();
    await selection(page).getByText('6 nodes selected').waitFor();
    await check('fleet-selected');
    await selection(page).getByRole('button', { name: /Drain/ }).click();
    await page.getByRole('heading', { name: 'What if' }).waitFor({ state: 'attached' });
    assert.equal(
      await page.getByLabel('Drain nodes').inputValue(),
      'gpu-30 gpu-31 gpu-32 gpu-33 gpu-34 gpu-35',
    );
  }));

test('the map is used with the keyboard alone', () =>
  visit(address, '', {}, async (page, check) => {
    await map(page).waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the view');
    await page.keyboard.press('Enter');
    // From the view to the map, which is a single stop.
    for (let stops = 0; !(await map(page).evaluate((it) => it === document.activeElement)); stops++) {
      assert.ok(stops < 12, 'the map is among the first stops of the view');
      await page.keyboard.press('Tab');
    }
    await page.keyboard.press('ArrowRight');
    const read = await page.getByRole('status').allTextContents();
    assert.match(
      read.join(' '),
      /general-\d\d, eu-1\w, general, cpu \d+ %/,
      'the node at the cursor is read aloud',
    );
    for (const key of ['ArrowRight', ' ', 'ArrowDown', ' ']) await page.keyboard.press(key);
    await selection(page).getByText('2 nodes selected').waitFor();
    await page.keyboard.press('+');
    await page.keyboard.press('Enter');
    await panel(page).getByRole('heading', { level: 2 }).waitFor();
    assert.match(fragment(page), /node=general-\d\d/);
    await check('fleet-keyboard');
  }));

test('a click opens a node with its pods, whose links explain them', () =>
  visit(address, '', {}, async (page, check) => {
    await map(page).waitFor();
    await settle(page);
    await map(page).click({ position: { x: 24, y: 60 } });
    await panel(page).getByRole('heading', { level: 2 }).waitFor();
    const name = await panel(page).getByRole('heading', { level: 2 }).textContent();
    assert.match(name, /^general-/);
    await check('fleet-panel');
    const link = panel(page).getByRole('link').first();
    const pod = await link.textContent();
    await link.click();
    await page.getByRole('heading', { name: pod }).waitFor();
    await page.goBack();
    await panel(page).getByRole('heading', { name }).waitFor();
    await panel(page).getByRole('button', { name: 'Close' }).click();
    await panel(page).waitFor({ state: 'hidden' });
    assert.doesNotMatch(fragment(page), /node=/);
  }));

/** A path around the nodes below the diagonal of the map, from the top left to the bottom right. */
const TRIANGLE = [[0, 0], [0, 1], [1, 1]].flatMap(([x, y], at, all) => {
  const [nextX, nextY] = all[at + 1] ?? [x, y];
  return Array.from({ length: 8 }, (_, step) => [x + ((nextX - x) * step) / 8, y + ((nextY - y) * step) / 8]);
});

/** Returns a point of the page for shares of the width and height of a box, which has rounded corners. */
const within = ({ x, y, width, height }) => ([right, down]) => ({
  x: x + 5 + right * (width - 10),
  y: y + 5 + down * (height - 10),
});

/** Fails unless the address has the nodes well below the diagonal, and none well above it. */
async function assertTriangle(page, { x, y, width, height }) {
  const chosen = new URLSearchParams(fragment(page).split('?')[1]).get('select').split(',');
  const sides = [new Set(), new Set()];
  for (let at = 0; at < 120; at++) {
    const [right, down] = [((at % 12) + 0.5) / 12, (Math.floor(at / 12) + 0.5) / 10];
    if (Math.abs(down - right) < 0.25) continue;
    await page.mouse.move(x + right * width, y + down * height);
    const [name] = await page.locator('.tip:not([hidden]) b').allTextContents();
    if (name) sides[down > right ? 0 : 1].add(name);
  }
  const [below, above] = sides;
  assert.ok(below.size > 1 && above.size > 1, 'both halves have nodes');
  for (const name of below) assert.ok(chosen.includes(name), `${name} is in the lasso`);
  for (const name of above) assert.ok(!chosen.includes(name), `${name} is beside the lasso`);
}

test('a lasso selects the nodes in it, and not those beside it', () =>
  visit(address, '', {}, async (page, check) => {
    await map(page).waitFor();
    await settle(page);
    const box = await map(page).boundingBox();
    const place = within(box);
    await page.keyboard.down('Shift');
    const [first, ...others] = TRIANGLE.map(place);
    await page.mouse.move(first.x, first.y);
    await page.mouse.down();
    for (const { x, y } of others) await page.mouse.move(x, y);
    await check('fleet-lasso');
    await page.mouse.up();
    await page.keyboard.up('Shift');
    await selection(page).getByText(/^\d+ nodes selected$/).waitFor();
    await assertTriangle(page, box);
    await page.getByRole('button', { name: 'Clear' }).click();
    await selection(page).waitFor({ state: 'hidden' });
  }));

test('a finger draws a lasso after Select, and two fingers zoom', () =>
  visit(address, '', {}, async (page) => {
    await map(page).waitFor();
    await settle(page);
    const box = await map(page).boundingBox();
    const place = within(box);
    const client = await page.context().newCDPSession(page);
    const touch = (type, ...touchPoints) => client.send('Input.dispatchTouchEvent', { type, touchPoints });
    await page.getByRole('button', { name: 'Select', exact: true }).click();
    await touch('touchStart', { id: 0, ...place(TRIANGLE[0]) });
    for (const point of TRIANGLE) await touch('touchMove', { id: 0, ...place(point) });
    await touch('touchEnd');
    await selection(page).getByText(/^\d+ nodes selected$/).waitFor();
    await assertTriangle(page, box);
    const before = await picture(map(page));
    const fingers = (apart) => [0.5 - apart, 0.5 + apart].map((x, id) => ({ id, ...place([x, 0.5]) }));
    const [first] = fingers(0.05);
    await touch('touchStart', first);
    await touch('touchStart', ...fingers(0.05));
    for (const apart of [0.1, 0.2, 0.3]) await touch('touchMove', ...fingers(apart));
    await touch('touchEnd');
    await until(() => picture(map(page)), (now) => now !== before, 'the map is larger');
  }));

test('the table has the nodes of the map, and selects them', () =>
  visit(address, '', { size: NARROW }, async (page, check) => {
    await page.getByRole('checkbox', { name: 'Table' }).check();
    const table = page.getByRole('table', { name: /Nodes/ });
    await table.waitFor();
    assert.equal(await table.getByRole('row').count(), 37);
    await page.getByRole('checkbox', { name: 'Select general-05' }).check();
    await page.getByRole('checkbox', { name: 'Select memory-24' }).check();
    await selection(page).getByText('2 nodes selected').waitFor();
    assert.ok(await page.getByRole('checkbox', { name: 'Select general-05' }).isChecked());
    await page.getByLabel('Find nodes').fill('memory');
    await until(
      () => table.getByRole('row').count(),
      (rows) => rows === 7,
      'the table has the nodes that match',
    );
    assert.ok(await page.getByRole('checkbox', { name: 'Select memory-24' }).isChecked());
    await check('fleet-table');
    await table.getByRole('button', { name: 'memory-24' }).click();
    await panel(page).getByRole('heading', { name: 'memory-24' }).waitFor();
  }));

test('the map is drawn by another resource', () =>
  visit(address, '', { size: NARROW }, async (page, check) => {
    await map(page).waitFor();
    await settle(page);
    const before = await picture(map(page));
    await page.getByLabel('Fill by').selectOption('memory');
    await until(
      () => picture(map(page)),
      (now) => now !== before,
      'the map changes',
    );
    await check('fleet-memory');
  }));

test('the resource of the map is seen on large tiles, too', () =>
  visit(address, '', {}, async (page, check) => {
    await map(page).waitFor();
    await settle(page);
    const before = await picture(map(page));
    await page.getByLabel('Fill by').selectOption('memory');
    await settle(page);
    assert.notEqual(await picture(map(page)), before);
    for (let step = 0; step < 3; step++) await page.getByRole('button', { name: 'Zoom in' }).click();
    await check('fleet-deep');
  }));

test('headroom counts further pods of a shape', () =>
  visit(address, '', { expected: /status of 422/ }, async (page, check) => {
    await page.getByText('Headroom: how many more pods fit?').click();
    await page.getByLabel('cpu', { exact: true }).fill('2');
    await page.getByLabel('memory', { exact: true }).fill('8Gi');
    await page.keyboard.press('Enter');
    await page
      .getByText(/\d+ more pods of this shape/)
      .first()
      .waitFor();
    await page.getByRole('table', { name: /pool and zone/ }).waitFor();
    await check('fleet-headroom');
    await page.getByLabel('cpu', { exact: true }).fill('many');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').waitFor();
  }));

for (const [name, answer, expected] of [
  [
    'is a lower bound if not all copies were counted',
    { count: 10_000, now: 9_000, is_complete: false, not_simulated: ['volumes of shape'] },
    [
      'at least 10,000 more pods of this shape fit',
      '9,000 fit now, before the terminating pods have ended.',
      'volumes of shape',
    ],
  ],
  [
    'is exact if all copies were counted',
    { count: 1, now: 1, is_complete: true, not_simulated: [] },
    ['1 more pod of this shape fits'],
  ],
]) {
  test(`headroom ${name}`, () =>
    visit(address, '', {}, async (page, check) => {
      await replaced(page, 'headroom', ({ by }) => ({ generation: 1, by, ...answer }));
      await page.getByText('Headroom: how many more pods fit?').click();
      await page.getByLabel('cpu', { exact: true }).press('Enter');
      for (const text of expected) await page.locator('main').getByText(text, { exact: true }).waitFor();
      assert.equal(await page.locator('#announce').textContent(), expected[0]);
      assert.equal(await page.getByText('fit now, before').count(), answer.now === answer.count ? 0 : 1);
      await check(`fleet-headroom-${answer.count}`);
    }));
}

test('nodes that arrive after a switch leave the address of the other view as it is', () =>
  visit(address, '#/what-if', {}, async (page) => {
    let release;
    const held = new Promise((done) => {
      release = done;
    });
    await page.route(/\/api\/v1\/nodes$/, async (route) => {
      await held;
      await route.continue();
    });
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.evaluate(() => {
      location.hash = '#/fleet?select=general-00,general-01';
    });
    await page.getByRole('link', { name: /^Pending/ }).click();
    await page.getByText(/pods pending/).waitFor();
    const arrived = page.waitForResponse(/\/api\/v1\/nodes$/);
    release();
    await arrived;
    await until(
      () => page.evaluate(() => document.querySelector('#fleet canvas').getAttribute('aria-label')),
      (label) => /36 nodes/.test(label),
      'the nodes have arrived',
    );
    assert.equal(fragment(page), '#/pending');
  }));

test('blocks of nodes do not overlap, and use the canvas', () =>
  visit(address, '', {}, async (page) => {
    const found = await page.evaluate(async () => {
      const { group, layout } = await import('./page/layout.js');
      const faults = [];
      for (const count of [1, 3, 40, 3000])
        for (const zones of [1, 3])
          for (const pools of [1, 3, 12])
            for (const [width, height] of [[324, 350], [1390, 590]]) {
              const nodes = Array.from({ length: count }, (_, at) => ({ zone: at % zones, pool: at % pools }));
              const { blocks, pitch, ...plan } = layout(group(nodes), count, width, height);
              const boxes = blocks.map(({ x, y, columns, nodes: own }) => ({
                ...{ left: x, top: y, right: x + columns * pitch },
                bottom: y + Math.ceil(own.length / columns) * pitch,
              }));
              const meet = (a, b) =>
                a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
              const isOut = (it) => it.right > width + 0.1 || it.bottom > plan.height;
              if (boxes.some(isOut) || boxes.some((a, at) => boxes.slice(at + 1).some((b) => meet(a, b))))
                faults.push([count, zones, pools, width]);
            }
      return faults;
    });
    assert.deepEqual(found, []);
  }));
