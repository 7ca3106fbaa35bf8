"""Certificates for the servers that tests start with TLS: made anew, for 127.0.0.1 alone."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; its own is in ``pem``."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._key.public_key(), self._name)
        builder = builder.add_extension(constraints, critical=True)
        self.pem = directory / f"{name}.pem"
        self.pem.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *, address: str | None = None) -> tuple[Path, Path]:
        """Write a certificate and its key for a name, or for a server at an address."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, key.public_key(), self._name)
        if address is not None:
            places = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(places, critical=False)
        certificate, secret = (self._directory / f"{name}.{kind}" for kind in ("crt", "key"))
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        secret.touch(mode=0o600)
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, secret


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
