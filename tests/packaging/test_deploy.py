"""The manifests of deploy/kubernetes against the schemas of Kubernetes, and against what they name of each other and of topo."""

from __future__ import annotations

import copy
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from topo.config import TopologyConfig, parse_duration
from topo.master.ending import STOP_TIMEOUT_S

FOLDER = Path(__file__).parents[2] / "deploy"

try:
    import kubernetes_validate
    import yaml
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("needs kubernetes-validate, which `make check` installs", allow_module_level=True)

VERSIONS = kubernetes_validate.utils.all_versions()


def manifests() -> list[dict[str, Any]]:
    """Return all objects of the folder."""
    return [each for file in sorted((FOLDER / "kubernetes").glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]


def one(kind: str) -> dict[str, Any]:
    (found,) = [each for each in manifests() if each["kind"] == kind]
    return found


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_each_manifest_is_valid_for_the_oldest_and_the_newest_kubernetes_known(version: str) -> None:
    shown = manifests()
    assert len(shown) == 5
    for manifest in shown:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    "place, value", [(("spec", "replica"), 1), (("spec", "replicas"), "1"), (("spec", "template", "spec", "containers"), None)]
)
def test_a_mistake_in_a_manifest_would_be_found(place: tuple[str, ...], value: Any) -> None:
    wrong = copy.deepcopy(one("StatefulSet"))
    *path, last = place
    at = wrong
    for name in path:
        at = at[name]
    at[last] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_manifests_name_each_other() -> None:
    pods, account, role = one("StatefulSet")["spec"], one("ServiceAccount"), one("Role")
    binding, service = one("RoleBinding"), one("Service")
    pod = pods["template"]["spec"]
    assert pods["serviceName"] == service["metadata"]["name"]
    assert pods["selector"]["matchLabels"] == service["spec"]["selector"] == pods["template"]["metadata"]["labels"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"]}]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
    (container,) = pod["containers"]
    claims = {claim["metadata"]["name"]: claim for claim in pods["volumeClaimTemplates"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == claims.keys()
    home = next(row["value"] for row in container["env"] if row["name"] == "TOPO_HOME")
    assert any(Path(home).is_relative_to(path) for path in mounts.values())


def words_of(text: str) -> list[str]:
    """Return the arguments of `topo run` in a shell command."""
    words = shlex.split(text)
    at = words.index("topo")
    assert words[at + 1] == "run"
    return words[at + 2 :]


def test_the_commands_are_ones_that_topo_run_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from topo_cli.run import command

    monkeypatch.setenv("TOPO_HOME", str(tmp_path))
    (container,) = one("StatefulSet")["spec"]["template"]["spec"]["containers"]
    service = yaml.safe_load((FOLDER / "docker" / "compose.yaml").read_text())["services"]["topology"]
    for text in (container["args"][0], service["command"]):
        # The options are read and checked, and nothing is run.
        context = command.make_context("run", words_of(text))
        assert context.params["topology"] == "topologies/word_count.py" and context.params["master"]
        assert (FOLDER.parent / context.params["topology"]).is_file()


def test_what_the_compose_file_names_is_there() -> None:
    compose = yaml.safe_load((FOLDER / "docker" / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", ())) <= compose["services"].keys() - {name}
        build = service["build"]
        assert (FOLDER / "docker" / build["context"] / build["dockerfile"]).is_file()
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"]
    assert "spark://spark-master:7077" in compose["services"]["topology"]["command"]
    assert compose["services"]["spark-master"]["hostname"] == "spark-master"


def test_the_commands_find_the_sockets_of_the_service() -> None:
    """With PrivateTmp the sockets of a master below /tmp are seen by the service alone."""
    unit = (FOLDER / "systemd" / "topo@.service").read_text().splitlines()
    assert "PrivateTmp=yes" in unit and "RuntimeDirectory=topo-%i" in unit
    assert any(line.startswith("Environment=") and "TMPDIR=/run/topo-%i" in line.split() for line in unit)


def test_each_way_to_stop_a_topology_lasts_longer_than_its_drain_and_the_closing_of_its_components() -> None:
    compose = yaml.safe_load((FOLDER / "docker" / "compose.yaml").read_text())["services"]["topology"]
    (unit,) = [line for line in (FOLDER / "systemd" / "topo@.service").read_text().splitlines() if "TimeoutStopSec" in line]
    pod = one("StatefulSet")["spec"]["template"]["spec"]
    given = (compose.get("stop_grace_period", "10s"), unit.partition("=")[2], pod["terminationGracePeriodSeconds"])
    assert min(map(parse_duration, given)) > 2 * TopologyConfig().drain_timeout_s + STOP_TIMEOUT_S
