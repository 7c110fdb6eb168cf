# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs reach what only a proxy reaches, with the files that the role host writes; nobody sees its password."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils import _image, _proxy
from ansible_collections.arcpro.b70.plugins.module_utils._build.git import Git
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError
from ansible_collections.arcpro.b70.plugins.module_utils._python_environment.host import EnvironmentPaths
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching.transports import Interrupted, network
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching.way import way

ROOT = Path(__file__).resolve().parents[4]
TEMPLATES = ROOT / "templates"
PASSWORD = "s3cr%25t"  # as it stands in an address
WANTED = f"Basic {base64.b64encode(b'me:s3cr%t').decode()}"


class Proxy(ThreadingHTTPServer):
    """Answers each request with its address, and keeps who asked for what."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.seen: list[tuple[str, str]] = []
        self.url = f"http://me:{PASSWORD}@127.0.0.1:{self.server_port}"


class Asked(BaseHTTPRequestHandler):
    """One request at the proxy."""

    server: Proxy

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Proxy-Authorization", "")))
        if not self.headers.get("Proxy-Authorization"):
            self.send_response(407)
            self.send_header("Proxy-Authenticate", "Basic realm=proxy")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(404 if "git" in self.path or "simple" in self.path else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *words: Any) -> None:
        """Write nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def variables(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    file = tmp_path / "b70-proxy.json"
    file.write_text(json.dumps({"http_proxy": proxy.url, "https_proxy": proxy.url, "no_proxy": "localhost"}))
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_proxy, "FILE", str(file))
    monkeypatch.setattr(os, "environ", {**os.environ})
    return _proxy.variables()


def rendered(name: str, proxy: Proxy) -> str:
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    return environment.from_string(text).render(__paths_site_proxy=proxy.url)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what the roles make of the settings of some hosts, by their names."""
    passwords = {"hash": "pa#ss", "question": "pa?ss", "backslash": "pa\\ss", "written": "pa%23%3F%5Css"}
    hosts: dict[str, dict[str, Any]] = {
        "domain": {"b70_no_proxy": [".0.0.2"]},
        "site": {"b70_mirror_url": "http://site.invalid:8080"},
        "own": {"host_mirror_url": "http://own.invalid:8080/x"},
        "both": {"b70_mirror_url": "http://site.invalid", "host_mirror_url": "http://own.invalid"},
        **{name: {"b70_proxy": f"http://me:{password}@proxy.invalid:3128"} for name, password in passwords.items()},
    }
    values = "{'apt': __paths_apt_environment, 'direct': __paths_direct, 'refused': refused.msg * (refused is failed)}"
    check = yaml.safe_load((ROOT / "roles/host/tasks/proxy.yml").read_text())[0]
    say = {
        "ansible.builtin.debug": {"msg": f"SAID {{{{ inventory_hostname }}}} {{{{ {values} | to_json | b64encode }}}}."}
    }
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(ROOT / "roles/paths/vars/main.yml")],
        "tasks": [{**check, "register": "refused", "ignore_errors": True}, say],
    }
    place = tmp_path_factory.mktemp("settings")
    (place / "hosts.json").write_text(
        json.dumps(
            {"all": {"hosts": {name: {"b70_proxy": "http://proxy.invalid", **own} for name, own in hosts.items()}}}
        )
    )
    (place / "play.yml").write_text(json.dumps([play]))
    ansible = str(Path(sys.executable).parent / "ansible-playbook")
    argv = [ansible, "-i", str(place / "hosts.json"), str(place / "play.yml")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    said = re.findall(r"SAID (\w+) ([\w+/=]+)\.", done.stdout)
    assert len(said) == len(hosts), done.stdout + done.stderr
    return {name: json.loads(base64.b64decode(text)) for name, text in said}


def apt(url: str, folder: Path, proxy: Proxy, environment: dict[str, str]) -> str:
    """Have apt fetch an address into a file x of this folder, and return its errors."""
    file = folder / "b70-proxy.conf"
    file.write_text(rendered("apt-b70-proxy.conf.j2", proxy))
    argv = ["/usr/lib/apt/apt-helper", "-oAPT::Sandbox::User=root", "-oAcquire::Retries=0"]
    env = {**os.environ, **environment, "APT_CONFIG": str(file)}
    wanted = [*argv, "download-file", url, str(folder / "x")]
    return subprocess.run(wanted, env=env, capture_output=True, text=True, timeout=300).stderr


def test_apt_goes_through_the_proxy(proxy: Proxy, settings: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    errors = apt("http://packages.invalid/x", tmp_path, proxy, settings["domain"]["apt"])
    assert (tmp_path / "x").read_text() == "ok", errors
    assert ("http://packages.invalid/x", WANTED) in proxy.seen


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.1"])
def test_apt_reaches_itself_and_what_is_in_a_named_domain_directly(
    host: str, proxy: Proxy, settings: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    assert f"Could not connect to {host}:1 " in apt(f"http://{host}:1/x", tmp_path, proxy, settings["domain"]["apt"])
    assert proxy.seen == []


def test_every_mirror_of_a_host_is_reached_directly(settings: dict[str, dict[str, Any]]) -> None:
    mirrors = {name: settings[name]["direct"][3:] for name in ("domain", "site", "own", "both")}
    assert mirrors == {
        "domain": [".0.0.2"],
        "site": ["site.invalid"],
        "own": ["own.invalid"],
        "both": ["site.invalid", "own.invalid"],
    }


def test_a_password_that_ends_an_address_is_refused(settings: dict[str, dict[str, Any]]) -> None:
    for name in ("hash", "question", "backslash"):
        refused = settings[name]["refused"]
        assert all(word in refused for word in ("%23", "%3F", "%5C")), name
        assert "pa" not in refused.replace("password", ""), name
    assert settings["written"]["refused"] == settings["domain"]["refused"] == ""


def test_pip_goes_through_the_proxy(proxy: Proxy, tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(rendered("pip-b70-proxy.conf.j2", proxy))
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--retries=0",
        "--index-url=http://index.invalid/simple",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    subprocess.run(
        [*argv, "--trusted-host=index.invalid", "nothing"],
        env={**kept, "PIP_CONFIG_FILE": str(file)},
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
    )
    assert ("http://index.invalid/simple/nothing/", WANTED) in proxy.seen


def test_git_goes_through_the_proxy_and_says_so(proxy: Proxy, variables: dict[str, str], tmp_path: Path) -> None:
    _proxy.enter()
    git = Git(tmp_path, 300, {})
    git("init", "--quiet")
    with pytest.raises(BuildError, match=rf"failed through the proxy 127\.0\.0\.1:{proxy.server_port}: ") as fault:
        git("fetch", "http://git.invalid/x.git")
    assert any(path.startswith("http://git.invalid/x.git/info/refs") and who == WANTED for path, who in proxy.seen)
    assert PASSWORD not in str(fault.value)


def test_uv_goes_through_the_proxy(proxy: Proxy, variables: dict[str, str], tmp_path: Path) -> None:
    _proxy.enter()
    uv = str(Path(sys.executable).parent / "uv")
    place = EnvironmentPaths(tmp_path / "env", uv, tmp_path / "cache", tmp_path / "python", variables=dict(os.environ))
    wanted = [uv, "pip", "install", "--target", str(place.path), "--index-url=http://index.invalid/simple", "nothing"]
    place.run(wanted, place.environment(alone=True), "", 300, lambda pid: None)
    assert ("http://index.invalid/simple/nothing/", WANTED) in proxy.seen


def test_podman_gets_the_proxy_in_its_environment_alone(variables: dict[str, str], tmp_path: Path) -> None:
    image = _image.Image(stack="x", source="r.invalid/x", name="x", program="/x", work_dir=tmp_path)
    task = _image.task(image, "pull", _image.command(image, "pull"))
    assert variables.items() <= dict(task.environment).items()
    assert PASSWORD not in " ".join([*task.argv, *map(str, task.properties.values())])
    said = _image.failure(image, ["error: connection refused"])
    assert said.endswith(f"Podman went through the proxy {variables['http_proxy'].rpartition('@')[2]}.")


def test_the_way_is_told_without_the_password(variables: dict[str, str]) -> None:
    assert way(variables) == f"through the proxy {variables['http_proxy'].rpartition('@')[2]}"
    assert way({}) == "without a proxy (b70_proxy)"
    _proxy.enter()
    told = r"no connection to huggingface\.invalid through the proxy "
    with pytest.raises(Interrupted, match=told), network("huggingface.invalid"):
        raise ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://proxy.example:3128/", "proxy.example:3128"),
        ("proxy.example", "proxy.example"),
        ("socks5h://me:x@[2001:db8::1]:1080", "[2001:db8::1]:1080"),
        ("http://me:pa#ss@proxy:3128", "proxy:3128"),
        ("http://me:pa?ss/@proxy:3128", "proxy:3128"),
        ("http://me:pa[ss@proxy:3128", "proxy:3128"),
        ("http://me:pa@ss@proxy:3128", "of no readable address"),
        ("http://me:pa@proxy:3128/@ss", "of no readable address"),
        ("http://me:pass", "of no readable address"),
    ],
)
def test_an_address_is_told_only_where_it_cannot_be_a_login(address: str, told: str) -> None:
    assert way({"http_proxy": address}) == f"through the proxy {told}"


def test_a_host_without_a_proxy_has_no_variables(tmp_path: Path) -> None:
    assert _proxy.variables(str(tmp_path / "none")) == {}
