# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated engine behaves as it says: one process of it for most of this, told anew between the tests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import (
    GeneratorLoad,
    vllm_argv,
    vllm_records,
)
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import summary
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import RequestShape
from ansible_collections.arcpro.b70.plugins.module_utils._context_search import probes
from ansible_collections.arcpro.b70.plugins.module_utils._context_search.lengths import (
    Bounds,
    SearchEnd,
    Trial,
    next_length,
)
from ansible_collections.arcpro.b70.plugins.module_utils._context_search.trial import read_trial
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.streams import figures
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import token_prompts
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.stream import STREAMED
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.http import HttpClient
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.liveness import sampled
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from machine import LIMIT_S, free_port, wait_for
from unit.plugins.module_utils._slot.fake_host import FakeHost, profile_data

PROGRAM = Path(__file__).with_name("engine_sim.py")
WHO = {"messages": [{"role": "user", "content": "Who are you?"}]}


class Sim:
    """A simulated engine on a free port."""

    def __init__(self, folder: Path, *faults: str, arguments: Sequence[str] = (), **values: Any) -> None:
        self.folder = folder
        self.log: str | None = None
        self.port = free_port()
        self.tell(**{"faults": list(faults), "load_s": 0.05, "token_s": 0.001, **values})
        argv = [sys.executable, "-I", str(PROGRAM), "serve", "/models/x", "--port", str(self.port)]
        argv += ["--served-model-name", "sim-a", "--sim-dir", str(folder), "--shutdown-timeout", "0", *arguments]
        environment = {**os.environ, "INVOCATION_ID": "abc"}
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment)

    def tell(self, **told: Any) -> None:
        (self.folder / "sim-a.json").write_text(json.dumps(told))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()

    def chat(self, **more: Any) -> dict[str, Any]:
        status, text = self.ask("POST", "/v1/chat/completions", {**WHO, **more})
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def wait(self) -> Sim:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/health")[0] == 200:
                    return self
            time.sleep(0.02)
        raise AssertionError("it was never ready")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def says(self, words: str) -> bool:
        """Wait until these words are in its log, read here to the end of their line; False where it ends without."""
        assert self.process.stderr is not None
        limit = threading.Timer(LIMIT_S, self.process.kill)
        limit.start()
        try:
            return any(words in line for line in self.process.stderr)
        finally:
            limit.cancel()

    def close(self) -> str:
        """End it by force; return what it wrote into its log."""
        if self.log is None:
            self.process.kill()
            self.log = self.process.communicate()[1]
        return self.log


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    sim = Sim(tmp_path_factory.mktemp("sim"))
    yield sim.wait()
    sim.close()


@contextlib.contextmanager
def started(folder: Path, *faults: str, **values: Any) -> Iterator[Sim]:
    sim = Sim(folder, *faults, **values)
    try:
        yield sim
    finally:
        sim.close()


def core_of(sim: Sim) -> int:
    """The process that generates."""
    (core,) = map(int, Path(f"/proc/{sim.process.pid}/task/{sim.process.pid}/children").read_text().split())
    assert Path(f"/proc/{core}/cmdline").read_bytes() == b"VLLM::EngineCore\0"
    return core


def free(port: int) -> bool:
    """Can the port be had by somebody who does not mind connections of before?"""
    with socket.socket() as wants:
        wants.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            wants.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_it_shows_its_model_with_name_and_length(sim: Sim) -> None:
    (model,) = json.loads(sim.ask("GET", "/v1/models")[1])["data"]
    assert (model["id"], model["max_model_len"]) == ("sim-a", 512)
    assert sim.ask("GET", "/nothing")[0] == 404


def test_it_answers_a_chat_and_says_who_it_is(sim: Sim) -> None:
    sim.tell()
    answer = sim.chat(logprobs=True)
    assert text_of(answer) == "I am sim-a."
    assert answer["system_fingerprint"].startswith("sim-a abc ")
    assert [row["token"] for row in answer["choices"][0]["logprobs"]["content"]] == ["I", " am", " sim-a."]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert text_of(sim.chat(max_tokens=1)) == "I"
    status, text = sim.ask("POST", "/v1/completions", {"prompt": "Who are you?"})
    assert (status, json.loads(text)["choices"][0]["text"]) == (200, "I am sim-a.")


def test_it_streams_the_same_text_with_usage_and_an_end(sim: Sim) -> None:
    sim.tell()
    body = {**WHO, "stream": True, "stream_options": {"include_usage": True}}
    _status, text = sim.ask("POST", "/v1/chat/completions", body)
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant"}
    parts = [choice["delta"].get("content", "") for event in events for choice in event["choices"]]
    assert "".join(parts) == "I am sim-a."
    assert events[-1]["usage"]["completion_tokens"] == 3


def test_the_first_token_of_a_stream_is_told_from_the_last(sim: Sim) -> None:
    url = f"http://127.0.0.1:{sim.port}/v1/chat/completions"
    coming = HttpClient().post_together(url, [{**WHO, **STREAMED}] * 2, LIMIT_S)
    replies = [come[1:] for come in coming if come is not None]
    # One arrival for each event and the end.
    assert [len(reply.arrivals) for reply, _seconds in replies] == [6, 6]
    found = figures(replies, max(seconds for _reply, seconds in replies))
    assert (found["failed"], found["prompt_tokens"], found["output_tokens"]) == (0, 6, 6)
    assert 0 < found["mean_ttft_s"] < found["slowest_s"]


def test_tokens_are_made_and_taken_at_most_so_many(tmp_path: Path) -> None:
    sim = Sim(tmp_path, arguments=["--max-model-len", "4096"], most_tokens=20).wait()
    status, text = sim.ask("POST", "/tokenize", {"prompt": "Who are you?", "add_special_tokens": False})
    assert (status, json.loads(text)["tokens"]) == (200, [0, 1, 2])
    asked = {"prompt": [0, 1, 2] * 4, "max_tokens": 4, "ignore_eos": True}
    status, text = sim.ask("POST", "/v1/completions", asked)
    assert (status, json.loads(text)["usage"]["prompt_tokens"]) == (200, 12)
    status, text = sim.ask("POST", "/v1/completions", {**asked, "max_tokens": 9})
    assert (status, json.loads(text)["error"]["type"]) == (500, "InternalServerError")
    assert sim.end() == 0


def test_the_probes_of_a_search_fill_the_context(tmp_path: Path) -> None:
    sim = Sim(tmp_path, arguments=["--max-model-len", "1024"]).wait()
    fx = replace(FakeHost().effects(), http=HttpClient(), clock=SystemClock())
    url = f"http://127.0.0.1:{sim.port}"
    profile = parse_profile(json.dumps(profile_data("sim-a", engine__backend_url=url)), "sim-a.json")
    known, turn = token_prompts.tokens(fx, profile, LIMIT_S), 0
    for probe in probes.probes(1024, 4):
        sent = probes.bodies(profile, probe, known, turn)
        turn += len(sent)
        row = probes.send(fx, profile, probe, sent, LIMIT_S, lambda: None)
        assert (row["failed"], row["prompt_tokens"]) == (0, probe.requests * probe.prompt_tokens), row
    assert probe.prompt_tokens + probe.output_tokens == 1024
    assert sim.end() == 0


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({**WHO, "model": "other"}, 404, "The model `other` does not exist."),
        ({**WHO, "max_tokens": 600}, 400, "maximum context length is 512"),
        ([], 400, "no request"),
    ],
)
def test_it_refuses_as_vllm_does(sim: Sim, body: Any, status: int, words: str) -> None:
    got, text = sim.ask("POST", "/v1/chat/completions", body)
    assert got == status
    assert words in json.loads(text)["error"]["message"]


@pytest.mark.parametrize(
    ("fault", "text"), [("wrong-answer", "slh cobalt"), ("garbage", "!" * 64), ("empty", ""), ("", "I am sim-a.")]
)
def test_it_can_be_told_what_to_answer_while_it_runs(sim: Sim, fault: str, text: str) -> None:
    sim.tell(live=[fault])
    assert text_of(sim.chat()) == text


def test_one_answer_in_four_is_wrong(sim: Sim) -> None:
    sim.tell(live=["wrong-one-in-four"])
    texts = [text_of(sim.chat()) for _number in range(8)]
    assert texts.count("slh cobalt") == 2


def test_the_canary_is_counted_with_what_was_wrong(tmp_path: Path) -> None:
    with started(tmp_path) as sim:
        sim.wait().chat(seed=20260607)
        sim.tell(live=["wrong-answer"])
        assert sim.chat(seed=20260607)["system_fingerprint"] == "sim-a abc 2 1"
        assert sim.chat()["system_fingerprint"] == "sim-a abc 2 1"


def test_other_faults_that_show_in_an_answer(sim: Sim) -> None:
    sim.tell(live=["nan", "wrong-id", "wrong-length", "health-500"])
    answer = sim.chat(logprobs=True, max_tokens=8)
    value = answer["choices"][0]["logprobs"]["content"][0]["logprob"]
    assert value != value
    (model,) = json.loads(sim.ask("GET", "/v1/models")[1])["data"]
    assert (model["id"], model["max_model_len"]) == ("another-model", 99)
    assert sim.ask("GET", "/health")[0] == 500


def running(sim: Sim) -> int | None:
    return sampled(0.0, KINDS["vllm"].metrics, sim.ask("GET", "/metrics")[1], None).engine


@pytest.mark.real_time
@pytest.mark.parametrize("fault", ["hold-stream", "slow-stream"])
def test_a_stream_under_way_is_as_slow_as_it_is_told_to_be(sim: Sim, fault: str) -> None:
    sim.tell(live=[fault])
    words = "long " * 180
    connection = http.client.HTTPConnection("127.0.0.1", sim.port, timeout=LIMIT_S)
    with contextlib.closing(connection):
        body = {"messages": [{"role": "user", "content": words.strip()}], "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        response = connection.getresponse()
        heard = 0
        while heard < 1:
            heard += b'"content"' in response.readline()
        # One that was asked later and does not stream overtakes it.
        assert text_of(sim.chat(messages=body["messages"])).split().count("long") == 180
        # The engine counts a request until it has written its answer.
        wait_for(lambda: running(sim) == 1, "the stream alone is under way")
        sim.tell()
        heard += response.read().count(b'"content"')
    assert heard == 182


def test_it_notices_a_client_that_leaves(tmp_path: Path) -> None:
    with started(tmp_path, token_s=0.05) as sim:
        sim.wait()
        with socket.create_connection(("127.0.0.1", sim.port)) as client:
            body = json.dumps({"messages": [{"role": "user", "content": "long " * 100}]}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            client.sendall(head + body)
        assert sim.says("Aborted a request")


def test_what_it_was_told_holds_for_its_next_start_only(tmp_path: Path) -> None:
    with started(tmp_path, "slow-ready", live=["never-ready"]) as sim:
        until = time.monotonic() + LIMIT_S
        status = 0
        while status == 0 and time.monotonic() < until:
            with contextlib.suppress(OSError):
                status = sim.ask("GET", "/health")[0]
        assert status == 503
        sim.tell(faults=["exit-at-start"])
        sim.wait()
        assert sim.end() == 0


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("exit-at-start", 3, "length is 352"),
        ("end-at-start", 0, "died unexpectedly"),
        ("end", 0, "died unexpectedly"),
        ("die", 1, "DEVICE_LOST"),
    ],
)
def test_it_ends_by_itself(tmp_path: Path, fault: str, code: int, words: str) -> None:
    with started(tmp_path, fault) as sim:
        if not fault.endswith("at-start"):
            sim.wait()
            with contextlib.suppress(OSError, http.client.HTTPException):
                sim.chat()
        assert sim.process.wait(LIMIT_S) == code
        assert words in sim.close()


def test_its_shared_memory_stays_when_it_is_killed(tmp_path: Path) -> None:
    for number, left in ((signal.SIGTERM, False), (signal.SIGKILL, True)):
        with started(tmp_path, "leave-shm") as sim:
            segment = Path(f"/dev/shm/sim-sim-a-{sim.wait().process.pid}")
            assert segment.exists()
            sim.end(number)
            assert segment.exists() is left
            segment.unlink(missing_ok=True)


@pytest.mark.real_time
def test_it_can_outstay_a_sigterm(tmp_path: Path) -> None:
    with started(tmp_path, "ignore-term") as sim:
        sim.wait().process.terminate()
        time.sleep(0.2)
        assert text_of(sim.chat()) == "I am sim-a."


def test_the_port_stays_with_the_keeper(tmp_path: Path) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-I", str(PROGRAM), "keeper", "--sim-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert keeper.stderr is not None
        assert "ready" in keeper.stderr.readline()
        with started(tmp_path, "keep-port", hold_s=3600) as sim:
            sim.wait().end()
            with socket.socket() as wants, pytest.raises(OSError, match="in use"):
                wants.bind(("127.0.0.1", sim.port))
            keeper.send_signal(signal.SIGURG)
            until = time.monotonic() + LIMIT_S
            while not free(sim.port):
                assert time.monotonic() < until, "the keeper does not let go of it"
                time.sleep(0.05)
    finally:
        keeper.kill()
        keeper.communicate()


def test_a_fault_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    with started(tmp_path, "no-such-fault") as sim:
        assert sim.process.wait(LIMIT_S) != 0
        assert "no such fault" in sim.close()


def test_a_call_an_answer_after_a_schema_and_a_thought(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "order_cloth", "parameters": {}}}
    order = [{"role": "user", "content": "Order 7 pieces of satin. Use the tool."}]
    count = [{"role": "user", "content": "A box holds 3 red and 4 blue blocks. Give the number of red blocks."}]
    sim = Sim(tmp_path, thinks=True).wait()
    try:
        quiet = {"chat_template_kwargs": {"enable_thinking": False}}
        choice = sim.chat(messages=order, tools=[tool], **quiet)["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
        assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {
            "cloth": "satin",
            "pieces": 7,
        }
        shaped = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
        said = sim.chat(messages=count, response_format=shaped, **quiet)["choices"][0]["message"]["content"]
        assert json.loads(said) == {"red": 3, "blue": 4, "all": 7}
        assert "{" not in sim.chat(messages=count, **quiet)["choices"][0]["message"]["content"]
        assert sim.chat(**quiet)["choices"][0]["message"]["content"] == "I am sim-a."
        loud = sim.chat()["choices"][0]["message"]["content"]
        assert loud.startswith("<think>")
        assert loud.endswith("</think>\n\nI am sim-a.")
        cut = sim.chat(max_tokens=4)["choices"][0]
        assert (cut["finish_reason"], "</think>" in cut["message"]["content"]) == ("length", False)
    finally:
        sim.end()


def test_it_answers_wrongly_to_the_questions_that_it_is_told(tmp_path: Path) -> None:
    with started(tmp_path, wrong_at=[2]) as sim:
        sim.wait()
        canary = {"seed": 20260607, "temperature": 0}
        said = [sim.chat(**asked)["choices"][0]["message"]["content"] for asked in (canary, {}, canary, canary)]
    assert said == ["I am sim-a.", "I am sim-a.", "slh cobalt", "I am sim-a."]


def test_a_search_reads_the_published_table_from_its_log(tmp_path: Path) -> None:
    """Each trial is a start of this engine, which says how much room its length leaves."""
    table = [[4096, 291995], [4480, 292317], [4864, 292589], [7680, 405664], [10368, 507081], [15616, 667253]]
    trials: list[Trial] = []
    while isinstance(step := next_length(trials, 64, 128, Bounds(1024, 15616)), int):
        sim = Sim(tmp_path, arguments=["--max-model-len", str(step)], kv_table=table)
        sim.wait()
        trials.append(read_trial(step, sim.close().splitlines(), 0.0))
    assert step == SearchEnd(4480)
    assert (len(trials), trials[0].kv_tokens, trials[0].concurrency) == (6, 667253, 42.73)
    assert Trial(4480, 292317, 65.25) in trials


def test_its_generator_measures_its_speed_as_the_product_calls_it(tmp_path: Path) -> None:
    with started(tmp_path, token_s=0.01) as sim:
        sim.wait()
        load = GeneratorLoad(
            f"http://127.0.0.1:{sim.port}", "sim-a", "/models/x", RequestShape("s", 20, 32, 2), 2, 7, 60.0
        )
        argv = vllm_argv(str(PROGRAM), load, str(tmp_path / "report.json"))
        subprocess.run([sys.executable, "-I", *argv], check=True, timeout=LIMIT_S)
    records = vllm_records(json.loads((tmp_path / "report.json").read_text()), load)
    figures = summary(records)
    assert (figures["requests"], figures["failed"], figures["lacking"], figures["prompt_tokens"]) == (4, 0, {}, 80)
    assert figures["itl_s"]["p50"] >= 0.01


@pytest.mark.real_time
def test_a_wedged_engine_is_told_from_a_slow_one_by_its_metrics(sim: Sim) -> None:
    def running_and_cached() -> tuple[int | None, float]:
        status, text = sim.ask("GET", "/metrics")
        assert (status, sim.ask("GET", "/health")[0]) == (200, 200)
        look = sampled(0.0, KINDS["vllm"].metrics, text, None)
        return look.engine, look.marks["vllm:kv_cache_usage_perc"]

    sim.tell(live=["wedge"])
    client = threading.Thread(target=sim.chat)
    client.start()
    while running_and_cached()[0] == 0:
        time.sleep(0.02)
    before = running_and_cached()
    time.sleep(0.3)
    assert running_and_cached() == before
    sim.tell(live=[])
    client.join(LIMIT_S)
    until = time.monotonic() + LIMIT_S
    while running_and_cached()[0] != 0:  # a request counts for a moment longer than its client waits
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.real_time
def test_a_core_that_is_stopped_generates_nothing_while_the_server_answers(sim: Sim) -> None:
    def looked() -> tuple[int, tuple[int | None, float]]:
        status, text = sim.ask("GET", "/metrics")
        assert (status, sim.ask("GET", "/health")[0], sim.ask("GET", "/v1/models")[0]) == (200, 200, 200)
        look = sampled(0.0, KINDS["vllm"].metrics, text, None)
        return int(look.marks["vllm:generation_tokens_total"]), (look.engine, look.marks["vllm:kv_cache_usage_perc"])

    core = core_of(sim)
    os.kill(core, signal.SIGSTOP)
    answers: list[dict[str, Any]] = []
    asked = [threading.Thread(target=lambda: answers.append(sim.chat())) for _client in range(3)]
    for client in asked:
        client.start()
    while looked()[1][0] != 3:
        time.sleep(0.02)
    before = looked()
    time.sleep(0.3)
    assert looked() == before
    os.kill(core, signal.SIGCONT)
    for client in asked:
        client.join(LIMIT_S)
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == ["I am sim-a."] * 3
    assert looked()[0] > before[0]


def test_what_it_is_told_holds_until_a_file_is_written(sim: Sim, tmp_path: Path) -> None:
    file = tmp_path / "done"
    file.touch()
    sim.tell(live=["health-500"], until=str(file))
    assert sim.ask("GET", "/health")[0] == 500
    file.write_text("x")
    assert sim.ask("GET", "/health")[0] == 200
    sim.tell()


def test_a_core_that_is_stopped_ends_with_the_engine(tmp_path: Path) -> None:
    with started(tmp_path) as sim:
        sim.wait()
        core = core_of(sim)
        assert sim.end() == 0
        until = time.monotonic() + LIMIT_S
        while Path(f"/proc/{core}/cmdline").exists():
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_long_prefill_takes_of_the_cache_chunk_by_chunk(tmp_path: Path) -> None:
    sim = Sim(tmp_path, prefill_s=0.5, chunk_s=0.1).wait()
    try:
        sim.chat()
        text = sim.ask("GET", "/metrics")[1]
        assert sampled(0.0, KINDS["vllm"].metrics, text, None).marks["vllm:kv_cache_usage_perc"] > 0
    finally:
        sim.close()


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    with started(tmp_path, arguments=["--enable-sleep-mode"]) as sim:
        yield sim.wait()


SLEEP, WAKE = ("POST", "/sleep?level=1"), ("POST", "/wake_up")


def asleep(sim: Sim) -> bool:
    status, text = sim.ask("GET", "/is_sleeping")
    assert status == 200
    return bool(json.loads(text)["is_sleeping"])


def test_it_sleeps_and_wakes_as_vllm_does(sleeper: Sim) -> None:
    kind = KINDS["vllm"].sleep
    assert kind is not None
    assert (kind.fall[1], kind.rise[1]) == ([(SLEEP[1], {})], [(WAKE[1], {})])
    assert kind.asks == ("/is_sleeping", "is_sleeping")
    right = sleeper.chat()["choices"]
    assert not asleep(sleeper)
    assert json.loads(sleeper.ask(*SLEEP)[1]) == {"status": "sleeping", "level": 1}
    assert asleep(sleeper)
    assert sleeper.ask("GET", "/health")[0] == 200
    assert sleeper.ask("POST", "/v1/chat/completions", WHO)[0] == 500
    assert json.loads(sleeper.ask(*WAKE)[1]) == {"status": "awake", "tags": None}
    assert not asleep(sleeper)
    assert sleeper.chat()["choices"] == right


def come_back(sim: Sim) -> list[int]:
    """Ask for what brings it back from level 2, and return the statuses. It sleeps until its cache is back."""
    kind, statuses = KINDS["vllm"].sleep, []
    assert kind is not None
    for path, body in kind.rise[2]:
        assert asleep(sim) is (path != "/reset_prefix_cache")
        statuses.append(sim.ask("POST", path, body)[0])
    return statuses


def test_without_its_weights_it_answers_garbage_until_it_has_read_them(sleeper: Sim) -> None:
    right = sleeper.chat()["choices"]
    assert json.loads(sleeper.ask("POST", "/sleep?level=2")[1]) == {"status": "sleeping", "level": 2}
    assert sleeper.ask("POST", "/collective_rpc", {"method": "reload_weights"})[0] == 500
    sleeper.ask(*WAKE)
    assert sleeper.chat()["choices"][0]["message"]["content"] == "!" * 64
    sleeper.ask("POST", "/sleep?level=2")
    assert come_back(sleeper) == [200] * 4
    assert not asleep(sleeper)
    assert sleeper.chat()["choices"] == right


@pytest.mark.parametrize(("fault", "status"), [("forgets-reload", 200), ("fails-reload", 500)])
def test_it_may_come_back_without_its_weights(sleeper: Sim, fault: str, status: int) -> None:
    sleeper.tell(live=[fault])
    sleeper.ask("POST", "/sleep?level=2")
    assert come_back(sleeper) == [200, status, 200, 200]
    assert sleeper.chat()["choices"][0]["message"]["content"] == "!" * 64


def test_only_an_engine_in_dev_mode_has_a_sleep(tmp_path: Path) -> None:
    with started(tmp_path, arguments=["--enable-sleep-mode"]) as sim:
        sim.wait()
        assert {sim.ask(*SLEEP)[0], sim.ask(*WAKE)[0], sim.ask("GET", "/is_sleeping")[0]} == {404}


@pytest.mark.parametrize(
    ("fault", "sleeps", "wakes", "says"),
    [
        ("never-sleeps", False, True, None),
        ("never-wakes", True, False, None),
        ("wrong-awake", True, True, "slh cobalt"),
        ("garbage-awake", True, True, "!" * 64),
        ("forgets-asleep", True, True, ""),
    ],
)
def test_its_faults_come_with_the_sleep(sleeper: Sim, fault: str, sleeps: bool, wakes: bool, says: str | None) -> None:
    sleeper.tell(live=[fault])
    right = sleeper.chat()["choices"][0]["message"]["content"]
    assert right.startswith("I am")
    sleeper.ask(*SLEEP)
    assert asleep(sleeper) is sleeps
    sleeper.ask(*WAKE)
    assert asleep(sleeper) is not wakes
    if says is not None:
        assert sleeper.chat()["choices"][0]["message"]["content"] == says


def test_it_hangs_and_dies_asleep(sleeper: Sim) -> None:
    for fault, path in (("hang-sleep", SLEEP[1]), ("hang-wake", WAKE[1]), ("hang-reload", "/collective_rpc")):
        sleeper.tell(live=[fault])
        body = {"method": "reload_weights"}
        reply = HttpClient().post(f"http://127.0.0.1:{sleeper.port}{path}", body, 0.2)
        assert reply.error == "timeout"
    sleeper.tell(live=["die-asleep"])
    sleeper.ask(*SLEEP)
    assert sleeper.process.wait(LIMIT_S) == 139
