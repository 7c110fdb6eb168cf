# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import host, plan

TORCH = plan.InstallStep("torch", f"torch==2.14.0+xpu --hash=sha256:{'a' * 64}", True, index="https://vendor/whl/xpu")
VLLM = plan.InstallStep("vllm", "vllm==0.31.0+xpu", False, index="https://wheels/0.31.0/xpu")
SHIM = plan.InstallStep(
    "shim", f"triton==3.8.0+xpu --hash=sha256:{'b' * 64}", True, url="https://host/triton-3.8.0.whl"
)
LOCK = plan.InstallStep(
    "lock", "# made by uv\nnumpy==2.1 \\\n    --hash=sha256:0\nidna==3 ; python_version > '3' \\\n", True
)
# As uv 0.13 says it.
REFUSED = """Using Python 3.12.3 environment at: venv
error: Request failed after 3 retries in 5.5s
  cause: Failed to fetch: https://me:secret@vendor/whl/xpu/torch/
  cause: error sending request for url (https://me:secret@vendor/whl/xpu/torch/)
  cause: client error (Connect)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
MISMATCH = """error: Failed to download `torch==2.14.0+xpu`
  cause: Hash mismatch for `torch==2.14.0+xpu`

         Expected:
           sha256:aaaa

         Computed:
           sha256:cccc
"""
LACKING = """error: No solution found when resolving dependencies
  cause: Because there is no version of vllm==0.31.0+xpu, your requirements are unsatisfiable.
"""


def places(step: plan.InstallStep, sources: plan.Sources) -> list[tuple[bool, tuple[str, ...]]]:
    return [(one.offline, plan.options_of(one)) for one in plan.attempts(step, sources)]


def test_the_cache_comes_first_then_the_usual_places_then_the_vendor():
    own = ("--default-index", "https://vendor/whl/xpu")
    sources = plan.Sources(extra_index_urls=("https://site/simple",))
    assert places(TORCH, sources) == [
        (True, ("--offline",)),
        (True, (*own, "--offline", "--no-config")),
        (False, ()),
        (False, (*own, "--no-config")),
    ]
    extra = [one.variables.get("UV_EXTRA_INDEX_URL") for one in plan.attempts(TORCH, sources)]
    assert extra == ["https://site/simple", None, "https://site/simple", None]


@pytest.mark.parametrize("no_index", [False, True])
def test_passwords_of_addresses_are_neither_in_arguments_nor_in_messages(no_index: bool):
    links, extra = (
        ("http://u:hunter2@mirror/a/", "/srv/wheels"),
        ("https://u:hunter2@site/simple", "https://other/simple"),
    )
    for step in (TORCH, VLLM):
        for one in plan.attempts(step, plan.Sources(links, extra, no_index)):
            assert "hunter2" not in " ".join((one.place, *plan.options_of(one)))
    told = plan.attempts(TORCH, plan.Sources(links, extra, no_index))[0].variables
    assert told["UV_FIND_LINKS"] == "http://u:hunter2@mirror/a/,/srv/wheels"
    assert told.get("UV_EXTRA_INDEX_URL") == (None if no_index else " ".join(extra))


def test_with_no_index_nobody_outside_is_asked():
    sources = plan.Sources(find_links=("http://mirror/wheels/",), extra_index_urls=("https://site",), no_index=True)
    for step in (TORCH, VLLM, SHIM, LOCK):
        asked = [one for one in plan.attempts(step, sources) if not one.offline]
        assert all("--no-index" in one.options for one in asked)
        assert all(one.variables["UV_FIND_LINKS"] == "http://mirror/wheels/" for one in asked)
        assert not any("https" in word for one in asked for word in (*one.options, *one.variables.values()))


@pytest.mark.parametrize("links", [(), ("http://mirror/wheels/",)])
def test_without_a_hash_only_its_own_address_and_the_mirror_count(links: tuple[str, ...]):
    sources = plan.Sources(find_links=links, extra_index_urls=("https://site/simple",))
    made = plan.attempts(VLLM, sources)
    assert all(one.alone for one in made)
    assert not any("https://site/simple" in word for one in made for word in one.variables.values())
    assert [one.place for one in made if not one.offline] == [*links, "https://wheels/0.31.0/xpu"]


def test_one_address_alone_is_asked_without_what_names_others():
    place = host.EnvironmentPaths(Path("e"), "uv", Path("c"), Path("p"))
    place.variables = {"UV_DEFAULT_INDEX": "https://site", "UV_CONFIG_FILE": "x", "HTTPS_PROXY": "p"}
    assert place.environment(alone=True).keys() & place.variables.keys() == {"HTTPS_PROXY"}
    assert place.environment()["UV_DEFAULT_INDEX"] == "https://site"


def test_a_file_is_asked_for_by_its_address_only_there():
    usual, own = plan.attempts(SHIM, plan.Sources())[2:]
    assert plan.requirements_for(SHIM, usual).startswith("triton==3.8.0+xpu --hash=")
    assert plan.requirements_for(SHIM, own) == f"triton @ https://host/triton-3.8.0.whl --hash=sha256:{'b' * 64}\n"
    assert plan.options_of(own) == ("--no-index", "--no-config")


def test_what_a_lock_names():
    assert LOCK.names() == ("numpy==2.1", "idna==3")
    assert TORCH.names() == ("torch==2.14.0+xpu",)


def test_where_a_wheel_comes_from_counts_only_without_a_hash():
    def moved(step: plan.InstallStep) -> plan.InstallStep:
        return plan.InstallStep("other words", step.requirements, step.hashed, index="https://elsewhere")

    assert TORCH.digest() == moved(TORCH).digest()
    assert VLLM.digest() != moved(VLLM).digest()
    assert len({step.digest() for step in (TORCH, VLLM, SHIM, LOCK)}) == 4


def found(wanted: plan.WantedEnvironment) -> dict[str, object] | None:
    return plan.parse(json.dumps(plan.record(wanted, "/usr/bin/python3.12", {}, [])))


class TestDecide:
    BASE = plan.WantedEnvironment("3.12", (TORCH, LOCK))
    MORE = plan.WantedEnvironment("3.12", (TORCH, LOCK, SHIM))

    def test_nothing_for_what_is_there(self):
        assert plan.decide(self.BASE, found(self.BASE), True).kind == "nothing"

    @pytest.mark.parametrize(
        ("wanted", "usable", "why"),
        [
            (plan.WantedEnvironment("3.12", (TORCH,)), True, "it holds something else"),
            (plan.WantedEnvironment("3.12", (LOCK, TORCH)), True, "it holds something else"),
            (plan.WantedEnvironment("3.13", (TORCH, LOCK)), True, "it is for Python 3.12"),
            (
                plan.WantedEnvironment("3.12", (TORCH, LOCK), (plan.Alias("a", "1", "b"),)),
                True,
                "it holds something else",
            ),
            (BASE, False, "its Python cannot be run"),
        ],
    )
    def test_anew_for_anything_else(self, wanted: plan.WantedEnvironment, usable: bool, why: str):
        assert plan.decide(wanted, found(self.BASE), usable) == plan.Work("anew", why=why)

    @pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 2}'])
    def test_what_is_no_record_is_no_environment(self, text: str | None):
        assert plan.decide(self.BASE, plan.parse(text), True).why == "there is no finished environment"

    def test_further_steps_go_on_and_announced_ones_stay(self):
        assert plan.decide(self.MORE, found(self.BASE), True) == plan.Work("go on", 2, "there are further steps")
        announced = plan.WantedEnvironment("3.12", (TORCH, LOCK), more_follows=True)
        assert plan.decide(announced, found(self.MORE), True).kind == "nothing"
        assert plan.decide(self.BASE, found(self.MORE), True).kind == "anew"


def test_a_failure_names_each_place_the_address_and_what_to_do():
    usual, own = plan.attempts(TORCH, plan.Sources())[2:]
    cached = plan.attempts(TORCH, plan.Sources())[0]
    text = plan.failure(TORCH, "/opt/b70/env", [(cached, "offline"), (usual, LACKING), (own, REFUSED)], "by a proxy")
    first, usual_said, own_said, advice = text.splitlines()
    assert first == "torch could not be installed into /opt/b70/env."
    assert usual_said.startswith("the indexes that uv is configured for on this host: error: No solution found")
    assert usual_said.endswith("no version of vllm==0.31.0+xpu, your requirements are unsatisfiable.")
    assert own_said == (
        "https://vendor/whl/xpu: error: Request failed after 3 retries in 5.5s "
        "cause: Failed to fetch: https://<secret>:<secret>@vendor/whl/xpu/torch/ "
        "cause: Connection refused (os error 111)"
    )
    assert advice.startswith(
        "uv went by a proxy. Let the host reach https://<secret>:<secret>@vendor/whl/xpu/torch/, set a proxy"
    )


def test_a_changed_wheel_is_no_matter_of_reach():
    own = plan.attempts(TORCH, plan.Sources())[-1]
    text = plan.failure(TORCH, "/opt/b70/env", [(own, MISMATCH)])
    assert "Expected: sha256:aaaa Computed: sha256:cccc" in text
    assert "not what is pinned" in text
    assert "Let the host reach" not in text


def test_what_nobody_has_is_to_be_put_there():
    own = plan.attempts(VLLM, plan.Sources())[-1]
    assert "Put vllm==0.31.0+xpu into one of these places" in plan.failure(VLLM, "e", [(own, LACKING)])


class TestResolved:
    LOCK: ClassVar[dict[str, Any]] = {
        "packages": [
            {
                "name": "triton-xpu",
                "version": "3.8.0",
                "wheels": [
                    {"url": "https://x/a%2Bxpu-3.8.0-cp312-cp312-manylinux_2_27_x86_64.whl", "hashes": {"sha256": "1"}},
                    {"url": "https://x/a-3.8.0-py2.py3-none-any.whl#y", "hashes": {"sha256": "2"}},
                ],
            }
        ]
    }

    def test_all_digests_that_would_do_are_pinned(self):
        (one,) = plan.resolved(self.LOCK)
        assert one.line() == "triton-xpu==3.8.0 --hash=sha256:1 --hash=sha256:2"

    @pytest.mark.parametrize(
        ("tags", "digest"),
        [(["cp312-cp312-manylinux_2_27_x86_64"], "1"), (["py2-none-any", "py3-none-any"], "2"), ([], "1")],
    )
    def test_the_one_that_came_is_known_by_its_tags(self, tags: list[str], digest: str):
        assert plan.file_of(plan.resolved(self.LOCK)[0], tags)[1] == digest

    def test_it_is_called_what_the_step_calls_it(self):
        (one,) = plan.resolved(self.LOCK)
        assert plan.key_of(one, plan.InstallStep("", "Triton_XPU==3.8.0", False)) == "Triton_XPU==3.8.0"

    @pytest.mark.parametrize("package", [{"name": "a", "wheels": [{"url": "u"}]}, {"name": "a"}])
    def test_what_has_no_digest_is_refused(self, package: dict[str, object]):
        with pytest.raises(ValueError, match="has no"):
            plan.resolved({"packages": [package]})
