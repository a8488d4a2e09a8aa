// The program under test: `$PORTOLAN serve` on a free port of the loopback address.

import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

// Hooks that a test adds run at its end; these run after all tests of the file.
const endings = [];
after(() => Promise.all(endings.map((end) => end())));

/** Starts the program with these arguments. Returns its address; the program ends after the tests of the file. */
export async function serve(...options) {
  const program = process.env.PORTOLAN;
  if (!program) throw new Error('set PORTOLAN to the path of the program');
  const child = spawn(program, ['serve', '--listen', '127.0.0.1:0', '--log', 'warn', ...options], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  endings.push(() => child.kill());
  const failed = new Promise((_, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`portolan serve ended with status ${code}`)));
  });
  failed.catch(() => {}); // It ends after the tests, too.
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const { value } = await Promise.race([lines.next(), failed]);
  return new URL(/^(\S+) shows /.exec(value)[1]);
}

/** Makes a folder, which is removed after the tests of the file. */
export async function folder() {
  const made = await mkdtemp(join(tmpdir(), 'portolan-browser-'));
  endings.push(() => rm(made, { recursive: true, force: true }));
  return made;
}

/** Starts the program with a cluster in a file. Returns its address and `write(objects)`, which replaces the cluster. */
export async function serveFile(objects) {
  const file = join(await folder(), 'cluster.json');
  const write = (items) => writeFile(file, JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  await write(objects);
  return { address: await serve('--cluster', file), file, write };
}

/** Writes objects as files. Returns a function that writes a page with a command, in which the names become paths. */
export async function pages(files) {
  const folder = await mkdtemp(join(tmpdir(), 'portolan-browser-'));
  endings.push(() => rm(folder, { recursive: true, force: true }));
  const paths = {};
  for (const [name, content] of Object.entries(files)) {
    paths[name] = join(folder, name);
    const list = { apiVersion: 'v1', kind: 'List', items: content };
    await writeFile(paths[name], typeof content === 'string' ? content : JSON.stringify(list));
  }
  let written = 0;
  return async (...words) => {
    const file = join(folder, `${(written += 1)}.html`);
    const all = [...words.map((word) => paths[word] ?? word), '--html', file];
    // The status is 1 if a change does harm.
    const { stdout } = await promisify(execFile)(process.env.PORTOLAN, all).catch((error) => {
      if (error.code !== 1) throw error;
      return error;
    });
    return { address: pathToFileURL(file), stdout, command: ['portolan', ...all].join(' ') };
  };
}

/** Asks the API directly. */
export async function ask(address, path, body) {
  const options = body && {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  };
  const response = await fetch(new URL(`api/v1/${path}`, address), options);
  return response.json();
}

/** Deletes an object of the API. */
export const drop = (address, path) => fetch(new URL(`api/v1/${path}`, address), { method: 'DELETE' });
