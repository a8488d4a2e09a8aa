// Clusters for the tests, as lists of Kubernetes objects.

export function node(name, { zone = 'z1', pool = 'general', cpu = '16', labels = {}, taints } = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: {
      name,
      labels: { 'kubernetes.io/hostname': name, 'topology.kubernetes.io/zone': zone, pool, ...labels },
    },
    spec: { taints },
    status: {
      allocatable: { cpu, memory: '64Gi', pods: '110' },
      conditions: [{ type: 'Ready', status: 'True' }],
    },
  };
}

export function pod(name, nodeName, { namespace = 'default', cpu = '1', labels = {}, nodeSelector } = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace, uid: `${namespace}/${name}`, labels },
    spec: {
      nodeName,
      nodeSelector,
      containers: [{ name: 'main', image: 'main', resources: { requests: { cpu, memory: '2Gi' } } }],
    },
    status: { phase: nodeName ? 'Running' : 'Pending' },
  };
}

/** Markup that runs a script if it reaches the document as HTML. */
export const MARKUP = '<img src=x onerror=globalThis.isHacked=1>';

/** Hebrew text, and a control character that reverses the text after it. */
export const RIGHT_TO_LEFT = 'שלום\u202egnp.exe';

/** The same as the page shows it. */
export const SHOWN = RIGHT_TO_LEFT.replace('\u202e', '\\u{202e}');

/** Names with markup and with text from right to left, wherever a cluster can name something. */
export function hostile() {
  const taints = [{ key: MARKUP, value: RIGHT_TO_LEFT, effect: 'NoSchedule' }];
  return [
    node(`a${MARKUP}`, { zone: `z${MARKUP}`, pool: `p${MARKUP}`, labels: { [MARKUP]: RIGHT_TO_LEFT } }),
    node(`b${RIGHT_TO_LEFT}`, { zone: RIGHT_TO_LEFT, pool: RIGHT_TO_LEFT, taints }),
    node('c"onmouseover="globalThis.isHacked=1', { zone: "javascript:globalThis.isHacked=1//'" }),
    pod(`running${MARKUP}`, `a${MARKUP}`, { namespace: `n${MARKUP}`, labels: { app: MARKUP } }),
    pod(`running${RIGHT_TO_LEFT}`, `b${RIGHT_TO_LEFT}`, { namespace: RIGHT_TO_LEFT }),
    pod(`pending${MARKUP}`, undefined, { nodeSelector: { [MARKUP]: MARKUP } }),
    pod(`pending${RIGHT_TO_LEFT}`, undefined, { nodeSelector: { [RIGHT_TO_LEFT]: RIGHT_TO_LEFT } }),
  ];
}

/** A fleet of `count` nodes in 4 pools and 3 zones, each with a pod that takes between 1 and 16 of its 16 cores. */
export function large(count) {
  return Array.from({ length: count }, (_, at) => {
    const name = `node-${String(at).padStart(5, '0')}`;
    const [zone, pool] = [`z${at % 3}`, `pool-${at % 4}`];
    return [node(name, { zone, pool }), pod(`pod-${at}`, name, { cpu: String(1 + ((at * 7) % 16)) })];
  }).flat();
}
