# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The half of b70_weights on the controller: it reads the sources, asks the host, and copies what is missing there
or has the host fetch it.

Hosts of one play bring models together in steps: find, share, serve, rounds, close. What a host found is its registered
result, and hosts read each other's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._files import sha256
from ansible_collections.arcpro.b70.plugins.module_utils._weights import peers as peer_hosts
from ansible_collections.arcpro.b70.plugins.module_utils._weights import service, sources
from ansible_collections.arcpro.b70.plugins.module_utils._weights.host import read_source
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import (
    ALWAYS_HASH_BELOW,
    SourceFile,
    WeightsError,
    at_revision,
    check_name,
    size_in_words,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins, _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet_run import found_on
from ansible_collections.arcpro.b70.plugins.plugin_utils._nested_action import run_other
from ansible_collections.arcpro.b70.plugins.plugin_utils._pins import Pins, PinsError
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import hub, pinning, progress, sharing
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import HostJob

display = Display()

MODULE = "arcpro.b70.b70_weights"
# The first pause is short because small models take seconds.
PAUSES_S = (1.0, 10.0)
# The names under which the steps' results are registered, and what of the first each later step hands on.
NOW, SHARED = "__model_weights_now", "__model_weights_shared"
CARRIED = ("models", "directories", "summary", "brings", "pins", "left", "peers")


def read_digests(root: str, files: Mapping[str, SourceFile], names: list[str]) -> dict[str, SourceFile]:
    """Return ``files`` with the digests of ``names`` read below ``root``."""
    read = {name: replace(files[name], sha256=sha256(os.path.join(root, name))) for name in names}
    return {**files, **read}


def summary_of(models: Mapping[str, Any]) -> list[str]:
    """Return one line for each model: its state, size, and what is wrong or not known."""
    lines = []
    for name, model in models.items():
        size = f", {model['files']} files, {size_in_words(model['size'])}" if model["files"] else ""
        why = f" ({model['reason']})" if model["reason"] else ""
        lines.append(f"{name}: {model['state']}{size}{why}")
    return lines


def diff_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return the diff of the models that change: one line each."""
    names = [name for name in sorted(after) if before[name] != after[name]]
    texts = ["".join(f"{line}\n" for line in summary_of({n: side[n] for n in names})) for side in (before, after)]
    headers = {"before_header": "model directories", "after_header": "model directories"}
    return {**headers, "before": texts[0], "after": texts[1]}


class Ended(WeightsError):
    """Somebody ended a download on the host; ``why`` is what the host knows of it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}. What came is kept: run again")
        self.why = why


class ActionModule(ActionBase):
    """Bring models to one host."""

    _supports_check_mode = True
    _supports_async = False
    # Hosts that gave wrong bytes of the model at hand, with what was wrong.
    _wrong: Mapping[str, str] = MappingProxyType({})
    # The files that profiles load of directories without a source.
    _patterns: Mapping[str, list[str]] = MappingProxyType({})
    # Where the slots of the host are, if that is known.
    _slots: Mapping[str, str] = MappingProxyType({})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        _validated, arguments = self.validate_argument_spec(
            {
                "directory": {"type": "path", "required": True},
                "step": {"type": "str", "choices": list(sources.STEPS), "default": "bring"},
                "peers": {"type": "dict", "default": {}, "options": sources.PEERS},
                "models": {"type": "dict", "default": {}},
                "wanted": {"type": "list", "elements": "str"},
                "report": {"type": "list", "elements": "str", "default": []},
                "verify": {"type": "str", "choices": ["stat", "checksum"], "default": "stat"},
                "lenient": {"type": "list", "elements": "str", "default": []},
                "profiles": {"type": "list", "elements": "str", "default": []},
                "lenient_profiles": {"type": "bool", "default": True},
                "revisions": {"type": "dict", "default": {}},
                "profile_dirs": {"type": "list", "elements": "str", "default": []},
                "stack_dirs": {"type": "list", "elements": "str", "default": []},
                "inline_profiles": {"type": "dict", "default": {}},
                "client": {"type": "dict"},
                "pins_file": {"type": "path", "default": ""},
                "options": {"type": "dict", "default": {}, "options": sources.OPTIONS},
                "hub_token": {"type": "str", "default": "", "no_log": True},
                "config_dir": {"type": "path", "default": _paths.CONFIG_DIR},
                "state_dir": {"type": "path", "default": _paths.STATE_DIR},
            }
        )
        defaults = {key: value["default"] for key, value in sources.OPTIONS.items()}
        peers = {key: value["default"] for key, value in sources.PEERS.items()}
        self._options = {**defaults, **peers, **arguments["options"], **arguments["peers"]}
        self._host = str(self._vars["inventory_hostname"])
        self._token = arguments["hub_token"]
        self._full = arguments["verify"] == "checksum"
        self._pins_file = arguments["pins_file"]
        self._slots = {key: arguments[key] for key in ("config_dir", "state_dir")}
        try:
            steps = {"find": self._find, "share": self._share, "serve": self._serve, "round": self._round}
            steps.update(bring=self._alone, close=self._close, remove=self._remove)
            if arguments["step"] not in ("serve", "close"):
                arguments = self._with_profiles(arguments)
            result.update(steps[arguments["step"]](arguments))
        except (WeightsError, PinsError) as error:
            raise AnsibleActionFail(str(error)) from error
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _alone(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Bring everything to a host without another one."""
        client = self._client(arguments)
        if client.get("failed"):
            return client
        found = self._bring(arguments)
        return {**found, "changed": bool(found["changed"] or client.get("changed"))}

    def _find(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Bring what other hosts have no part in, and find out what this host has and lacks of the rest."""
        return self._bring(arguments, together=True)

    def _share(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what this host gives, takes and downloads, decided over what all hosts found."""
        own = self._own(NOW)
        copies = self._copies()
        part = sharing.part(copies, self._host)
        peer = own["peers"]["peer"]
        needs = {"gives": part.serves, "takes": part.takes}
        result: dict[str, Any] = {
            "changed": False,
            "rounds": 0 if self._task.check_mode else part.rounds,
            "lacks": [need for need, needed in needs.items() if needed and not peer.get(need)],
            "gives": list(part.gives),
            "serves": part.serves,
            "closes": part.serves or bool(peer.get("serving")),
            "summary": [],
            "warnings": sharing.conflicts(copies, self._host),
        }
        if part.serves and not peer.get("address"):
            result["warnings"].append(
                f"{self._host} has no address in {self._options['network'] or 'any network'}, so no host takes a model "
                "from it: correct model_weights_peers_network"
            )
        if self._task.check_mode and own["left"]:
            client = self._client(arguments) if set(part.downloads) & set(own["left"]) else {}
            result["summary"] = [self._foretold(name, arguments["models"][name], part) for name in own["left"]]
            if client.get("failed"):
                return client
        return result

    def _foretold(self, name: str, source: Mapping[str, Any], part: sharing.TransferPart) -> str:
        hosts = part.sources.get(name)
        return f"{name}: would be taken from {', '.join(hosts)}" if hosts else self._would(name, source)

    def _serve(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Give other hosts the models that this one has."""
        own = self._own(NOW)
        warnings = [] if self._task.check_mode else self._give(self._own(SHARED)["gives"], own)
        return {**own, "changed": False, "warnings": warnings}

    def _give(self, names: list[str], own: dict[str, Any]) -> list[str]:
        """Serve models; what hinders that costs this host nothing, so it is a warning."""
        peer = own["peers"]["peer"]
        if not names or not peer["address"]:
            return []
        found = self._of_hosts(NOW).values()
        allowed = {str(other["peers"]["peer"].get("address") or "") for other in found} - {""}
        where = {"address": peer["address"], "port": self._options["port"], "allowed": sorted(allowed)}
        try:
            models = {name: own["directories"][name] for name in names}
            self._ask({"step": "serve", "models": models, "limit_s": self._options["limit_s"], **where})
        except WeightsError as error:
            return [f"{self._host} gives no models to other hosts: {error}"]
        own["peers"] = {**own["peers"], "url": peer_hosts.url(peer["address"], self._options["port"])}
        return []

    def _round(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Bring the models whose turn it is here: from hosts that have them, else, as the first, from their source."""
        own = self._own(NOW)
        result = {**own, "changed": False, "warnings": []}
        urls = {host: found["peers"].get("url", "") for host, found in self._of_hosts(NOW).items()}
        urls = {host: url for host, url in urls.items() if url}
        for name, held in sharing.lookup(self._copies(), self._host).items():
            now = sharing.turn(held)
            if name not in own["left"] or self._host not in [copy.host for copy in now.takers]:
                continue
            first, self._wrong = now.takers[0].host == self._host, {}
            peers = sharing.usable(now.sources, urls)
            model = {**own["peers"]["models"][name], "failed": True}
            reason, downloaded = "no host gives it yet", False
            if peers:
                reason = self._take(name, arguments, peers, now.record)
                model["wrong_hosts"] = sorted({*model.get("wrong_hosts", ()), *self._wrong})
            if peers and reason and first:
                givers = ", ".join(peer["host"] for peer in peers)
                result["warnings"].append(
                    f"{self._host} downloads {name} from its source, because {givers} did not give it: {reason}"
                )
            if reason and first:
                reason, downloaded = self._download(name, arguments, result), True
            result["warnings"] += [
                f"{host} gave wrong bytes of {name} to {self._host}, which were not used: {said}. Repair it there: run "
                "again with -e model_weights_verify=checksum"
                for host, said in self._wrong.items()
            ]
            if reason:
                self._say(name, f"not here yet: {reason}")
                own["left"] = {**own["left"], name: reason}
            else:
                result["changed"] = True
                model.update(has=True, failed=False, downloaded=downloaded)
                self._arrived(name, arguments, model, own)
            own["peers"] = {**own["peers"], "models": {**own["peers"]["models"], name: model}}
            if not reason and now.waiting and self._own(SHARED)["serves"]:
                result["warnings"] += self._give([name], own)
        return {**result, **own}

    def _take(
        self, name: str, arguments: Mapping[str, Any], peers: list[dict[str, str]], record: sharing.Record
    ) -> str:
        """Take a model from other hosts; return why that failed, or nothing."""
        source = self._pinned(arguments["models"][name])
        spec = sources.from_peers(source, self._options, peers, record)
        try:
            try:
                self._fetch(name, source, spec)
            except Ended as error:
                # That says nothing against the hosts that give.
                self._say(name, f"{error.why}; taking it again")
                self._fetch(name, source, spec)
        except WeightsError as error:
            return str(error)
        return ""

    def _download(self, name: str, arguments: Mapping[str, Any], result: dict[str, Any]) -> str:
        """Bring a model from its source outside; return why that failed, or nothing."""
        only = {**arguments, "models": {name: arguments["models"][name]}, "wanted": [name], "report": []}
        client = self._client(only)
        result["changed"] = bool(result["changed"] or client.get("changed"))
        if client.get("failed"):
            return str(client.get("msg", "the hub's client was not installed"))
        try:
            found = self._bring(only)
        except WeightsError as error:
            return str(error)
        result["pins"] = [*result["pins"], *found["pins"]]
        result["warnings"] += found.get("warnings", [])
        return ""

    def _arrived(self, name: str, arguments: Mapping[str, Any], model: dict[str, Any], own: dict[str, Any]) -> None:
        """Take a model that is there now into the account of this host."""
        source = sources.identity(name, self._pinned(arguments["models"][name]), self._options["exclude"])
        asked = {name: {"wanted": None, "source": source, "strict": True}}
        network = {"network": self._options["network"]}
        answer = self._ask({"step": "inspect", "models": asked, "full": False, "peers": network})
        found = answer["models"][name]
        model.update(record=answer["records"].get(name), revision=found["revision"])
        now = {**own["models"][name], **{key: found[key] for key in ("state", "reason", "files", "size")}}
        now["brought"] = found["files"]
        own["models"] = {**own["models"], name: now}
        own["summary"] = summary_of(own["models"])
        at = str(found.get("at", name))
        own["directories"] = {**own["directories"], name: at}
        own["brings"] = [*own["brings"], os.path.join(arguments["directory"], at)]
        own["left"] = {other: why for other, why in own["left"].items() if other != name}

    def _remove(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Remove the weights that nobody needs on this host."""
        wanted = []
        for name, source in arguments["models"].items():
            hub = sources.kind_of(name, source) == "hub"
            revision = self._pinned(source).get("revision") if hub else None
            wanted += [at_revision(name, revision)] if revision or not hub else [name, f"{name}@*"]
        found = self._ask({"step": "remove", "wanted": wanted})
        result = {"changed": bool(found["removed"]), **{key: found[key] for key in ("removed", "kept", "summary")}}
        if self._task.diff:
            headers = {"before_header": "model directories", "after_header": "model directories"}
            texts = ["".join(f"{name}\n" for name in names) for names in (sorted(found["removed"]), [])]
            result["diff"] = {**headers, "before": texts[0], "after": texts[1]}
        return result

    def _close(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Serve no models any more."""
        return {"changed": False, **self._ask({"step": "close"})}

    def _pinned(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a source with the revision of the pins, where it names none."""
        if not pinning.is_open(source) or not self._pins_file:
            return source
        return {**source, "revision": _pins_file.read(self._pins_file).value("weights", source["hub"]) or None}

    def _copies(self) -> dict[str, list[sharing.Copy]]:
        found = {host: result["peers"]["models"] for host, result in self._of_hosts(NOW).items()}
        pins = _pins_file.read(self._pins_file) if self._pins_file else Pins()
        return sharing.copies_of(found, pins.values("weights"))

    def _own(self, name: str) -> dict[str, Any]:
        found = self._of_hosts(name, [self._host]).get(self._host)
        if found is None:
            raise WeightsError(
                f"{self._host} has no result {name} of the step before: run the role arcpro.b70.model_weights"
            )
        return {key: found[key] for key in CARRIED if key in found} if name == NOW else found

    def _of_hosts(self, name: str, hosts: list[str] | None = None) -> dict[str, dict[str, Any]]:
        batch = self._vars.get("ansible_play_batch", [self._host]) if hosts is None else hosts
        found = found_on(self._vars, name, batch)
        return {host: result for host, result in found.items() if name != NOW or "peers" in result}

    def _with_profiles(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the sources that profiles name; an entry of `models` for a directory wins."""
        names = arguments["profiles"]
        if not names:
            return arguments
        lookup = lookup_loader.get("arcpro.b70.catalogue", loader=self._loader, templar=self._templar)
        where = {"dirs": arguments["profile_dirs"], "stack_dirs": arguments["stack_dirs"]}
        catalogue = lookup.run([], self._vars, kind="profiles", inline=arguments["inline_profiles"], **where)[0]
        self._patterns = hub.patterns_of(plain(catalogue), names)
        own = hub.from_catalogue(plain(catalogue), names, arguments["revisions"])
        own = {name: source for name, source in own.items() if name not in arguments["models"]}
        wanted = arguments["wanted"]
        return {
            **arguments,
            "models": {**own, **arguments["models"]},
            "wanted": None if wanted is None else list(dict.fromkeys([*wanted, *own])),
            "lenient": [*arguments["lenient"], *(own if arguments["lenient_profiles"] else ())],
        }

    def _client(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Install the hub's client on a host that fetches from the hub; return the result, empty for others."""
        hub = any(isinstance(source, Mapping) and "hub" in source for source in arguments["models"].values())
        if not arguments["client"] or not hub or self._options["mirror"]:
            return {}
        return run_other(self, "arcpro.b70.b70_python_environment", arguments["client"], self._vars)

    def _bring(self, arguments: dict[str, Any], together: bool = False) -> dict[str, Any]:
        """Bring models to the host. With ``together`` those that come from outside are left to the next steps."""
        known: dict[str, Any] = dict(arguments["models"])
        pins = Pins()
        if any(isinstance(source, Mapping) and pinning.is_open(source) for source in known.values()):
            pins = _pins_file.read(self._pins_file) if self._pins_file else pins
        wanted = list(known) if arguments["wanted"] is None else arguments["wanted"]
        roots, files, fetched, pinned = {}, {}, {}, []
        for name in wanted:
            if name not in known:
                continue
            check_name(name)
            strict = name not in arguments["lenient"]
            if sources.kind_of(name, known[name]) == "path":
                roots[name] = known[name]["path"]
                files[name] = self._look(roots[name])
            else:
                if strict:
                    hub.refuse_branch(name, known[name])
                if pinning.is_open(known[name]):
                    pinned.append(name)
                    known[name] = {**known[name], "revision": pins.value("weights", known[name]["hub"]) or None}
                fetched[name] = (sources.identity(name, known[name], self._options["exclude"]), strict)
        here = [*files, *fetched]
        others = list(dict.fromkeys(name for name in [*wanted, *arguments["report"]] if name not in here))
        self._standing: dict[str, Any] = {}
        found = self._inspect(files, others, fetched, together)
        unknown = {name: found[name]["unknown"] for name in files if found[name]["unknown"]}
        if unknown:
            for name, left in unknown.items():
                files[name] = read_digests(roots[name], files[name], left)
            found.update(self._inspect({name: files[name] for name in unknown}, [], {}))
        self._refuse([name for name in others if name in wanted], found)

        answer = self._pin(pinned, known, found, pins, ask=not together)
        for name in pinned:
            fetched[name] = (sources.identity(name, known[name], self._options["exclude"]), fetched[name][1])
        to_copy = [name for name in files if found[name]["state"] != "complete"]
        to_fetch = [name for name in fetched if found[name]["state"] != "complete"]
        for name in to_fetch:
            hub.refuse_branch(name, known[name])
        if together:
            shared = {name: identity for name, (identity, _strict) in fetched.items()}
            answer["peers"] = self._to_share(shared, found, to_fetch)
            answer["left"] = {name: found[name]["reason"] for name in to_fetch}
            # Check mode foretells them here, because no later step brings them.
            to_fetch = to_fetch if self._task.check_mode else []
        for model in found.values():
            model.pop("unknown")
            model.pop("revision")
            model["brought"] = 0
        at = {name: str(model.pop("at", name)) for name, model in found.items()}
        at |= {name: at_revision(name, known[name].get("revision")) for name in to_fetch}
        after = {name: dict(model) for name, model in found.items()}
        for name in to_copy:
            unread = [file for file, want in files[name].items() if want.sha256 is None]
            files[name] = read_digests(roots[name], files[name], unread)
        if to_copy and not self._task.check_mode:
            brought = self._copy({name: files[name] for name in to_copy}, roots)
        else:
            brought = dict.fromkeys(to_copy, 0)
        for name in to_copy:
            size = sum(want.size for want in files[name].values())
            after[name].update(state="complete", reason="", files=len(files[name]), size=size, brought=brought[name])
        for name in to_fetch:
            if self._task.check_mode:
                after[name].update(state="complete", reason=f"from {sources.in_words(fetched[name][0])}")
            else:
                after[name].update(state="complete", reason="", **self._fetch(name, known[name]))
        adopted = [name for name in found if found[name]["adopted"]]
        for name in adopted:
            after[name].update(adopted=False, reason="")
        to_bring = [*to_copy, *to_fetch]
        changed = bool(to_bring or adopted or answer["pins"])
        now = found if self._task.check_mode else after
        foretold = [] if together or not self._task.check_mode else to_fetch
        said = [self._would(name, known[name]) for name in foretold]
        summary = [*summary_of(now), *said, *answer["pins"]]
        answer.update(
            changed=changed,
            models=now,
            directories=at,
            summary=summary,
            brings=[os.path.join(arguments["directory"], at[name]) for name in to_bring],
        )
        if self._task.diff:
            answer["diff"] = diff_of(found, after)
        return answer

    def _would(self, name: str, source: Mapping[str, Any]) -> str:
        size = f", about {source['size_gb']:g} GB" if source.get("size_gb") else ""
        origin = sources.in_words(sources.identity(name, source, self._options["exclude"]))
        mirror = f" through {self._options['mirror']}" if self._options["mirror"] and "hub" in source else ""
        return f"{name}: would be fetched from {origin}{mirror}{size}"

    def _to_share(
        self, shared: Mapping[str, dict[str, Any]], found: Mapping[str, Any], lacking: list[str]
    ) -> dict[str, Any]:
        """Return what other hosts learn of this one and of its models from the hub or a URL."""
        standing, records = (self._standing.get(word, {}) for word in ("standing", "records"))
        models = {
            name: {
                "identity": identity,
                "revision": found[name]["revision"],
                "has": name not in lacking,
                "record": records.get(name),
                **standing.get(name, {}),
            }
            for name, identity in shared.items()
            if identity["kind"] in ("hub", "url")
        }
        peer = self._standing.get("peer", {})
        if peer.get("address"):
            peer = {**peer, "address": peer_hosts.checked(peer["address"])}
        return {"peer": peer, "models": models}

    def _pin(
        self, names: list[str], known: dict[str, Any], found: Mapping[str, Any], pins: Pins, ask: bool
    ) -> dict[str, Any]:
        """Have models whose revision the pins decide take the pinned one; record it where there is none yet. Without
        ``ask`` the source is not asked for one: that is left to the host that downloads."""
        path, lines, warnings = self._pins_file, [], []
        for name in names:
            repository, recorded = known[name]["hub"], found[name]["revision"]
            step = pinning.step(pins.value("weights", repository), found[name])
            if step == pinning.ASK and not ask:
                continue
            problem = _pins_file.problem(path) if step else ""
            if problem and step == pinning.ASK:
                raise WeightsError(pinning.unrecordable(name, known[name], problem))
            if problem:
                warnings.append(f"the revision {recorded} of {repository} is not recorded: {problem}")
            elif step and self._task.check_mode:
                lines.append(pinning.foretold(repository, recorded, self._origin(), path))
            elif step:
                entry = self._seen(name, known[name], recorded)
                if entry:  # a mirror may name none
                    pins = _pins_file.add(path, "weights", {repository: entry})
                    lines.append(f"{repository}: revision {pins.value('weights', repository)} is recorded in {path}")
            pinned = pins.value("weights", repository)
            known[name] = {**known[name], "revision": pinned or None}
            if recorded and pinned and recorded != pinned:
                # Another host was first. The pinned revision is brought beside what is here.
                found[name].update(state="missing", reason=f"{repository} is here at {recorded}, not at {pinned}")
        return {"pins": lines, **({"warnings": warnings} if warnings else {})}

    def _seen(self, name: str, source: Mapping[str, Any], recorded: str) -> _pins.Entry:
        """Return what the pins record: the revision that this host has, else the one that the source has now."""
        host = self._vars["inventory_hostname"]
        if recorded:
            return _pins_file.seen("weights", recorded, host, "the host's own record")
        asked = {"step": "resolve", **self._task_for(name, source)}
        revision = self._patiently(asked["name"], lambda: self._ask(asked))["revision"]
        return _pins_file.seen("weights", revision, host, self._origin()) if revision else {}

    def _origin(self) -> str:
        return str(self._options["mirror"] or self._options["endpoint"])

    def _look(self, root: str) -> dict[str, SourceFile]:
        """Return a source's files, with the digests of the small ones.

        Large files are read only if the host cannot vouch for them.
        """
        files = read_source(root)
        small = [name for name, want in files.items() if self._full or want.size < ALWAYS_HASH_BELOW]
        return read_digests(root, files, small)

    def _inspect(
        self,
        files: Mapping[str, service.Files],
        others: list[str],
        fetched: Mapping[str, tuple[dict[str, Any], bool]],
        together: bool = False,
    ) -> dict[str, Any]:
        models: dict[str, Any] = {
            name: {"wanted": None, "source": {"kind": "host", "include": self._patterns.get(name)}} for name in others
        }
        for name, wanted in files.items():
            models[name] = {"wanted": service.pack(wanted), "source": {"kind": "path"}}
        for name, (identity, strict) in fetched.items():
            models[name] = {"wanted": None, "source": identity, "strict": strict}
        if not models:
            return {}
        request = {"step": "inspect", "models": models, "full": self._full}
        if together:
            self._standing = answer = self._ask({**request, "peers": {"network": self._options["network"]}})
        else:
            answer = self._ask(request)
        found: dict[str, Any] = answer["models"]
        return found

    def _refuse(self, names: list[str], found: Mapping[str, Any]) -> None:
        """Fail for a wanted model that is not right and that nothing here can bring."""
        bad = [name for name in names if found[name]["state"] != "complete"]
        wrong = [f"{name} is {found[name]['state']} ({found[name]['reason']})" for name in bad]
        if wrong:
            raise WeightsError(
                f"{'; '.join(wrong)}. No source is known for {'it' if len(wrong) == 1 else 'them'}: "
                "give one in models, or put the files there"
            )

    def _copy(self, models: Mapping[str, service.Files], roots: Mapping[str, str]) -> dict[str, int]:
        """Copy models file by file; each is in place before the next begins."""
        login = self._low_level_execute_command("id -u", sudoable=False)
        if login["rc"] != 0:
            raise WeightsError(f"the user id of the login on the host could not be read: {login['stderr'].strip()}")
        request = {"step": "prepare", "models": {name: service.pack(files) for name, files in models.items()}}
        prepared = self._ask({**request, "uploader": int(login["stdout"]), "full": self._full})["models"]
        brought = {}
        for name, files in models.items():
            folder, left = prepared[name]["folder"], prepared[name]["files"]
            size = size_in_words(sum(files[file].size for file in left))
            display.display(f"{self._vars['inventory_hostname']}: copying {name}, {len(left)} files, {size}")
            for file in left:
                self._connection.put_file(os.path.join(roots[name], file), f"{folder}/{file}")
            self._ask({"step": "commit", "name": name, "wanted": service.pack(files), "source": {"kind": "path"}})
            brought[name] = len(left)
        return brought

    def _task_for(self, name: str, source: Mapping[str, Any], spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the task of the host that fetches a model, from its own source unless ``spec`` names another."""
        return {
            "name": at_revision(name, source.get("revision")) if "hub" in source else name,
            "spec": spec or sources.specification(name, source, self._options),
            "source": sources.identity(name, source, self._options["exclude"]),
            "options": {
                **{key: self._options[key] for key in ("user", "hub_python", "environment", "workers", "limit_s")},
                "full": self._full,
            },
        }

    def _fetch(self, name: str, source: Mapping[str, Any], spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Have the host fetch a model, say how far it is, and let it take its place."""
        task = self._task_for(name, source, spec)
        before: list[Any] = []
        job = HostJob(self._connection, "the download", lambda text: self._say(name, text), PAUSES_S)
        play = secrets.token_hex(8)

        def ask(step: str) -> dict[str, Any]:
            return self._ask({**(task if step == "start" else {"name": task["name"]}), "step": step, "play": play})

        def show(found: dict[str, Any]) -> None:
            if not before:
                what = f"{found['left']} files, {size_in_words(found['bytes'])}"
                givers = ", ".join(peer["host"] for peer in task["spec"].get("peers", ()))
                doing = f"taking {what} from {givers}" if givers else ""
                doing = doing or f"fetching {what} from {sources.in_words(task['source'])}"
                self._say(name, "a download is under way, joining it" if found["joined"] else doing)
                before.append(None)
            elif found["progress"] is not None:
                self._say(name, progress.say(found["progress"], before[-1]))
                before.append(found["progress"])

        found = self._patiently(task["name"], lambda: job.finish(ask, show))
        self._wrong = {**self._wrong, **found.get("wrong", {})}
        if "files" in found:
            return {key: found[key] for key in ("files", "size", "brought")}
        there = self._put_by_another(name, task["source"])
        if there is None and found.get("broke_off", True):
            raise Ended(name, found.get("error", "the download vanished"))
        if there is None:
            raise WeightsError(f"{name}: {found['error']}")
        return there

    def _patiently(self, name: str, question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Have the host ask the source of a model, again as often as that wants to be asked later."""
        attempts = max(1, self._options["attempts"])
        for attempt in range(1, attempts + 1):
            answer = question()
            if "wait_s" not in answer:
                return answer
            if attempt < attempts:
                self._say(name, f"{answer['said']}; asking again in {progress.duration(answer['wait_s'])}")
                HostJob(self._connection, "the question", lambda text: self._say(name, text)).wait(answer["wait_s"])
        raise WeightsError(f"{name}: {answer['said']}, {attempts} times: {answer['advice']}")

    def _put_by_another(self, name: str, source: dict[str, Any]) -> dict[str, Any] | None:
        """Return the files and size of a model that another play completed meanwhile, or None."""
        found = self._inspect({}, [], {name: (source, True)})[name]
        return {key: found[key] for key in ("files", "size")} if found["state"] == "complete" else None

    def _say(self, name: str, text: str) -> None:
        display.display(f"{self._vars['inventory_hostname']} | {name}: {text}", color=C.COLOR_VERBOSE)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the half on the host."""
        answer: dict[str, Any] = self._execute_module(
            module_name=MODULE,
            module_args={
                "directory": self._task.args["directory"],
                "request": {**request, "slots": dict(self._slots)} if self._slots else request,
                # only what asks the hub needs it
                "hub_token": self._token if request.get("spec", {}).get("kind") == "hub" else "",
            },
            task_vars=self._vars,
        )
        if answer.get("failed"):
            raise WeightsError(str(answer.get("msg", "the module on the host failed without a message")))
        return answer
