"""A certificate authority of one server, and the certificate that it gave to 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.services.account import Account, give


@dataclass(frozen=True)
class Certificates:
    """PEM files. Clients that trust ``ca`` trust the server; nobody else does."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, directory: Path) -> Certificates:
        return cls(directory / "ca.pem", directory / "server.pem", directory / "server-key.pem")

    def make(self, account: Account) -> None:
        """Write them, unless they are there. The key is readable by ``account`` alone, the authority by everyone."""
        if self.key.exists():
            return
        ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = _sign("authority of the test", ca_key, None, ca_key)
        server = _sign("server of the test", server_key, ca, ca_key)
        private = server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pem = serialization.Encoding.PEM
        for path, data in ((self.ca, ca.public_bytes(pem)), (self.certificate, server.public_bytes(pem))):
            path.write_bytes(data)
            give(path, account)
        self.key.touch(mode=0o600)
        self.key.write_bytes(private)
        give(self.key, account)


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
