// A fleet of 10,000 nodes, the weight of the page, and the time to its first paint.
//
// Times depend on the machine: they are printed, not asserted. The weight is the same everywhere.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { picture, settle, visit } from './browser.js';
import { large } from './clusters.js';
import { serve, serveFile } from './server.js';

/** The most bytes of the page's own files, without compression. */
const HEAVIEST = 200_000;

const map = (page) => page.getByRole('application', { name: /Map of/ });

test('10,000 nodes are drawn, panned, zoomed and searched', async (t) => {
  const { address } = await serveFile(large(10_000));
  await visit(address, '', { init: watch }, async (page, check) => {
    await page.getByRole('application', { name: /Map of 10,000 nodes/ }).waitFor();
    await check('large');
    for (const depth of [0, 4, 8]) {
      const { width, height, x, y } = await map(page).boundingBox();
      const middle = { x: x + width / 2, y: y + height / 2 };
      await page.mouse.move(middle.x, middle.y);
      for (let step = 0; step < depth; step++) await page.mouse.wheel(0, -200);
      await settle(page);
      const before = await picture(map(page));
      await page.mouse.down();
      const frames = page.evaluate(count, 3000);
      const end = Date.now() + 3000;
      for (let step = 0; Date.now() < end; step++) {
        await page.mouse.move(middle.x + 150 * Math.sin(step / 15), middle.y + 100 * Math.sin(step / 11));
      }
      const times = (await frames).sort((a, b) => a - b);
      await page.mouse.up();
      assert.ok(times.length > 0, 'the map is drawn');
      if (depth) assert.notEqual(await picture(map(page)), before, 'the map moves');
      const at = (share) => times[Math.floor(share * (times.length - 1))].toFixed(1);
      const rate = ((1000 * times.length) / times.reduce((sum, time) => sum + time, 0)).toFixed(1);
      t.diagnostic(
        `panning 10,000 nodes, zoom ${depth}: ${rate} frames/s; frame p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, longest ${at(1)} ms`,
      );
    }
    await check('large-zoomed');
    await page.getByRole('button', { name: 'Show all nodes' }).click();
    await page.getByLabel('Find nodes').fill('node-09999');
    await page.getByText('1 of 10,000 nodes').waitFor();
    await page.getByLabel('Find nodes').fill('');
    await page.getByRole('checkbox', { name: 'Table' }).check();
    await page.getByText(/100 of 10,000 shown/).waitFor();
    await check('large-table');
  });
});

/** Notes when something is drawn on a canvas. Runs in the page before its scripts. */
function watch() {
  for (const name of ['fillRect', 'drawImage', 'putImageData', 'fill']) {
    const original = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function draw(...given) {
      globalThis.isDrawn = true;
      return original.apply(this, given);
    };
  }
}

/** The intervals between frames in which the map was drawn, in milliseconds. Runs in the page. */
function count(time) {
  return new Promise((done) => {
    const times = [];
    const begin = performance.now();
    let last = begin;
    const frame = () => {
      const now = performance.now();
      if (globalThis.isDrawn) {
        times.push(now - last);
        last = now;
        globalThis.isDrawn = false;
      }
      if (now - begin < time) requestAnimationFrame(frame);
      else done(times);
    };
    requestAnimationFrame(frame);
  });
}

test('the page is light', async (t) => {
  const address = await serve();
  const paints = [];
  let bytes;
  for (let round = 0; round < 5; round++) {
    await visit(address, '', {}, async (page) => {
      await map(page).waitFor();
      const found = await page.evaluate(() => ({
        paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
        files: performance
          .getEntries()
          .filter((it) => it.decodedBodySize && !it.name.includes('/api/'))
          .map((it) => it.decodedBodySize),
      }));
      paints.push(found.paint);
      bytes = found.files.reduce((sum, it) => sum + it, 0);
    });
  }
  paints.sort((a, b) => a - b);
  t.diagnostic(
    `weight of the page ${bytes} bytes; first contentful paint ${paints.map((it) => it.toFixed(0)).join(', ')} ms`,
  );
  assert.ok(bytes > 20_000 && bytes <= HEAVIEST, `${bytes} bytes`);
});
