# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import re

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _openpgp
from unit.plugins.module_utils.openpgp_keys import OTHER, OTHER_KEY, VENDOR, VENDOR_KEY, VENDOR_SUBKEY


def binary(armoured: str) -> bytes:
    lines = [line for line in armoured.splitlines()[2:-1] if not line.startswith("=")]
    return base64.b64decode("".join(lines))


def test_the_fingerprint_is_the_one_that_gpg_prints():
    assert [key.fingerprint for key in _openpgp.public_keys(VENDOR_KEY.encode())] == [VENDOR]


@pytest.mark.parametrize(
    "data",
    [
        (OTHER_KEY + VENDOR_KEY).encode(),
        (VENDOR_KEY + "\n" + OTHER_KEY).encode(),
        binary(OTHER_KEY) + binary(VENDOR_KEY),
        VENDOR_KEY.replace("\n", "\r\n").encode(),
        VENDOR_KEY.replace("BLOCK-----\n\n", "BLOCK-----\nComment: Hostname: \nVersion: 1\n\n", 1).encode(),
    ],
    ids=["two blocks", "other order", "binary", "line ends of windows", "headers of a key server"],
)
def test_of_many_keys_only_the_wanted_one_is_taken_with_its_subkey(data):
    (key,) = _openpgp.select(data, [VENDOR])
    assert key.packets == binary(VENDOR_KEY)


def test_a_fingerprint_may_be_written_with_spaces_and_in_lower_case():
    spaced = " ".join(re.findall("....", VENDOR)).lower()
    assert _openpgp.select(VENDOR_KEY.encode(), [spaced])[0].fingerprint == VENDOR


@pytest.mark.parametrize("accepted", [[VENDOR, OTHER], [OTHER, VENDOR]])
def test_of_several_accepted_keys_all_that_are_published_are_taken(accepted):
    both = _openpgp.select((VENDOR_KEY + OTHER_KEY).encode(), accepted)
    assert [key.fingerprint for key in both] == [VENDOR, OTHER]
    assert [key.fingerprint for key in _openpgp.select(OTHER_KEY.encode(), accepted)] == [OTHER]


def test_of_several_accepted_keys_none_that_is_published_is_a_refusal():
    with pytest.raises(_openpgp.KeyProblem, match=f"the key {VENDOR} or {'A' * 40} is not in it"):
        _openpgp.select(OTHER_KEY.encode(), [VENDOR, "A" * 40])


def test_another_key_is_refused_and_named():
    with pytest.raises(_openpgp.KeyProblem, match=f"the key {VENDOR} is not in it; the keys in it are: {OTHER}$"):
        _openpgp.select(OTHER_KEY.encode(), [VENDOR])


def test_a_subkey_is_no_key_to_be_trusted_by():
    with pytest.raises(_openpgp.KeyProblem, match="is not in it"):
        _openpgp.select(VENDOR_KEY.encode(), [VENDOR_SUBKEY])


@pytest.mark.parametrize("short", ["D693D0B2", "1CD16EB5D693D0B2", "", "0x" + VENDOR, VENDOR[:-1] + "G"])
def test_a_short_key_id_is_no_fingerprint(short):
    with pytest.raises(_openpgp.KeyProblem, match="40 hex digits"):
        _openpgp.normalised(short)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "there is nothing in it"),
        (b"<html>not found</html>", "this is not an OpenPGP key"),
        (binary(VENDOR_KEY)[:-3], "the key is cut off"),
        (binary(VENDOR_KEY)[:1], "the key is cut off"),
        (binary(VENDOR_KEY)[53:], "this is not a public key"),
        (VENDOR_KEY.replace("mDMEaw", "mDM!aw").encode(), "the armour of the key is damaged"),
    ],
    ids=["empty", "a page", "cut at the end", "cut at the start", "without its primary", "armour"],
)
def test_what_is_no_whole_key_is_refused(data, why):
    with pytest.raises(_openpgp.KeyProblem, match=why):
        _openpgp.select(data, [VENDOR])


def test_one_changed_bit_of_the_key_is_another_key():
    damaged = bytearray(binary(VENDOR_KEY))
    damaged[30] ^= 1
    with pytest.raises(_openpgp.KeyProblem, match="is not in it"):
        _openpgp.select(bytes(damaged), [VENDOR])
