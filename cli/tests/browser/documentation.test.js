// The picture of the fleet in docs/serve.md. With UPDATE_SCREENSHOT=1, it is taken again.

import assert from 'node:assert/strict';
import { copyFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { screenshot, settle, visit } from './browser.js';
import { serve } from './server.js';

const { UPDATE_SCREENSHOT, DOCS } = process.env;

/** The size of the largest picture that the repository should have, in bytes. */
const LARGEST = 150_000;

test('the fleet is pictured in the documentation', async () => {
  const address = await serve();
  await visit(address, '#/fleet?node=gpu-30', { size: { width: 1200, height: 760 } }, async (page) => {
    await page.getByRole('application').waitFor();
    await page.getByRole('heading', { name: 'gpu-30' }).waitFor();
    await settle(page);
    const taken = await screenshot(page, 'serve');
    assert.ok((await stat(taken)).size < LARGEST, 'the picture is small');
    if (UPDATE_SCREENSHOT === '1') {
      assert.ok(DOCS, 'set DOCS to the folder of the documentation');
      await copyFile(taken, join(DOCS, 'serve.png'));
    }
  });
});
