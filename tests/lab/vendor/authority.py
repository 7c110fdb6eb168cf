# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An authority that exists for one run, and certificates of servers that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def certificates(folder: Path, names: Sequence[str]) -> str:
    """Write a key and a certificate for all names and addresses to `folder`/server.pem; returns the authority's
    certificate."""
    now = datetime.datetime.now(datetime.UTC)
    lasts = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=2))

    def builder(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name("Authority of the lab"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(lasts[0]).not_valid_after(lasts[1])

    root, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = builder("Authority of the lab", root)
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    server = builder(names[0], key).add_extension(
        x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
    )
    signed, pem = server.sign(root, hashes.SHA256()), serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(secret + signed.public_bytes(pem))
    (folder / "server.pem").chmod(0o600)
    return authority.sign(root, hashes.SHA256()).public_bytes(pem).decode()


def context_of(folder: Path) -> ssl.SSLContext:
    """Return what serves with the certificate in a folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context
