# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways to fetch the files of a model: the hub, a web server, a folder, other hosts that have it; what goes wrong there
as three exceptions."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
_WEB = urllib.request.build_opener()
# A proxy is no way to a neighbour.
_NEAR = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Fault(Exception):
    """It cannot go on; the text says why and what to do."""


class Interrupted(Exception):
    """It can be tried again; what came is kept."""


class Wrong(Exception):
    """What came is not what was promised, and was thrown away."""


def chosen(names: list[str], include: list[str], exclude: list[str]) -> list[str]:
    """The files that belong to the model: nothing hidden, something of ``include``, nothing of ``exclude``."""

    def fits(name: str, patterns: list[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    visible = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    wanted = [name for name in visible if not include or fits(name, include)]
    return sorted(name for name in wanted if not fits(name, exclude))


def host_of(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


class Source(ABC):
    """What all ways have in common. where: names the source in messages; wrong: hosts that gave wrong bytes, with what
    was wrong."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.wrong: dict[str, str] = {}

    @abstractmethod
    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        """Bring what is missing of one file; raises Fault, Interrupted or Wrong."""

    def another(self, name: str, part: str, wrong: int, said: str) -> bool:
        """Whether a file that came wrong so many times is asked for once more; ``said`` is what was wrong."""
        return wrong < WRONG_LIMIT

    def right(self, name: str, part: str) -> None:
        """Learn from a file that came right."""
        return


class Plain(Source):
    """A directory on a web server with a manifest: this collection's own, or SHA256SUMS."""

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        self._spec = spec
        self._base = spec["url"].rstrip("/")
        super().__init__(host_of(self._base))

    def _open(self, name: str, offset: int = 0) -> Any:
        url = f"{self._base}/{urllib.parse.quote(name)}"
        request = urllib.request.Request(url, headers={"User-Agent": "arcpro.b70"})
        if offset:
            request.add_header("Range", f"bytes={offset}-")
        return _WEB.open(request, timeout=self._spec["stall_s"])

    def contents(self) -> dict[str, Any]:
        for name in (MANIFEST, SUMS):
            try:
                with network(self.where), self._open(name) as answer:
                    data = answer.read(64 * CHUNK)
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    continue
                raise Fault(f"{self._base}/{name} answers {error.code}: correct the address or the server") from error
            digest = hashlib.sha256(data).hexdigest()
            if self._spec.get("manifest_sha256") not in (None, digest):
                raise Fault(
                    f"{self._base}/{name} has sha256 {digest}, not the one of manifest_sha256; nothing was fetched"
                )
            return self._read(data, name)
        raise Fault(
            f"{self._base} has neither {MANIFEST} nor {SUMS}: fill it with the playbook arcpro.b70.mirror, "
            "or make one with sha256sum"
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
                        raise Fault(
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
            raise Fault(f"{self._base}/{name} can't be read as a manifest ({type(error).__name__})") from error
        return {"files": files, "revision": revision}

    def _size(self, name: str) -> int:
        request = urllib.request.Request(f"{self._base}/{urllib.parse.quote(name)}", method="HEAD")
        try:
            with network(self.where), _WEB.open(request, timeout=self._spec["stall_s"]) as answer:
                return int(answer.headers["Content-Length"])
        except urllib.error.HTTPError as error:
            raise Fault(f"{self._base}/{name} is in {SUMS} but answers {error.code}") from error

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        begun = os.path.getsize(part) if os.path.exists(part) else 0
        if begun and begun == entry[0]:
            return
        try:
            with network(self.where), self._open(name, begun) as answer, open(part, "ab") as out:
                if begun and answer.status != 206:
                    out.truncate(0)
                while chunk := answer.read(CHUNK):
                    out.write(chunk)
                    if out.tell() > entry[0]:
                        break
        except urllib.error.HTTPError as error:
            if error.code == 416:
                raise Wrong(f"{name} ends earlier at the source than {entry[0]} bytes") from error
            if error.code in (408, 429) or error.code >= 500:
                raise Interrupted(f"{self.where} answers {error.code}") from error
            raise Fault(f"{self._base}/{name} answers {error.code}") from error


class Folder(Source):
    """A directory on this host, for example a share."""

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        self._root = spec["path"]
        super().__init__(self._root)

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        try:
            with open(os.path.join(self._root, name), "rb") as stream, open(part, "wb") as out:
                shutil.copyfileobj(stream, out, 4 * CHUNK)
        except PermissionError as error:
            raise Fault(f"{error.filename} may not be read by this user: see model_weights_user") from error


class Peers(Source):
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
        # What an earlier download left of files, as it was found here: no host is to blame for it.
        self._left: dict[str, bool] = {}
        # What came wrong from several hosts: what was wrong, and the digests of its blocks.
        self._mixed: dict[str, tuple[str, list[bytes]]] = {}

    def fetch(self, name: str, entry: list[Any], part: str) -> None:
        self._asked = list(self._urls)[: 1 if name in self._mixed else None]
        if not self._asked:
            said = "; ".join(f"{host}: {what}" for host, what in self.wrong.items())
            raise Fault(f"no host is left that gives {name} right ({said})")
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
            raise Fault(f"{who} no longer gives {name}: {aria2_said(done.stdout + done.stderr)}")
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
        """A block of a file as a host has it; None if the host does not answer."""
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
    """The SHA-256 of each block of a file."""
    with open(path, "rb") as stream:
        return [hashlib.sha256(block).digest() for block in iter(lambda: stream.read(CHUNK), b"")]


def aria2_argv(urls: list[str], part: str, rate: str, stall_s: float) -> list[str]:
    """The command that brings one file from all of these addresses and goes on where an earlier one stopped."""
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
    """The last thing that aria2 calls an error, without where in its source that is."""
    found = re.findall(r"errorCode=\d+ (.+)", output)
    words = [word for word in (found[-1].split() if found else ["aria2", "ended", "early"]) if "://" not in word]
    return " ".join(words)[:200]


def arrived(path: str, kind: str) -> int:
    """How many bytes of a file are there. aria2 writes pieces in any order, so its files have holes."""
    status = os.stat(path)
    return min(status.st_size, status.st_blocks * 512) if kind == "peers" else status.st_size


class Hub(Source):
    """The hub, through its own client. Its download function is used with our file, so that a killed process can be
    continued: the client by itself begins every file anew."""

    def __init__(self, spec: Mapping[str, Any], token: str) -> None:
        import huggingface_hub
        from huggingface_hub import constants, file_download
        from huggingface_hub.utils import build_hf_headers, logging

        logging.set_verbosity_error()
        constants.DOWNLOAD_CHUNK_SIZE = HUB_CHUNK
        self._download = file_download
        self._token = token or False
        self._spec = spec
        self._headers = build_hf_headers
        self._endpoint = spec["endpoint"].rstrip("/")
        self._api = huggingface_hub.HfApi(endpoint=self._endpoint, token=self._token, library_name="arcpro.b70")
        super().__init__(host_of(self._endpoint))

    def contents(self) -> dict[str, Any]:
        info = self._info(self._spec.get("revision"))
        files = {
            entry.rfilename: [entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id]
            for entry in info.siblings or []
        }
        keep = chosen(list(files), self._spec["include"], self._spec["exclude"])
        for name in keep:
            size, sha256, blob = files[name]
            if size is None or not (sha256 or blob):
                raise Fault(f"{self.where} names neither size nor digest of {name}: it can't be verified")
        return {"files": {name: files[name] for name in keep}, "revision": info.sha}

    def _info(self, revision: str | None) -> Any:
        with self._asking():
            return self._api.model_info(
                self._spec["repository"], revision=revision, files_metadata=True, timeout=self._spec["stall_s"]
            )

    def _gone(self, revision: str) -> str:
        """What to say of a revision that the hub does not have: upstream rewrote its history, or the name is wrong."""
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
        with self._asking(), open(part, "ab") as out:
            found = self._download.get_hf_file_metadata(
                url, token=self._token, timeout=self._spec["stall_s"], endpoint=self._endpoint, headers=headers
            )
            if found.commit_hash not in (None, revision):
                raise Fault(f"{self.where} answers with revision {found.commit_hash} where {revision} was asked for")
            if found.size is not None and found.size != entry[0]:
                raise Wrong(f"{name} has {found.size} bytes instead of {entry[0]}")
            if self._spec["xet"] and found.xet_file_data:
                out.close()
                self._download.xet_get(incomplete_path=Path(part), xet_file_data=found.xet_file_data, headers=headers)
                return
            if host_of(found.location) != host_of(url):
                headers.pop("authorization", None)  # a storage behind the hub has no right to the token
            self._download.http_get(
                found.location, out, resume_size=out.tell(), headers=headers, expected_size=entry[0], _nb_retries=0
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from huggingface_hub import errors

        repository, base = self._spec["repository"], self._endpoint
        account = "the account of model_weights_hub_token" if self._token else "an account"
        try:
            with network(self.where):
                yield
        except errors.GatedRepoError as error:
            raise Fault(
                f"{repository} is gated: accept its terms at {base}/{repository} with {account}, "
                f"{'' if self._token else 'set model_weights_hub_token to its token, '}then run again"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise Fault(self._gone(str(self._spec.get("revision")))) from error
        except errors.RepositoryNotFoundError as error:
            raise Fault(
                f"{base} knows no repository {repository}, or does not show it without the right token "
                "(model_weights_hub_token): correct the name, or give a token that may read it"
            ) from error
        except errors.EntryNotFoundError as error:
            raise Fault(f"a file of {repository} is not at {base} although it is listed: {_brief(error)}") from error
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                said = "refuses the token" if self._token else "wants a token"
                raise Fault(
                    f"{base} {said} for {repository} ({status}): set model_weights_hub_token to one that may read it"
                ) from error
            if status in (408, 416, 429) or status >= 500:
                raise Interrupted(f"{self.where} answers {status}") from error
            raise Fault(f"{base} answers {status} for {repository}") from error
        except ValueError as error:
            if "too large" in str(error):
                raise Fault(
                    "a file is larger than the hub gives without its Xet transport: set model_weights_hub_xet"
                ) from error
            raise


def _brief(error: BaseException) -> str:
    """An error's first line without addresses, which may be signed."""
    words = (str(error).splitlines() or [""])[0].split()
    return f"{type(error).__name__} {' '.join(word for word in words if '://' not in word)}".strip()[:200]


@contextmanager
def network(where: str) -> Iterator[None]:
    """Everything that a network does to a transfer, as one exception."""
    try:
        yield
    except (Fault, Wrong, Interrupted, urllib.error.HTTPError):
        raise
    except TimeoutError as error:
        raise Interrupted(f"{where} sends nothing") from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            raise Interrupted(f"{where} sends nothing") from error
        raise Interrupted(f"no connection to {where}: {_brief(error)}") from error
    except Exception as error:
        family = type(error).__module__.split(".", maxsplit=1)[0]
        if family.startswith(("httpx", "httpcore")) and not hasattr(error, "response"):
            quiet = "Timeout" in type(error).__name__
            raise Interrupted(
                f"{where} sends nothing" if quiet else f"connection to {where}: {_brief(error)}"
            ) from error
        if isinstance(error, OSError) and "Consistency check failed" in str(error):
            raise Interrupted("fewer or more bytes came than promised") from error
        raise


SOURCES: dict[str, Any] = {"hub": Hub, "url": Plain, "host_path": Folder, "peers": Peers}
