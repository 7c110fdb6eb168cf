# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways to fetch the files of a model: the hub, a web server, a folder, other hosts that have it; what goes wrong there
as three exceptions."""

from __future__ import annotations

import email.utils
import errno
import fnmatch
import hashlib
import http.client
import ipaddress
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .way import way

CHUNK = 1024 * 1024
# The most that a cut connection costs, for each file.
HUB_CHUNK = 256 * 1024
MANIFEST = ".b70-weights.json"
SUMS = "SHA256SUMS"
# A file that arrives wrong is fetched once more: a cache in between may have been at fault.
WRONG_LIMIT = 2
ARIA2 = "/usr/bin/aria2c"
# Connections for one file. Less than this is not worth one.
_CONNECTIONS = 16
_PIECE = "1M"
# aria2's exit statuses: what says that a host does not give the file, and a full disk.
_REFUSED = (3, 22, 24)
_DISK_FULL = 9
_VERIFY_LIMIT_S = 60.0
# The longest wait that a server may ask for. The hub counts requests in windows of 300 s.
LONGEST_WAIT_S = 900.0
# A server that answers in another's place gives pages; a model has none but these.
_PAGES = (".html", ".htm")
# Each of them checks a detached signature with the same words. apt needs one, so a host has one.
VERIFIERS = ("/usr/bin/gpgv", "/usr/bin/sqv")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEB = urllib.request.build_opener()
# A proxy is no way to a neighbour.
_NEAR = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class FetchFault(Exception):
    """It cannot go on; the text says why and what to do."""


class Interrupted(Exception):
    """It can be tried again, but not before `after_s` seconds; what came is kept. `advice` says what to do then."""

    def __init__(self, text: str, after_s: float = 0.0, advice: str = "") -> None:
        super().__init__(text)
        self.after_s, self.advice = after_s, advice


class Wrong(Exception):
    """A transfer that brought other bytes than were promised. They were thrown away."""


def chosen(names: list[str], include: list[str], exclude: list[str]) -> list[str]:
    """Return the files that belong to the model: nothing hidden, something of ``include``, nothing of ``exclude``."""

    def fits(name: str, patterns: list[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    visible = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    wanted = [name for name in visible if not include or fits(name, include)]
    return sorted(name for name in wanted if not fits(name, exclude))


def host_of(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port: a token for one of these may go to no other."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def in_clear(url: str) -> bool:
    """Return whether others can read what is sent to an address: it is neither TLS nor this host."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True


def told_to_wait(headers: Any, now: float) -> float:
    """Return the seconds for which a server does not want to be asked again; 0 where it does not say.

    Retry-After (RFC 9110) is seconds or a date. RateLimit (draft-ietf-httpapi-ratelimit-headers, as the hub sends it)
    lists limits such as ``"resolvers";r=0;t=243``: r requests are left for t seconds. The longest of them counts.
    """
    waits = [0.0]
    said = (headers.get("Retry-After") or "").strip()
    if said.isdecimal():
        waits.append(float(said))
    elif said:
        date = email.utils.parsedate_tz(said)
        waits.append(email.utils.mktime_tz(date) - now if date else 0.0)
    for limit in (headers.get("RateLimit") or "").split(","):
        given = {key.strip(): value.strip() for key, _is, value in (one.partition("=") for one in limit.split(";")[1:])}
        if given.get("r") == "0" and given.get("t", "").isdecimal():
            waits.append(float(given["t"]))
    return max(waits)


def again(where: str, status: int, headers: Any, advice: str = "") -> Exception:
    """Return what to raise for an answer that can be another one later."""
    wait = told_to_wait(headers, time.time())
    said = f"{where} answers {status}"
    if status == 429:
        said = f"{where} limits the requests from this address (429)"
    if wait > LONGEST_WAIT_S:
        return FetchFault(
            f"{said} and wants no more for {wait / 60:.0f} minutes: run again then{advice and ', or '}{advice}"
        )
    return Interrupted(said, wait, advice and f"run again later, or {advice}")


def page(where: str, what: str) -> FetchFault:
    """Return what to raise where somebody else answers in place of a server."""
    return FetchFault(
        f"{where} gives a web page instead of {what}. A captive portal, a proxy or a firewall answers in its place: "
        "sign in there, or let this host through, then run again"
    )


def _is_page(headers: Any, name: str = "") -> bool:
    kind = str(headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml") and not name.lower().endswith(_PAGES)


def _wants_sign_in(status: int, headers: Any) -> bool:
    # Servers of models refuse in JSON, XML or plain text.
    return status == 511 or (status in (401, 403) and _is_page(headers))


def may_come_later(status: int) -> bool:
    """Return whether another attempt can end otherwise. 511 wants a person to sign in."""
    return status in (408, 429) or (status >= 500 and status != 511)


class Transport(ABC):
    """A way to fetch files.

    where: names the source in messages. wrong: hosts that gave wrong bytes, with what was wrong.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.wrong: dict[str, str] = {}

    @abstractmethod
    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        """Bring what is missing of one file; raises FetchFault, Interrupted or Wrong."""

    def another(self, name: str, part: str, wrong: int, said: str) -> bool:
        """Tell whether to ask once more for a file that came wrong ``wrong`` times; ``said`` is what was wrong."""
        return wrong < WRONG_LIMIT

    def right(self, name: str, part: str) -> None:
        """Learn from a file that came right."""
        return


def verify(data: bytes, signature: bytes, keyring: str, what: str, otherwise: str) -> None:
    """Raise FetchFault unless a key of the keyring has signed the data. The signature is detached, armoured or not."""
    program = next((path for path in VERIFIERS if os.path.exists(path)), None)
    if program is None:
        raise FetchFault(f"the signature of {what} can't be checked: this host has none of {', '.join(VERIFIERS)}")
    if not os.path.exists(keyring):
        raise FetchFault(
            f"the signature of {what} can't be checked: {keyring} is not there. Set b70_mirror_key_fingerprint and run "
            f"the role host, which puts the key of the mirror there. {otherwise}"
        )
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, content in (("signature", signature), ("data", data)):
            files.append(os.path.join(folder, name))
            with open(files[-1], "wb") as stream:
                stream.write(content)
        done = subprocess.run(
            [program, "--keyring", keyring, *files],
            env={"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERIFY_LIMIT_S,
            check=False,
        )
    if done.returncode:
        said = " / ".join(done.stderr.decode(errors="replace").split("\n"))[:300].strip(" /")
        raise FetchFault(
            f"{what} is not signed with the key in {keyring}: somebody changed it, or it is another mirror "
            f"({os.path.basename(program)} says: {said}). Nothing was fetched; compare b70_mirror_key_fingerprint with "
            f"what the playbook arcpro.b70.mirror prints. {otherwise}"
        )


class Plain(Transport):
    """A directory on a web server with a manifest: this collection's own, or SHA256SUMS.

    The source pins the manifest, or the directory above has a signed SHA256SUMS that names it.
    """

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        self._spec = spec
        self._base = spec["url"].rstrip("/")
        super().__init__(host_of(self._base))

    def _open(self, url: str, offset: int = 0) -> Any:
        request = urllib.request.Request(url, headers={"User-Agent": "arcpro.b70"})
        if offset:
            request.add_header("Range", f"bytes={offset}-")
        return _WEB.open(request, timeout=self._spec["stall_s"])

    def contents(self) -> dict[str, Any]:
        for name in (MANIFEST, SUMS):
            data = self._text(f"{self._base}/{name}")
            if data is None:
                continue
            digest = hashlib.sha256(data).hexdigest()
            pinned = self._spec.get("manifest_sha256")
            if pinned not in (None, digest):
                raise FetchFault(
                    f"{self._base}/{name} has sha256 {digest}, not the one of manifest_sha256; nothing was fetched"
                )
            if pinned is None and not self._spec.get("accept_unsigned"):
                self._prove(name, digest)
            return self._read(data, name)
        raise FetchFault(
            f"{self._base} has neither {MANIFEST} nor {SUMS}: fill it with the playbook arcpro.b70.mirror, "
            "or make one with sha256sum"
        )

    def _text(self, url: str) -> bytes | None:
        """Return a small file of the server, or None where there is none."""
        try:
            with network(self.where), self._open(url) as answer:
                if _is_page(answer.headers):
                    raise page(self.where, url)
                return bytes(answer.read(64 * CHUNK))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise self._refusal(error, url) from error

    def _refusal(self, error: urllib.error.HTTPError, what: str) -> Exception:
        if may_come_later(error.code):
            return again(self.where, error.code, error.headers)
        if _wants_sign_in(error.code, error.headers):
            return page(self.where, what)
        return FetchFault(f"{what} answers {error.code}: correct the address or the server")

    def _prove(self, name: str, digest: str) -> None:
        """Raise FetchFault unless the mirror's key says that this directory has a record with this digest."""
        parent, _slash, directory = self._base.rpartition("/")
        sums, signature = (self._text(f"{parent}/{file}") for file in (SUMS, f"{SUMS}.asc"))
        ways = (
            f"Or pin it: give its source manifest_sha256, as sha256sum says it of {name} on the mirror's machine. Or "
            "accept whatever such a server gives: model_weights_accept_unsigned"
        )
        if sums is None or signature is None:
            raise FetchFault(
                f"nothing proves what {self._base} holds: {parent} has no signed {SUMS}. Let the playbook "
                f"arcpro.b70.mirror fill it again, which signs it. {ways}"
            )
        verify(sums, signature, self._spec["keyring"], f"{parent}/{SUMS}", ways)
        if f"{digest}  {urllib.parse.unquote(directory)}/{name}" not in sums.decode(errors="replace").splitlines():
            raise FetchFault(
                f"{self._base}/{name} has sha256 {digest}, and the signed {parent}/{SUMS} says something else: it was "
                "changed after the mirror was filled. Nothing was fetched; let the playbook arcpro.b70.mirror fill it "
                "again"
            )

    def _read(self, data: bytes, name: str) -> dict[str, Any]:
        files: dict[str, list[Any]] = {}
        revision = None
        try:
            text = data.decode()
            if name == MANIFEST:
                manifest = json.loads(text)
                files = {file: [int(e["size"]), str(e["sha256"]), None] for file, e in manifest["files"].items()}
                source = manifest.get("source") or {}
                revision = source.get("revision")
                expected = self._spec.get("expect") or {}
                for key in ("repository", "revision"):
                    if expected.get(key) and source.get(key) != expected[key]:
                        raise FetchFault(
                            f"{self._base} holds {key} {source.get(key)}, and {expected[key]} is wanted: "
                            "let the playbook arcpro.b70.mirror fill it again"
                        )
            else:
                for line in text.splitlines():
                    digest, file = line.split(maxsplit=1)
                    file = file.removeprefix("*").removeprefix("./")
                    if file not in (SUMS, MANIFEST):
                        files[file] = [self._size(file), digest.lower(), None]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FetchFault(f"{self._base}/{name} can't be read as a manifest ({type(error).__name__})") from error
        return {"files": files, "revision": revision}

    def _size(self, name: str) -> int:
        request = urllib.request.Request(f"{self._base}/{urllib.parse.quote(name)}", method="HEAD")
        try:
            with network(self.where), _WEB.open(request, timeout=self._spec["stall_s"]) as answer:
                return int(answer.headers["Content-Length"])
        except urllib.error.HTTPError as error:
            raise self._refusal(error, f"{self._base}/{name}, which {SUMS} names,") from error

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        begun = os.path.getsize(part) if os.path.exists(part) else 0
        if begun and begun == entry[0]:
            return
        url = f"{self._base}/{urllib.parse.quote(name)}"
        try:
            with network(self.where), self._open(url, begun) as answer, open(part, "ab") as out:
                if _is_page(answer.headers, name):
                    raise page(self.where, name)
                if begun and answer.status != 206:
                    out.truncate(0)
                while chunk := answer.read(CHUNK):
                    out.write(chunk)
                    if out.tell() > entry[0]:
                        break
        except urllib.error.HTTPError as error:
            if error.code == 416:
                raise Wrong(f"{name} ends earlier at the source than {entry[0]} bytes") from error
            raise self._refusal(error, url) from error


class DirectoryTransport(Transport):
    """A directory on this host, for example a share."""

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        self._root = spec["path"]
        super().__init__(self._root)

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        try:
            with open(os.path.join(self._root, name), "rb") as stream, open(part, "wb") as out:
                shutil.copyfileobj(stream, out, 4 * CHUNK)
        except PermissionError as error:
            raise FetchFault(f"{error.filename} may not be read by this user: see model_weights_user") from error


class Peers(Transport):
    """Other hosts with the same model. aria2 carries each file, in pieces from all of them at once.

    Only the digest of a whole file is known. So a file that came wrong from several hosts is asked of one after the
    other until it is right. Then each of them is asked for one block in which the two differ. Hosts that gave wrong
    bytes are named and not asked again.
    """

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        self._spec = spec
        self._urls = {peer["host"]: peer["url"] for peer in spec["peers"]}
        super().__init__(", ".join(self._urls))
        self._asked: list[str] = []
        # The remains of an earlier download, as they were found here: no host is to blame for them.
        self._left: dict[str, bool] = {}
        # Files that came wrong from several hosts: what was wrong, and the digests of their blocks.
        self._mixed: dict[str, tuple[str, list[bytes]]] = {}

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        self._asked = list(self._urls)[: 1 if name in self._mixed else None]
        if not self._asked:
            said = "; ".join(f"{host}: {what}" for host, what in self.wrong.items())
            raise FetchFault(f"no host is left that gives {name} right ({said})")
        self._left.setdefault(name, os.path.exists(part))
        urls = [f"{self._urls[host]}/{urllib.parse.quote(name)}" for host in self._asked]
        done = subprocess.run(
            aria2_argv(urls, part, self._spec["rate"], self._spec["stall_s"]),
            env={"PATH": "/usr/bin:/bin"},  # no proxy
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        who = ", ".join(self._asked)
        if done.returncode == _DISK_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if done.returncode in _REFUSED:
            raise FetchFault(f"{who} no longer gives {name}: {aria2_said(done.stdout + done.stderr)}")
        if done.returncode:
            raise Interrupted(f"{name} from {who}: {aria2_said(done.stdout + done.stderr)}")
        size = os.path.getsize(part)
        if size != entry[0]:
            raise Wrong(f"{name} came with {size} bytes instead of {entry[0]}")

    def another(self, name: str, part: str, wrong: int, said: str) -> bool:
        if self._left.get(name):
            self._left[name] = False  # from here on all of it is from these hosts
        elif len(self._asked) > 1:
            self._mixed[name] = (said, block_digests(part))
        else:
            self._blame(self._asked[0], said)
        return True

    def right(self, name: str, part: str) -> None:
        if name not in self._mixed:
            return
        said, wrong = self._mixed.pop(name)
        good = block_digests(part)
        differ = [number for number, (one, other) in enumerate(zip(wrong, good, strict=False)) if one != other]
        number = differ[0] if differ else min(len(wrong), len(good))
        expected = good[number] if number < len(good) else hashlib.sha256(b"").digest()
        for host in list(self._urls):
            block = None if host in self._asked else self._block(host, name, number)
            if block is not None and hashlib.sha256(block).digest() != expected:
                self._blame(host, said)

    def _blame(self, host: str, said: str) -> None:
        self._urls.pop(host)
        self.wrong[host] = said

    def _block(self, host: str, name: str, number: int) -> bytes | None:
        """Return a block of a file as a host has it; None if the host does not answer."""
        request = urllib.request.Request(f"{self._urls[host]}/{urllib.parse.quote(name)}")
        request.add_header("Range", f"bytes={number * CHUNK}-{(number + 1) * CHUNK - 1}")
        try:
            with network(host), _NEAR.open(request, timeout=self._spec["stall_s"]) as answer:
                return bytes(answer.read(CHUNK))
        except urllib.error.HTTPError as error:
            return b"" if error.code == 416 else None  # 416: its file ends earlier
        except Interrupted:
            return None


def block_digests(path: str) -> list[bytes]:
    """Return the SHA-256 of each block of a file."""
    with open(path, "rb") as stream:
        return [hashlib.sha256(block).digest() for block in iter(lambda: stream.read(CHUNK), b"")]


def aria2_argv(urls: list[str], part: str, rate: str, stall_s: float) -> list[str]:
    """Return the command that brings one file from all of these addresses and goes on where an earlier one stopped."""
    folder, name = os.path.split(part)
    options = {
        "dir": folder,
        "out": name,
        "continue": "true",
        "allow-overwrite": "true",
        "auto-file-renaming": "false",
        "auto-save-interval": "1",
        "connect-timeout": "10",
        "enable-color": "false",
        "file-allocation": "none",
        "follow-metalink": "false",
        "follow-torrent": "false",
        "max-connection-per-server": "4",
        "max-overall-download-limit": rate or "0",
        "max-tries": "2",
        "min-split-size": _PIECE,
        "no-conf": "true",
        "no-netrc": "true",
        "retry-wait": "1",
        "show-console-readout": "false",
        "split": str(_CONNECTIONS),
        "summary-interval": "0",
        "timeout": str(max(1, round(stall_s))),
        "uri-selector": "feedback",
    }
    return [ARIA2, *(f"--{key}={value}" for key, value in options.items()), "--", *urls]


def aria2_said(output: str) -> str:
    """Return the last error that aria2 printed, without addresses."""
    found = re.findall(r"errorCode=\d+ (.+)", output)
    words = [word for word in (found[-1].split() if found else ["aria2", "ended", "early"]) if "://" not in word]
    return " ".join(words)[:200]


def arrived(path: str, kind: str) -> int:
    """Return how many bytes of a file have arrived; aria2 writes pieces in any order, so its files have holes."""
    status = os.stat(path)
    return min(status.st_size, status.st_blocks * 512) if kind == "peers" else status.st_size


class Hub(Transport):
    """The hub, through its own client at the level of one request, so that a killed process can be continued: the
    client by itself begins every file anew."""

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        import huggingface_hub
        from huggingface_hub import constants, file_download
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status, logging

        logging.set_verbosity_error()
        self._endpoint = spec["endpoint"].rstrip("/")
        if token and in_clear(self._endpoint):
            raise FetchFault(
                f"the token of model_weights_hub_token would go in clear to {self._endpoint}, so nothing was asked: "
                "give model_weights_hub_url an address with https://, or give no token"
            )
        self._download = file_download
        self._largest: int = constants.MAX_HTTP_DOWNLOAD_SIZE
        self._session, self._raise_for_status = get_session, hf_raise_for_status
        self._token = token or False
        self._spec = spec
        self._headers = build_hf_headers
        self._api = huggingface_hub.HfApi(endpoint=self._endpoint, token=self._token, library_name="arcpro.b70")
        super().__init__(host_of(self._endpoint))

    def contents(self) -> dict[str, Any]:
        asked = self._spec.get("revision")
        info = self._info(asked)
        if not _COMMIT.fullmatch(info.sha or "") or asked not in (None, info.sha):
            raise self._other_revision(info.sha)
        files = {
            entry.rfilename: [entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id]
            for entry in info.siblings or []
        }
        keep = chosen(list(files), self._spec["include"], self._spec["exclude"])
        for name in keep:
            size, sha256, blob = files[name]
            if size is None or not (sha256 or blob):
                raise FetchFault(f"{self.where} names neither size nor digest of {name}: it can't be verified")
        return {"files": {name: files[name] for name in keep}, "revision": info.sha}

    def _info(self, revision: str | None) -> Any:
        what = f"the description of {self._spec['repository']}"
        with self._asking():
            try:
                return self._api.model_info(
                    self._spec["repository"], revision=revision, files_metadata=True, timeout=self._spec["stall_s"]
                )
            except json.JSONDecodeError as error:
                raise page(self.where, what) from error
            except (KeyError, TypeError) as error:
                raise FetchFault(f"{self.where} gives something else than {what}: is it a hub?") from error

    def _other_revision(self, found: str | None) -> FetchFault:
        return FetchFault(
            f"{self.where} answers with revision {found} where {self._spec.get('revision') or 'a commit'} was asked "
            "for: nothing of it is used. Try again later, or take a mirror (model_weights_hub_url, b70_mirror_url)"
        )

    def _gone(self, revision: str) -> str:
        """Return the message about a revision that the hub lacks: its history was rewritten, or the name is wrong."""
        now = self._info(None).sha
        return (
            f"{self._spec['repository']} has no revision {revision} at {self._endpoint}; its main branch is {now} now. "
            "Either keep the revision: take it from who has it (model_weights_models, b70_mirror_url). Or take what is "
            "there now: name that commit where this one stands, in model_weights_revisions or in the pin"
        )

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        revision = self._spec["revision"]
        url = self._download.hf_hub_url(self._spec["repository"], name, revision=revision, endpoint=self._endpoint)
        headers = {**self._headers(token=self._token, library_name="arcpro.b70"), "Accept-Encoding": "identity"}
        with self._asking():
            found = self._download.get_hf_file_metadata(
                url, token=self._token, timeout=self._spec["stall_s"], endpoint=self._endpoint, headers=headers
            )
            if found.commit_hash is None:
                raise page(self.where, f"{name}, or is no hub")
            if found.commit_hash != revision:
                raise self._other_revision(found.commit_hash)
            if found.size is not None and found.size != entry[0]:
                raise Wrong(f"{name} has {found.size} bytes instead of {entry[0]}")
            if self._spec["xet"] and found.xet_file_data:
                self._xet(part, found.xet_file_data, headers)
            elif entry[0] > self._largest:
                raise FetchFault(
                    "a file is larger than the hub gives without its Xet transport: set model_weights_hub_xet"
                )
            else:
                self._receive(found.location, headers, name, entry[0], part)

    def _receive(self, location: str, headers: dict[str, str], name: str, size: int, part: str) -> None:
        """Bring what is missing of a file from the hub, or from the storage behind it."""
        if _origin(location) != _origin(self._endpoint):
            headers.pop("authorization", None)  # a storage behind the hub has no right to the token
        with open(part, "ab") as out:
            begun = out.tell()
            if begun == size:
                return
            if begun:
                headers["Range"] = f"bytes={begun}-"
            timeout = self._spec["stall_s"]
            with self._session().stream("GET", location, headers=headers, timeout=timeout) as answer:
                self._raise_for_status(answer)
                if _is_page(answer.headers, name):
                    raise page(host_of(str(answer.url)), name)
                if begun and answer.status_code != 206:
                    out.truncate(0)
                for chunk in answer.iter_bytes(HUB_CHUNK):
                    out.write(chunk)
                    if out.tell() > size:
                        break

    def _xet(self, part: str, data: Any, headers: dict[str, str]) -> None:
        from huggingface_hub import errors

        try:
            self._download.xet_get(incomplete_path=Path(part), xet_file_data=data, headers=headers)
        except errors.HfHubHTTPError:
            raise
        except Exception as error:  # native code, which raises whatever it likes
            advice = "see that this host reaches the storage, or turn the transport off (model_weights_hub_xet)"
            raise Interrupted(f"the Xet storage of {self.where}: {_brief(error)}", advice=advice) from error

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from huggingface_hub import errors

        try:
            with network(self.where):
                yield
        except errors.HfHubHTTPError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Any) -> Exception:
        """Return what to raise for an answer that refuses, of the hub or of the storage behind it."""
        from huggingface_hub import errors

        repository, base = self._spec["repository"], self._endpoint
        status, headers, url = error.response.status_code, error.response.headers, str(error.response.url)
        if may_come_later(status) or status == 416:
            more = "take a mirror (b70_mirror_url)" if self._token else "give a token, which raises the limit"
            variable = "" if self._token else " (model_weights_hub_token)"
            return again(host_of(url), status, headers, f"{more}{variable}" if status == 429 else "")
        if _wants_sign_in(status, headers):
            return page(host_of(url), f"what was asked for ({status})")
        if _origin(url) != _origin(base):
            return Interrupted(
                f"{host_of(url)}, the storage behind {self.where}, answers {status}",
                advice=f"this is not about the token, which the storage never gets: let this host reach {host_of(url)} "
                "(a proxy or firewall may stand between), see that its clock is right, because addresses there expire, "
                "or take a mirror (b70_mirror_url)",
            )
        account = "the account of model_weights_hub_token" if self._token else "an account"
        if isinstance(error, errors.GatedRepoError):
            return FetchFault(
                f"{repository} is gated: accept its terms at {base}/{repository} with {account}, "
                f"{'' if self._token else 'set model_weights_hub_token to its token, '}then run again"
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return FetchFault(self._gone(str(self._spec.get("revision"))))
        if isinstance(error, errors.RepositoryNotFoundError):
            return FetchFault(
                f"{base} knows no repository {repository}, or does not show it without the right token "
                "(model_weights_hub_token): correct the name, or give a token that may read it"
            )
        if isinstance(error, errors.EntryNotFoundError):
            return FetchFault(f"a file of {repository} is not at {base} although it is listed: {_brief(error)}")
        if isinstance(error, errors.DisabledRepoError):
            return FetchFault(f"{base} has closed {repository} for everybody: take another source")
        if status in (401, 403):
            said = "refuses the token" if self._token else "wants a token"
            return FetchFault(
                f"{base} {said} for {repository} ({status}): set model_weights_hub_token to one that may read it"
            )
        return FetchFault(f"{base} answers {status} for {repository}")


def _brief(error: BaseException) -> str:
    """Return an error's first line without addresses, which may be signed."""
    words = (str(error).splitlines() or [""])[0].split()
    return f"{type(error).__name__} {' '.join(word for word in words if '://' not in word)}".strip()[:200]


@contextmanager
def network(where: str) -> Iterator[None]:
    """Raise one exception for everything that a network does to a transfer."""
    try:
        yield
    except (FetchFault, Wrong, Interrupted, urllib.error.HTTPError):
        raise
    except TimeoutError as error:
        raise Interrupted(f"{where} sends nothing") from error
    except Exception as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise FetchFault(
                f"{where} shows a certificate that this host does not trust: {_brief(error)}. A captive portal or a "
                "proxy that opens TLS answers in its place, or the clock of this host is wrong: sign in there, let "
                "this host through, or name the authority of your proxy (SSL_CERT_FILE in model_weights_environment)"
            ) from error
        family = type(error).__module__.split(".", maxsplit=1)[0]
        own = isinstance(error, (urllib.error.URLError, http.client.HTTPException, ConnectionError))
        if not own and (not family.startswith(("httpx", "httpcore")) or hasattr(error, "response")):
            raise
        if isinstance(getattr(error, "reason", None), TimeoutError) or "Timeout" in type(error).__name__:
            raise Interrupted(f"{where} sends nothing") from error
        raise Interrupted(f"no connection to {where} {way(os.environ)}: {_brief(error)}") from error


SOURCES: dict[str, Any] = {"hub": Hub, "url": Plain, "host_path": DirectoryTransport, "peers": Peers}
