# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a switch takes beyond the engine's own stop and load: `overhead.py HOST A B [--rounds N]`; and what Ansible
takes beyond the switches: `overhead.py rollout A B`; and what clients notice of the ways to replace engines:
`overhead.py ways HOST PROFILE[,OTHER]...`.

Switches a converged lab host to and fro between two profiles and prints, for each switch: the engine's own time (the
old unit's stop as systemd has it, and the new unit's start until it says that it is ready), the whole command, the
difference, and how long clients were kept out. Then the time of a switch to what is served already.

With `ways` it renders a served profile of several engines anew, again and again, and replaces its engines all together
and one after the other in turns, while two clients never stop asking. With a second profile it switches between the
two, every other time as they may: beside each other, or from standby where they sleep. The plain way is cold where the
kernel keeps nothing of the weights, which the switch then reads.

With `rollout` it runs rollout.yml on one, two and four hosts, and prints the time of the play, that of the switches
(the longest of each wave), and the rest for each host.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from labkit.layout import open_lab
from scenarios.anew import CONFIG, render_anew
from scenarios.recording import Watch
from scenarios.rig import PREFIX, SETTINGS, SIM_DIR, Rig

READY = "Application startup complete"
LOAD_S = 10.0  # of simulated engines, where ways are compared


def unit_of(profile: str) -> str:
    return f"{PREFIX}{profile}.service"


def moments(rig: Rig, unit: str) -> dict[str, float]:
    """When the unit was last told to stop, was gone, and was started, in seconds since the machine's boot."""
    names = {"ActiveExitTimestampMonotonic": "told", "InactiveEnterTimestampMonotonic": "gone"}
    names["ExecMainStartTimestampMonotonic"] = "started"
    shown = rig.must("systemctl", "show", f"--property={','.join(names)}", unit)
    pairs = dict(line.split("=", 1) for line in shown.splitlines())
    return {names[key]: int(value) / 1e6 for key, value in pairs.items()}


def ready_at(rig: Rig, unit: str) -> float:
    """When the unit's last process said that it is ready; that line comes as its port is opened."""
    invocation = rig.must("systemctl", "show", "--value", "--property=InvocationID", unit).strip()
    text = rig.must("journalctl", "--output=json", f"_SYSTEMD_INVOCATION_ID={invocation}")
    for record in map(json.loads, text.splitlines()):
        if READY in str(record.get("MESSAGE")):
            return int(record["__MONOTONIC_TIMESTAMP"]) / 1e6
    raise SystemExit(f"{unit} never said {READY!r}")


def measure(rig: Rig, old: str, new: str) -> tuple[dict[str, float], dict[str, float]]:
    """(seconds of each phase, the figures of the table)."""
    done = rig.ctl("switch", new, limit_s=900)
    if done.code != 0:
        raise SystemExit(f"the switch to {new} failed: {done.output}{done.errors}")
    rig.wait_settled()
    before, after = moments(rig, unit_of(old)), moments(rig, unit_of(new))
    stop, start = before["gone"] - before["told"], ready_at(rig, unit_of(new)) - after["started"]
    phases = {record["name"]: record["seconds"] for record in done.data["phases"]}
    names = list(phases)
    closed = sum(phases[name] for name in names[names.index("close") : names.index("open") + 1])
    overhead = done.seconds - stop - start
    return phases, {"stop": stop, "start": start, "whole": done.seconds, "closed": closed, "overhead": overhead}


def table(rows: list[dict[str, float]]) -> list[str]:
    lines = ["  ".join(f"{name:>8}" for name in rows[0])]
    return lines + ["  ".join(f"{value:8.2f}" for value in row.values()) for row in rows]


def rollout(rigs: list[Rig], profile: str) -> dict[str, float]:
    """The figures of a rollout to these hosts: one, then the others at once."""
    here = Path(__file__).resolve().parent
    names = [rig.host.name for rig in rigs]
    with tempfile.TemporaryDirectory() as folder:
        given = {**SETTINGS, "profiles_choose": False, "profile": profile, "waves": "1,100%", "rollout_dir": folder}
        command = ["ansible-playbook", "-i", "inventory/lab.yml", "--limit", ",".join(names), "rollout.yml"]
        begun = time.monotonic()
        done = subprocess.run(
            [*command, "-e", json.dumps(given)],
            cwd=here.parents[1],
            env={**os.environ, "B70_LAB": rigs[0].lab.name},
            capture_output=True,
            text=True,
        )
        whole = time.monotonic() - begun
        if done.returncode != 0:
            raise SystemExit(f"the rollout to {profile} failed: {done.stdout[-4000:]}{done.stderr}")
        (record,) = Path(folder).glob("*/rollout.json")
        members = json.loads(record.read_text())["members"]
    waves: dict[int, float] = {}
    for member in members:
        waves[member["wave"]] = max(waves.get(member["wave"], 0.0), member["result"]["seconds"])
    rest = whole - sum(waves.values())
    switches = sum(waves.values())
    return {"hosts": len(rigs), "whole": whole, "switches": switches, "rest": rest, "per host": rest / len(rigs)}


def rollouts(old: str, new: str) -> None:
    lab = open_lab()
    rows = []
    for count in (1, 2, 4):
        rigs = [Rig(lab, number) for number in range(1, count + 1)]
        for rig in rigs:
            rig.have(old)
        rows.append(rollout(rigs, new))
    print("\n".join(table(rows)))


def forget_weights(rig: Rig, profile: str) -> None:
    """Have the kernel drop what it keeps of the profile's weights in memory."""
    model = json.loads(rig.read(f"{CONFIG}/profiles/{profile}.json"))["model"]["path"]
    rig.must("find", model, "-type", "f", "-exec", "dd", "if={}", "iflag=nocache", "count=0", "status=none", ";")


def ways(rig: Rig, groups: list[list[str]], rounds: int) -> None:
    watch, rows = Watch(rig), list[tuple[str, float, float, int, int]]()
    for profiles in groups:
        rig.wipe()
        for profile in profiles if (rig.root / SIM_DIR.lstrip("/")).is_dir() else ():
            rig.tell(profile, load_s=LOAD_S)
        if rig.ctl("switch", profiles[0], limit_s=900).code != 0:
            raise SystemExit(f"{profiles[0]} cannot be served")
        for number in range(2 * rounds):
            rig.wait_settled()
            profile, cold = profiles[(number + 1) % len(profiles)], number % 4 == 0
            if len(profiles) == 1:
                render_anew(rig, profile)
            elif cold:
                forget_weights(rig, profile)
            recording = watch.begin()
            done = rig.ctl("switch", profile, *([] if number % 2 else ["--min-serving", "0"]), limit_s=900)
            watch.end()
            recording.check()
            way = done.data["way"]
            way = ("cold" if cold else "page cache") if way == "plain" and len(profiles) > 1 else way
            away, asked = rig.journal()[-1]["turned_away_s"], len(recording.answers)
            rows.append((way, done.seconds, away, asked, len(recording.refusals())))
    watch.stop()
    print("way          whole  turned away  requests  refused")
    for way, whole, away, asked, refused in rows:
        print(f"{way:10} {whole:6.1f} s {away:10.1f} s {asked:9} {refused:8}")
    print("medians      whole  turned away, and the same as parts of the first")
    first: tuple[float, float] | None = None
    for way in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == way]
        whole, away = statistics.median(row[1] for row in own), statistics.median(row[2] for row in own)
        first = first or (whole, away)
        print(f"{way:10} {whole:6.1f} s {away:10.1f} s {whole / first[0]:9.2f} {away / first[1]:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host", help="such as scenarios1, of the lab that B70_LAB names; or rollout, or ways")
    parser.add_argument("profiles", nargs="+", help="two profiles; of ways: the host, and profiles or PROFILE,OTHER")
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    if given.host == "rollout":
        rollouts(*given.profiles)
        return
    lab = open_lab()
    if given.host == "ways":
        host, *profiles = given.profiles
        ways(Rig(lab, int(host.removeprefix(lab.name))), [pair.split(",") for pair in profiles], given.rounds)
        return
    rig = Rig(lab, int(given.host.removeprefix(lab.name)))
    old, new = given.profiles
    if rig.ctl("switch", old, limit_s=900).code != 0:
        raise SystemExit(f"{old} cannot be served")
    rig.wait_settled()
    rows = []
    for _round in range(2 * given.rounds):
        rows.append(measure(rig, old, new))
        old, new = new, old
    again = [rig.ctl("switch", old) for _round in range(5)]
    if any(done.data["changed"] for done in again):
        raise SystemExit("a switch to what is served changed something")
    figures = [row for _phases, row in rows]
    print("\n".join(table(figures)))
    print("median seconds of each phase, the engine's own part in stop, alive and health:")
    print("  ".join(f"{name} {statistics.median(phases[name] for phases, _row in rows):.2f}" for name in rows[0][0]))
    print(f"overhead, median: {statistics.median(row['overhead'] for row in figures):.2f} s")
    print(f"to what is served already, median: {statistics.median(done.seconds for done in again):.2f} s")


if __name__ == "__main__":
    main()
