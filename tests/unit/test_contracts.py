# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that several programs of a host share: whatever their schemas allow, all readers understand, and alike.

That writers keep to the schemas is checked where they write: by the host in memory in the tests of the slot engine, and
here for the renderer.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.host_class import machine
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import INDEX
from ansible_collections.arcpro.b70.plugins.module_utils._paths import RECORDS_DIR
from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import admin, table
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.kind import Kind
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import journal, production, recorded, state_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Layout, SlotFault
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.haproxy import SESSION_HEADERS
from frontdoor.admin import api, models
from frontdoor.config import from_table
from frontdoor.policy.dialect import PLAIN, dialect_of
from frontdoor.policy.keys import parse_keys
from frontdoor.policy.routing import HEADERS
from frontdoor.slot import reports as frontdoor_reports
from frontdoor.slot import state as frontdoor_state
from unit import contracts
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, profile_data
from unit.plugins.plugin_utils._render.test_rendering import everything

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=2), max_leaves=4)
CONFIG = from_table({"admission": {"max_active_generations": 3}, "request": {"max_tokens_cap": 9}})


def documents(name: str, schema: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """Return what makes documents that a schema allows, in the keywords that the schemas of a host's files use."""
    rules = contracts.schema(name) if schema is None else schema
    if "$ref" in rules:
        return documents(name, contracts.schema(name)["$defs"][rules["$ref"].rpartition("/")[2]])
    if "oneOf" in rules:
        return st.one_of([documents(name, choice) for choice in rules["oneOf"]])
    if "const" in rules:
        return st.just(rules["const"])
    if "enum" in rules:
        return st.sampled_from([one for one in rules["enum"] if one is not None or "type" not in rules])
    kinds = [rules["type"]] if isinstance(rules["type"], str) else rules["type"]
    return st.one_of([_of_type(name, kind, rules) for kind in kinds])


def _of_type(name: str, kind: str, rules: dict[str, Any]) -> st.SearchStrategy[Any]:
    above = "exclusiveMinimum" in rules
    least, most = rules.get("exclusiveMinimum", rules.get("minimum")), rules.get("maximum")
    if kind == "string":
        if "pattern" in rules:
            return st.from_regex(rules["pattern"], fullmatch=True)
        return st.text(min_size=rules.get("minLength", 0), max_size=8)
    if kind == "integer":
        return st.integers(least, most)
    if kind == "number":
        return st.floats(least, most, allow_nan=False, allow_infinity=False, exclude_min=above) | st.integers(
            None if least is None else int(least + 0.9) + above, most
        )
    if kind == "array":
        return st.lists(
            documents(name, rules["items"]),
            min_size=rules.get("minItems", 0),
            max_size=rules.get("maxItems", 3),
            unique_by=repr if rules.get("uniqueItems") else None,
        )
    if kind == "object":
        parts = {key: documents(name, part) for key, part in rules.get("properties", {}).items()}
        needed = {key: part for key, part in parts.items() if key in rules.get("required", ())}
        others = {key: part for key, part in parts.items() if key not in needed}
        if parts:
            return st.fixed_dictionaries(needed, optional=others)
        inner = rules.get("additionalProperties", True)
        values = documents(name, inner) if isinstance(inner, dict) else VALUES
        return st.dictionaries(st.text(max_size=8), values, max_size=2)
    return st.none() if kind == "null" else st.booleans()


@pytest.mark.parametrize("name", ["state", "journal", "resolved-profile", "record", "index"])
def test_the_schema_is_one(name):
    jsonschema.Draft202012Validator.check_schema(contracts.schema(name))


@given(documents("state"))
def test_slot_engine_and_frontdoor_read_the_same_state(document):
    text = json.dumps(document)
    contracts.check("state", text)
    ours, theirs = state_file.parse_state(text), frontdoor_state.parse(text.encode(), CONFIG)
    assert ours is not None
    # what is written again is what was read; a state of before has no word on replicas
    assert json.loads(ours.to_json()) == {"replicas": None, "routing": None, "names": None, "idle": None, **document}
    for key in ("sequence", "phase", "open", "verified", "verified_at", "reason", "retry_after_s", "event_log", "gate"):
        assert getattr(theirs, key) == document[key], key
    for key in ("switch", "profile", "engine", "updated_at"):
        assert getattr(theirs, key) == document[key], key
    limits, rules = document["limits"] or {}, document["request"] or {}
    # null means that the operator decides
    assert theirs.max_active_generations == limits.get("max_active_generations", 3)
    assert theirs.rules.max_tokens_cap == (rules.get("max_tokens_cap") or 9)
    assert theirs.backend_url == (document["backend_url"] or CONFIG.backend.url)


@given(st.lists(documents("journal"), max_size=6))
def test_slot_engine_and_frontdoor_read_the_same_journal(lines):
    texts = [json.dumps(line) for line in lines]
    for text in texts:
        contracts.check("journal", text)
    journal.remember(texts)
    switches = [line for line in lines if line["event"] in ("begin", "end")]
    known = journal.remember([json.dumps(line) for line in switches])
    told = frontdoor_reports.remember("\n".join(json.dumps(line) for line in switches).encode())
    if len({line["id"] for line in switches if line["event"] == "begin"}) == len(known.attempts):
        assert [(one["id"], one["from"] or "", one["to"] or "") for one in reversed(told)] == [
            (attempt.id, attempt.source or "", attempt.target or "") for attempt in known.attempts
        ]


@given(documents("index"))
def test_b70ctl_lists_every_record_that_the_schema_allows(document):
    text = json.dumps({**document, "machine": machine()})
    contracts.check("index", text)
    fake_host = FakeHost()
    for name in {row["slot"] for row in document["records"]}:
        layout = replace(LAYOUT, slot=name)
        fake_host.put(layout.records_index, text)
        found = recorded.recorded(fake_host.effects(), layout)
        wanted = sorted((row for row in document["records"] if row["slot"] == name), key=lambda row: row["number"])
        assert [{key: row[key] for key in row if key != "seconds"} for row in found] == wanted
        assert len(table.history([], found)) == len(wanted) + 1


@given(documents("index"), st.sampled_from(["candidate", "production", "rejected"]))
def test_the_frontdoor_and_b70ctl_call_the_same_production(tmp_path_factory, document, status):
    text = json.dumps({**document, "machine": machine()})
    fake_host = FakeHost()
    keys = ("slot", "profile", "fingerprint", "examined")
    for slot, name, mark, parts in {tuple(row.get(key) for key in keys) for row in document["records"]}:
        layout = replace(LAYOUT, slot=slot)
        fake_host.put(layout.records_index, text)
        ours = production.promotion(recorded.recorded(fake_host.effects(), layout), name, mark, parts)
        (file := tmp_path_factory.getbasetemp() / "index.json").write_text(text)
        profile = {"name": name, "fingerprint": mark, "examined": parts}
        theirs = frontdoor_reports.Records(str(file)).of(slot, profile)
        assert production.status_here(status, ours) == frontdoor_reports.status_here(status, theirs)


def test_b70ctl_and_the_store_of_records_mean_the_same_file():
    assert Layout().records_index == PurePosixPath(RECORDS_DIR) / INDEX


@given(documents("resolved-profile"))
def test_the_slot_engine_takes_every_profile_that_the_schema_allows(document):
    for case in document["canary"]["cases"]:
        # what a case needs beside its compare is known to the catalogue
        case.update(compare="exact", prompt="p", max_tokens=1, expected="e")
        case.pop("texts", None)
    if node := document.get("node"):
        # a part is one of so many
        node["rank"] %= node["count"]
    text = json.dumps(document)
    contracts.check("resolved-profile", text)
    found = parse_profile(text, "a.json")
    for part in ("engine", "frontdoor"):
        for key, value in document[part].items():
            if hasattr(getattr(found, part), key) and isinstance(value, (bool, int, float, str)):
                ours = getattr(getattr(found, part), key)
                # A number of seconds is read as a float, which has no place for all digits of a huge one.
                assert ours == (float(value) if isinstance(ours, float) else value)


@given(documents("resolved-profile"))
def test_the_administration_shows_every_profile_that_the_schema_allows(document):
    shown = models.row(document["name"], document, "unloaded", None, models.traffic(0, 0, 0, {}, 0), True)
    about, engine = shown["definition"], document["engine"]
    for key in ("title", "status", "status_reason", "fingerprint", "cards"):
        assert about[key] == document[key], key
    assert about["hf_id"] == (document["model"].get("hf_repo") or "")
    assert (about["served_model_name"], about["max_model_len"]) == (
        engine["served_model_name"],
        engine.get("max_model_len"),
    )
    # of each replica
    share = max(1, document["frontdoor"]["max_active_generations"] // len(engine.get("replicas") or [engine]))
    assert shown["configured_target_inflight"] == share
    assert shown["capabilities"]["modalities"] == document["modalities"]


@pytest.mark.parametrize("version", ["", "0.21.0", "0.30.0", "1.0"])
@pytest.mark.parametrize("name", KINDS)
def test_the_frontdoor_takes_what_a_kind_says_of_its_api(name, version):
    told = asdict(KINDS[name].dialect(version))
    assert dialect_of({"kind": name, "dialect": told})._asdict() == told


def test_a_kind_without_a_word_is_asked_as_openai_says():
    assert dialect_of({"kind": "another", "dialect": asdict(Kind().dialect(""))}) == PLAIN


@pytest.mark.parametrize("name", KINDS)
def test_the_administration_knows_each_field_of_a_load_that_a_kind_has(name):
    pool = asdict(KINDS[name].pool)
    assert pool["backend"]
    shown = models.row("a", {"engine": {"kind": name}}, "unloaded", None, {}, True, kinds={name: pool})
    assert shown["resolved_backend"] == pool["backend"]
    wanted = dict.fromkeys(pool["settings"])
    assert models.overrides("load", json.dumps(wanted).encode()) == wanted


def test_no_module_of_the_frontdoor_goes_by_the_name_of_a_kind():
    source = Path(models.__file__).parents[1]
    named = [
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if any(f'"{name}"' in file.read_text(encoding="utf-8") for name in KINDS)
    ]
    assert named == []


@pytest.mark.parametrize("name", ["profile", "stack"])
def test_the_schemas_know_every_kind(name):
    file = Path(__file__).parents[2] / f"roles/profiles/files/schema/{name}.schema.json"
    kinds = json.loads(file.read_text())["properties"]["engine"]["properties"]["kind"]["enum"]
    assert {kind for kind in kinds if kind} == KINDS.keys()
    for kind in KINDS:
        assert file.with_name(f"{kind}-settings.schema.json").is_file()


def test_the_administration_knows_the_exit_codes_of_b70ctl():
    known = (api.DONE, api.FAILED, api.LOCKED, api.REFUSED)
    assert known == (command.DONE, command.FAILED, command.LOCKED, admin.REFUSED)
    assert admin.REFUSED not in range(command.QUARANTINED + 1)


@given(
    st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    st.sampled_from(["load", "unload"]),
    st.from_regex(r"[a-z0-9]{1,64}", fullmatch=True),
)
def test_b70ctl_understands_a_request_with_any_key_that_the_frontdoor_takes(key, verb, slot):
    assert parse_keys(f'[keys]\n"{key}" = "sha256:{"0" * 64}"\n')
    found = admin.REQUEST.fullmatch(f"{verb} tiny-a {key} {slot}\n".encode())
    assert found is not None
    assert found.groups() == (verb.encode(), b"tiny-a", key.encode(), slot.encode())
    # as a frontdoor of before asks
    assert admin.REQUEST.fullmatch(f"{verb} tiny-a {key}\n".encode())


def test_the_renderer_keeps_to_the_schema_with_all_shipped_profiles():
    texts = [
        item["content"] for item in everything() if "/profiles/" in item["path"] and item["path"].endswith(".json")
    ]
    assert len(texts) > 30
    for text in texts:
        contracts.check("resolved-profile", text)


def test_the_profiles_of_the_host_in_memory_keep_to_the_schema():
    contracts.check("resolved-profile", json.dumps({**profile_data("a"), "unit_sha256": ""}))


def test_a_load_balancer_knows_the_sessions_that_a_frontdoor_knows():
    assert SESSION_HEADERS == HEADERS


REQUIRED = [
    *("title", "status_reason", "modalities", "cards", "stack.dir", "engine.kind", "engine.env"),
    *("engine.start_timeout_s", "frontdoor.max_active_generations", "frontdoor.queue_timeout_s"),
    *("frontdoor.backend_timeout_s", "frontdoor.event_log", "canary.repeats", "canary.timeout_s", "canary.seed"),
]


@pytest.mark.parametrize("dotted", REQUIRED)
def test_what_the_catalogue_decides_has_no_second_default(dotted):
    document: dict[str, Any] = deepcopy(profile_data("a"))
    *path, last = dotted.split(".")
    part = document
    for key in path:
        part = part[key]
    del part[last]
    with pytest.raises(SlotFault, match=f"{dotted} is missing"):
        parse_profile(json.dumps(document), "a.json")
