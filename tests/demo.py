# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the served model of a lab host one question through its frontdoor; the end of ``make demo``.

Prints three lines: the frontdoor's address, the model's name, the completion.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

TIMEOUT_S = 120


def inventory_hosts(inventory: str, group: str) -> dict[str, dict[str, Any]]:
    """Return the hosts of a group with their variables, as Ansible sees them."""
    command = ["ansible-inventory", "-i", inventory, "--list", "--limit", group]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    hosts: dict[str, dict[str, Any]] = json.loads(listing, object_hook=unwrapped)["_meta"]["hostvars"]
    return hosts


def unwrapped(value: dict[str, Any]) -> Any:
    """Return the text inside the mark that ansible-inventory puts on what a plugin said."""
    return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else value


def first_address(inventory: str, group: str) -> str:
    """Return the address of the first host of a group."""
    hosts = inventory_hosts(inventory, group)
    if not hosts:
        raise SystemExit(f"{inventory} has no host in group {group}; start the lab first: make lab-up")
    name = sorted(hosts)[0]
    return str(hosts[name].get("ansible_host", name))


def call(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """GET, or POST with a body; return the JSON answer. An answer that is not 2xx ends the program with its reason."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            value: dict[str, Any] = json.load(answer)
            return value
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url} answered {error.code}: {error.read(2000).decode(errors='replace')}") from None
    except OSError as error:
        raise SystemExit(f"{url} cannot be reached: {error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Find the frontdoor, take the name of the model from it, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inventory", default="inventory/lab.yml")
    parser.add_argument("--group", default="b70_hosts")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--question", default="Who are you?")
    arguments = parser.parse_args(argv)
    base = f"http://{first_address(arguments.inventory, arguments.group)}:{arguments.port}/v1"
    model = call(f"{base}/models")["data"][0]["id"]
    messages = [{"role": "user", "content": arguments.question}]
    answer = call(
        f"{base}/chat/completions", {"model": model, "messages": messages, "max_tokens": 64, "temperature": 0}
    )
    completion = answer["choices"][0]["message"]["content"].strip()
    if not completion:
        raise SystemExit(f"{model} answered with an empty text: {json.dumps(answer)[:2000]}")
    print(f"frontdoor: {base}")
    print(f"model: {model}")
    print(f"completion: {arguments.question} -> {completion}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
