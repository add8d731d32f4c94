"""Keys and certificates of one local cluster."""

from __future__ import annotations

import base64
import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

_LIFETIME = timedelta(days=365)

# Who talks to the API server by certificate. The node agent plays every kubelet and creates what
# no kubelet may; on a cluster that serves one machine it is an administrator, and so is people's
# own kubeconfig.
CLIENTS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "node-agent": ("local-node-agent", "system:masters"),
}

_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_SERVER_ADDRESSES = ("127.0.0.1", "10.96.0.1", "10.244.0.1")


class Authority:
    """A certificate authority that lives as long as this process."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("local-cluster-ca", None)
        self.certificate = (
            _builder(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, name: str, organization: str | None, *, server: bool) -> tuple[bytes, bytes]:
        """Give a certificate and its key, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_name(name, organization), self.certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if server:
            names: list[x509.GeneralName] = [x509.DNSName(n) for n in _SERVER_NAMES]
            names += [x509.IPAddress(ipaddress.ip_address(a)) for a in _SERVER_ADDRESSES]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256())), private_pem(key)


def write(directory: Path, port: int) -> None:
    """Write all keys, certificates and kubeconfigs of a cluster into its directory.

    Args:
        directory: Where to; files are readable for their owner alone.
        port: The API server's port on 127.0.0.1, the same inside and outside of the namespace.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority()
    ca = _pem(authority.certificate)
    _private(directory / "ca.crt", ca)
    certificate, key = authority.issue("kube-apiserver", None, server=True)
    _private(directory / "apiserver.crt", certificate)
    _private(directory / "apiserver.key", key)
    accounts = ec.generate_private_key(ec.SECP256R1())
    _private(directory / "service-account.key", private_pem(accounts))
    for name, (common_name, organization) in CLIENTS.items():
        certificate, key = authority.issue(common_name, organization, server=False)
        config = kubeconfig(port, ca, certificate, key)
        _private(directory / f"{name}.kubeconfig", config.encode())


def kubeconfig(port: int, ca: bytes, certificate: bytes, key: bytes) -> str:
    """Give a kubeconfig with everything in it, so that it works from any directory."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "local",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port}",
                        "certificate-authority-data": _base64(ca),
                    },
                }
            ],
            "users": [
                {
                    "name": "local",
                    "user": {
                        "client-certificate-data": _base64(certificate),
                        "client-key-data": _base64(key),
                    },
                }
            ],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        },
        sort_keys=False,
    )


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write a private key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, organization: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
