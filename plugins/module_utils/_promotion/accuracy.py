# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accuracy of a served model: the share of easy questions it answers correctly, by lm-evaluation-harness.

The harness asks the chat endpoint as a client does. It runs as an unprivileged user, gets its tasks and their data as
files, and reaches no hub.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._evidence import program
from .._slot.model.profile import Profile, Question
from .client import error_of
from .questions import usual

Say = Callable[[str], None]
Watch = Callable[[], None]

_ANSWER_TOKENS = 64
_PROMPT_TOKENS = 512  # enough for the longest question
_AT_ONCE = 8
_ATTEMPTS = 5  # the frontdoor may refuse a request while clients hold all permits
_AROUND_S = 300.0  # for the harness to load its libraries and write its report
_REPORT = re.compile(r"report_.*\.json")
_ANSWER = "answer"
_METRIC = "exact_match"
_DONE = re.compile(r"Requesting API: +\d+%\|[^|]*\| (\d+)/(\d+)")
_REFUSED = re.compile(r"API request failed! Status code: (\d+), Response text: (.*?)\. Retrying\.\.\.", re.DOTALL)
# The part of a reply that counts as its answer. The first form that fits all correct answers of a task decides.
# `{words}` stands for these answers: a reply that names two different ones has not decided, and does not match.
_ONE = r"\A(?:(?!\b(?:{words})\b).)*\b({words})\b(?:(?!\b(?!\1\b)(?:{words})\b).)*\Z"
_FORMS: tuple[tuple[str, str], ...] = (
    (r"-?\d+", r"-?\d[\d,]*"),
    (r"[A-Z]", f"(?s){_ONE}"),
    (r"\w+", f"(?is){_ONE}"),
)
_WITHOUT = r"[\s.,;:!*'\"`]+"


class AccuracyError(Exception):
    """The accuracy can't be measured; the text says why and what to do."""


@dataclass(frozen=True)
class QuestionSet:
    """The questions, and how to read the answers.

    :param target: the URL without a path, such as ``http://127.0.0.1:8000``.
    :param model: the name under which the model is served.
    :param at_once: the number of requests at once.
    :param tokens: the most tokens of an answer, including the model's thoughts.
    :param limit_s: seconds for all questions together.
    :param body: what every request has in addition.
    :param after: the answer is the text after this, and a reply without it has no answer; empty if all of it is the
        answer.
    """

    target: str
    model: str
    questions: tuple[Question, ...]
    threshold: float
    at_once: int
    tokens: int
    limit_s: float
    body: Mapping[str, Any] = field(default_factory=dict)
    after: str = ""
    api_key: str = ""


def asked_of(profile: Profile, target: str, api_key: str = "") -> QuestionSet:
    """Return what to ask a profile whose model chats."""
    engine, rules = profile.engine, profile.frontdoor
    kwargs = {**(rules.chat_template_kwargs or {}), **(engine.reasoning.template_kwargs if engine.reasoning else {})}
    tokens = _ANSWER_TOKENS + engine.reasoning_room
    if engine.max_model_len is not None:
        tokens = max(_ANSWER_TOKENS, min(tokens, engine.max_model_len - _PROMPT_TOKENS))
    return QuestionSet(
        target=target,
        model=engine.served_model_name,
        questions=profile.accuracy.questions or usual(),
        threshold=profile.accuracy.threshold,
        at_once=min(_AT_ONCE, rules.max_active_generations),
        tokens=tokens,
        limit_s=profile.accuracy.limit_s,
        body={"chat_template_kwargs": kwargs} if kwargs else {},
        after=engine.reasoning.tags[1] if engine.reasoning and engine.reasoning.how == "inline" else "",
        api_key=api_key,
    )


def measure(asked: QuestionSet, python: str, user: str, say: Say, watch: Watch) -> dict[str, Any]:
    """Return ``{score, threshold, questions, tasks}``: the share of correct answers, of all questions and of each task.

    :param python: the Python of the environment that contains the harness.
    :param user: the user that runs the harness, if this process is root.
    :param say: is called with the progress.
    :param watch: is called repeatedly; an exception from it ends the harness.
    :raises AccuracyError: if there is no score.
    """
    if not os.path.exists(python):
        raise AccuracyError(f"{python} is not there: run promote.yml with the tag install")
    with program.prepared("lm-eval", user, AccuracyError, asked.api_key) as running:
        for name, text in files_of(asked, running.folder).items():
            running.hand_over(name, text)
        argv = [python, "-m", "lm_eval", "run", "--config", running.path("config.json")]
        environment = {"OPENAI_API_KEY": asked.api_key, "LMEVAL_LOG_LEVEL": "WARNING"}
        heard = program.changes(progress_of, say)
        try:
            running.run(argv, environment, asked.limit_s + _AROUND_S, heard, watch, cause_of)
        except program.OverLimit:
            raise AccuracyError(
                f"the questions were not answered within {asked.limit_s:g} s; see accuracy.limit_s of the profile"
            ) from None
        reports = [name for name in sorted(os.listdir(running.folder)) if _REPORT.fullmatch(name)]
        if not reports:
            raise AccuracyError("lm-eval ended without a report")
        return judged(running.report(reports[-1]), asked)


def files_of(asked: QuestionSet, folder: str) -> dict[str, str]:
    """Return the files that the harness reads, by name: its configuration and the tasks with questions. No key."""
    by_task = _by_task(asked.questions)
    config = {
        "model": "local-chat-completions",
        "model_args": {
            "model": asked.model,
            "base_url": f"{asked.target.rstrip('/')}/v1/chat/completions",
            "num_concurrent": asked.at_once,
            "max_retries": _ATTEMPTS,
            "timeout": int(asked.limit_s),
            # This is the host's own frontdoor; its certificate names the address that clients use.
            "verify_certificate": False,
            "max_length": asked.tokens + _PROMPT_TOKENS,
        },
        "tasks": [f"{folder}/{name}.yaml" for name in by_task],
        "apply_chat_template": True,
        "log_samples": False,
        "output_path": f"{folder}/report.json",
        "device": "cpu",
    }
    files = {"config.json": json.dumps(config)}
    for name, questions in by_task.items():
        # JSON is valid YAML.
        files[f"{name}.yaml"] = json.dumps(_task(name, questions, asked, folder))
        files[f"{name}.jsonl"] = "".join(
            json.dumps({"prompt": question.prompt, "answer": question.answer}) + "\n" for question in questions
        )
    return files


def judged(report: Mapping[str, Any], asked: QuestionSet) -> dict[str, Any]:
    """Return the scores in a report of the harness; raise AccuracyError if it is not about these questions."""
    counts = {name: len(questions) for name, questions in _by_task(asked.questions).items()}
    try:
        done = {name: int(report["n-samples"][_named(name)]["effective"]) for name in counts}
        tasks = {name: float(report["results"][_named(name)][f"{_METRIC},{_ANSWER}"]) for name in counts}
    except (LookupError, TypeError, ValueError) as error:
        raise AccuracyError(f"lm-eval's report has no readable {error}: is it another version?") from error
    if done != counts:
        raise AccuracyError(f"lm-eval counted {sum(done.values())} of {sum(counts.values())} questions")
    total = sum(counts.values())
    score = sum(tasks[name] * count for name, count in counts.items()) / total
    return {
        "score": round(score, 4),
        "threshold": asked.threshold,
        "questions": total,
        "tasks": {name: round(value, 4) for name, value in tasks.items()},
    }


def progress_of(log: str) -> str:
    """Return how many questions the harness last reported as answered; empty if it reported none."""
    found = _DONE.findall(log)
    return f"{found[-1][0]} of {found[-1][1]} questions answered" if found else ""


def cause_of(log: str) -> str:
    """Return why the harness failed. Its last lines often say only that its connections were closed."""
    found = _REFUSED.findall(log)
    if not found:
        return ""
    status, text = found[-1]
    return (
        f"a question was answered with {status}: {' '.join(str(error_of(text).get('message') or text).split())[:300]}"
    )


def _by_task(questions: Sequence[Question]) -> dict[str, list[Question]]:
    found: dict[str, list[Question]] = {}
    for question in questions:
        found.setdefault(question.task, []).append(question)
    return found


def _named(task: str) -> str:
    """Return a name that no task of the harness has; it has some of its own that are called arithmetic."""
    return f"b70_{task}"


def _task(name: str, questions: Sequence[Question], asked: QuestionSet, folder: str) -> dict[str, Any]:
    patterns = []
    if asked.after:
        # The harness can cut off thoughts itself, but it takes a thought that never ends for the answer.
        patterns.append(f"(?s).*{re.escape(asked.after)}(.*)")
    for form, pattern in _FORMS:
        if all(re.fullmatch(form, question.answer) for question in questions):
            words = "|".join(sorted({question.answer for question in questions}))
            patterns.append(pattern.replace("{words}", words))
            break
    steps: list[dict[str, Any]] = [
        {"function": "regex", "regex_pattern": pattern, "group_select": -1} for pattern in patterns
    ]
    steps.append({"function": "take_first"})
    return {
        "task": _named(name),
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{folder}/{name}.jsonl"}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "prompt",
        "doc_to_target": "answer",
        "generation_kwargs": {"until": [], "temperature": 0, "max_gen_toks": asked.tokens, **asked.body},
        "filter_list": [{"name": _ANSWER, "filter": steps}],
        "metric_list": [
            {
                "metric": _METRIC,
                "aggregation": "mean",
                "higher_is_better": True,
                "ignore_case": True,
                "regexes_to_ignore": [_WITHOUT],
            }
        ],
        "metadata": {"version": 1},
    }
