// Stranded capacity: what is free on a node and can hardly be used, because another resource is full.

/** A resource is full above the first share and mostly free below the second. */
export const FULL = 0.9;
export const FREE = 0.5;

/**
 * Finds the nodes on which one resource is full and another mostly free, and sums what is free of the others.
 *
 * Cordoned nodes do not count, since no pod may use them. Pod slots can be full, but free ones are no capacity.
 */
export function strand({ nodes, resources }) {
  const stranded = new Set();
  const free = resources.map(() => 0);
  nodes.forEach(({ is_cordoned: isCordoned, allocatable, requested }, node) => {
    if (isCordoned) return;
    const share = resources.map((_, at) => (allocatable[at] > 0 ? requested[at] / allocatable[at] : NaN));
    if (!share.some((it) => it >= FULL)) return;
    resources.forEach(({ name }, at) => {
      if (name === 'pods' || !(share[at] <= FREE)) return;
      stranded.add(node);
      free[at] += allocatable[at] - requested[at];
    });
  });
  return {
    nodes: stranded,
    sums: resources.map((it, at) => ({ ...it, free: free[at] })).filter((it) => it.free > 0),
  };
}
