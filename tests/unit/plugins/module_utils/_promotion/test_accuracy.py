# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a profile is asked, what the harness is given, and its reports.

captured/ has reports of lm-eval 0.4.13 about two models of the lab, one of them damaged, and what it printed
in front of a server that answered each of 3 questions with 401 (its key was "very secret").
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import program
from ansible_collections.arcpro.b70.plugins.module_utils._promotion import accuracy, questions
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.accuracy import AccuracyError, QuestionSet
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.questions import OF_A_TASK, usual
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import Profile, Question, parse_profile
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from unit.plugins.module_utils._slot.fake_host import profile_data

HERE = Path(__file__).parent
LAB = Path(__file__).parents[5] / "inventory/lab_profiles"
# As the bar stands in the log of lm-eval.
LOG = (
    "\rRequesting API:   0%|          | 0/150 [00:00<?, ?it/s]"
    "\rRequesting API:  16%|█▌        | 24/150 [00:00<00:01, 80.7it/s]"
)


def report(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"captured/lm-eval-{name}.json").read_text())
    return found


def lab_questions() -> tuple[Question, ...]:
    rows = yaml.safe_load((LAB / "tiny-a.yml").read_text())["accuracy"]["questions"]
    return tuple(Question(**row) for row in rows)


def profile_of(data: dict[str, Any]) -> Profile:
    return parse_profile(json.dumps(data), "a.json")


def asked(**changes: Any) -> QuestionSet:
    usual = QuestionSet("http://127.0.0.1:8000", "tiny-a", lab_questions(), 0.8, 2, 64, 60.0)
    return replace(usual, **changes)


def test_every_host_asks_the_same_questions():
    found = usual()
    assert set(Counter(question.task for question in found).values()) == {OF_A_TASK}
    assert len({question.prompt for question in found}) == len(found) == 150


def test_the_usual_questions_have_the_answers_that_a_reader_would_give():
    for question in usual():
        numbers = [int(word) for word in re.findall(r"\d+", question.prompt)]
        if question.task == "arithmetic":
            left, right = numbers
            sign = "gives" if "gives" in question.prompt else "rows" if "rows" in question.prompt else "gets"
            wanted = {"gives": left - right, "rows": left * right, "gets": left + right}[sign]
            assert int(question.answer) == wanted, question
        elif question.task == "comparison":
            named = {int(age): name for name, age in re.findall(r"(\w+) is (\d+)", question.prompt)}
            pick = max if "oldest" in question.prompt else min
            assert question.answer == named[pick(named)], question
        elif question.task in ("copying", "reading"):
            assert question.answer in question.prompt, question
    letters = Counter(question.answer for question in usual() if question.task == "choice")
    assert max(letters.values()) - min(letters.values()) <= 1


def test_the_right_answer_of_a_choice_is_the_only_one():
    assert set(Counter(word for words in questions.KINDS.values() for word in words).values()) == {1}


def test_a_profile_is_asked_at_the_frontdoor_as_much_as_it_admits():
    found = accuracy.asked_of(profile_of(profile_data("a")), "http://127.0.0.1:8000", "secret")
    assert (found.model, found.at_once, found.threshold, found.limit_s) == ("a", 2, 0.8, 1800.0)
    assert found.questions == usual()
    assert (found.tokens, found.body, found.after) == (64, {}, "")


def test_a_model_that_thinks_has_room_for_its_thoughts():
    thinks = {
        "how": "inline",
        "budget_tokens": 2048,
        "tags": ["<think>", "</think>"],
        "template_kwargs": {"deep": True},
    }
    profile = profile_data("a", engine__reasoning=thinks, engine__max_model_len=32768)
    profile["frontdoor"]["chat_template_kwargs"] = {"deep": False, "tone": "dry"}
    found = accuracy.asked_of(profile_of(profile), "http://127.0.0.1:8000")
    assert (found.tokens, found.after) == (64 + 2048, "</think>")
    assert found.body == {"chat_template_kwargs": {"deep": True, "tone": "dry"}}
    quiet = profile_data("a", engine__reasoning={**thinks, "how": "disabled"}, engine__max_model_len=2048)
    assert accuracy.asked_of(profile_of(quiet), "http://127.0.0.1:8000") == replace(
        found, tokens=64, after="", body={"chat_template_kwargs": {"deep": True}}
    )


def test_a_small_context_keeps_room_for_the_question():
    thinks = {"how": "separate", "budget_tokens": 4096, "tags": ["<think>", "</think>"], "template_kwargs": {}}
    small = profile_of(profile_data("a", engine__reasoning=thinks, engine__max_model_len=2048))
    assert accuracy.asked_of(small, "http://127.0.0.1:8000").tokens == 2048 - 512


def test_the_profile_of_the_lab_has_its_own_questions():
    profile = load_catalogue([LAB])["tiny-a"]
    assert load_catalogue([LAB])["tiny-corrupt"]["accuracy"] == profile["accuracy"]
    rendered = profile_of(profile_data("a") | {"accuracy": profile["accuracy"]})
    assert accuracy.asked_of(rendered, "http://127.0.0.1:8000").questions == lab_questions()


def test_the_shipped_profiles_are_asked_the_usual_questions():
    wanted = {"threshold": 0.8, "limit_s": 1800, "questions": None}
    assert all(profile["accuracy"] == wanted for profile in load_catalogue().values())


def test_no_file_of_the_harness_has_the_key():
    files = accuracy.files_of(asked(api_key="very secret"), "/w")
    assert not any("very secret" in text for text in files.values())


def test_the_harness_gets_files_and_no_name_of_a_data_set():
    files = accuracy.files_of(asked(body={"chat_template_kwargs": {"a": 1}}, after="</t>"), "/w")
    config = json.loads(files["config.json"])
    assert config["tasks"] == ["/w/letters.yaml", "/w/arithmetic.yaml", "/w/copying.yaml"]
    assert config["model_args"]["base_url"] == "http://127.0.0.1:8000/v1/chat/completions"
    task = json.loads(files["copying.yaml"])
    assert (task["dataset_path"], task["dataset_kwargs"]) == ("json", {"data_files": {"test": "/w/copying.jsonl"}})
    assert task["generation_kwargs"]["chat_template_kwargs"] == {"a": 1}
    assert [json.loads(line)["answer"] for line in files["arithmetic.jsonl"].splitlines()] == ["7", "8", "9", "10"]


def counted(reply: str, *answers: str, after: str = "") -> str:
    """What counts of a reply to a question of a task with these right answers: what lm-eval's filter `regex` does."""
    files = accuracy.files_of(asked(questions=tuple(Question("t", "?", one) for one in answers), after=after), "/w")
    (found,) = json.loads(files["t.yaml"])["filter_list"]
    for step in found["filter"]:
        if step["function"] == "regex":
            matches = re.findall(step["regex_pattern"], reply)
            reply = matches[step["group_select"]].strip() if matches else "[invalid]"
    return reply


@pytest.mark.parametrize(
    ("reply", "counts"),
    [
        ("Felix", "Felix"),
        ("**felix**.", "felix"),
        ("Felix is the oldest.", "Felix"),
        ("The oldest is Felix, because Felix is 61.", "Felix"),
        ("Felix or Anna", "[invalid]"),
        ("Annabelle", "[invalid]"),
        ("", "[invalid]"),
    ],
)
def test_of_a_word_the_only_one_of_its_task_counts(reply: str, counts: str):
    assert counted(reply, "Anna", "Felix", "Clara") == counts


@pytest.mark.parametrize(
    ("reply", "counts"),
    [("B", "B"), ("B) apple", "B"), ("I think a pear is B.", "B"), ("A, I think B", "[invalid]"), ("b", "[invalid]")],
)
def test_of_a_letter_the_only_one_of_its_task_counts(reply: str, counts: str):
    assert counted(reply, "A", "B", "C") == counts


def test_of_a_number_the_last_one_counts_and_of_other_text_all():
    assert counted("3 + 4 = 7.", "7", "8") == "7"
    assert counted("two words", "two words", "three") == "two words"


def test_a_thought_that_is_cut_off_is_no_answer():
    for answers in (("7", "8"), ("Anna", "Felix"), ("A", "B"), ("two words", "one")):
        right = answers[0]
        assert counted(f"So it is {right}", *answers, after="</t>") == "[invalid]"
        assert counted(f"No, {answers[1]}?\n</t>\n{right}", *answers, after="</t>") == right


def test_the_usual_tasks_know_each_word_that_may_be_chosen():
    for task in ("comparison", "reading"):
        mine = [question for question in usual() if question.task == task]
        offered = {word for question in mine for word in re.findall(r"\w+", question.prompt)} & set(questions.NAMES)
        assert {question.answer for question in mine} >= offered, task


def test_the_scores_of_a_report_are_those_of_its_questions():
    assert accuracy.judged(report("tiny-a"), asked()) == {
        "score": 1.0,
        "threshold": 0.8,
        "questions": 12,
        "tasks": {"letters": 1.0, "arithmetic": 1.0, "copying": 1.0},
    }
    # 2 of 2, 3 of 4 and 0 of 6
    damaged = accuracy.judged(report("tiny-corrupt"), asked())
    assert (damaged["score"], damaged["tasks"]["copying"]) == (0.4167, 0.0)


def test_a_report_of_fewer_questions_is_none():
    short = report("tiny-a")
    short["n-samples"]["b70_copying"]["effective"] = 5
    with pytest.raises(AccuracyError, match="counted 11 of 12"):
        accuracy.judged(short, asked())
    with pytest.raises(AccuracyError, match="is it another version"):
        accuracy.judged({"results": {}}, asked())


def test_the_progress_is_the_last_of_the_bar():
    assert accuracy.progress_of(LOG) == "24 of 150 questions answered"
    assert accuracy.progress_of("loading") == ""


Measure = Callable[..., dict[str, Any]]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measures with a shell script in place of the Python that has the harness."""
    monkeypatch.setattr(program, "LOOK_S", 0.05)

    def measured(
        script: str, said: list[str] | None = None, watch: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        say = (lambda text: None) if said is None else said.append
        return accuracy.measure(asked(api_key="very secret"), str(python), "", say, watch)

    return measured


def test_a_measurement_is_read_and_tells_how_far_it_is(measure: Measure, tmp_path: Path):
    said: list[str] = []
    (tmp_path / "log").write_text(LOG)
    captured = HERE / "captured/lm-eval-tiny-a.json"
    script = f"cat {tmp_path}/log; sleep 0.5; cp {captured} report_2026-11-23T15-50-19.591689.json"
    assert measure(script, said)["score"] == 1.0
    assert said == ["24 of 150 questions answered"]


def test_the_key_is_in_the_environment_alone(measure: Measure, tmp_path: Path):
    with pytest.raises(AccuracyError, match="without a report"):
        measure(f'echo "$@" > {tmp_path}/argv; env > {tmp_path}/env')
    assert "very secret" not in (tmp_path / "argv").read_text()
    found = (tmp_path / "env").read_text().splitlines()
    assert {"OPENAI_API_KEY=very secret", "HF_HUB_OFFLINE=1", "HF_DATASETS_OFFLINE=1"} <= set(found)


def test_a_failure_says_why_the_questions_were_not_answered_and_no_key(measure: Measure, tmp_path: Path):
    captured = tmp_path / "lm-eval-401.log"
    captured.write_text("\n".join(json.loads((HERE / "captured/lm-eval-401.json").read_text())["output"]))
    assert "Bearer very secret" in captured.read_text()
    with pytest.raises(AccuracyError) as raised:
        measure(f"cat {captured}; exit 1")
    words = str(raised.value)
    assert words.startswith("lm-eval ended with 1: a question was answered with 401: this API key is not known; ")
    assert words.endswith("Connector is closed.")
    assert accuracy.cause_of(LOG) == ""


@pytest.mark.parametrize("said", ['"$OPENAI_API_KEY"', "\"'Authorization': 'Bearer $OPENAI_API_KEY'\""])
def test_a_key_that_the_harness_prints_is_in_no_fault(measure: Measure, said: str):
    with pytest.raises(AccuracyError, match=r"<secret>") as raised:
        measure(f"echo {said}; exit 1")
    assert "very" not in str(raised.value)


def test_the_end_of_a_key_is_hidden_too(measure: Measure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "_ALL", 20)
    for after in range(252, 266, 2):
        with pytest.raises(AccuracyError) as raised:
            measure(f'printf %s "$OPENAI_API_KEY"; printf %0{after}d 0; exit 1')
        assert "et" not in str(raised.value).replace("<secret>", "")


def test_what_watches_ends_the_harness(measure: Measure):
    def watch() -> None:
        raise RuntimeError("a switch has begun")

    with pytest.raises(RuntimeError, match="a switch has begun"):
        measure("exec sleep 30", watch=watch)


def test_questions_that_take_too_long_have_no_score(measure: Measure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accuracy, "_AROUND_S", -60.0)
    with pytest.raises(AccuracyError, match=r"not answered within 60 s; see accuracy\.limit_s"):
        measure("exec sleep 600")


def test_a_missing_harness_is_named(tmp_path: Path):
    with pytest.raises(AccuracyError, match=r"is not there: run promote\.yml"):
        accuracy.measure(asked(), str(tmp_path / "python"), "", lambda text: None, lambda: None)


def test_a_harness_that_can_not_be_run_is_named(tmp_path: Path):
    (tmp_path / "python").write_text("")
    with pytest.raises(AccuracyError, match="lm-eval can't be run"):
        accuracy.measure(asked(), str(tmp_path / "python"), "", lambda text: None, lambda: None)
