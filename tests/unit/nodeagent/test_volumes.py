import base64
from pathlib import Path
from typing import Any

import pytest

from localcluster.nodeagent.sources import ConfigError, Sources
from localcluster.nodeagent.volumes import VolumeError, Volumes

OBJECTS: dict[str, dict[str, Any]] = {}


class FakeClient:
    async def find(self, path: str) -> dict[str, Any] | None:
        return OBJECTS.get(path.rpartition("/")[2])

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        bound = body["spec"]["boundObjectRef"]["uid"]
        return {"status": {"token": f"{path.split('/')[-2]}-{bound}-{body['spec']['audiences']}"}}


def pod(*volumes: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"}},
        "spec": {"volumes": list(volumes), "serviceAccountName": "sa"},
        "status": {},
    }


@pytest.fixture
def volumes(tmp_path: Path) -> Volumes:
    OBJECTS.clear()
    OBJECTS["cm"] = {"data": {"k": "1", "other": "2"}}
    OBJECTS["s"] = {"data": {"k": base64.b64encode(b"hidden").decode()}}
    return Volumes(tmp_path, Sources(FakeClient(), "n"))  # type: ignore[arg-type]


async def test_a_volume_follows_its_config_map(volumes: Volumes, tmp_path: Path) -> None:
    given = pod({"name": "v", "configMap": {"name": "cm", "defaultMode": 0o755}})
    await volumes.write(given)
    assert (tmp_path / "v" / "k").stat().st_mode & 0o777 == 0o755
    OBJECTS["cm"] = {"data": {"k": "new"}}
    await volumes.write(given)
    files = {path.name: path.read_text() for path in (tmp_path / "v").iterdir()}
    assert files == {"k": "new"}


async def test_a_projected_volume_holds_token_certificate_and_labels(
    volumes: Volumes, tmp_path: Path
) -> None:
    sources = [
        {"serviceAccountToken": {"path": "token", "audience": "them"}},
        {"configMap": {"name": "cm", "items": [{"key": "k", "path": "deep/ca.crt"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    await volumes.write(pod({"name": "v", "projected": {"sources": sources}}))
    place = tmp_path / "v"
    assert (place / "token").read_text() == "sa-u-['them']"
    assert (place / "deep" / "ca.crt").read_text() == "1"
    assert (place / "k").read_text() == "hidden"
    assert (place / "l").read_text() == 'a="b"'


@pytest.mark.parametrize(
    ("volume", "error", "message"),
    [
        ({"configMap": {"name": "no"}}, ConfigError, 'configmap "no" not found'),
        (
            {"configMap": {"name": "cm", "items": [{"key": "z", "path": "z"}]}},
            ConfigError,
            'non-existent key: "z" of "cm"',
        ),
        (
            {"persistentVolumeClaim": {"claimName": "x"}},
            VolumeError,
            'volume "v": persistentVolumeClaim is not supported',
        ),
    ],
)
async def test_what_cannot_be_made_is_named(
    volumes: Volumes, volume: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await volumes.write(pod({"name": "v", **volume}))


async def test_outer_mounts_come_before_inner_ones(volumes: Volumes, tmp_path: Path) -> None:
    given = pod({"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": str(tmp_path)}})
    await volumes.write(given)
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/a/b/c", "subPathExpr": "for-$(WHO)", "readOnly": True},
            {"name": "h", "mountPath": "/a/"},
        ]
    }
    mounts = volumes.mounts(given, container, {"WHO": "me"})
    assert mounts == [
        {"source": str(tmp_path), "target": "/a/", "readOnly": False},
        {"source": str(tmp_path / "v" / "for-me"), "target": "/a/b/c", "readOnly": True},
    ]
    assert (tmp_path / "v" / "for-me").is_dir()


@pytest.mark.parametrize("below", ["../out", "/etc", "a/../../b"])
async def test_a_sub_path_stays_in_its_volume(volumes: Volumes, below: str) -> None:
    given = pod({"name": "v", "emptyDir": {}})
    await volumes.write(given)
    container = {"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": below}]}
    with pytest.raises(VolumeError, match="must stay in the volume"):
        volumes.mounts(given, container, {})
