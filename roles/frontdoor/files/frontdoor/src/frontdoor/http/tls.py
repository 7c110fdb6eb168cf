# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificate and key, read together.

Needs nothing of the rest, so that a host on which nothing is installed yet can be asked:
python3 -I - CERTIFICATE KEY < tls.py
"""

from __future__ import annotations

import ssl
import sys


class TlsError(ValueError):
    """Certificate and key cannot be used; the text says which, and why."""


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Read both into a context, for connections from now on; raise TlsError."""
    for path in filter(None, (certificate, key)):
        try:
            with open(path, "rb") as handle:
                handle.read(1)
        except OSError as exc:
            raise TlsError(f"tls: {path}: cannot be read: {exc.strerror}") from exc
    where = key or certificate
    try:
        # a password is never asked for: nobody is there to type it
        context.load_cert_chain(certificate, key or None, password="")
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"tls: {where}: this key does not belong to the certificate {certificate}") from exc
        # the words of OpenSSL do not tell which of both cannot be read
        culprit = f"{where}: this key (PEM, without a password)"
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
        except ssl.SSLError:
            culprit = f"{certificate}: this certificate"
        raise TlsError(f"tls: {culprit} cannot be used: {exc.reason or exc}") from exc


def server_context(certificate: str, key: str) -> ssl.SSLContext | None:
    """Return the context of a server with this pair, None without one; raise TlsError."""
    if not certificate and not key:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_pair(context, certificate, key)
    return context


if __name__ == "__main__":
    try:
        server_context(sys.argv[1], sys.argv[2])
    except TlsError as problem:
        sys.exit(str(problem))
