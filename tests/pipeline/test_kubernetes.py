"""The Kubernetes example obeys rules that are written out here; what breaks one is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.runners import is_elsewhere, jars
from pipelines.runners.clusters import FLINK

FOLDER = Path(__file__).resolve().parents[2] / "containers" / "kubernetes"
FILES = ("network.yaml", "cluster.yaml", "run.yaml")
KNOWN = {
    "apps/v1": {"Deployment"},
    "batch/v1": {"Job"},
    "networking.k8s.io/v1": {"NetworkPolicy"},
    "v1": {"ConfigMap", "Namespace", "PersistentVolumeClaim", "Service"},
}
WORKER_POOL = 50000
SECRET = re.compile(r"secret|password|passwd|token|credential|api.?key", re.IGNORECASE)

Object = dict[str, Any]


def objects() -> list[Object]:
    return [found for name in FILES for found in yaml.safe_load_all((FOLDER / name).read_text())]


def pods(found: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Name, labels and specification of every pod."""
    for each in found:
        if each["kind"] in ("Deployment", "Job"):
            template = each["spec"]["template"]
            name = each["metadata"].get("name", each["metadata"].get("generateName"))
            yield name, template["metadata"]["labels"], template["spec"]


def flaws(found: list[Object]) -> list[str]:
    """Everything that breaks a rule."""
    return sorted({flaw for rule in (shapes, hardening, images, mounts, network) for flaw in rule(found)})


def shapes(found: list[Object]) -> Iterator[str]:
    for each in found:
        if each.get("kind") not in KNOWN.get(each.get("apiVersion", ""), ()):
            yield f"{each.get('kind')}: not of {each.get('apiVersion')}"
        if each["kind"] != "Namespace" and each["metadata"].get("namespace") != "das":
            yield f"{each['kind']}: outside of the namespace"
        if each["kind"] == "Deployment":
            wanted, labels = each["spec"]["selector"]["matchLabels"], each["spec"]["template"]["metadata"]["labels"]
            if wanted != labels:
                yield f"{each['metadata']['name']}: selects other pods than its own"
        if each["kind"] == "Service":
            roles = [labels for _, labels, _ in pods(found)]
            if each["spec"]["selector"] not in roles:
                yield f"{each['metadata']['name']}: no pod answers"


def hardening(found: list[Object]) -> Iterator[str]:
    for name, _, pod in pods(found):
        context = pod.get("securityContext", {})
        if not context.get("runAsNonRoot") or not context.get("runAsUser"):
            yield f"{name}: may run as root"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name}: no seccomp profile"
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name}: has a token of the cluster"
        if any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name}: shares the host's namespaces"
        for container in pod["containers"]:
            inside = container.get("securityContext", {})
            if not inside.get("readOnlyRootFilesystem"):
                yield f"{container['name']}: its root file system can be written"
            if inside.get("allowPrivilegeEscalation") is not False or inside.get("privileged"):
                yield f"{container['name']}: may gain privileges"
            if inside.get("capabilities", {}).get("drop") != ["ALL"]:
                yield f"{container['name']}: keeps capabilities"
            resources = container.get("resources", {})
            if not {"cpu", "memory"} <= resources.get("limits", {}).keys() & resources.get("requests", {}).keys():
                yield f"{container['name']}: no limits"
            for variable in container.get("env", ()):
                if SECRET.search(variable["name"]) or "valueFrom" in variable:
                    yield f"{container['name']}: a secret in its environment"
    if len({pod["securityContext"].get("runAsUser") for _, _, pod in pods(found) if "securityContext" in pod}) > 1:
        yield "pods: not one user, so that the key and the private folder cannot be read"


def images(found: list[Object]) -> Iterator[str]:
    for _, _, pod in pods(found):
        for container in pod["containers"]:
            tag = container["image"].rpartition("/")[2].partition(":")[2]
            if not re.search(r"\d+\.\d+", tag):
                yield f"{container['name']}: image without a pinned tag"
            if container["image"].startswith("registry.example/") and tag != version("das"):
                yield f"{container['name']}: not of this version"
            if "job_server" in container["image"] and tag != jars.BEAM:
                yield f"{container['name']}: another Beam"
            if "/flink:" in container["image"] and not tag.startswith(f"{FLINK.distribution.version}-"):
                yield f"{container['name']}: another Flink"


def mounts(found: list[Object]) -> Iterator[str]:
    for name, _, pod in pods(found):
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        for volume in volumes.values():
            if "hostPath" in volume:
                yield f"{name}: a folder of the host"
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{name}: {volume['name']} has no limit"
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in volumes:
                    yield f"{container['name']}: no volume {mount['name']}"
    shared = [
        mount["mountPath"]
        for _, _, pod in pods(found)
        for container in pod["containers"]
        for mount in container.get("volumeMounts", ())
        if mount["name"] == "data"
    ]
    if len(shared) != 2 or len(set(shared)) != 1:
        yield "data: not under one path for the driver and the workers"


def network(found: list[Object]) -> Iterator[str]:
    policies = [each["spec"] for each in found if each["kind"] == "NetworkPolicy"]
    if not any(not p["podSelector"] and not p.get("ingress") and not p.get("egress") for p in policies):
        yield "network: nothing closes all ports first"
    if any(set(policy["policyTypes"]) != {"Ingress", "Egress"} for policy in policies):
        yield "network: a direction is left open"
    opened: set[int] = set()
    for policy in policies:
        for rule in policy.get("ingress", ()):
            if not rule.get("from") or any(
                peer != {"podSelector": {"matchLabels": {"app": "das"}}} for peer in rule["from"]
            ):
                yield "network: others than das may come in"
            if not rule.get("ports"):
                yield "network: every port is open"
            opened |= {port["port"] for port in rule.get("ports", ())}
    needed = {
        port["containerPort"]
        for _, _, pod in pods(found)
        for container in pod["containers"]
        for port in container.get("ports", ())
    }
    if opened != needed:
        yield f"network: opened {sorted(opened ^ needed)} beside what is used, or not opened"
    if WORKER_POOL in opened:
        yield "network: the worker pool can be reached, and runs any command"
    if any(each["kind"] == "Service" and each["spec"].get("type", "ClusterIP") != "ClusterIP" for each in found):
        yield "network: a service outside of the cluster"


def test_the_example_obeys_every_rule() -> None:
    assert flaws(objects()) == []
    assert sorted(path.name for path in FOLDER.glob("*.yaml")) == sorted(FILES)


def test_one_python_process_a_slot_and_as_many_slots_as_the_run_uses() -> None:
    found = objects()
    conf = yaml.safe_load(next(each for each in found if each["kind"] == "ConfigMap")["data"]["config.yaml"])
    assert conf["taskmanager.numberOfTaskSlots"] == 1
    (workers,) = (each for each in found if each["metadata"].get("name") == "flink-taskmanager")
    (job,) = (each for each in found if each["kind"] == "Job")
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--parallelism={workers['spec']['replicas']}" in arguments
    assert f"--environment_config=localhost:{WORKER_POOL}" in arguments


def test_the_options_of_the_example_are_understood() -> None:
    (job,) = (each for each in objects() if each["kind"] == "Job")
    assert is_elsewhere([*job["spec"]["template"]["spec"]["containers"][0]["args"], "--trust-network"])


def containers(found: list[Object]) -> Iterator[Object]:
    yield from (container for _, _, pod in pods(found) for container in pod["containers"])


def policy(found: list[Object]) -> Object:
    return next(each["spec"] for each in found if each["metadata"].get("name") == "among-das")


BREAKS: dict[str, Callable[[list[Object]], object]] = {
    "pinned tag": lambda found: next(containers(found)).update(image="docker.io/library/flink:latest"),
    "another Beam": lambda found: [c.update(image="x/job_server:2.60.0") for c in containers(found) if "args" in c],
    "can be written": lambda found: next(containers(found))["securityContext"].pop("readOnlyRootFilesystem"),
    "as root": lambda found: next(pods(found))[2]["securityContext"].pop("runAsNonRoot"),
    "not one user": lambda found: next(pods(found))[2]["securityContext"].update(runAsUser=7),
    "no limits": lambda found: next(containers(found))["resources"].pop("limits"),
    "secret": lambda found: next(containers(found))["env"].append({"name": "RUN_TOKEN", "value": "x"}),
    "others than das": lambda found: policy(found)["ingress"][0].update({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}),
    "every port": lambda found: policy(found)["ingress"][0].pop("ports"),
    "worker pool": lambda found: policy(found)["ingress"][0]["ports"].append({"port": WORKER_POOL}),
    "closes all": lambda found: found.remove(next(e for e in found if e["metadata"].get("name") == "nothing-else")),
    "outside of the cluster": lambda found: next(e for e in found if e["kind"] == "Service")["spec"].update(
        type="LoadBalancer"
    ),
    "folder of the host": lambda found: next(pods(found))[2]["volumes"].append(
        {"name": "h", "hostPath": {"path": "/"}}
    ),
    "no pod answers": lambda found: next(e for e in found if e["kind"] == "Service")["spec"].update(
        selector={"app": "x"}
    ),
}


@pytest.mark.parametrize("flaw", BREAKS)
def test_a_broken_rule_is_found(flaw: str) -> None:
    found = deepcopy(objects())
    BREAKS[flaw](found)
    assert [said for said in flaws(found) if flaw in said]
