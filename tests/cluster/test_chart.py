"""The chart: what helm makes of it, and that a real API server takes it in strict mode."""

from __future__ import annotations

import os
import secrets
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from localcluster import build
from vllm_upgrade_operator.__main__ import _options
from vllm_upgrade_operator.cluster.client import ApiError, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "vllm-upgrade-operator"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]


@cache
def _binary() -> str:
    return str(build.binaries() / "helm")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own binary
        [_binary(), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def rendered(*values: str) -> list[dict[str, Any]]:
    sets = [part for value in values for part in ("--set", value)]
    done = helm("template", "rel", str(CHART), "--namespace", "sys", *sets)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(found["kind"] for found in objects)


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_it_passes_helms_linter() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_by_default_it_has_all_that_an_operator_of_all_namespaces_needs() -> None:
    policies = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert kinds(rendered()) == sorted(
        [
            *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Deployment"),
            *("ServiceAccount", *policies, *policies),
        ]
    )


def test_for_some_namespaces_it_has_rights_in_those_alone() -> None:
    objects = rendered("watchNamespaces={a,b}")
    assert not {"ClusterRole", "ClusterRoleBinding"} & set(kinds(objects))
    places = {
        kind: sorted(o["metadata"]["namespace"] for o in objects if o["kind"] == kind)
        for kind in ("Role", "RoleBinding")
    }
    assert places == {"Role": ["a", "b"], "RoleBinding": ["a", "b"]}
    whole = only(rendered(), "ClusterRole")["rules"]
    # Nodes are in no namespace: no Role can grant them.
    in_namespaces = [rule for rule in whole if rule["resources"] != ["nodes"]]
    assert len(in_namespaces) == len(whole) - 1
    assert all(o["rules"] == in_namespaces for o in objects if o["kind"] == "Role")
    assert _options(container(objects)["args"]).namespace == ["a", "b"]


def test_the_operator_understands_its_command_line() -> None:
    found = container(rendered("log.format=console", "log.level=DEBUG"))
    options = _options(found["args"])
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    assert ports == {"health": options.health_port, "metrics": options.metrics_port}
    assert (options.log_format, options.log_level) == ("console", "DEBUG")
    assert options.namespace == []
    assert options.host == "$(POD_IP)"
    assert {variable["name"] for variable in found["env"]} >= {"POD_IP", "POD_NAME"}


def test_the_images_tag_is_the_charts_version_or_what_is_given() -> None:
    assert container(rendered())["image"] == f"vllm-upgrade-operator:{VERSION}"
    given = rendered("image.repository=registry.example/op", "image.tag=9.9.9")
    assert container(given)["image"] == "registry.example/op:9.9.9"


def test_the_crd_is_the_generated_one_and_outlives_the_chart() -> None:
    generated = yaml.safe_load((ROOT / "crds" / "vllmupgrades.yaml").read_text())
    crd = only(rendered(), "CustomResourceDefinition")
    assert crd["spec"] == generated["spec"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    loose = only(rendered("crds.keep=false"), "CustomResourceDefinition")
    assert "annotations" not in loose["metadata"]
    assert "CustomResourceDefinition" not in kinds(rendered("crds.enabled=false"))


def test_without_policies_there_are_none() -> None:
    objects = rendered("admissionPolicies.enabled=false")
    assert [kind for kind in kinds(objects) if "Admission" in kind] == []


def test_the_policy_for_pods_is_for_this_operators_account() -> None:
    objects = rendered()
    account = only(objects, "ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    (policy,) = [
        o
        for o in objects
        if o["kind"] == "ValidatingAdmissionPolicy" and o["metadata"]["name"] == "rel-pods"
    ]
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == '{user}'"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("replicas=2", "'replicas' not allowed"),
        ("image.name=x", "'name' not allowed"),
        ("image.repository=", "/image/repository"),
        ("watchNamespaces=all", "/watchNamespaces"),
        ("watchNamespaces={A_b}", "/watchNamespaces/0"),
        ("log.level=loud", "/log/level"),
        ("crds.enabled=maybe", "/crds/enabled"),
    ],
)
def test_a_value_that_is_none_is_refused_by_name(value: str, says: str) -> None:
    done = helm("template", "rel", str(CHART), "--set", value)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.fixture
async def admin() -> AsyncIterator[Client]:
    if "KUBECONFIG" not in os.environ:
        pytest.fail("needs a local cluster: python -m localcluster exec -- pytest ...")
    async with await Client.from_kubeconfig(os.environ["KUBECONFIG"]) as client:
        yield client


@pytest.mark.parametrize("values", [(), ("watchNamespaces={default,kube-system}",)])
async def test_every_object_is_accepted_in_strict_mode(
    admin: Client, values: tuple[str, ...]
) -> None:
    """With every warning an error: an unknown field, a deprecated version."""
    namespace = f"chart-{secrets.token_hex(3)}"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    sets = [part for value in values for part in ("--set", value)]
    try:
        text = helm("template", namespace, str(CHART), "--namespace", namespace, *sets).stdout
        done = subprocess.run(  # noqa: S603, ASYNC221 - nothing else runs meanwhile
            [
                *(build.kubectl(), "apply", "--server-side", "--force-conflicts"),
                *("--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"),
            ],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        await admin.delete(f"/api/v1/namespaces/{namespace}")
    assert done.returncode == 0, done.stderr


async def test_the_pod_is_allowed_where_only_restricted_ones_are(admin: Client) -> None:
    namespace = f"chart-{secrets.token_hex(3)}"
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    await admin.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": label}})
    path = f"/api/v1/namespaces/{namespace}/pods"
    spec = only(rendered(), "Deployment")["spec"]["template"]["spec"]
    # The ServiceAccount is made by the release, which is not installed here.
    pod = {"metadata": {"name": "p"}, "spec": {**spec, "serviceAccountName": "default"}}
    loose = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    try:
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if await admin.find(f"{account}/default") is None:
            try:
                await admin.create(account, {"metadata": {"name": "default"}})
            except ApiError as error:
                assert error.reason == "AlreadyExists"  # noqa: PT017 - the controller was faster
        await admin.create(path, pod, dryRun="All")
        with pytest.raises(ApiError, match="violates PodSecurity"):
            await admin.create(path, loose, dryRun="All")
    finally:
        await admin.delete(f"/api/v1/namespaces/{namespace}")
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
