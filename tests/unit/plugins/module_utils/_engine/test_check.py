# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engine is asked about what, what is remembered, and what is said when one refuses or does not answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._engine import check

PROGRAM = "program"


class Engines:
    """Engines that refuse arguments holding a certain word, and remember what they were asked."""

    def __init__(self, refused="--bad", answer=None):
        self.refused, self.answer = refused, answer
        self.questions = []

    def __call__(self, command, environment, text):
        python = command[0]
        argv = json.loads(text)["argv"]
        self.questions.append((python, dict(environment), argv))
        if self.answer is not None:
            return self.answer
        said = {
            name: f"unrecognized arguments: {self.refused}" if self.refused in words else ""
            for name, words in argv.items()
        }
        return 0, f"noise\n{check.MARK}{json.dumps({'complaints': said})}\n", "warnings"


def profile(place, name, stack="cpu-1", *words, **env):
    folder = place / "stacks" / stack
    return {
        "name": name,
        "stack": {"id": stack, "dir": str(folder)},
        "engine": {"argv": [f"{folder}/venv/bin/vllm", "serve", "/model", *words], "env": {"SHARED": "1", **env}},
    }


@pytest.fixture
def installed(tmp_path):
    for stack in ("cpu-1", "xpu-1"):
        (tmp_path / "stacks" / stack / check.PYTHON).mkdir(parents=True)
        (tmp_path / "stacks" / stack / check.COMPLETE).touch()
    return tmp_path


def run(place, engines, *profiles, write=True, program=PROGRAM, **how):
    return check.check({item["name"]: item for item in profiles}, place / "memory", program, engines, write, **how)


def test_one_question_per_stack_with_what_its_profiles_share(installed):
    engines = Engines()
    report = run(
        installed,
        engines,
        profile(installed, "a", "cpu-1", "--x", CACHE="a"),
        profile(installed, "b", "cpu-1", CACHE="b"),
        profile(installed, "c", "xpu-1"),
    )
    assert [(python.split("/")[-4], environment, argv) for python, environment, argv in engines.questions] == [
        ("cpu-1", {"SHARED": "1"}, {"a": ["/model", "--x"], "b": ["/model"]}),
        ("xpu-1", {"SHARED": "1"}, {"c": ["/model"]}),
    ]
    assert report.asked == ["a", "b", "c"]
    assert not report.complaints


def test_what_has_passed_is_not_asked_again(installed):
    engines = Engines()
    a, b = profile(installed, "a"), profile(installed, "b", "cpu-1", "--b")
    run(installed, engines, a, b)
    report = run(installed, engines, a, b)
    assert len(engines.questions) == 1
    assert (report.asked, report.passed_before) == ([], ["a", "b"])
    changed = profile(installed, "b", "cpu-1", "--c")
    assert run(installed, engines, a, changed).asked == ["b"]
    assert engines.questions[-1][2] == {"b": ["/model", "--c"]}
    # Another way to ask is another question.
    assert run(installed, engines, a, changed, program="other").asked == ["a", "b"]


def test_a_refusal_is_told_in_the_engines_words_and_asked_about_again(installed):
    engines = Engines()
    good, bad = profile(installed, "a"), profile(installed, "b", "cpu-1", "--bad")
    for _again in range(2):
        assert run(installed, engines, good, bad).complaints == {"b": "unrecognized arguments: --bad"}
    assert [sorted(question[2]) for question in engines.questions] == [["a", "b"], ["b"]]


def test_where_a_refusal_only_warns_a_second_converge_does_not_ask(installed):
    engines = Engines()
    good, bad = profile(installed, "a"), profile(installed, "b", "cpu-1", "--bad")
    for _again in range(2):
        report = run(installed, engines, good, bad, again=False)
        assert report.complaints == {"b": "unrecognized arguments: --bad"}
    assert (len(engines.questions), report.asked, report.passed_before) == (1, [], ["a"])
    # Whoever wants it has it asked anew, and then it may pass.
    assert not run(installed, Engines(refused="--none"), bad, some=True).complaints
    assert run(installed, engines, good, bad, again=False).passed_before == ["a", "b"]
    assert len(engines.questions) == 1


def test_a_question_about_one_profile_forgets_no_other(installed):
    engines = Engines()
    a, bad = profile(installed, "a"), profile(installed, "b", "cpu-1", "--bad")
    run(installed, engines, a)
    run(installed, engines, bad, some=True)
    assert run(installed, engines, a).passed_before == ["a"]
    assert len(engines.questions) == 2


def test_a_stack_that_is_not_installed_is_skipped_and_said_so(installed):
    engines = Engines()
    report = run(installed, engines, profile(installed, "a"), profile(installed, "b", "gone-1"))
    assert report.skipped == {"b": "the stack gone-1 is not installed"}
    assert report.asked == ["a"]
    # An engine that is no Python program, such as a simulated one.
    (installed / "stacks" / "xpu-1" / check.PYTHON).rmdir()
    report = run(installed, engines, profile(installed, "c", "xpu-1"))
    assert report.skipped == {"c": "the stack xpu-1 has no venv/bin/python that could be asked"}


def test_check_mode_remembers_nothing(installed):
    run(installed, Engines(), profile(installed, "a"), write=False)
    assert not (installed / "memory").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 9, "passed": [], "refused": {}}', '{"schema": 1}'])
def test_a_damaged_memory_is_asked_again(installed, text):
    (installed / "memory").mkdir()
    (installed / "memory" / "cpu-1.json").write_text(text)
    assert run(installed, Engines(), profile(installed, "a")).asked == ["a"]


@pytest.mark.parametrize(
    "answer", [(1, "", "ImportError: libsycl.so.8"), (0, "no answer", ""), (124, "", "no answer within 5 s")]
)
def test_an_engine_that_does_not_answer_keeps_no_other_from_being_asked(installed, answer):
    engines = Engines()

    def ask(command, environment, text):
        return answer if "/cpu-1/" in command[0] else engines(command, environment, text)

    a, b, c = (profile(installed, name, stack) for name, stack in (("a", "cpu-1"), ("b", "cpu-1"), ("c", "xpu-1")))
    report = run(installed, ask, a, b, c)
    assert (sorted(report.unanswered), report.asked) == (["a", "b"], ["c"])
    (told,) = check.sentences(report)
    assert re.search(
        r"^not read by an engine: a, b; the engine of the stack cpu-1 could not be asked .*(libsycl|code 0|within 5 s)",
        told,
    )
    # and it is asked again, as soon as it answers
    assert run(installed, engines, a, b, c).asked == ["a", "b"]


def test_who_is_refused_is_named_with_the_engines_words(installed):
    report = run(installed, Engines(), profile(installed, "a"), profile(installed, "b", "cpu-1", "--bad"))
    (told,) = check.sentences(report)
    assert told.startswith("the installed engine refuses 1 profile. b: unrecognized arguments: --bad")
    assert check.sentences(check.EngineCheckReport()) == []


def test_of_a_profile_that_was_rendered_anew_what_a_switch_would_start_is_asked_about(tmp_path):
    for folder, text in (("profiles", "{}"), ("pending", json.dumps({"profile": '{"new": 1}'}))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.json").write_text(text)
    assert check.read_profiles(tmp_path / "profiles") == {"a": {"new": 1}}
    (tmp_path / "pending/a.json").write_text("{}")
    with pytest.raises(check.CheckError, match=r"pending/a.json cannot be read .* run the role slot"):
        check.read_profiles(tmp_path / "profiles", ["a"])


def test_profiles_are_read_by_name_and_an_unreadable_one_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.env").write_text("")
    assert check.read_profiles(tmp_path) == {"a": {}}
    assert check.read_profiles(tmp_path / "none") == {}
    with pytest.raises(check.CheckError, match=r"b.json cannot be read .* run the role slot"):
        check.read_profiles(tmp_path, ["b"])


class Program:
    """What llama-server 0.5.0 says to a command line, by recorded words."""

    def __init__(self):
        self.commands = []

    def __call__(self, command, environment, text):
        self.commands.append(list(command))
        if "--no-such-option" in command:
            return 1, "", "error: invalid argument: --no-such-option\n"
        return 0, "", "version: 0.5.0 (0c1e57098)\n"


def gguf_profile(place, name, *words):
    made = profile(place, name, "llama-1")
    program = f"{made['stack']['dir']}/venv/bin/llama-server"
    return {**made, "engine": {"kind": "llama-server", "argv": [program, "--model", "m.gguf", *words], "env": {}}}


def test_an_engine_that_is_a_program_reads_each_command_line_itself(installed):
    program = Program()
    good, bad = gguf_profile(installed, "a"), gguf_profile(installed, "b", "--no-such-option")
    place = installed / "stacks/llama-1/venv/bin"
    place.mkdir(parents=True)
    (installed / "stacks/llama-1" / check.COMPLETE).touch()
    assert run(installed, program, good).skipped == {
        "a": "the stack llama-1 has no venv/bin/llama-server that could be asked"
    }
    (place / "llama-server").touch()
    report = run(installed, program, good, bad)
    assert report.complaints == {"b": "error: invalid argument: --no-such-option"}
    assert report.asked == ["a", "b"]
    # It would serve otherwise.
    assert {command[-1] for command in program.commands} == {"--version"}
    assert run(installed, program, good).passed_before == ["a"]
    assert len(program.commands) == 2


def test_a_program_that_does_not_run_leaves_its_profiles_unread(installed):
    place = installed / "stacks/llama-1/venv/bin"
    place.mkdir(parents=True)
    (place / "llama-server").touch()
    (installed / "stacks/llama-1" / check.COMPLETE).touch()
    report = run(
        installed, lambda command, environment, text: (124, "", "no answer within 5 s"), gguf_profile(installed, "a")
    )
    assert "no answer within 5 s" in report.unanswered["a"]
    assert not report.complaints


TINY = Path(__file__).parents[4] / "lab/models/tiny-a-gguf"


def test_a_model_in_gguf_is_estimated_from_its_file(installed):
    made = {**gguf_profile(installed, "a"), "cards": 1, "model": {"path": str(TINY)}}
    made["stack"]["device"] = "xpu"
    made["engine"] |= {"argv": ["x", "--model", str(TINY / "tiny-a-BF16.gguf")], "settings": {"ctx_size": 4096}}
    found = check.fitting("a", made)
    # Two layers with two heads of 32 for keys and for values, in two bytes: 512 bytes for a token.
    assert (found.verdict, "one context of 4096 tokens takes 0.00 GiB" in found.text) == ("fits", True)
    # 1.5 GiB beside a cache of 2 MiB and weights of less than one.
    assert found.held_mib == 1538
    made["engine"]["settings"]["ctx_size"] = 100_000_000
    found = check.fitting("a", made)
    assert (found.verdict, "Lower ctx_size" in found.text, "takes 47.68 GiB" in found.text) == ("no", True, True)
    made["engine"]["settings"] |= {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    assert "takes 25.33 GiB" in check.fitting("a", made).text
    made["engine"]["argv"][-1] = str(TINY / "missing.gguf")
    assert check.fitting("a", made).verdict == "unknown"


def test_estimates_of_other_profiles_are_kept_where_only_some_were_checked(tmp_path):
    file = tmp_path / "estimates" / "main.json"
    profiles = {name: {"fingerprint": f"f-{name}"} for name in "abc"}
    check.remember_estimates(file, {"a": 1000, "b": 2000, "c": None}, profiles, some=False)
    assert check.estimates_of(file) == {
        "a": {"fingerprint": "f-a", "held_mib": 1000},
        "b": {"fingerprint": "f-b", "held_mib": 2000},
    }
    assert file.stat().st_mode & 0o777 == 0o644
    check.remember_estimates(file, {"b": None}, profiles, some=True)
    assert list(check.estimates_of(file)) == ["a"]
    check.remember_estimates(file, {"c": 7}, profiles, some=False)
    assert list(check.estimates_of(file)) == ["c"]


def test_the_same_estimates_are_not_written_again(tmp_path):
    file = tmp_path / "main.json"
    check.remember_estimates(file, {"a": 1}, {"a": {"fingerprint": "f"}}, some=False)
    before = file.stat().st_ino
    check.remember_estimates(file, {"a": 1}, {"a": {"fingerprint": "f"}}, some=True)
    assert file.stat().st_ino == before
    file.write_text("torn {")
    assert check.estimates_of(file) == {}


def test_the_engine_of_an_image_is_not_asked_and_that_is_said(installed):
    given = profile(installed, "a")
    given["stack"]["image"] = "docker.io/vllm/vllm-openai-xpu:x"
    engines = Engines()
    assert run(installed, engines, given).skipped == {
        "a": "the stack cpu-1 is a container image, whose engine is not asked"
    }
    assert not engines.questions
