# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public keys out of what a vendor publishes: which ones are in there, and those whose fingerprints are known.

A fresh Debian or Ubuntu has gpgv, which checks signatures, but not gpg, which could list and export keys. Reading the
packets of a key takes a page of code and needs nothing. Signatures are not checked here; apt does that with the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_BLOCK = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
_PUBLIC_KEY = 6


class KeyProblem(Exception):
    """The data holds no key that may be trusted; the text says what it does hold."""


@dataclass(frozen=True)
class PublicKey:
    """A primary key with everything that belongs to it: user ids, subkeys, signatures.

    `fingerprint` is 40 upper-case hex digits; `packets` is what apt accepts as a keyring.
    """

    fingerprint: str
    packets: bytes


def dearmor(data: bytes) -> bytes:
    """Return the packets in `data`, whose blocks may be armoured (one or several) or which may be binary already."""
    blocks = _BLOCK.findall(data)
    if not blocks:
        return data
    packets = b""
    for block in blocks:
        # Headers end with an empty line; the checksum line begins with an equals sign and is not needed.
        _headers, _empty, body = re.sub(rb"[ \t\r]*\n", b"\n", b"\n" + block).partition(b"\n\n")
        lines = [line for line in body.split(b"\n") if line and not line.startswith(b"=")]
        try:
            packets += base64.b64decode(b"".join(lines), validate=True)
        except binascii.Error as error:
            raise KeyProblem(f"the armour of the key is damaged: {error}") from error
    return packets


def _packet(data: bytes, start: int) -> tuple[int, int, int]:
    """Return the packet at `start`: its tag, where its body begins and where it ends."""
    try:
        head = data[start]
        if not head & 0x80:
            raise KeyProblem("this is not an OpenPGP key")
        if head & 0x40:
            tag, first = head & 0x3F, data[start + 1]
            if first < 192:
                begin, length = start + 2, first
            elif first < 224:
                begin, length = start + 3, ((first - 192) << 8) + data[start + 2] + 192
            elif first == 255:
                begin, length = start + 6, int.from_bytes(data[start + 2 : start + 6], "big")
            else:
                raise KeyProblem("the key has a packet of unknown length")
        else:
            tag, size = (head >> 2) & 0x0F, head & 0x03
            if size == 3:
                raise KeyProblem("the key has a packet of unknown length")
            begin = start + 1 + (1 << size)
            length = int.from_bytes(data[start + 1 : begin], "big")
    except IndexError as error:
        raise KeyProblem("the key is cut off") from error
    if begin + length > len(data):
        raise KeyProblem("the key is cut off")
    return tag, begin, begin + length


def public_keys(data: bytes) -> list[PublicKey]:
    """Return the keys in `data`, armoured or binary, in their order; keys of other versions than 4 are left out.

    Raise KeyProblem when it is damaged or no key at all.
    """
    packets = dearmor(data)
    starts: list[tuple[int, str]] = []
    at = 0
    while at < len(packets):
        tag, begin, end = _packet(packets, at)
        if tag == _PUBLIC_KEY:
            body = packets[begin:end]
            known = body[:1] == b"\x04"
            # A fingerprint of version 4 is SHA-1 by definition; it names the key and is compared in full.
            digest = (
                hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False) if known else None
            )
            starts.append((at, digest.hexdigest().upper() if digest else ""))
        elif not starts:
            raise KeyProblem("this is not a public key")
        at = end
    ends = [start for start, _fingerprint in starts[1:]] + [len(packets)]
    return [
        PublicKey(fingerprint, packets[start:end])
        for (start, fingerprint), end in zip(starts, ends, strict=True)
        if fingerprint
    ]


def normalised(fingerprint: str) -> str:
    """Return a fingerprint without spaces and in upper case; raise KeyProblem unless it is a full one."""
    text = "".join(fingerprint.split()).upper()
    if not re.fullmatch(r"[0-9A-F]{40}", text):
        raise KeyProblem(
            f"{fingerprint!r} is not a fingerprint: 40 hex digits are needed, a short key id proves nothing"
        )
    return text


def select(data: bytes, fingerprints: Iterable[str]) -> list[PublicKey]:
    """Return the keys in `data` that have one of these fingerprints.

    Raise KeyProblem, naming the keys that are there instead, when there is none.
    """
    wanted = [normalised(fingerprint) for fingerprint in fingerprints]
    if not data.strip():
        raise KeyProblem("there is nothing in it")
    found = public_keys(data)
    if chosen := [key for key in found if key.fingerprint in wanted]:
        return chosen
    others = ", ".join(key.fingerprint for key in found) or "none of version 4"
    raise KeyProblem(f"the key {' or '.join(wanted)} is not in it; the keys in it are: {others}")
