"""Checks the manifests and the chart in deploy/.

The templates of the chart use a small part of Helm's language, which this script renders itself: a value, `indent`,
`toYaml`, `if` with `ne` and `gt`, and `range` over the numbers below a value. Other actions are refused, so templates
stay simple and are checked without Helm. If Helm is installed, its result must be the same.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

MANIFESTS, CHART, VERBS = "deploy/manifests", "deploy/chart", "deploy/verbs.txt"
# Where the flags of `portolan run` are.
FLAGS = ["cli/src/live/run.rs", "cli/src/live/serving.rs", "cli/src/live/settings.rs"]
SHADOW_FLAGS = ["cli/src/live/shadow/mod.rs"]
# Where times and paths of the program are.
PATHS = "crates/kube/src/process/serve.rs"
GRACE = ("cli/src/live/run.rs", "GRACE")
FLUSH = ("crates/kube/src/process/live.rs", "FLUSH")
PATIENCE = ("crates/kube/src/process/secure/flood_tests.rs", "PATIENCE")
ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*\}\}", re.DOTALL)
VALUE = r"\.Values((?:\.\w+)+)"
RANGE = re.compile(rf"\s*\{{\{{- range \$(\w+) := until \(int {VALUE}\) \}}\}}(.*?)\s*\{{\{{- end \}}\}}", re.DOTALL)
# Values other than the defaults, for the chart's branches.
OTHER = {"namespace": "portolan", "schedulerName": "batch", "leaseName": "batch", "replicas": 3, "config": "a: 1\nb: 2\n"}
KUBE_SYSTEM = "kube-system"
# A number of shards.
SHARDS = 3
# Another address of the API server.
EGRESS = [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"protocol": "TCP", "port": 16443}]}]
# What the pods may do, as the Pod Security Standard `restricted` requires.
POD_CONTEXT = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# Roles of Kubernetes that are bound, and the requests that are made because of them.
BUILT_IN = {
    ("ClusterRole", None, "system:auth-delegator"): {
        "subjectaccessreviews.authorization.k8s.io create",
        "tokenreviews.authentication.k8s.io create",
    },
    ("Role", KUBE_SYSTEM, "extension-apiserver-authentication-reader"): {"configmaps get"},
}


class Fault(Exception):
    """A file cannot be checked because it is invalid."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses mappings with a key that occurs twice."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key} occurs twice", node.start_mark)
    return yaml.constructor.SafeConstructor.construct_mapping(loader, node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def documents(text, name):
    """Returns the YAML documents of a text."""
    try:
        return [document for document in yaml.load_all(text, Loader) if document is not None]
    except yaml.YAMLError as error:
        raise Fault(f"{name}: {' '.join(str(error).split())}") from None


def objects(texts):
    """Returns the objects of texts by kind, namespace and name."""
    found = {}
    for name, text in texts.items():
        for item in documents(text, name):
            metadata = item.get("metadata", {})
            key = (item.get("kind"), metadata.get("namespace"), metadata.get("name"))
            if not item.get("apiVersion") or not key[0] or not key[2]:
                raise Fault(f"{name}: an object without apiVersion, kind or metadata.name")
            if key in found:
                raise Fault(f"{name}: {show(key)} is defined twice")
            found[key] = item
    return found


def only(found, kind):
    """Returns the one object of a kind."""
    all_of = [item for key, item in found.items() if key[0] == kind]
    if len(all_of) != 1:
        raise Fault(f"{len(all_of)} objects of kind {kind}, expected 1")
    return all_of[0]


def show(key):
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def render(text, values, name):
    """Renders the part of Helm's templates that the chart uses."""
    def value(path):
        found = values
        for part in path.strip(".").split("."):
            if not isinstance(found, dict) or part not in found:
                raise Fault(f"{name}: values.yaml does not have {path}")
            found = found[part]
        return found

    def repeated(match):
        number, path, body = match.groups()
        body = body.replace("{{ $.", "{{ .")
        return "".join(body.replace(f"{{{{ ${number} }}}}", str(at)) for at in range(value(path)))

    text = RANGE.sub(repeated, text)
    out, shown, at = [], [True], 0
    for match in ACTION.finditer(text):
        space, trims, action = match.groups()
        before = text[at : match.start()] + ("" if trims else space)
        at = match.end()
        if all(shown):
            out.append(before)
        if action == "end" and len(shown) > 1:
            shown.pop()
        elif action == "else" and len(shown) > 1:
            shown[-1] = not shown[-1]
        elif test := re.fullmatch(rf"if {VALUE}", action):
            shown.append(bool(value(test[1])))
        elif test := re.fullmatch(rf'if ne {VALUE} "(.*)"', action):
            shown.append(value(test[1]) != test[2])
        elif test := re.fullmatch(rf"if gt \(int {VALUE}\) (\d+)", action):
            shown.append(value(test[1]) > int(test[2]))
        elif not (used := re.fullmatch(rf"(toYaml )?{VALUE}(?: \| indent (\d+))?", action)):
            raise Fault(f"{name}: this check does not know {{{{ {action} }}}}: use a simpler template")
        elif all(shown):
            written = value(used[2])
            written = yaml.safe_dump(written).rstrip("\n") if used[1] else str(written)
            indent = " " * int(used[3] or 0)
            out.append(indent + written.replace("\n", "\n" + indent))
    if len(shown) > 1:
        raise Fault(f"{name}: an if without an end")
    return "".join([*out, text[at:]])


def merged(values, changed):
    """Returns values with some of them changed, as Helm merges them: mappings by key."""
    both = lambda key: isinstance(values.get(key), dict) and isinstance(changed[key], dict)
    return values | {key: merged(values[key], changed[key]) if both(key) else changed[key] for key in changed}


def chart(root, changed):
    """Returns the objects of the chart with some values changed."""
    values = merged(documents((root / CHART / "values.yaml").read_text(), "values.yaml")[0], changed)
    templates = sorted((root / CHART / "templates").glob("*.yaml"))
    return objects({path.name: render(path.read_text(), values, path.name) for path in templates})


def by_helm(root, changed):
    """Returns the objects of the chart as Helm renders them."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
        yaml.safe_dump(changed, values)
        values.flush()
        command = ["helm", "template", "portolan", str(root / CHART), "--values", values.name]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Fault(f"helm: {done.stderr.strip()}")
    return objects({"helm": done.stdout})


def differences(expected, found, where):
    """Returns the problems of objects that should be equal."""
    problems = [f"{where}: {show(key)} is missing" for key in expected.keys() - found.keys()]
    problems += [f"{where}: {show(key)} is not expected" for key in found.keys() - expected.keys()]
    both = expected.keys() & found.keys()
    problems += [f"{where}: {show(key)} differs" for key in both if expected[key] != found[key]]
    return sorted(problems)


def replaced(item, pairs):
    """Returns an object with strings replaced everywhere."""
    if isinstance(item, dict):
        return {key: replaced(value, pairs) for key, value in item.items()}
    if isinstance(item, list):
        return [replaced(value, pairs) for value in item]
    return pairs.get(item, item) if isinstance(item, str) else item


def requests(found, lease):
    """Returns what the service account may do, as lines of verbs.txt, and the problems of the roles."""
    granted, problems = set(), []
    for (kind, namespace, name), binding in found.items():
        if kind not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        reference = (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"])
        for subject in binding["subjects"]:
            if (subject["kind"], subject.get("namespace"), subject["name"]) not in found:
                problems.append(f"{kind} {name}: {subject['kind']} {subject['name']} does not exist")
        if reference in BUILT_IN:
            granted |= BUILT_IN[reference]
            continue
        role = found.get(reference)
        if role is None:
            problems.append(f"{kind} {name}: its role does not exist")
            continue
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    plural, slash, part = resource.partition("/")
                    full = (f"{plural}.{group}" if group else plural) + slash + part
                    is_lease = full == "leases.coordination.k8s.io"
                    for verb in rule["verbs"]:
                        granted.add(f"{full} {verb}")
                        if "*" in (group, resource, verb):
                            problems.append(f"{name}: a wildcard: {full} {verb}")
                        if is_lease != (namespace == KUBE_SYSTEM):
                            problems.append(f"{name}: {full} {verb} belongs in a {'' if is_lease else 'Cluster'}Role")
                        names = None if verb == "create" or not is_lease else [lease]
                        if rule.get("resourceNames") != names:
                            problems.append(f"{name}: {full} {verb} is not limited to the names {names}")
                        if name == "portolan-reader" and verb not in ("list", "watch"):
                            problems.append(f"{name}: {verb} exceeds list and watch")
    return granted, problems


def check_requests(root, found, lease):
    granted, problems = requests(found, lease)
    lines = [line for line in (root / VERBS).read_text().splitlines() if line and not line.startswith("#")]
    if lines != sorted(set(lines)):
        problems.append(f"{VERBS}: the lines are not sorted, or one occurs twice")
    problems += [f"{VERBS}: no role grants {line}" for line in sorted(set(lines) - granted)]
    problems += [f"{VERBS}: lacks {line}, which a role grants" for line in sorted(granted - set(lines))]
    return problems


def check_flags(root, paths, command, found):
    """Returns the problems of the arguments of the one Deployment."""
    source = "".join((root / path).read_text() for path in paths)
    problems = []
    for flag in only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]:
        field = flag.removeprefix("--").partition("=")[0].replace("-", "_")
        if not re.search(rf"^    {field}: ", source, re.MULTILINE):
            problems.append(f"the Deployment: `portolan {command}` does not have the flag {flag}")
    return problems


def seconds(root, constant):
    """Returns a constant of the program in seconds."""
    path, name = constant
    found = re.search(rf"\bconst {name}: Duration = Duration::from_secs\((\d+)\);", (root / path).read_text())
    if not found:
        raise Fault(f"{path}: no constant {name} in seconds")
    return int(found[1])


def check_pods(root, found):
    """Returns the problems of the pods of the one Deployment: their rights and probes."""
    item = only(found, "Deployment")
    pod, problems = item["spec"]["template"]["spec"], []

    def expect(is_right, what):
        if not is_right:
            problems.append(f"Deployment {item['metadata']['name']}: {what}")

    labels = item["spec"]["template"]["metadata"]["labels"]
    expect(item["spec"]["selector"] == {"matchLabels": labels}, "the selector is not the pods' labels")
    expect(len(pod["containers"]) == 1 and "initContainers" not in pod, "more than one container")
    container = pod["containers"][0]
    expect(pod.get("securityContext") == POD_CONTEXT, "the pods' securityContext is not restricted")
    expect(container.get("securityContext") == CONTAINER_CONTEXT, "the container's securityContext is not restricted")
    expect(not any(key.startswith("host") for key in pod), "the pods use a namespace of the host")
    volumes = {key for volume in pod.get("volumes", []) for key in volume if key != "name"}
    expect(volumes <= {"configMap"}, "a volume that is not a ConfigMap")
    expect({"cpu", "memory"} <= container["resources"]["requests"].keys(), "no requests of cpu and memory")
    served = (root / PATHS).read_text()
    is_plain = any(flag.startswith("--serve=") for flag in container["args"])
    for kind, path, least in (("startup", "/livez", 60), ("liveness", "/livez", 60), ("readiness", "/readyz", 0)):
        probe = container.get(f"{kind}Probe")
        if probe is None:
            problems.append(f"Deployment {item['metadata']['name']}: no {kind} probe")
            continue
        get = probe["httpGet"]
        expect(get["path"] == path and f'("{path}", ' in served, f"the {kind} probe does not get {path}")
        expect(get["port"] in [port["name"] for port in container["ports"]], f"the {kind} probe has another port")
        expect(get.get("scheme", "HTTP") == ("HTTP" if is_plain else "HTTPS"), f"the {kind} probe has another scheme")
        missing = {"periodSeconds", "timeoutSeconds", "failureThreshold"} - probe.keys()
        expect(not missing, f"the {kind} probe has no {', '.join(sorted(missing))}")
        expect(probe.get("timeoutSeconds", 1) > seconds(root, PATIENCE), f"the {kind} probe does not survive a flood")
        longest = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        expect(longest >= least, f"the {kind} probe fails after {longest} s")
    return problems


def check_availability(root, found):
    """Returns the problems of the scheduler's Deployment in drains, failures of nodes, and orderly ends."""
    item, problems = only(found, "Deployment")["spec"], []
    labels, pod = {"matchLabels": item["template"]["metadata"]["labels"]}, item["template"]["spec"]
    least = seconds(root, GRACE) + seconds(root, FLUSH) + 5
    if pod["terminationGracePeriodSeconds"] < least:
        problems.append(f"the Deployment: terminationGracePeriodSeconds is below {least}: the lease is not released")
    if pod.get("priorityClassName") != "system-cluster-critical":
        problems.append("the Deployment: its pods can be preempted")
    for topology in ("kubernetes.io/hostname", "topology.kubernetes.io/zone"):
        spread = {"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": labels}
        if spread not in pod.get("topologySpreadConstraints", []):
            problems.append(f"the Deployment: its pods are not spread by {topology}")
    budget = only(found, "PodDisruptionBudget")["spec"]
    if budget.get("selector") != labels:
        problems.append("the PodDisruptionBudget does not select the Deployment's pods")
    # `minAvailable` would block all drains of a single replica.
    if budget.get("maxUnavailable") != 1 or "minAvailable" in budget:
        problems.append("the PodDisruptionBudget does not allow 1 unavailable pod")
    return problems


def check_network(policy, deployment):
    """Returns the problems of the NetworkPolicy of a Deployment."""
    name, spec, template = policy["metadata"]["name"], policy["spec"], deployment["spec"]["template"]
    problems = []
    if policy["metadata"]["namespace"] != deployment["metadata"]["namespace"]:
        problems.append(f"NetworkPolicy {name}: it is in another namespace")
    if spec["podSelector"] != {"matchLabels": template["metadata"]["labels"]}:
        problems.append(f"NetworkPolicy {name}: it does not select the Deployment's pods")
    if sorted(spec["policyTypes"]) != ["Egress", "Ingress"]:
        problems.append(f"NetworkPolicy {name}: it does not limit both directions")
    ports = [{"protocol": "TCP", "port": port["containerPort"]} for port in template["spec"]["containers"][0]["ports"]]
    if spec.get("ingress") != [{"ports": ports}]:
        problems.append(f"NetworkPolicy {name}: ingress is not the Deployment's port")
    allowed = {(port["protocol"], port["port"]) for rule in spec.get("egress", []) for port in rule.get("ports", [])}
    if allowed != {("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443)}:
        problems.append(f"NetworkPolicy {name}: egress is not DNS and the API server")
    return problems


def check_shadow(root, found, reader):
    """Returns the problems of the shadow, which has the rules of portolan-reader and no others."""
    problems = check_flags(root, SHADOW_FLAGS, "shadow", found)
    if only(found, "ClusterRole")["rules"] != reader["rules"]:
        problems.append("the rules of portolan-shadow are not those of portolan-reader")
    binding, account = only(found, "ClusterRoleBinding"), only(found, "ServiceAccount")["metadata"]["name"]
    if (binding["roleRef"]["name"], binding["subjects"][0]["name"]) != ("portolan-shadow", account):
        problems.append("portolan-shadow: the binding has another role or account")
    return problems


def check(root):
    """Returns the problems of the tree at `root`."""
    texts = lambda folder: {path.name: path.read_text() for path in sorted((root / folder).glob("*.yaml"))}
    documents((root / CHART / "Chart.yaml").read_text(), "Chart.yaml")
    plain, elsewhere = objects(texts(MANIFESTS)), objects(texts(f"{MANIFESTS}/elsewhere"))
    config = only(plain, "ConfigMap")["data"]["config.yaml"]
    documents(config, "the ConfigMap's config.yaml")
    # With other values, each place that should follow a value does.
    moved = {}
    for (kind, namespace, name), item in plain.items():
        if kind not in ("Role", "RoleBinding"):
            namespace = namespace and OTHER["namespace"]
            item = replaced(item, {KUBE_SYSTEM: OTHER["namespace"]})
        elif kind == "RoleBinding":
            item = item | {"subjects": replaced(item["subjects"], {KUBE_SYSTEM: OTHER["namespace"]})}
        lease = f"--leader-elect-resource-name={OTHER['leaseName']}"
        if kind == "Deployment":
            item = replaced(item, {"--leader-elect-resource-name=portolan": lease})
            item["spec"]["replicas"] = OTHER["replicas"]
        elif kind == "ConfigMap":
            item = replaced(item, {config: OTHER["config"]})
        elif kind == "Role":
            rules = [rule | replaced({key: rule[key] for key in rule if key == "resourceNames"}, {"portolan": "batch"})
                     for rule in item["rules"]]
            item = item | {"rules": rules}
        moved[kind, namespace, name] = item
    moved |= elsewhere
    problems = differences(plain, chart(root, {}), "the chart's defaults")
    problems += differences(moved, chart(root, OTHER), "the chart with other values")
    sharded = {}
    for key, item in plain.items():
        if key[0] == "Role":
            names = ["portolan", *(f"portolan-shard-{shard}" for shard in range(SHARDS))]
            item = item | {"rules": [rule | {"resourceNames": names} if "resourceNames" in rule else rule
                                     for rule in item["rules"]]}
        if key[0] == "Deployment":
            item = yaml.safe_load(yaml.safe_dump(item))
            item["spec"]["template"]["spec"]["containers"][0]["args"].append(f"--shards={SHARDS}")
            item["spec"]["strategy"] = {"type": "Recreate"}
        sharded[key] = item
    problems += differences(sharded, chart(root, {"shards": SHARDS}), "the chart with shards")
    problems += check_flags(root, FLAGS, "run", sharded)
    named = only(chart(root, {"schedulerName": "batch"}), "ConfigMap")["data"]["config.yaml"]
    if named != config.replace("schedulerName: portolan", "schedulerName: batch"):
        problems.append("the chart's schedulerName is not that of the configuration")
    single = {key: item for key, item in plain.items() if key[0] != "PodDisruptionBudget"}
    key = ("Deployment", KUBE_SYSTEM, "portolan")
    single[key] = plain[key] | {"spec": plain[key]["spec"] | {"replicas": 1}}
    problems += differences(single, chart(root, {"replicas": 1}), "the chart with one replica")
    without = single | {key: plain[key]}
    unlimited = {"podDisruptionBudget": {"enabled": False}}
    problems += differences(without, chart(root, unlimited), "the chart without a budget")
    network = objects(texts(f"{MANIFESTS}/network"))
    key = ("NetworkPolicy", KUBE_SYSTEM, "portolan")
    if key not in network:
        raise Fault(f"{MANIFESTS}/network: {show(key)} is missing")
    limited = plain | {key: network[key]}
    values = {"networkPolicy": {"enabled": True}}
    problems += differences(limited, chart(root, values), "the chart with a NetworkPolicy")
    spec = network[key]["spec"]
    changed = limited | {key: network[key] | {"spec": spec | {"egress": [spec["egress"][0], *EGRESS]}}}
    others = {"networkPolicy": {"enabled": True, "egress": EGRESS}}
    problems += differences(changed, chart(root, others), "the chart with other egress")
    if shutil.which("helm"):
        pairs = (({}, plain), (OTHER, moved), ({"shards": SHARDS}, sharded), ({"replicas": 1}, single),
                 (unlimited, without), (values, limited), (others, changed))
        for changed, expected in pairs:
            problems += differences(expected, by_helm(root, changed), "the chart by helm")
    problems += check_requests(root, plain, "portolan")
    problems += check_flags(root, FLAGS, "run", plain)
    problems += check_pods(root, plain) + check_availability(root, plain)
    shadow = objects(texts(f"{MANIFESTS}/shadow"))
    problems += check_pods(root, shadow)
    for found in (plain, shadow):
        deployment = only(found, "Deployment")
        policy = network.get(("NetworkPolicy", KUBE_SYSTEM, deployment["metadata"]["name"]))
        problems += check_network(policy, deployment) if policy else [f"{MANIFESTS}/network: a policy is missing"]
    problems += check_shadow(root, shadow, plain["ClusterRole", None, "portolan-reader"])
    return problems


DEPLOYMENT, BUDGET = f"{MANIFESTS}/deployment.yaml", f"{MANIFESTS}/poddisruptionbudget.yaml"
POLICY = f"{MANIFESTS}/network/networkpolicy.yaml"
# A file, a text in it, its replacement, and the problem that must be found.
FAULTS = [
    (f"{MANIFESTS}/config.yaml", "  name: portolan", "  name: portolan\n  name: other", "occurs twice"),
    (f"{MANIFESTS}/deployment.yaml", "replicas: 2", "replicas: 3", "defaults: Deployment kube-system/portolan differs"),
    (f"{MANIFESTS}/deployment.yaml", "--config=", "--configuration=", "does not have the flag --configuration"),
    (f"{MANIFESTS}/rbac.yaml", "[delete, get]", "[delete, get, update]", "lacks pods update"),
    (f"{MANIFESTS}/rbac.yaml", "verbs: [list, watch]", 'verbs: ["*"]', "a wildcard: pods *"),
    (f"{MANIFESTS}/rbac.yaml", "verbs: [list, watch]", "verbs: [get, list, watch]", "get exceeds list and watch"),
    (f"{MANIFESTS}/rbac.yaml", "  resourceNames: [portolan]\n", "", "get is not limited to the names ['portolan']"),
    (f"{MANIFESTS}/rbac.yaml", "resources: [leases]", "resources: [pods]", "pods.coordination.k8s.io create belongs in a ClusterRole"),
    (f"{MANIFESTS}/rbac.yaml", "  kind: Role\n", "  kind: ClusterRole\n", "its role does not exist"),
    (f"{MANIFESTS}/serviceaccount.yaml", "name: portolan", "name: other", "ServiceAccount portolan does not exist"),
    (f"{MANIFESTS}/rbac.yaml", "name: system:auth-delegator", "name: system:delegator", "its role does not exist"),
    (f"{MANIFESTS}/rbac.yaml", "name: extension-api", "name: api", "its role does not exist"),
    (VERBS, "configmaps get\n", "", "lacks configmaps get"),
    (f"{MANIFESTS}/shadow/shadow.yaml", "verbs: [list, watch]", "verbs: [get, list, watch]", "not those of portolan-reader"),
    (f"{MANIFESTS}/shadow/shadow.yaml", "--serve=", "--listen=", "`portolan shadow` does not have the flag --listen"),
    (f"{MANIFESTS}/shadow/shadow.yaml", "- kind: ServiceAccount\n  name: portolan-shadow", "- kind: ServiceAccount\n  name: portolan", "another role or account"),
    (VERBS, "pods delete\n", "", "lacks pods delete"),
    (VERBS, "pods delete\n", "pods delete\npods evict\n", "no role grants pods evict"),
    (VERBS, "pods delete\n", "pods get\npods delete\n", "not sorted"),
    (f"{CHART}/templates/deployment.yaml", ".Values.image", ".Values.picture", "does not have .picture"),
    (f"{CHART}/templates/deployment.yaml", ".Values.image", "include \"image\" .", "use a simpler template"),
    (f"{CHART}/templates/rbac.yaml", "{{ .Values.leaseName }}", "portolan", "values: Role kube-system/portolan-lease diff"),
    (f"{CHART}/templates/rbac.yaml", "-shard-{{", "-part-{{", "shards: Role kube-system/portolan-lease differs"),
    (f"{CHART}/templates/deployment.yaml", "--shards=", "--parts=", "shards: Deployment kube-system/portolan differs"),
    (f"{CHART}/templates/flowcontrol.yaml", "{{- end }}", "", "an if without an end"),
    (f"{CHART}/templates/config.yaml", "{{ .Values.schedulerName }}", "portolan", "schedulerName is not that"),
    (f"{CHART}/values.yaml", "namespace: kube-system", "namespace: portolan", "FlowSchema portolan is not expected"),
    (DEPLOYMENT, "runAsNonRoot: true", "runAsNonRoot: false", "pods' securityContext is not restricted"),
    (DEPLOYMENT, "          type: RuntimeDefault", "          type: Unconfined", "pods' securityContext is not restricted"),
    (DEPLOYMENT, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "container's securityContext is not"),
    (DEPLOYMENT, "drop: [ALL]", "drop: [NET_RAW]", "container's securityContext is not restricted"),
    (DEPLOYMENT, "      serviceAccountName:", "      hostNetwork: true\n      serviceAccountName:", "a namespace of the host"),
    (DEPLOYMENT, "        configMap:\n          name: portolan", "        hostPath:\n          path: /", "not a ConfigMap"),
    (DEPLOYMENT, "            memory: 256Mi\n", "", "no requests of cpu and memory"),
    (DEPLOYMENT, "startupProbe", "lifecycle", "portolan: no startup probe"),
    (DEPLOYMENT, "path: /readyz", "path: /ready", "the readiness probe does not get /readyz"),
    (DEPLOYMENT, "            port: metrics\n", "            port: health\n", "the startup probe has another port"),
    (DEPLOYMENT, "            scheme: HTTPS\n", "", "the startup probe has another scheme"),
    (DEPLOYMENT, "          failureThreshold: 8\n", "", "the liveness probe has no failureThreshold"),
    (DEPLOYMENT, "failureThreshold: 8", "failureThreshold: 3", "the liveness probe fails after 30 s"),
    (DEPLOYMENT, "timeoutSeconds: 15", "timeoutSeconds: 10", "the startup probe does not survive a flood"),
    (DEPLOYMENT, "GracePeriodSeconds: 40", "GracePeriodSeconds: 30", "the lease is not released"),
    (DEPLOYMENT, "      priorityClassName: system-cluster-critical\n", "", "its pods can be preempted"),
    (DEPLOYMENT, "kubernetes.io/hostname", "kubernetes.io/os", "not spread by kubernetes.io/hostname"),
    (DEPLOYMENT, "topology.kubernetes.io/zone", "kubernetes.io/os", "not spread by topology.kubernetes.io/zone"),
    (DEPLOYMENT, "      app.kubernetes.io/name: portolan\n  template", "      app: portolan\n  template", "not the pods' labels"),
    (GRACE[0], "const GRACE: Duration = Duration::from_secs(20)", "const GRACE: Duration = Duration::from_secs(30)", "below 45"),
    (FLUSH[0], "const FLUSH: Duration", "const FLUSHED: Duration", "no constant FLUSH in seconds"),
    (BUDGET, "maxUnavailable: 1", "minAvailable: 1", "does not allow 1 unavailable pod"),
    (BUDGET, "      app.kubernetes.io/name: portolan", "      app: portolan", "does not select the Deployment's pods"),
    (f"{CHART}/templates/poddisruptionbudget.yaml", ".Values.podDisruptionBudget.enabled", ".Values.replicas", "without a budget: Pod"),
    (f"{CHART}/templates/poddisruptionbudget.yaml", ") 1", ") 0", "one replica: PodDisruptionBudget kube-system/portolan is not"),
    (f"{CHART}/templates/poddisruptionbudget.yaml", "namespace: {{ .Values.namespace }}", "namespace: kube-system", "other values: Pod"),
    (POLICY, "port: 10259", "port: 10250", "portolan: ingress is not the Deployment's port"),
    (POLICY, "[Ingress, Egress]", "[Ingress]", "portolan: it does not limit both directions"),
    (POLICY, "port: 53\n", "port: 5353\n", "portolan: egress is not DNS and the API server"),
    (POLICY, "      app.kubernetes.io/name: portolan", "      app: portolan", "portolan: it does not select the Deployment's"),
    (POLICY, "port: 6443", "port: 8443", "NetworkPolicy: NetworkPolicy kube-system/portolan differs"),
    (POLICY, "namespace: kube-system", "namespace: default", "NetworkPolicy kube-system/portolan is missing"),
    (f"{CHART}/templates/networkpolicy.yaml", ".Values.networkPolicy.enabled", ".Values.replicas", "is not expected"),
    (f"{CHART}/templates/networkpolicy.yaml", "{{ toYaml .Values.networkPolicy.egress | indent 2 }}\n", "", "other egress: Net"),
    (f"{MANIFESTS}/network/shadow.yaml", "port: 10259", "port: 10250", "portolan-shadow: ingress is not"),
    (f"{MANIFESTS}/network/shadow.yaml", "  name: portolan-shadow", "  name: other", "network: a policy is missing"),
    (f"{MANIFESTS}/shadow/shadow.yaml", "drop: [ALL]", "drop: []", "portolan-shadow: the container's securityContext"),
    (f"{MANIFESTS}/shadow/shadow.yaml", "            port: metrics\n", "            port: metrics\n            scheme: HTTPS\n", "another scheme"),
]


def problems_of(root):
    try:
        return check(root)
    except Fault as fault:
        return [str(fault)]


def self_test():
    """Checks that each fault is found in a copy that has it."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        shutil.copytree("deploy", root / "deploy")
        for path in {*FLAGS, *SHADOW_FLAGS, PATHS, GRACE[0], FLUSH[0], PATIENCE[0]}:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path)
        for name, old, new, expected in FAULTS:
            text = (root / name).read_text()
            assert old in text, f"{name} does not have {old!r}: has the file changed?"
            (root / name).write_text(text.replace(old, new, 1))
            found = problems_of(root)
            assert any(expected in problem for problem in found), f"{name}, {new!r}: not found: {expected}: {found}"
            (root / name).write_text(text)


if __name__ == "__main__":
    found = problems_of(pathlib.Path("."))
    if found:
        sys.exit("\n".join(found))
    # On copies without faults of their own, so that each fault is found because of the change.
    self_test()
    if not shutil.which("helm"):
        print("SKIPPED: helm is not installed here (https://helm.sh); the chart is rendered by ci/manifests.py alone")
    print(f"the manifests, the chart and {VERBS} agree; {len(FAULTS)} faults are found in changed copies")
