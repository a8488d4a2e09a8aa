// Positions of the tiles: a band for each zone, in it a block for each pool, in it a tile for each node.
//
// All pools of a band have the same number of rows, so that edges align, and the tile is as large as the canvas allows.
// A node keeps its position while the set of nodes does not change: people find a node by its place.

// Heights of the headings, which leave room for their text when a panel makes the map smaller.
const ZONE = 24;
const POOL = 18;
const GAP = 14; // Space between pools.
const NARROWEST = 92; // A pool is at least so wide that its heading can be read.
const LARGEST = 150;
const SMALLEST = 3;
const VISIBLE = 14;

/** Groups the nodes by zone and pool, in the order of their names; nodes without the label come last. */
export function group(nodes) {
  const zones = new Map();
  nodes.forEach((node, at) => {
    const zone = entry(zones, node.zone, () => new Map());
    entry(zone, node.pool, () => []).push(at);
  });
  return sorted(zones).map(([zone, pools]) => ({
    zone,
    pools: sorted(pools).map(([pool, nodes]) => ({ pool, nodes })),
  }));
}

/**
 * Places `zones` into `width` × `height`. Returns the pitch of the tiles, the headings, the blocks, the position of each
 * node and the height, which is larger than `height` only if the smallest tiles do not fit. O(zones × pools × log).
 */
export function layout(zones, count, width, height) {
  // Headings of many pools may fill the canvas; their few nodes must be seen then, too.
  const share = Math.sqrt((width * height) / count) / 2;
  let [low, high] = [Math.min(Math.max(SMALLEST, share), VISIBLE), LARGEST];
  for (let step = 0; step < 14; step++) {
    const middle = (low + high) / 2;
    const { height: needed, isTooWide } = place(zones, middle, width);
    if (!isTooWide && needed <= height) low = middle;
    else high = middle;
  }
  // Whole pixels give even gaps.
  const pitch = low > 6 ? Math.floor(low) : low;
  const placed = place(zones, pitch, width);
  const [x, y] = [new Float32Array(count), new Float32Array(count)];
  for (const block of placed.blocks) {
    block.nodes.forEach((node, at) => {
      x[node] = block.x + (at % block.columns) * pitch;
      y[node] = block.y + Math.floor(at / block.columns) * pitch;
    });
  }
  return { ...placed, pitch, x, y, width };
}

function place(zones, pitch, width) {
  const blocks = [];
  const headings = [];
  let isTooWide = false; // Tiles of this size do not fit side by side.
  let y = 0;
  for (const { zone, pools } of zones) {
    headings.push({ text: zone ?? 'no zone', x: 0, y, width });
    y += ZONE;
    for (const line of lines(pools, width)) {
      const rows = fewest(line, pitch, width);
      let x = 0;
      for (const { pool, nodes } of line) {
        const columns = Math.ceil(nodes.length / rows);
        blocks.push({ zone, pool, nodes, columns, x, y: y + POOL, width: columns * pitch });
        x += wide(columns, pitch) + GAP;
      }
      isTooWide ||= x - GAP > width;
      y += POOL + rows * pitch + 8;
    }
    y += 4;
  }
  return { blocks, headings, height: y, isTooWide };
}

/** Splits the pools of a zone into lines in which all headings have their width. */
function lines(pools, width) {
  const most = Math.max(1, Math.floor((width + GAP) / (NARROWEST + GAP)));
  const found = [];
  for (let at = 0; at < pools.length; at += most) found.push(pools.slice(at, at + most));
  return found;
}

/** The fewest rows with which the pools stand side by side, or those of one column each. */
function fewest(line, pitch, width) {
  let [low, high] = [1, Math.max(...line.map(({ nodes }) => nodes.length))];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (widthOf(line, middle, pitch) <= width) high = middle;
    else low = middle + 1;
  }
  return low;
}

const widthOf = (line, rows, pitch) =>
  line.reduce((sum, { nodes }) => sum + wide(Math.ceil(nodes.length / rows), pitch) + GAP, -GAP);

const wide = (columns, pitch) => Math.max(columns * pitch, NARROWEST);

function entry(map, key, create) {
  if (!map.has(key)) map.set(key, create());
  return map.get(key);
}

function sorted(map) {
  const order = new Intl.Collator('en', { numeric: true });
  return [...map].sort(([a], [b]) => (a === null) - (b === null) || order.compare(a ?? '', b ?? ''));
}
