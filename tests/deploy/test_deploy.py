"""Agreement of the container file and the manifests with the gateway: the things that they name exist under these
names.
"""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from babelgate.gateway.settings.load import load
from babelgate.gateway.settings.model import Shutdown

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
CONTAINERFILE: Final = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSED: Final = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(DEPLOY.glob("compose*.yaml"))]
MANIFESTS: Final = sorted(DEPLOY.glob("kubernetes/*.yaml"))
SERVED: Final = (ROOT / "gateway/http/app.py").read_text(encoding="utf-8")


def manifests(kind: str) -> list[Any]:
    read = (each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text(encoding="utf-8")))
    return [each for each in read if each["kind"] == kind]


def workloads() -> list[Any]:
    return [*manifests("StatefulSet"), *manifests("Deployment")]


def test_the_image_has_every_package_of_the_project() -> None:
    linked = {each.resolve().name for each in (ROOT / "babelgate").iterdir() if each.is_symlink()}
    assert {"babelgate", *linked} == set(re.findall(r"^COPY (\w+) \1$", CONTAINERFILE, re.MULTILINE))


def test_the_variables_of_the_image_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    [line] = re.findall(r"^ENV (BABELGATE_.+)$", CONTAINERFILE, re.MULTILINE)
    for name, _, value in (each.partition("=") for each in line.split()):
        monkeypatch.setenv(name, value)
    settings = load()
    assert (settings.host, str(settings.database_path.parent)) == ("0.0.0.0", "/data")
    assert f"EXPOSE {settings.port}\n" in CONTAINERFILE


def test_the_health_check_of_the_image_uses_a_served_path() -> None:
    [path] = re.findall(r"urlopen\('http://127.0.0.1:8000(/\w+)'", CONTAINERFILE)
    assert f'"{path}"' in SERVED


def test_probes_use_served_paths() -> None:
    paths = set(re.findall(r"path: (/\w+), port", "".join(path.read_text(encoding="utf-8") for path in MANIFESTS)))
    assert paths == {"/healthz", "/readyz"}
    assert all(f'"{path}"' in SERVED for path in paths)


def test_pods_get_enough_time_for_a_shutdown() -> None:
    assert workloads()
    for workload in workloads():
        pod = workload["spec"]["template"]["spec"]
        hooks = [container.get("lifecycle", {}).get("preStop", {}) for container in pod["containers"]]
        before = max(hook.get("sleep", {}).get("seconds", 0) for hook in hooks)
        assert pod["terminationGracePeriodSeconds"] > Shutdown().grace + before


def test_services_find_the_pods() -> None:
    labels = [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads()]
    for service in manifests("Service"):
        assert any(service["spec"]["selector"].items() <= of.items() for of in labels)


def test_containers_write_only_to_their_volumes() -> None:
    for workload in workloads():
        for container in workload["spec"]["template"]["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for compose in COMPOSED:
        for service in compose["services"].values():
            assert service.get("image") != "babelgate" or service["read_only"] is True


def test_the_variables_of_composed_gateways_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_HOST", "0.0.0.0")  # set by the image
    together = next(each for each in COMPOSED if "proxy" in each["services"])
    gateways = {name: of for name, of in together["services"].items() if of["image"] == "babelgate"}
    for name, value in gateways["babelgate-1"]["environment"].items():
        monkeypatch.setenv(name, '{"alice": "secret"}' if name == "BABELGATE_KEYS" else value)
    assert load().cluster
    # One proxy has all gateways, with the addresses at which they listen.
    proxied = re.findall(r"server ([\w-]+):8000 ", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    assert proxied == list(gateways)


def test_one_pod_may_be_evicted_at_a_time() -> None:
    [budget] = manifests("PodDisruptionBudget")
    [deployment] = manifests("Deployment")
    assert budget["spec"]["minAvailable"] == deployment["spec"]["replicas"] - 1
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_image_has_what_several_gateways_need() -> None:
    locked = (DEPLOY / "requirements.lock").read_text(encoding="utf-8")
    names = set(re.findall(r"^([\w.-]+)==", locked, re.MULTILINE))
    base = set(re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    assert names >= {"psycopg", "psycopg-binary", "obstore"}
    assert base <= set(re.findall(r"^[\w.-]+==\S+", locked, re.MULTILINE))


def test_the_example_has_its_agent() -> None:
    assert set(load(DEPLOY / "babelgate.yaml").agents) == {"echo"}


def test_metrics_listen_on_a_port_that_is_not_published() -> None:
    variable = "BABELGATE_TELEMETRY__METRICS__LISTEN"
    for composed in COMPOSED:
        gateways = [each for each in composed["services"].values() if "BABELGATE_KEYS" in each.get("environment", {})]
        assert gateways
        assert {each["environment"][variable] for each in gateways} == {"0.0.0.0:9464"}
        assert "9464" not in str([each.get("ports") for each in gateways])
    for workload in workloads():
        pod = workload["spec"]["template"]
        [container] = pod["spec"]["containers"]
        assert {"name": variable, "value": "0.0.0.0:9464"} in container["env"]
        assert {"name": "metrics", "containerPort": 9464} in container["ports"]
        assert pod["metadata"]["annotations"]["prometheus.io/port"] == "9464"
    assert "9464" not in str(manifests("Service"))
