"""The API server's certificate convinces its clients, and theirs convince it."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localcluster import pki

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.write(directory, 6443)
    return directory


def _client(
    keys: Path, directory: Path, name: str, trusting: Path | None = None
) -> tuple[ssl.SSLContext, bytes]:
    """What a client makes of its kubeconfig, or of one with the authority of other keys."""
    config = yaml.safe_load((keys / f"{name}.kubeconfig").read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert cluster["server"] == "https://127.0.0.1:6443"
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    if trusting is not None:
        ca = (trusting / "ca.crt").read_text()
    context = ssl.create_default_context(cadata=ca)
    certificate = base64.b64decode(user["client-certificate-data"])
    pair = directory / f"{name}.pem"
    pair.write_bytes(certificate + base64.b64decode(user["client-key-data"]))
    context.load_cert_chain(pair)
    return context, certificate


def _shake_hands(keys: Path, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory, the server as kube-apiserver does it. Raises `ssl.SSLError`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys / "apiserver.crt", keys / "apiserver.key")
    server.load_verify_locations(keys / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert sides[1].getpeercert() is not None


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"])
def test_both_sides_accept_each_other(keys: Path, tmp_path: Path, name: str) -> None:
    context, _ = _client(keys, tmp_path, "admin")
    _shake_hands(keys, context, name)


def test_another_name_is_refused(keys: Path, tmp_path: Path) -> None:
    context, _ = _client(keys, tmp_path, "admin")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _shake_hands(keys, context, "example.com")


def test_a_stranger_is_refused(keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    pki.write(other, 6443)
    context, _ = _client(other, tmp_path, "admin", trusting=keys)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(keys, context, "localhost")


@pytest.mark.parametrize("name", sorted(pki.CLIENTS))
def test_a_client_is_who_its_certificate_says(keys: Path, tmp_path: Path, name: str) -> None:
    _, pem = _client(keys, tmp_path, name)
    subject = x509.load_pem_x509_certificate(pem).subject
    user, group = pki.CLIENTS[name]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [user]
    groups = [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert groups == ([] if group is None else [group])


def test_a_client_cannot_pose_as_the_server(keys: Path, tmp_path: Path) -> None:
    _, pem = _client(keys, tmp_path, "admin")
    usage = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert list(usage.value) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_keys_are_their_owners_alone(keys: Path) -> None:
    files = sorted(keys.iterdir())
    assert [oct(file.stat().st_mode & 0o777) for file in files] == ["0o600"] * len(files)
    assert load_pem_private_key((keys / "service-account.key").read_bytes(), None) is not None
