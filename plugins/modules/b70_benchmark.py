#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_benchmark
short_description: Measure how fast a served model answers, and keep a record
version_added: 0.2.0
description:
  - Drives a load generator against the frontdoor and straight at the engine of a slot, for each shape and number of
    streams, and computes the figures from the generator's requests. The exact definitions are in C(docs/benchmarks.md).
  - Asks the canary before and after. It fails where nothing verified is served, and keeps no figure where the canary
    fails or another engine process serves at the end. The frontdoor stays open. A switch that begins ends it.
  - Writes a record of the kind C(benchmark) to O(records_dir), with a comparison with the baseline that a person chose
    for the profile and the class of the host.
  - Runs as a transient systemd unit on the host that outlives the controller. A second call with the same options joins
    the benchmark under way, or returns the result that no play has been told, if the same engine process serves by
    then. The load comes from O(user).
  - This module works through the action plugin of the same name.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
  - arcpro.b70.slot.journal
  - arcpro.b70.recorded_work
  - arcpro.b70.recorded_work.records
attributes:
  check_mode:
    details:
      - Says what would be measured.
  idempotent:
    support: none
requirements:
  - requests (on the host)
options:
  shapes:
    description:
      - The shapes of requests to measure, by name or as a dictionary with C(prompt_tokens), C(output_tokens), C(rounds)
        (requests of each stream) and optionally C(name). C(docs/benchmarks.md) lists the names.
      - A shape that does not fit the limits of the profile is left out, with the reason.
    type: list
    elements: raw
    default: [short-128, 2k-128, 2k-512, random-512-1536, 15k-128, 28k-128]
  streams:
    description: Numbers of requests at once. Empty means powers of two up to what the profile admits.
    type: list
    elements: int
    default: []
  targets:
    description: The ways to the engine to measure.
    type: list
    elements: str
    choices: [frontdoor, engine]
    default: [frontdoor, engine]
  prefixes:
    description:
      - V(cold) prompts are new to the engine. V(warm) ones are the same prompts once more. V(cold) always runs.
    type: list
    elements: str
    choices: [cold, warm]
    default: [cold, warm]
  generator:
    description: The load generator. V(vllm) is C(vllm bench serve) of the stack that serves.
    type: str
    choices: [guidellm, vllm]
    default: guidellm
  tools_python:
    description: The Python of the environment that contains guidellm, and matplotlib for the pictures.
    type: path
    default: /opt/b70/evidence/bin/python
  user:
    description: The user that runs the load generator.
    type: str
    default: b70
  api_key:
    description: A key for the frontdoor, if it wants one.
    type: str
    default: ""
  band:
    description: A share. Throughput that is lower than the earlier one by more than this share is a regression.
    type: float
    default: 0.1
  ttft_band:
    description: The same for the median time to the first token, which may grow by this share.
    type: float
    default: 0.25
  limit:
    description:
      - Seconds that one number of streams may take. Requests that are then under way count as failed. The generator
        V(vllm) reports nothing until all are answered, so with it all requests of that number of streams have failed.
    type: int
    default: 1800
  timeout:
    description: Seconds that the benchmark may take as a whole.
    type: int
    default: 43200
  evidence:
    description: What the catalogue has recorded, by profile. Figures of the same class of host are compared with it.
    type: dict
    default: {}
  profile:
    description:
      - The profile that has to be served. Empty measures what is served.
    type: str
    default: ""
  baselines:
    description:
      - The ids of the records below O(dest) that figures are compared with, one for each profile, class of host and
        generator. Each is a benchmark that passed and lacks nothing.
      - The action plugin reads the records, and hands them to the module.
    type: list
    elements: raw
    default: []
  fail_on_regression:
    description:
      - Whether a figure that is worse than the one of the baseline by more than the band fails the benchmark.
    type: bool
    default: false
  fail_without_comparison:
    description: Whether a benchmark fails unless the baseline has all of its figures.
    type: bool
    default: false
  dest:
    description: >-
      A folder on the controller for the table in Markdown and the pictures, as C(HOST/benchmark/ID.md) and so on. Empty
      writes nothing. The records of O(baselines) are read there.
    type: path
    default: ""
  state:
    description:
      - V(foreseen) measures nothing. It says what the figures of O(profile) would be compared with on this host,
        whether the profile is served or not.
    type: str
    choices: [measured, foreseen]
    default: measured
"""

EXAMPLES = r"""
- name: Measure short requests
  arcpro.b70.b70_benchmark:
    shapes:
      - short-128
      - {name: mine, prompt_tokens: 1000, output_tokens: 100, rounds: 4}
"""

RETURN = r"""
record:
  description: The record as it is kept. Its schema is C(roles/evidence/files/schema/record.schema.json).
  returned: when it was measured
  type: dict
regressions:
  description: A sentence for each figure that is worse than the baseline's by more than the band.
  returned: when it was measured
  type: list
  elements: str
comparable:
  description: Whether there is a baseline with all figures.
  returned: with O(state=foreseen)
  type: bool
files:
  description: What was written below O(dest).
  returned: when it was measured
  type: list
  elements: str
summary:
  description: The figures and the comparisons as readable lines.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.bench import BenchmarkError
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.job import BenchmarkJob
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import RequestShapeError
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = BenchmarkJob(module.params).answer(check_mode=module.check_mode)
    except (WorkError, BenchmarkError, RequestShapeError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
