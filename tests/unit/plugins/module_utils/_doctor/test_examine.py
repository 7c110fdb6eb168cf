# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From checks to findings, and the findings for people."""

from __future__ import annotations

import html.parser
import threading
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import examine, show
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import (
    Answers,
    Check,
    Command,
    Finding,
    Look,
    Output,
    Read,
    failed,
    passed,
    warned,
)
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.registry import CHECKS, GROUPS
from ansible_collections.arcpro.b70.plugins.plugin_utils import _report_page
from unit.plugins.module_utils._doctor.hosts import FakeEffects, out, site

ONE = Command(("one",))


def check(name: str, judge: Any, *probes: Any, group: str = "host") -> Check:
    return Check(name, group, "what", "it means", "do this", lambda _site: probes, judge)


def test_ids_are_unique_plain_and_never_a_group():
    ids = [item.id for item in CHECKS]
    assert len(ids) == len(set(ids))
    assert not set(ids) & set(GROUPS)
    assert all(name == name.lower() and " " not in name for name in ids)
    assert all(item.what and item.meaning.endswith(".") and item.fix for item in CHECKS)


def test_every_distinct_probe_is_asked_once():
    effects = FakeEffects({"one": out("x")})
    checks = [
        check("a", lambda _s, a: passed(a.output(ONE).out), ONE, Read(("/x",))),
        check("b", lambda *_: passed(""), ONE),
    ]
    found = examine.examine(site(), effects, checks, 5)
    assert [item["summary"] for item in found] == ["x", ""]
    assert sorted(map(str, effects.asked)) == ["('one',)", str(Read(("/x",)))]


def test_a_judge_that_breaks_is_a_warning_with_its_error_and_the_rest_goes_on():
    def breaks(_site: Any, _answers: Answers) -> Finding:
        raise ZeroDivisionError("oh")

    found = examine.examine(site(), FakeEffects({}), [check("a", breaks), check("b", lambda *_: passed("fine"))], 5)
    assert found[0]["level"] == "WARN"
    assert found[0]["summary"] == "not judged, this check failed: ZeroDivisionError: oh"
    assert found[1]["level"] == "PASS"


def test_a_probe_that_breaks_or_is_not_there_is_never_passed():
    effects = FakeEffects({"one": OSError("no")})
    look = check("look", lambda _s, a: passed(str(a.look(Look("gone")))), Look("gone"))
    run = check("run", lambda _s, a: passed("") if a.output(ONE).ok else warned(a.output(ONE).why()), ONE)
    levels = {item["id"]: (item["level"], item["summary"]) for item in examine.examine(site(), effects, [look, run], 5)}
    assert levels["look"] == ("WARN", "not judged: could not be looked at: LookupError: gone is not there")
    assert levels["run"] == ("WARN", "could not be looked at: OSError: no")


def test_a_program_that_did_not_end_is_no_reason_to_remove_anything():
    late = Output(problem="python did not end within 45 s", late=True)
    run = check("run", lambda _s, a: failed(a.output(ONE).why()), ONE)
    (finding,) = examine.verdicts(site(), [run], Answers({ONE: late}))
    assert (finding["level"], finding["fix"]) == ("FAIL", examine.AGAIN)
    (finding,) = examine.verdicts(site(), [run], Answers({ONE: Output(code=1)}))
    assert finding["fix"] == "do this"


@pytest.mark.real_time
def test_what_does_not_answer_in_time_is_said_and_nothing_waits_for_it():
    release = threading.Event()
    ended: list[Look] = []

    class Slow(FakeEffects):
        def look(self, look: Look) -> Any:
            release.wait(600)
            ended.append(look)

    slow = check("slow", lambda _s, a: passed(str(a.look(Look("x")))), Look("x"))
    fast = check("fast", lambda _s, a: passed(a.output(ONE).out), ONE)
    found = examine.examine(site(), Slow({"one": out("done")}), [slow, fast], 2)
    assert ended == []
    release.set()
    assert [item["summary"] for item in found] == ["not judged: was not answered in time", "done"]
    assert found[0]["fix"] == examine.AGAIN


def test_no_command_may_run_past_the_overall_limit():
    limits: list[float] = []

    class Clocked(FakeEffects):
        def run(self, command: Command) -> Output:
            limits.append(command.limit_s)
            return out("")

    examine.collect(Clocked({}), [Command(("x",), limit_s=45)], 20)
    assert 10 < limits[0] <= 20


def test_choosing_by_id_and_group():
    checks = [check("a", passed), check("b", passed, group="cards"), check("c", passed, group="cards")]
    assert [item.id for item in examine.chosen(checks, [], [])] == ["a", "b", "c"]
    assert [item.id for item in examine.chosen(checks, ["cards"], ["c"])] == ["b"]
    assert [item.id for item in examine.chosen(checks, ["a", "c"], [])] == ["a", "c"]
    with pytest.raises(ValueError, match="no check or group card; there are a, b, c, cards, host"):
        examine.chosen(checks, ["card"], [])


def test_evidence_is_bounded_and_meaning_stands_only_where_something_is_wrong():
    long = failed("bad", *map(str, range(40)))
    data = examine.as_data(check("a", passed), long)
    assert len(data["evidence"]) == 13
    assert data["evidence"][-1] == "and 28 more"
    assert (data["meaning"], data["fix"]) == ("it means", "do this")
    assert examine.as_data(check("a", passed), failed("bad", fix="that instead"))["fix"] == "that instead"
    assert examine.as_data(check("a", passed), passed("good"))["meaning"] == ""
    assert examine.as_data(check("a", passed), failed("bad", source="a report"))["source"] == "a report"


def found(level: str, name: str, **more: Any) -> dict[str, Any]:
    bad = level in ("WARN", "FAIL")
    return {"id": name, "group": "host", "level": level, "summary": f"{name} says", "evidence": ["line"] if bad else [],
            "meaning": "It means." if bad else "", "fix": "Do this." if bad else "", "source": "", **more}  # fmt: skip


FINDINGS = [found("PASS", "one"), found("FAIL", "two"), found("SKIP", "three", summary="no card"),
            found("SKIP", "four", summary="no card"), found("WARN", "five", source="a report")]  # fmt: skip


def test_the_table():
    assert show.table(FINDINGS, "host1", 1.25) == [
        "PASS  one    one says",
        "FAIL  two    two says",
        "      evidence line",
        "      meaning  It means.",
        "      fix      Do this.",
        "WARN  five   five says",
        "      evidence line",
        "      meaning  It means.",
        "      fix      Do this.",
        "      source   a report",
        "SKIP  three, four: no card",
        "host1: 1 PASS, 1 WARN, 1 FAIL, 2 SKIP in 1.2 s",
    ]
    wide = show.table([found("PASS", "one", summary="word " * 60)], "host1")
    assert max(map(len, wide)) <= show.WIDTH
    assert wide[1].startswith(" " * 11 + "word")


def test_what_ends_a_run():
    assert show.stopped_by(FINDINGS, "FAIL") == ["two"]
    assert show.stopped_by(FINDINGS, "WARN") == ["two", "five"]
    assert show.stopped_by(FINDINGS, "never") == []
    assert examine.worst(FINDINGS) == "FAIL"
    assert examine.worst([]) == "SKIP"
    assert examine.counts(FINDINGS) == {"PASS": 1, "WARN": 1, "FAIL": 1, "SKIP": 2}


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_over_all_hosts_is_complete_and_escapes_what_hosts_say():
    evil = found("FAIL", "two", summary="<script>alert(1)</script>", evidence=['"><img src=x>'])
    item = {"name": "a.txt", "source": "cat <b>", "bytes": 3, "truncated": True, "problem": ""}
    good = {"host": "host1", "archive": "host1.tar.gz", "size": 2048, "findings": [evil, found("PASS", "one")],
            "contents": [item, {**item, "name": "b", "problem": "<gone>"}], "redactions": {"value": 3}}  # fmt: skip
    lost = {"host": "host2", "archive": "", "problem": "unreachable & gone"}
    text = _report_page.index_page([good, lost], "2026-06-07 09:00 UTC")
    page = Page()
    page.feed(text)
    tags = [tag for tag, _attributes in page.tags]
    assert not {"script", "img", "b70", "link"} & set(tags)
    assert "&lt;script&gt;alert(1)" in text
    assert "unreachable &amp; gone" in text
    assert "3 bytes (the end of it)" in text
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["#host1", "host1.tar.gz", "#host2"]
    assert "http" not in text
