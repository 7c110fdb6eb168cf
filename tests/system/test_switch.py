# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches on the real engine, in order, while a client never stops asking. Begins with tiny-a served."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import requests
import yaml
from testinfra.host import Host

from clients.line import Line, same
from page.browser import started
from page.chat import LAST, NUMBERS, answered, say, visit
from system.product import COLOUR_QUESTION, QUESTION, ROOT, Client, Frontdoor, answer_of, picture, play, until

SWITCH = ROOT / "switch.yml"
# What a stack's own parser has to say; our tables of its options know no such combination.
REFUSED = {"engine": {"settings": {"enable_auto_tool_choice": True}}}
REFUSAL = "tiny-refused: TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser"
# The page asks for what the model has to say; from here on, for as much as there is room for.
ON_AND_ON = """(() => {
  const ask = window.fetch;
  window.fetch = (url, told) =>
    ask(url, told?.body ? {...told, body: JSON.stringify({...JSON.parse(told.body), ignore_eos: true})} : told);
})()"""
RUNNING = re.compile(r"^vllm:num_requests_running{.*} ([0-9.]+)$", re.MULTILINE)
# The same weights as tiny-a, asked for vectors.
EMBED = {
    "engine": {"task": "embed", "served_model_name": "tiny-embed"},
    "canary": {
        "cases": [
            {"name": "vectors", "texts": ["Who are you?", "A box holds 3 red"], "compare": "vector", "dimension": 96},
            {
                "name": "similar_texts",
                "texts": ["Who are you?", "Who are you? Who?", "A box holds 3 red and 4 blue blocks."],
                "compare": "order",
            },
        ]
    },
}


def enabled(host: Host) -> list[str]:
    listing = host.check_output("systemctl list-unit-files 'b70-slot-*' --state=enabled --no-legend")
    return [line.split()[0] for line in listing.splitlines()]


def served(frontdoor: Frontdoor) -> tuple[str, bool]:
    status = frontdoor.status()
    return status["model_slot"]["name"], status["verified"]


@pytest.fixture(scope="module")
def client(frontdoor: Frontdoor) -> Iterator[Client]:
    client = Client(frontdoor)
    client.start()
    client.wait_answered("tiny-a")
    yield client
    client.stop()


def test_an_unknown_profile_is_refused_with_the_closest_names(frontdoor: Frontdoor) -> None:
    before = frontdoor.status()
    refused = play(SWITCH, "-e", "profile=tiny-bb")
    assert refused.code != 0
    assert "tiny-bb" in refused.output
    assert "tiny-b" in refused.output.replace("tiny-bb", "")
    assert refused.changed == 0, refused.output
    assert frontdoor.status()["frontdoor"]["state_sequence"] == before["frontdoor"]["state_sequence"]


def test_a_prediction_says_what_a_switch_would_do_and_does_nothing(host: Host, frontdoor: Frontdoor) -> None:
    before = frontdoor.status()
    predicted = play(SWITCH, "-e", "profile=tiny-b", "--check", "--diff")
    assert predicted.code == 0, predicted.output
    assert predicted.changed > 0, predicted.output
    assert "start b70-slot-main-tiny-b.service" in predicted.output
    assert frontdoor.status()["frontdoor"]["state_sequence"] == before["frontdoor"]["state_sequence"]
    assert served(frontdoor) == ("tiny-a", True)
    assert enabled(host) == ["b70-slot-main-tiny-a.service"]


def test_a_good_profile_is_served_verified_and_boots(client: Client, host: Host, frontdoor: Frontdoor) -> None:
    switched = play(SWITCH, "-e", "profile=tiny-b")
    assert switched.code == 0, switched.output
    assert served(frontdoor) == ("tiny-b", True)
    assert answer_of(frontdoor.ask()) == "I am tiny-b."
    assert enabled(host) == ["b70-slot-main-tiny-b.service"]
    assert f"frontdoor: {frontdoor.url}/v1" in switched.output
    client.wait_answered("tiny-b")


def test_a_healthy_model_that_answers_wrong_is_rolled_back(client: Client, host: Host, frontdoor: Frontdoor) -> None:
    failed = play(SWITCH, "-e", "profile=tiny-corrupt")
    assert failed.code != 0, failed.output
    # Long lines are folded on the screen, and a quote inside quotes is written twice.
    said = " ".join(failed.output.split()).replace("''", "'")
    told = re.search(r"canary case (\w+) of tiny-corrupt failed [^(]{0,80}\(expected '([^']+)'; got '([^']*)'\)", said)
    assert told is not None, failed.output
    assert told[1] in ("exact_ok", "copy_phrase", "small_arithmetic")
    assert told[2] != told[3]
    assert "tiny-b is served again, verified" in said
    assert served(frontdoor) == ("tiny-b", True)
    assert answer_of(frontdoor.ask()) == "I am tiny-b."
    assert enabled(host) == ["b70-slot-main-tiny-b.service"]
    assert client.is_alive()


def test_the_same_profile_again_changes_nothing(frontdoor: Frontdoor) -> None:
    again = play(SWITCH, "-e", "profile=tiny-b")
    assert again.code == 0, again.output
    assert again.changed == 0, again.output
    assert served(frontdoor) == ("tiny-b", True)


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Variables of a play: the lab's profiles, and beside them one that the engine refuses and one that embeds."""
    folder = tmp_path_factory.mktemp("more") / "profiles"
    shutil.copytree(ROOT / "inventory/lab_profiles", folder)
    parts = (("tiny-refused", "tiny-a", REFUSED), ("tiny-embed", "tiny-a", EMBED))
    for name, parent, part in parts:
        head = {"name": name, "extends": parent, "title": name, "status": "experiment"}
        Path(folder, f"{name}.yml").write_text(yaml.safe_dump({**head, **part}))
    return json.dumps({"b70_profile_dirs": [str(folder)]})


def test_a_profile_that_the_installed_engine_refuses_is_refused_in_its_words(
    host: Host, frontdoor: Frontdoor, more: str
) -> None:
    before = frontdoor.status()
    engine = host.check_output("systemctl show --property=InvocationID b70-slot-main-tiny-b.service")
    refused = play(SWITCH, "-e", "profile=tiny-refused", "-e", more)
    assert refused.code != 0
    assert REFUSAL in " ".join(refused.output.split()), refused.output
    assert frontdoor.status()["frontdoor"]["state_sequence"] == before["frontdoor"]["state_sequence"]
    # Not even the unit of the one that runs, which the play wrote anew, was restarted.
    assert host.check_output("systemctl show --property=InvocationID b70-slot-main-tiny-b.service") == engine


def test_a_refused_profile_keeps_no_other_from_being_served_such_as_one_that_embeds(
    client: Client, frontdoor: Frontdoor, more: str
) -> None:
    client.quiet.set()
    switched = play(SWITCH, "-e", "profile=tiny-embed", "-e", more)
    assert switched.code == 0, switched.output
    said = " ".join(switched.output.split())
    assert f"[WARNING]: the installed engine refuses 1 profile. {REFUSAL}" in said, switched.output
    assert "verified by 2 canary cases" in said, switched.output
    assert served(frontdoor) == ("tiny-embed", True)
    body = {"model": "tiny-embed", "input": "Who are you?"}
    answer = requests.post(f"{frontdoor.url}/v1/embeddings", json=body, timeout=180)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["data"][0]["embedding"]) == 96


def test_the_official_client_gets_the_engines_very_bytes_of_a_vector(frontdoor: Frontdoor, between: Line) -> None:
    """That client asks for vectors in base64 unless told otherwise, and decodes them."""
    texts = ["Who are you?", "A box holds 3 red and 4 blue blocks."]
    for url in (between.url, frontdoor.url):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=180) as official:
            vectors = [one.embedding for one in official.embeddings.create(model="tiny-embed", input=texts).data]
            raw = same(between, url, "/v1/embeddings")
            if raw:
                assert all(isinstance(one["embedding"], str) for one in json.loads(raw)["data"]), "base64 was asked for"
            plain = official.embeddings.create(model="tiny-embed", input=texts, encoding_format="float").data
            same(between, url, "/v1/embeddings")
        assert [len(vector) for vector in vectors] == [96, 96]
        assert vectors[0] != vectors[1]
        for vector, other in zip(vectors, plain, strict=True):
            assert vector == pytest.approx(other.embedding, rel=1e-5, abs=1e-6)


def test_a_model_that_thinks_is_verified_with_thinking_off_by_the_canary_that_every_profile_gets(
    client: Client, host: Host, frontdoor: Frontdoor
) -> None:
    switched = play(SWITCH, "-e", "profile=tiny-think")
    assert switched.code == 0, switched.output
    said = host.check_output("b70ctl status")
    names = "exact_ok copy_phrase small_arithmetic three_turns sampled_count long_prefill tool_call json_reply".split()
    assert ", ".join([*(f"{name} 2x" for name in names), "burst 4x"]) in said, said
    # Clients get what they ask for: nothing of the canary's way to ask reaches them.
    body = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 96, "temperature": 0}
    answer = requests.post(f"{frontdoor.url}/v1/chat/completions", json=body, timeout=180).json()
    answer = answer["choices"][0]["message"]
    assert answer["content"].strip() == "I am tiny-think."
    assert "I look for the answer" in answer["reasoning"]


def test_the_chat_page_folds_the_thoughts_and_stops_the_engine(frontdoor: Frontdoor) -> None:
    """In a browser. That it stops is what the engine says."""

    def running() -> float:
        (number,) = RUNNING.findall(requests.get(f"{frontdoor.url}/engine/metrics", timeout=60).text)
        return float(number)

    with started() as browser:
        visit(browser, f"{frontdoor.url}/")
        browser.press("details summary")
        browser.type("#temperature", "0")
        say(browser, QUESTION)
        told = answered(browser)
        assert "I am tiny-think." in told
        assert "I look for the answer" not in told
        assert NUMBERS.search(told), told
        browser.press("article.assistant summary")
        assert "I look for the answer" in browser.run(LAST.format("innerText"))
        browser.press("#new")
        browser.run(ON_AND_ON)
        say(browser, QUESTION)
        until(lambda: running() == 1, "the long answer")
        browser.press("#stop")
        assert "Stopped." in answered(browser)
        until(lambda: running() == 0, "the end of the generation")
        assert browser.complaints == []


def test_a_picture_for_a_model_of_text_is_refused_before_the_engine_sees_it(frontdoor: Frontdoor) -> None:
    refused = frontdoor.ask(picture("red"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "modality_unsupported")


def test_a_model_that_sees_passes_its_image_case_and_names_colours(client: Client, frontdoor: Frontdoor) -> None:
    switched = play(SWITCH, "-e", "profile=tiny-vision")
    client.quiet.clear()
    assert switched.code == 0, switched.output
    assert served(frontdoor) == ("tiny-vision", True)
    # Green was in no case of the canary, and without a picture there is nothing to name.
    named = {colour: answer_of(frontdoor.ask(picture(colour))) for colour in ("red", "green", "blue")}
    assert named == {"red": "Red", "green": "Green", "blue": "Blue"}
    assert answer_of(frontdoor.ask(COLOUR_QUESTION)) == "I see no picture."
    client.wait_answered("tiny-vision")
    assert client.is_alive()


def test_the_client_only_ever_saw_verified_models_or_a_reason_to_wait(client: Client) -> None:
    seen = client.stop()
    answers = [(one.model, one.text) for one in seen if one.status == 200]
    assert set(answers) == {(name, f"I am {name}.") for name in ("tiny-a", "tiny-b", "tiny-vision")}
    refused = [one for one in seen if one.status != 200]
    assert refused, "no request fell into a switch: the client did not see what this test is about"
    assert {one.status for one in refused} == {503}, refused
    assert all(one.retry_after.isdigit() and int(one.retry_after) > 0 for one in refused), refused
    assert all(one.text for one in refused)
