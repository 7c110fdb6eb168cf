# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificate and key, read together.

Needs nothing of the rest, so that a host on which nothing is installed yet can be asked:
python3 -I - CERTIFICATE KEY < tls.py
"""

from __future__ import annotations

import ssl
import sys


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Read both into a context, for connections from now on; raise ValueError, which says what is wrong with which."""
    for path in filter(None, (certificate, key)):
        try:
            with open(path, "rb") as handle:
                handle.read(1)
        except OSError as exc:
            raise ValueError(f"{path}: cannot be read: {exc.strerror}") from exc
    where = key or certificate
    try:
        # a password is never asked for: nobody is there to type it
        context.load_cert_chain(certificate, key or None, password="")
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{where}: this key does not belong to the certificate {certificate}") from exc
        raise ValueError(f"{_culprit(certificate, where)} cannot be used: {exc.reason or exc}") from exc


def _culprit(certificate: str, key: str) -> str:
    """Which of both cannot be read; the words of OpenSSL do not tell."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        return f"{certificate}: this certificate"
    return f"{key}: this key (PEM, without a password)"


def check(certificate: str, key: str) -> str:
    """What is wrong with a pair; empty when nothing is."""
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    except ValueError as exc:
        return str(exc)
    return ""


if __name__ == "__main__":
    sys.exit(check(sys.argv[1], sys.argv[2]) or 0)
