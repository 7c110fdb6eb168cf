# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that fetches a model, with the hub's real client in its locked version, against a server that speaks the
hub's interface and breaks what it is told to break."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights import fetching
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching import transports
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching.program import part_name
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching.transports import chosen
from hub.client import client
from hub.server import COMMIT, PORTAL, Fault, Hub, Refusal, serve
from unit.plugins.module_utils._weights import signed

PACKAGE = Path(fetching.__file__).parent
BIG = 3_000_000
# The program itself, without the pauses before it tries again. Each run of it is a fork of a process that has loaded it
# and the hub's client: that load takes longer than most of these downloads.
LOADER = """
import os
import socket
import sys

from fetching import program
try:
    from huggingface_hub import constants, errors, file_download
except ImportError:
    pass
program.PAUSE_S = 0.1
waits = program.pause
def pause(over, seconds):
    if seconds > 1:
        print(f"waits {round(seconds)} s")
    waits(over, min(seconds, 0.1))
program.pause = pause
channel = socket.socket(fileno=int(sys.argv[1]))
while True:
    asked, streams, _flags, _from = socket.recv_fds(channel, 65536, 3)
    if not asked:
        break
    child = os.fork()
    if child == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        command, path, home = asked.decode().split("\\0")
        os.environ["HOME"] = home
        raise SystemExit(program.main([command, path]))
    for stream in streams:
        os.close(stream)
    channel.send(str(child).encode())
    os.waitpid(child, 0)
    channel.send(b"ended")
"""
TOKEN = "hf_secret_of_the_test"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "original").mkdir(parents=True)
    (root / "config.json").write_text('{"model_type": "x"}')
    (root / "tokenizer.json").write_text("t" * 3000)
    (root / "model.safetensors").write_bytes(bytes(range(251)) * (BIG // 251))
    (root / "original/old.bin").write_text("old")
    (root / ".gitattributes").write_text("hidden")
    return root


@pytest.fixture
def hub(model: Path) -> Iterator[Hub]:
    with serve(Hub(model, repository="lab/model")) as served:
        yield served


LOADED: dict[tuple[str, str], tuple[subprocess.Popen[bytes], socket.socket]] = {}


def loader(python: str, environment: dict[str, str]) -> socket.socket:
    """The channel to a process of this Python and environment that runs the program when it is asked to."""
    key = (python, json.dumps(environment, sort_keys=True))
    if key not in LOADED:
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        ours.settimeout(300)
        argv = [python, "-c", LOADER, str(theirs.fileno())]
        process = subprocess.Popen(argv, cwd=PACKAGE.parent, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()
        LOADED[key] = (process, ours)
    return LOADED[key][1]


@pytest.fixture(scope="module", autouse=True)
def loaders_end() -> Iterator[None]:
    yield
    while LOADED:
        _key, (process, channel) = LOADED.popitem()
        channel.close()
        process.wait(60)


class Run:
    """One run of the program. token: its standard input."""

    def __init__(self, channel: socket.socket, words: tuple[str, ...], token: str) -> None:
        self._channel = channel
        (theirs_in, given), (self._out, theirs_out), (self._err, theirs_err) = (os.pipe() for _stream in range(3))
        theirs = [theirs_in, theirs_out, theirs_err]
        socket.send_fds(channel, ["\0".join(words).encode()], theirs)
        os.write(given, f"{token}\n".encode())
        for stream in (given, *theirs):
            os.close(stream)
        self.pid = int(channel.recv(64))

    def ended(self) -> tuple[str, str]:
        """(what it wrote, what it wrote as errors) up to its end."""
        self._channel.recv(64)
        out, err = (os.fdopen(stream).read() for stream in (self._out, self._err))
        return out, err


class Fetcher:
    """Runs the program as the unit does."""

    def __init__(self, folder: Path, spec: dict[str, Any], python: Path | str) -> None:
        self.folder, self.python = folder / "job", str(python)
        self.staging, self.out = self.folder / "staging", self.folder / "out"
        for path in (self.staging, self.out):
            path.mkdir(parents=True, exist_ok=True)
        defaults = {"keyring": str(folder / "keyring.gpg"), "accept_unsigned": True}
        self.spec = {"stall_s": 20, "attempts": 3, "token_on_stdin": True, **defaults, **spec}
        self.token = self.said = ""
        self.environment: dict[str, str] = {}

    def start(self, command: str, job: dict[str, Any]) -> Run:
        path = self.folder / "job.json"
        path.write_text(json.dumps(job))
        stall = str(max(1, round(self.spec["stall_s"])))
        environment = {
            "PATH": "/usr/bin:/bin",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": stall,
            "HF_HUB_ETAG_TIMEOUT": stall,
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.environment,
        }
        return Run(loader(self.python, environment), (command, str(path), str(self.out)), self.token)

    def contents(self) -> dict[str, Any]:
        out, err = self.start("list", self.spec).ended()
        assert TOKEN not in out + err
        assert err == ""
        *waits, text = out.splitlines()
        self.said = "".join(f"{line}\n" for line in waits)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def job(self) -> dict[str, Any]:
        listed = self.contents()
        assert "error" not in listed, listed
        return {**self.spec, "files": listed["files"], "folder": str(self.staging), "out": str(self.out), "workers": 2}

    def fetch(self, job: dict[str, Any] | None = None) -> dict[str, Any]:
        self.said, err = self.start("fetch", job or self.job()).ended()
        assert "secret" not in err
        answer: dict[str, Any] = json.loads((self.out / "result.json").read_text())
        assert "secret" not in json.dumps(answer)
        return answer

    def names(self) -> list[str]:
        return sorted(path.name for path in self.staging.iterdir() if not path.name.startswith("."))


@pytest.fixture
def fetcher(tmp_path: Path, hub: Hub) -> Fetcher:
    spec = {"kind": "hub", "repository": "lab/model", "revision": COMMIT, "endpoint": hub.url, "xet": False}
    return Fetcher(tmp_path, {**spec, "include": [], "exclude": ["*.bin"]}, client())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_belongs_to_a_model_is_chosen_by_patterns():
    names = ["config.json", ".gitattributes", "a.bin", "b.safetensors", "x/.y/z", "x/c.bin"]
    assert chosen(names, [], ["*.bin"]) == ["b.safetensors", "config.json"]
    assert chosen(names, ["*.safetensors", "x/*"], []) == ["b.safetensors", "x/c.bin"]


def test_a_model_of_the_hub_arrives_whole_and_the_storage_never_sees_the_token(fetcher: Fetcher, hub: Hub, model: Path):
    hub.token = fetcher.token = TOKEN
    answer = fetcher.fetch()
    assert fetcher.names() == ["config.json", "model.safetensors", "tokenizer.json"]
    for name, (said, _time) in answer["digests"].items():
        assert said == digest(fetcher.staging / name) == digest(model / name)
    assert {one.token for one in hub.asked if not one.storage} == {TOKEN}
    assert {one.token for one in hub.asked if one.storage} == {""}
    progress = json.loads((fetcher.out / "progress.json").read_text())
    assert (progress["files_done"], progress["done"]) == (3, progress["total"])


def test_a_connection_that_is_cut_costs_less_than_a_chunk(fetcher: Fetcher, hub: Hub, model: Path):
    hub.faults["model.safetensors"] = Fault("cut", after=1_000_000, times=2)
    fetcher.fetch()
    assert digest(fetcher.staging / "model.safetensors") == digest(model / "model.safetensors")
    ranges = [one.range for one in hub.asked if one.storage and one.method == "GET" and "model" in one.path]
    assert ranges[0] == ""
    assert all(said.startswith("bytes=") for said in ranges[1:])
    sent = sum(one.sent for one in hub.asked if one.storage and "model" in one.path)
    assert sent < BIG + 2 * 256 * 1024


def test_a_killed_download_goes_on_where_it_was(fetcher: Fetcher, hub: Hub, model: Path):
    hub.pace_s = 0.3
    job = fetcher.job()
    run = fetcher.start("fetch", job)
    part = fetcher.staging / part_name("model.safetensors", job["files"]["model.safetensors"], "hub")
    limit = time.monotonic() + 120
    while not (part.exists() and part.stat().st_size > 500_000):
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.02)
    os.kill(run.pid, signal.SIGKILL)
    run.ended()
    kept = part.stat().st_size
    while not any(one.storage and "/model" in one.path and one.sent for one in hub.asked):
        assert time.monotonic() < limit, "the server did not notice"
        time.sleep(0.02)
    hub.pace_s = 0
    hub.asked.clear()
    assert not (fetcher.out / "result.json").exists()
    fetcher.fetch(job)
    assert digest(fetcher.staging / "model.safetensors") == digest(model / "model.safetensors")
    again = [one for one in hub.asked if one.storage and one.method == "GET" and "/model" in one.path]
    assert [one.range for one in again] == [f"bytes={kept}-"]
    assert again[0].sent == (BIG // 251) * 251 - kept


def test_a_wrong_byte_once_is_fetched_again_and_always_is_refused(fetcher: Fetcher, hub: Hub):
    hub.faults["model.safetensors"] = Fault("corrupt", after=2_000_000)
    assert "model.safetensors" in fetcher.fetch()["digests"]
    (fetcher.staging / "model.safetensors").unlink()
    hub.faults["model.safetensors"] = Fault("corrupt", after=2_000_000, times=-1)
    said = fetcher.fetch()["error"]
    assert "model.safetensors came with sha256" in said
    assert "thrown away" in said
    assert "model.safetensors" not in fetcher.names()


def test_a_small_file_is_verified_too(fetcher: Fetcher, hub: Hub):
    hub.faults["config.json"] = Fault("corrupt", after=3, times=-1)
    assert "config.json came with Git's sha1" in fetcher.fetch()["error"]
    assert "config.json" not in fetcher.names()


def test_another_size_than_promised_is_refused(fetcher: Fetcher, hub: Hub, model: Path):
    job = fetcher.job()
    job["files"]["model.safetensors"][0] += 7
    said = fetcher.fetch(job)["error"]
    assert f"model.safetensors has {(BIG // 251) * 251} bytes instead of {(BIG // 251) * 251 + 7}" in said
    hub.faults["model.safetensors"] = Fault("short", after=1000, times=-1)
    said = fetcher.fetch()["error"]
    assert "model.safetensors" in said
    assert "model.safetensors" not in fetcher.names()


@pytest.mark.real_time
def test_a_stalled_download_is_given_up_with_advice_and_keeps_what_came(fetcher: Fetcher, hub: Hub):
    fetcher.spec.update(stall_s=1, attempts=2)
    hub.faults["model.safetensors"] = Fault("stall", after=600_000, times=1)
    assert "digests" in fetcher.fetch()  # one stall is survived
    (fetcher.staging / "model.safetensors").unlink()
    hub.faults["model.safetensors"] = Fault("stall", after=0, times=-1)
    said = fetcher.fetch()["error"]
    assert "sends nothing: not one byte of model.safetensors came in 2 attempts of up to 1 s" in said
    assert "run again to go on there, or take a mirror" in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"token": TOKEN}, "does not show it without the right token"),
        ({"token": TOKEN, "gated": True}, "with an account, set model_weights_hub_token to its token, then run again"),
        ({"repository": "lab/other"}, "knows no repository lab/model"),
    ],
)
def test_a_refusal_of_the_hub_says_what_to_do(fetcher: Fetcher, hub: Hub, change: dict[str, Any], says: str):
    for key, value in change.items():
        setattr(hub, key, value)
    assert says in fetcher.contents()["error"]


def test_a_revision_that_is_gone_is_said_with_the_one_that_is_there_and_the_two_ways_out(fetcher: Fetcher, hub: Hub):
    hub.commit = "f" * 40
    said = fetcher.contents()["error"]
    assert f"lab/model has no revision {COMMIT} at {hub.url}; its main branch is {'f' * 40} now" in said
    assert "Either keep the revision: take it from who has it" in said
    assert "Or take what is there now: name that commit" in said


def test_a_gated_model_names_the_variable_also_where_a_token_is_given(fetcher: Fetcher, hub: Hub):
    hub.token, hub.gated, fetcher.token = "the right one", True, TOKEN
    said = fetcher.contents()["error"]
    assert "lab/model is gated: accept its terms at" in said
    assert "with the account of model_weights_hub_token, then run again" in said


def test_a_wrong_token_is_named_as_such_and_never_shown(fetcher: Fetcher, hub: Hub):
    hub.token, fetcher.token = "the right one", TOKEN
    assert "refuses the token for lab/model (401): set model_weights_hub_token" in fetcher.contents()["error"]


def test_a_long_limit_of_the_hub_is_the_callers_to_wait_for_and_says_what_raises_it(fetcher: Fetcher, hub: Hub):
    limits = {
        "Retry-After": "60",
        "RateLimit": '"api";r=0;t=58',
        "RateLimit-Policy": '"fixed window";"api";q=500;w=300',
    }
    hub.refusals["/api/models/"] = Refusal(429, limits)
    where = hub.url.removeprefix("http://")
    assert fetcher.contents() == {
        "wait_s": 60.0,
        "error": f"{where} limits the requests from this address (429)",
        "advice": "run again later, or give a token, which raises the limit (model_weights_hub_token)",
    }
    assert "config.json" in fetcher.contents()["files"]
    hub.refusals["/api/models/"] = Refusal(429, {"Retry-After": "20"})
    assert "config.json" in fetcher.contents()["files"]
    assert fetcher.said == "waits 20 s\n"
    hub.refusals["/api/models/"] = Refusal(429, {"Retry-After": "7200"})
    assert "(429) and wants no more for 120 minutes: run again then, or give a token" in fetcher.contents()["error"]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "60"}, 60),
        ({"RateLimit": '"resolvers";r=0;t=243'}, 243),
        ({"RateLimit": '"api";r=9;t=99'}, None),
    ],
)
def test_a_download_waits_as_long_as_the_hub_or_its_storage_asks_for(
    fetcher: Fetcher, hub: Hub, headers: dict[str, str], seconds: int | None
):
    for path in ("/lab/model/resolve/", "/store/model.safetensors"):
        hub.refusals[path] = Refusal(429, headers)
    assert "digests" in fetcher.fetch()
    assert {int(line.split()[1]) for line in fetcher.said.splitlines()} == ({seconds} if seconds else set())


def test_a_download_gives_up_on_a_limit_that_stays_and_says_what_raises_it(fetcher: Fetcher, hub: Hub):
    hub.refusals["/lab/model/resolve/"] = Refusal(503, {"Retry-After": "30"}, times=-1)
    assert "answers 503: not one byte of" in fetcher.fetch()["error"]
    hub.refusals["/lab/model/resolve/"] = Refusal(429, {"Retry-After": "60"}, times=-1)
    said = fetcher.fetch()["error"]
    assert "limits the requests from this address (429): not one byte of" in said
    assert "are kept; run again later, or give a token, which raises the limit (model_weights_hub_token)" in said


def test_a_storage_that_refuses_is_not_about_the_token(fetcher: Fetcher, hub: Hub):
    hub.token = fetcher.token = TOKEN
    hub.refusals["/store/"] = Refusal(
        403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>"
    )
    assert "digests" in fetcher.fetch()  # an address that expired is another one the next time
    (fetcher.staging / "model.safetensors").unlink()
    (fetcher.staging / "tokenizer.json").unlink()
    hub.refusals["/store/"].times = -1
    said = fetcher.fetch()["error"]
    storage, where = (url.removeprefix("http://") for url in (hub.storage_url, hub.url))
    assert f"{storage}, the storage behind {where}, answers 403: not one byte of" in said
    assert f"this is not about the token, which the storage never gets: let this host reach {storage}" in said
    assert "refuses the token" not in said


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/models/", 200), ("/api/models/", 511), ("/api/models/", 403), ("/lab/model/resolve/", 200)],
)
def test_a_captive_portal_is_named_at_once(fetcher: Fetcher, hub: Hub, path: str, status: int):
    fetcher.token = TOKEN
    job = fetcher.job()
    hub.refusals[path] = Refusal(status, PORTAL, b"<html>Sign in to the guest network</html>", times=-1)
    hub.asked.clear()
    said = fetcher.contents()["error"] if path.startswith("/api") else fetcher.fetch(job)["error"]
    assert "gives a web page instead of" in said
    assert "A captive portal, a proxy or a firewall answers in its place: sign in there" in said
    asked = [one.path for one in hub.asked if one.path.startswith(path)]
    assert len(asked) == len(set(asked))


def test_a_captive_portal_before_the_storage_is_named(fetcher: Fetcher, hub: Hub):
    hub.refusals["/store/"] = Refusal(200, PORTAL, b"<html>", times=-1)
    assert f"{hub.storage_url.removeprefix('http://')} gives a web page instead of" in fetcher.fetch()["error"]
    assert "model.safetensors" not in fetcher.names()


def test_a_redirect_to_the_page_of_a_portal_is_named_and_no_file_is_taken_from_there(fetcher: Fetcher, hub: Hub):
    job = fetcher.job()
    hub.refusals["/lab/model/resolve/"] = Refusal(302, {"Location": f"{hub.storage_url}/store/config.json"}, times=-1)
    assert "A captive portal, a proxy or a firewall answers" in fetcher.fetch(job)["error"]
    assert not [one for one in hub.asked if one.storage]


@pytest.mark.parametrize("endpoint", ["http://hub.example.org", "http://192.0.2.5:8080", "http://[2001:db8::1]"])
def test_a_token_goes_in_clear_nowhere_but_to_this_host(fetcher: Fetcher, hub: Hub, endpoint: str):
    fetcher.token = TOKEN
    job = fetcher.job()
    assert {one.token for one in hub.asked} == {TOKEN}  # 127.0.0.1
    fetcher.spec["endpoint"] = endpoint
    for said in (fetcher.contents()["error"], fetcher.fetch({**job, "endpoint": endpoint})["error"]):
        assert said.startswith(f"the token of model_weights_hub_token would go in clear to {endpoint}, so nothing was")
        assert "an address with https://, or give no token" in said


def test_a_token_is_not_sent_to_another_scheme_of_the_same_host():
    assert transports._origin("https://hub/x") == transports._origin("https://hub:443/y")
    assert len({transports._origin(url) for url in ("https://hub/x", "http://hub/x", "https://hub:8443/x")}) == 3


@pytest.mark.parametrize("claimed", ["e" * 40, "main"])
def test_a_description_of_another_revision_than_asked_for_is_refused(fetcher: Fetcher, hub: Hub, claimed: str):
    hub.claims = claimed
    said = fetcher.contents()["error"]
    assert f"answers with revision {claimed} where {COMMIT} was asked for: nothing of it is used" in said
    fetcher.spec["revision"] = None
    assert ("error" in fetcher.contents()) == (claimed == "main")


def test_a_hub_that_shows_a_certificate_of_somebody_else_is_named_and_one_that_is_believed_gets_the_token(
    tmp_path: Path, model: Path
):
    (tmp_path / "tls").mkdir()
    with serve(Hub(model, repository="lab/model", token=TOKEN), keys=tmp_path / "tls") as hub:
        spec = {"kind": "hub", "repository": "lab/model", "revision": COMMIT, "endpoint": hub.url, "xet": False}
        fetcher = Fetcher(tmp_path, {**spec, "include": [], "exclude": ["*.bin"]}, client())
        fetcher.token = TOKEN
        said = fetcher.contents()["error"]
        assert f"{hub.url.removeprefix('https://')} shows a certificate that this host does not trust" in said
        assert "A captive portal or a proxy that opens TLS answers in its place" in said
        assert hub.asked == []
        (tmp_path / "authority.pem").write_text(hub.authority)
        fetcher.environment["SSL_CERT_FILE"] = str(tmp_path / "authority.pem")
        assert "digests" in fetcher.fetch()
        assert {one.token for one in hub.asked if one.storage} == {""}
        hub.refusals["/api/models/lab/model/"] = Refusal(307, {"Location": f"{hub.storage_url}/api/models/another"})
        hub.asked.clear()
        assert "files" in fetcher.contents()  # the second attempt
        assert [(one.storage, one.token) for one in hub.asked] == [(False, TOKEN), (True, ""), (False, TOKEN)]


def test_no_hub_at_all_is_tried_again_and_then_said(fetcher: Fetcher):
    fetcher.spec.update(endpoint="http://127.0.0.1:9", attempts=2)
    said = fetcher.contents()["error"]
    assert "127.0.0.1:9" in said
    assert "2 times: look at the way there, or take a mirror" in said


@contextlib.contextmanager
def folder_served(root: Path) -> Iterator[tuple[str, Hub]]:
    """The storage half of the same server is a plain web server."""
    with serve(Hub(root)) as served:
        yield f"{served.storage_url}/store", served


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    root = tmp_path / "www"
    root.mkdir()
    for name, text in {"config.json": "{}", "model.safetensors": "w" * 700_000, "tokenizer.json": "t"}.items():
        (root / name).write_text(text)
    sums = "".join(f"{digest(path)}  ./{path.name}\n" for path in sorted(root.iterdir()))
    (root / "SHA256SUMS").write_text(sums)
    return root


def test_a_plain_mirror_needs_no_client_and_is_resumed_and_verified(tmp_path: Path, plain: Path):
    with folder_served(plain) as (url, server):
        fetcher = Fetcher(tmp_path, {"kind": "url", "url": url}, sys.executable)
        server.faults["model.safetensors"] = Fault("cut", after=200_000, times=1)
        assert set(fetcher.fetch()["digests"]) == {"config.json", "model.safetensors", "tokenizer.json"}
        assert digest(fetcher.staging / "model.safetensors") == digest(plain / "model.safetensors")
        asked = [one for one in server.asked if "model" in one.path and one.method == "GET"]
        assert sum(one.sent for one in asked) < 700_000 + 200_000
        (plain / "model.safetensors").write_text("x" * 700_000)
        (fetcher.staging / "model.safetensors").unlink()
        assert "model.safetensors came with sha256" in fetcher.fetch()["error"]


def test_a_mirror_with_another_manifest_or_another_revision_is_refused(tmp_path: Path, plain: Path):
    with folder_served(plain) as (url, _server):
        spec = {"kind": "url", "url": url}
        pinned = Fetcher(tmp_path, {**spec, "manifest_sha256": "0" * 64}, sys.executable)
        assert "not the one of manifest_sha256; nothing was fetched" in pinned.contents()["error"]
        files = {"config.json": {"size": 2, "sha256": "0" * 64}}
        manifest = {"schema": 1, "source": {"repository": "a/b", "revision": "1" * 40}, "files": files}
        (plain / ".b70-weights.json").write_text(json.dumps(manifest))
        other = Fetcher(tmp_path, {**spec, "expect": {"repository": "a/b", "revision": "2" * 40}}, sys.executable)
        assert "holds revision 1111" in other.contents()["error"]
        right = Fetcher(tmp_path, {**spec, "expect": {"repository": "a/b", "revision": None}}, sys.executable)
        assert right.contents() == {"files": {"config.json": [2, "0" * 64, None]}, "revision": "1" * 40}
        for name in (".b70-weights.json", "SHA256SUMS"):
            os.unlink(plain / name)


def test_a_folder_of_the_host_is_copied_and_read_back(tmp_path: Path, plain: Path):
    fetcher = Fetcher(tmp_path, {"kind": "host_path", "path": str(plain)}, sys.executable)
    files = {path.name: [path.stat().st_size, None, None] for path in plain.iterdir() if path.suffix != ""}
    job = {**fetcher.spec, "files": files, "folder": str(fetcher.staging), "out": str(fetcher.out), "workers": 2}
    done = fetcher.fetch(job)["digests"]
    assert {name: said for name, (said, _time) in done.items()} == {name: digest(plain / name) for name in files}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"Retry-After": "17"}, 17),
        ({"Retry-After": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"RateLimit": '"api"; t=55; r=0'}, 55),
        ({"RateLimit": '"api";r=100;t=55, "resolvers";r=0;t=243'}, 243),
        ({"RateLimit": '"api";r=3;t=55', "Retry-After": "5"}, 5),
        ({"RateLimit": '"api";r=0;t=55', "Retry-After": "5"}, 55),
        ({"RateLimit": "limit=1"}, 0),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone(headers: dict[str, str], seconds: float):
    assert transports.told_to_wait(headers, now=100.0) == seconds


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """What the role mirror leaves: a directory for each model, and the signed digests of their records above."""
    root = tmp_path / "www"
    (root / "model").mkdir(parents=True)
    for name, content in signed.FILES.items():
        (root / "model" / name).write_bytes(content)
    (root / "model/.b70-weights.json").write_text(signed.RECORD)
    (root / "SHA256SUMS").write_text(signed.SUMS)
    (root / "SHA256SUMS.asc").write_text(signed.SIGNATURE)
    (tmp_path / "keyring.gpg").write_bytes(signed.KEYRING)
    return root


def test_what_the_key_of_the_mirror_signed_is_taken(tmp_path: Path, mirror: Path):
    with folder_served(mirror) as (url, _server):
        fetcher = Fetcher(tmp_path, {"kind": "url", "url": f"{url}/model", "accept_unsigned": False}, sys.executable)
        assert set(fetcher.fetch()["digests"]) == set(signed.FILES)


def other_record(root: Path) -> None:
    path = root / "model/.b70-weights.json"
    path.write_text(path.read_text().replace('"size": 2,', '"size": 3,'))


def other_sums(root: Path) -> None:
    other_record(root)
    (root / "SHA256SUMS").write_text(f"{digest(root / 'model/.b70-weights.json')}  model/.b70-weights.json\n")


def another_key(root: Path) -> None:
    (root / "SHA256SUMS.asc").write_text(signed.BY_ANOTHER_KEY)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda root: (root / "SHA256SUMS.asc").unlink(), "/store has no signed SHA256SUMS"),
        (lambda root: (root / "SHA256SUMS").unlink(), "/store has no signed SHA256SUMS"),
        (other_record, "it was changed after the mirror was filled"),
        (other_sums, "SHA256SUMS is not signed with the key in"),
        (another_key, "SHA256SUMS is not signed with the key in"),
        (lambda root: (root / "SHA256SUMS.asc").write_text(""), "SHA256SUMS is not signed with the key in"),
        (lambda root: (root / "SHA256SUMS.asc").write_text("<html>"), "SHA256SUMS is not signed with the key in"),
        (lambda root: (root.parent / "keyring.gpg").unlink(), "Set b70_mirror_key_fingerprint and run the role host"),
        (lambda root: (root / "model").rename(root / "moved"), "has neither .b70-weights.json nor SHA256SUMS"),
    ],
)
def test_an_unsigned_mirror_is_refused_unless_its_record_is_pinned_or_that_is_accepted(
    tmp_path: Path, mirror: Path, change: Any, says: str
):
    change(mirror)
    with folder_served(mirror) as (url, _server):
        spec = {"kind": "url", "url": f"{url}/model", "accept_unsigned": False}
        said = Fetcher(tmp_path, spec, sys.executable).contents()["error"]
        assert says in said
        if not (mirror / "model").exists():
            return
        if "changed after" not in said:
            assert "Or pin it: give its source manifest_sha256" in said
            assert "model_weights_accept_unsigned" in said
        pin = digest(mirror / "model/.b70-weights.json")
        for more in ({"manifest_sha256": pin}, {"accept_unsigned": True}):
            found = Fetcher(tmp_path, {**spec, **more}, sys.executable).contents()
            assert set(found["files"]) == set(signed.FILES)


def test_a_signed_record_counts_for_its_own_model_only(tmp_path: Path, mirror: Path):
    (mirror / "model").rename(mirror / "another")
    with folder_served(mirror) as (url, _server):
        spec = {"kind": "url", "url": f"{url}/another", "accept_unsigned": False}
        assert (
            "it was changed after the mirror was filled" in Fetcher(tmp_path, spec, sys.executable).contents()["error"]
        )


def test_a_host_without_a_program_that_verifies_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transports, "VERIFIERS", ("/nowhere/gpgv", "/nowhere/sqv"))
    with pytest.raises(transports.FetchFault, match="this host has none of /nowhere/gpgv, /nowhere/sqv"):
        transports.verify(b"", b"", str(tmp_path), "SUMS", "")


def test_a_mirror_that_is_busy_or_hidden_behind_a_portal_is_told_as_such(tmp_path: Path, mirror: Path):
    with folder_served(mirror) as (url, server):
        fetcher = Fetcher(tmp_path, {"kind": "url", "url": f"{url}/model"}, sys.executable)
        server.refusals["/store/"] = Refusal(429, {"Retry-After": "40"})
        assert fetcher.contents()["wait_s"] == 40.0
        for refusal in (Refusal(200, PORTAL, b"<html>"), Refusal(403, PORTAL, b"<html>"), Refusal(511)):
            server.refusals["/store/"] = refusal
            assert "A captive portal, a proxy or a firewall answers in its place" in fetcher.contents()["error"]
        job = fetcher.job()
        server.refusals["/store/model/tokenizer.json"] = Refusal(200, PORTAL, b"<html>")
        assert "gives a web page instead of tokenizer.json" in fetcher.fetch(job)["error"]
