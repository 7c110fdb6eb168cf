# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One model of a mirror as the role mirror leaves it. The commands of roles/mirror/tasks made the key and the
signatures; the secret keys are gone."""

from __future__ import annotations

import base64

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 700_000, "tokenizer.json": b"t"}
RECORD = """\
{
 "schema": 1,
 "source": {
  "kind": "hub",
  "repository": "a/b",
  "revision": "1111111111111111111111111111111111111111",
  "include": [],
  "exclude": []
 },
 "files": {
  "config.json": {
   "size": 2,
   "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
   "mtime_ns": 1,
   "source_mtime_ns": -1
  },
  "model.safetensors": {
   "size": 700000,
   "sha256": "5cc97167fc95b3da97b87f02016dab1d982c805dde14b7f89e4a7a64114b851a",
   "mtime_ns": 1,
   "source_mtime_ns": -1
  },
  "tokenizer.json": {
   "size": 1,
   "sha256": "e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8",
   "mtime_ns": 1,
   "source_mtime_ns": -1
  }
 }
}
"""
SUMS = "02d1f4f20a81442e95669b27f1493280715adabefca776b3baa201cc7492277c  model/.b70-weights.json\n"
SIGNATURE = """\
-----BEGIN PGP SIGNATURE-----

iHUEABYIAB0WIQTwUInrnHy0g+ZAN7pMepSYW2kA3QUCZ3Z/wAAKCRBMepSYW2kA
3ZMgAP0ZOTA6LLICRKNYklInO6FMgtWPKIFXq4uKL+wEtuLc2QD/fk+tyMlC/sNu
5qFbApsYsEBDnCG/h9OzyhfamC4nnwE=
=UPPI
-----END PGP SIGNATURE-----
"""
BY_ANOTHER_KEY = """\
-----BEGIN PGP SIGNATURE-----

iHUEABYIAB0WIQREZp0DeXkHAofCz0oFEiwmunFN5gUCZ3Z/wAAKCRAFEiwmunFN
5qj1AQCBUsahH/quxlVF3loRSfit8KILyaujaMHU8HrOAI6WLAD/RJDdE73VhBkF
FVoRghsu1iiBk9A5ZdeKVbboFzVVcw8=
=468w
-----END PGP SIGNATURE-----
"""
KEYRING = base64.b64decode(
    "mDMEZ3Z/wBYJKwYBBAHaRw8BAQdArrsLlAGhjINVGIO22hmpeB6/YxI8Nk6jbuEDwNiUGdC0CkI3MCBtaXJyb3KIkAQTFggAOBYh"
    "BPBQieucfLSD5kA3ukx6lJhbaQDdBQJndn/AAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEEx6lJhbaQDdHH4A/0tQKNO5"
    "kH0fq6Cw1Feo4vcXXxvLYnlNLJbcZqBdM+5qAQDh2QlWMaJW52BzAu0EF9ypI82DxVIc3/cY88fWmHZYAg=="
)
