# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of this machine that its hosts must share to reach the same package sources. Pure functions over texts.

Nothing found here is ever written into the checkout.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

COMPONENTS = {"debian": ["main"], "ubuntu": ["main", "universe"]}
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_APT_SETTING = re.compile(r'^(Acquire::(?:https?::.*|Retries|Check-Date|Check-Valid-Until|ForceIPv[46])) "(.*)";$')


@dataclass(frozen=True)
class AptSource:
    """One archive: `suites` are those of the machine's release; `keyring` is a path, or an armoured key itself."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str = ""

    def lines(self, keyring: str) -> list[str]:
        """One-line entries of sources.list; `keyring` is the path that Signed-By gets ('' for none)."""
        options = f" [signed-by={keyring}]" if keyring else ""
        return [f"deb{options} {self.uri} {suite} {' '.join(self.components)}" for suite in self.suites]


def _stanzas(text: str) -> Iterable[dict[str, str]]:
    """The stanzas of a deb822 file; continuation lines keep their line breaks."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        last = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and last:
                body = line.strip()
                fields[last] += "\n" + ("" if body == "." else body)
            elif ":" in line:
                name, _, value = line.partition(":")
                last = name.strip().lower()
                fields[last] = value.strip()
        if fields:
            yield fields


def parse_sources(files: Mapping[str, str], distribution: str, suite: str) -> list[AptSource]:
    """The archives of the machine's own release among its apt sources (third-party archives stay out).

    `files`: name -> text of sources.list, *.list and *.sources files.
    """
    allowed = {suite, f"{suite}-updates", f"{suite}-security"}
    wanted = COMPONENTS[distribution]
    found: list[AptSource] = []

    def add(uri: str, suites: Iterable[str], components: Iterable[str], keyring: str) -> None:
        parts = tuple(name for name in wanted if name in set(components))
        of_release = tuple(name for name in suites if name in allowed)
        source = AptSource(uri.rstrip("/"), of_release, parts, keyring)
        if of_release and parts and source not in found:
            found.append(source)

    for name, text in files.items():
        if name.endswith(".sources"):
            for stanza in _stanzas(text):
                if "deb" not in stanza.get("types", "").split() or stanza.get("enabled", "yes").lower() == "no":
                    continue
                for uri in stanza.get("uris", "").split():
                    suites, components = stanza.get("suites", "").split(), stanza.get("components", "").split()
                    add(uri, suites, components, stanza.get("signed-by", "").strip())
        else:
            for line in text.splitlines():
                match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
                if match:
                    options = dict(pair.split("=", 1) for pair in (match[1] or "").split() if "=" in pair)
                    add(match[2], [match[3]], match[4].split(), options.get("signed-by", ""))
    return found


def parse_apt_settings(dump: str) -> list[str]:
    """Proxy, retry and check settings out of `apt-config dump`, as lines of an apt.conf.

    The certificates of a private CA are carried over in another way, so paths of them stay out.
    """
    found = []
    for line in dump.splitlines():
        match = _APT_SETTING.match(line.strip())
        if match and match[2] and not match[1].lower().endswith(("::cainfo", "::sslcert", "::sslkey")):
            found.append(f'{match[1]} "{match[2]}";')
    return found


@dataclass
class PackageClients:
    """Where pip and uv find packages beside the public index. URLs and local directories as the machine has them."""

    index_url: str = ""
    extra_index_urls: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    trusted_hosts: list[str] = field(default_factory=list)
    timeout: str = ""

    def local_directories(self) -> list[Path]:
        """Directories that a host must see at the same path. Of an index the directory above is taken: its files
        often lie beside it."""
        found: list[Path] = []
        for place in [self.index_url, *self.extra_index_urls, *self.find_links]:
            parts = urlsplit(place)
            if parts.scheme not in ("", "file") or not parts.path.startswith("/"):
                continue
            path = Path(parts.path)
            found.append(path.parent if path.name == "simple" and len(path.parts) > 2 else path)
        return [path for path in dict.fromkeys(found) if not any(other in path.parents for other in found)]

    def pip_conf(self) -> str:
        """/etc/pip.conf of a host."""
        lines = ["[global]", f"cert = {CA_BUNDLE}"]
        singles = {"index-url": self.index_url, "timeout": self.timeout}
        lists = {
            "extra-index-url": self.extra_index_urls,
            "find-links": self.find_links,
            "trusted-host": self.trusted_hosts,
        }
        lines += [f"{name} = {value}" for name, value in singles.items() if value]
        lines += [f"{name} = {' '.join(values)}" for name, values in lists.items() if values]
        return "\n".join(lines) + "\n"

    def uv_toml(self) -> str:
        """/etc/uv/uv.toml of a host."""
        lines = ["system-certs = true"]
        if self.index_url:
            lines.append(f'index-url = "{self.index_url}"')
        for name, values in (("extra-index-url", self.extra_index_urls), ("find-links", self.find_links)):
            if values:
                lines.append(f"{name} = [{', '.join(_toml(value) for value in values)}]")
        if self.trusted_hosts:
            lines.append(f"allow-insecure-host = [{', '.join(_toml(value) for value in self.trusted_hosts)}]")
        return "\n".join(lines) + "\n"


def _toml(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_pip(texts: Iterable[str], environment: Mapping[str, str]) -> PackageClients:
    """What pip would use: `texts` of its configuration files, weakest first, then its environment variables."""
    values: dict[str, str] = {}
    for text in texts:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text)
        except configparser.Error:
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                values.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            values[name.removeprefix("PIP_").lower().replace("_", "-")] = value

    def many(name: str) -> list[str]:
        return list(dict.fromkeys(shlex.split(values.get(name, ""))))

    return PackageClients(
        index_url=values.get("index-url", ""),
        extra_index_urls=many("extra-index-url"),
        find_links=many("find-links"),
        trusted_hosts=many("trusted-host"),
        timeout=values.get("timeout") or values.get("default-timeout", ""),
    )


def pip_files(environment: Mapping[str, str], home: Path) -> list[Path]:
    """pip's configuration files, weakest first, as its documentation orders them."""
    if environment.get("PIP_CONFIG_FILE") == "/dev/null":
        return []
    config_dirs = [Path(part) for part in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if part]
    user = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [directory / "pip" / "pip.conf" for directory in reversed(config_dirs)]
    files += [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    if environment.get("PIP_CONFIG_FILE"):
        files.append(Path(environment["PIP_CONFIG_FILE"]))
    return files


def certificates(text: str) -> list[str]:
    """The certificates of a PEM bundle, without what stands between them."""
    return [match.replace("\r\n", "\n") for match in _PEM.findall(text)]


def missing_certificates(machine: str, image: str) -> list[str]:
    """Certificates that the machine trusts and a fresh host does not: the CA of a company's proxy, for instance."""
    known = {"".join(certificate.split()) for certificate in certificates(image)}
    return [certificate for certificate in certificates(machine) if "".join(certificate.split()) not in known]


def parse_host_packages(text: str) -> list[str]:
    """The plain names in the list `host_packages` of a role's defaults (block or inline YAML); no templated ones."""
    match = re.search(
        r"^host_packages:[ \t]*(\[[^]]*\])?[^\n]*\n((?:[ \t]*(?:-|#)[^\n]*\n|[ \t]*\n)*)", text + "\n", re.M
    )
    if not match:
        return []
    raw = match[1].strip("[]").split(",") if match[1] else re.findall(r"^\s*-\s*([^#\n]*)", match[2], re.M)
    names = [word.strip().strip("\"'") for word in raw]
    return sorted({name for name in names if re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)})


def nameservers(texts: Iterable[str]) -> str:
    """A resolv.conf for the hosts: the first of `texts` whose servers are reachable from another machine.

    A stub on the loopback address (systemd-resolved) is not. Empty when none is usable.
    """
    for text in texts:
        lines = [line.split() for line in text.splitlines()]
        servers = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
        usable = [server for server in servers if not server.startswith("127.") and server != "::1"]
        if usable:
            rest = [" ".join(words) for words in lines if words and words[0] in ("search", "options", "domain")]
            return "\n".join([*(f"nameserver {server}" for server in usable), *rest]) + "\n"
    return ""
