# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bringing a slot's files to what was rendered, on a directory and with a systemd that answers as told."""

from __future__ import annotations

import dataclasses
import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _slot_deployment, _slot_paths
from ansible_collections.arcpro.b70.plugins.module_utils._slot_deployment import (
    apply,
    diff,
    lacking,
    make_plan,
    validate,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot_paths import (
    Directory,
    RenderedFile,
    SlotFilesError,
    SlotPaths,
)

OWNER = (os.getuid(), os.getgid())
UNIT = """[Unit]
Description=test

[Service]
ExecStart=/bin/true
"""


class Systemd:
    """Answers ``systemctl show`` from a table and ``systemd-analyze verify`` with a fixed text; remembers the calls."""

    def __init__(self) -> None:
        self.active: dict[str, str] = {}
        self.reload: set[str] = set()
        self.answers = True
        self.verify = (0, "", "")
        self.calls: list[list[str]] = []
        self.verified: list[str] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[0] == "systemd-analyze":
            folder = Path(argv[-1]).parent
            self.verified = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
            return self.verify
        if not self.answers:
            return 1, "", "System has not been booted with systemd"
        if "--" not in argv:
            return 0, "", ""
        blocks = [
            f"Id={unit}\nLoadState=loaded\nActiveState={self.active.get(unit, 'inactive')}\n"
            f"NeedDaemonReload={'yes' if unit in self.reload else 'no'}"
            for unit in argv[argv.index("--") + 1 :]
        ]
        return 0, "\n\n".join(blocks) + "\n", ""


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def place(tmp_path: Path) -> SlotPaths:
    program = (tmp_path / "lib/b70slot", tmp_path / "bin/b70ctl")
    found = SlotPaths("main", tmp_path / "etc", tmp_path / "units", tmp_path / "run", tmp_path / "state", *program)
    (tmp_path / "etc/pending").mkdir(parents=True)
    found.profiles_dir.mkdir(parents=True)
    found.unit_dir.mkdir()
    return found


def files(place: SlotPaths, *names: str, text: str = "") -> list[RenderedFile]:
    found = []
    for name in names:
        unit = place.unit(name).name
        data = json.dumps({"slot": place.slot, "unit": unit, "text": text})
        head = f"{_slot_paths.MARKER}\n# Environment of {unit}; not a shell script.\n"
        found.append(RenderedFile(place.profiles_dir / f"{name}.json", data))
        found.append(RenderedFile(place.profiles_dir / f"{name}.env", f'{head}# from slot main\nA="{text}"\n'))
        found.append(RenderedFile(place.unit(name), f"{_slot_paths.MARKER}\n{UNIT}"))
    return found


def slot_file(place: SlotPaths, **changes: object) -> RenderedFile:
    data = {"schema": 1, "slot": place.slot, "legacy_units": [], "refused_statuses": []}
    return RenderedFile(place.slot_file, json.dumps(data | changes))


def converge(place: SlotPaths, systemd: Systemd, wanted: list[RenderedFile]) -> _slot_deployment.SlotFilesPlan:
    plan = make_plan(wanted, place, OWNER, systemd)
    validate(plan, systemd)
    apply(plan, OWNER)
    return plan


def present(place: SlotPaths) -> set[str]:
    folders = (place.profiles_dir, place.unit_dir)
    return {path.name for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_a_link_puts_the_command_into_the_path(place, systemd):
    linked = dataclasses.replace(place, command_link=place.unit_dir.parent / "local/bin/b70ctl")
    place.command.parent.mkdir()
    wanted = [*files(place, "a"), RenderedFile(place.command, "#!", "0755"), RenderedFile(place.completion, "source")]
    plan = converge(linked, systemd, wanted)
    completed = place.unit_dir.parent / "local/share/bash-completion/completions/b70ctl"
    assert completed.readlink() == place.completion
    assert f"{linked.command_link} -> {place.command}" in diff(plan)[0]["after"]
    assert linked.command_link.readlink() == place.command
    assert not converge(linked, systemd, wanted).changed
    linked.command_link.unlink()
    linked.command_link.symlink_to("/elsewhere")
    assert converge(linked, systemd, wanted).changed
    assert linked.command_link.readlink() == place.command
    linked.command_link.unlink()
    linked.command_link.write_text("somebody's own")
    with pytest.raises(SlotFilesError, match="is no link; move it away"):
        make_plan(wanted, linked, OWNER, systemd)
    # Without the command there is nothing to link to.
    assert not make_plan(files(place, "a"), linked, OWNER, systemd).links


def test_files_are_written_and_a_second_run_changes_nothing(place, systemd):
    plan = converge(place, systemd, files(place, "a", "b"))
    assert plan.changed
    assert plan.units_changed
    assert plan.reload_needed
    assert present(place) == {f"{name}.{end}" for name in "ab" for end in ("json", "env")} | {
        f"b70-slot-main-{name}.service" for name in "ab"
    } | {"10-b70-exclusive.conf"}
    assert (place.profiles_dir / "a.json").stat().st_mode & 0o7777 == 0o644
    assert not list(place.profiles_dir.glob(".*"))
    again = converge(place, systemd, files(place, "a", "b"))
    assert not again.changed
    assert not diff(again)


def test_planning_touches_nothing_even_on_a_pristine_host(tmp_path, systemd):
    place = SlotPaths("main", tmp_path / "none/etc", tmp_path / "none/units", tmp_path / "none/run")
    directories = [Directory(tmp_path / "none/etc", "nobody-here", "nobody-here")]
    plan = make_plan(files(place, "a"), place, OWNER, systemd, directories)
    validate(plan, systemd)
    assert (len(plan.writes), len(plan.directories)) == (3, 1)
    assert not (tmp_path / "none").exists()


def test_directories_are_made_with_their_owner(place, systemd, tmp_path):
    user = os.environ.get("USER") or "root"
    group = "root"
    if os.getuid():
        pytest.skip("only root can give directories away")
    plan = make_plan([], place, OWNER, systemd, lacking([Directory(tmp_path / "a/b", user, group, "0750")]))
    apply(plan, OWNER)
    assert (tmp_path / "a/b").stat().st_mode & 0o7777 == 0o750
    (tmp_path / "a/b").chmod(0o700)
    assert lacking([Directory(tmp_path / "a/b", user, group)]) == []


def test_a_directory_that_others_may_look_into_is_closed_where_its_mode_says_so(place, systemd, tmp_path):
    (tmp_path / "profiles").mkdir(mode=0o755)
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    closed = Directory(tmp_path / "profiles", user, group, "0750")
    assert lacking([closed]) == [closed]
    apply(make_plan([], place, OWNER, systemd, lacking([closed])), OWNER)
    assert stat.S_IMODE(closed.path.stat().st_mode) == 0o750
    assert lacking([closed]) == []


def test_a_missing_owner_is_found_before_anything_is_made(place, systemd, tmp_path):
    plan = make_plan(files(place, "a"), place, OWNER, systemd, [Directory(tmp_path / "new", "no-such-user", "root")])
    with pytest.raises(SlotFilesError, match="no-such-user"):
        apply(plan, OWNER)
    assert not (tmp_path / "new").exists()
    assert not present(place)


def test_something_else_in_the_way_is_named(place, systemd, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SlotFilesError, match="is no directory"):
        lacking([Directory(tmp_path / "file", "root", "root")])
    place.unit("a").symlink_to("/dev/null")  # what systemctl mask leaves
    with pytest.raises(SlotFilesError, match="no regular file"):
        make_plan(files(place, "a"), place, OWNER, systemd)


def test_a_changed_profile_changes_no_unit(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    plan = converge(place, systemd, files(place, "a", text="new") + files(place, "b"))
    assert [item.path.name for item in plan.writes] == ["a.json", "a.env"]
    assert not plan.units_changed
    assert not plan.reload_needed
    assert [entry["before_header"].rsplit("/", 1)[1] for entry in diff(plan)] == ["a.json", "a.env"]


def test_a_changed_mode_is_repaired(place, systemd):
    converge(place, systemd, files(place, "a"))
    (place.profiles_dir / "a.env").chmod(0o600)
    assert [item.path.name for item in converge(place, systemd, files(place, "a")).writes] == ["a.env"]
    assert not converge(place, systemd, files(place, "a")).changed


def test_a_profile_that_left_is_removed(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    plan = converge(place, systemd, files(place, "a"))
    assert plan.units_changed
    assert present(place) == {"a.json", "a.env", "b70-slot-main-a.service"}
    assert diff(plan)[0]["after"] == ""


def test_leftovers_of_an_interrupted_removal_are_removed(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    place.unit("b").unlink()
    (place.profiles_dir / "b.json").unlink()
    converge(place, systemd, files(place, "a"))
    assert present(place) == {"a.json", "a.env", "b70-slot-main-a.service"}


def test_files_of_others_stay(place, systemd):
    others = {
        place.unit_dir / "b70-slot-main-mine.service": "[Unit]\nDescription=by hand\n",
        place.unit_dir / "b70-slot-other-x.service": f"{_slot_paths.MARKER}\n{UNIT}",
        place.profiles_dir / "notes.json": "{}",
        place.profiles_dir / "broken.json": "{",
        place.profiles_dir / "mine.env": "A=1\n",
        place.profiles_dir / "second.json": json.dumps({"slot": "other", "unit": "b70-slot-other-second.service"}),
    }
    for path, text in others.items():
        path.write_text(text)
    assert not converge(place, systemd, []).changed
    assert all(path.read_text() == text for path, text in others.items())


def in_use(how: str, place: SlotPaths, systemd: Systemd) -> None:
    unit = place.unit("b").name
    if how == "it is running":
        systemd.active[unit] = "active"
    elif how == "it starts at boot":
        wants = place.unit_dir / "multi-user.target.wants"
        wants.mkdir()
        (wants / unit).symlink_to(place.unit("b"))
    else:
        state = place.run_dir / "main/state.json"
        state.parent.mkdir(parents=True)
        state.write_text(json.dumps({"profile": None, "switch": {"from": "b", "to": "a"}}))


@pytest.mark.parametrize("how", ["it is running", "it starts at boot", "the slot's state names it"])
def test_a_profile_in_use_keeps_its_files_and_stays_exclusive(place, systemd, how):
    converge(place, systemd, files(place, "a", "b", "c"))
    in_use(how, place, systemd)
    plan = converge(place, systemd, files(place, "a", "c"))
    assert plan.kept == ["b"]
    assert plan.warnings == [
        f"Profile b left the catalogue, but its files stay because {how}: switch to another one, run again."
    ]
    assert {"b.json", "b.env", "b70-slot-main-b.service"} <= present(place)
    assert exclusive(place) == {"b": ["a"], "c": ["a", "b"]}
    assert not converge(place, systemd, files(place, "a", "c")).changed


def test_an_engine_that_is_not_installed_is_excluded_by_those_that_are(place, systemd, tmp_path):
    program = tmp_path / "engine"
    wanted = [
        dataclasses.replace(item, content=item.content.replace("/bin/true", str(program)))
        if item.path == place.unit("b")
        else item
        for item in files(place, "a", "b", "c")
    ]
    converge(place, systemd, wanted)
    assert exclusive(place) == {"a": ["b"], "c": ["b", "a"]}
    program.touch()
    converge(place, systemd, wanted)
    assert exclusive(place) == {"b": ["a"], "c": ["a", "b"]}
    program.unlink()
    in_use("it is running", place, systemd)
    assert not converge(place, systemd, wanted).changed
    systemd.active.clear()
    converge(place, systemd, wanted)
    assert exclusive(place) == {"a": ["b"], "c": ["b", "a"]}


def exclusive(place: SlotPaths) -> dict[str, list[str]]:
    """The profiles that each profile names."""
    found = {}
    for drop_in in place.unit_dir.glob("*.service.d/10-b70-exclusive.conf"):
        lines = drop_in.read_text().splitlines()
        named = [line.removeprefix("Conflicts=") for line in lines if line.startswith("Conflicts=")]
        assert lines[1:] == ["[Unit]", *(f"{key}={unit}" for key in ("Conflicts", "After") for unit in named)]
        short = drop_in.parent.name.removeprefix(place.prefix).removesuffix(".service.d")
        found[short] = [unit.removeprefix(place.prefix).removesuffix(".service") for unit in named]
    return found


def test_a_kept_profile_that_ends_loses_its_drop_in(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    systemd.active[place.unit("b").name] = "active"
    converge(place, systemd, files(place, "a"))
    assert not converge(place, systemd, files(place, "a", "b")).changed
    converge(place, systemd, files(place, "a"))
    systemd.active.clear()
    converge(place, systemd, files(place, "a"))
    assert present(place) == {"a.json", "a.env", "b70-slot-main-a.service"}
    assert not (place.unit_dir / "b70-slot-main-b.service.d").exists()


def test_somebody_elses_drop_in_stays(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    folder = place.unit_dir / "b70-slot-main-b.service.d"
    (folder / "local.conf").write_text("[Service]\nNice=5\n")
    converge(place, systemd, files(place, "a"))
    assert (folder / "local.conf").exists()


def test_without_a_running_systemd_only_the_boot_counts(place, systemd, monkeypatch):
    converge(place, systemd, files(place, "a", "b"))
    systemd.answers = False
    booted = Path("/run/systemd/system").is_dir()
    plan = make_plan(files(place, "a"), place, OWNER, systemd)
    assert plan.kept == (["b"] if booted else [])


def test_a_reload_that_an_interrupted_run_owes_is_done(place, systemd):
    converge(place, systemd, files(place, "a"))
    systemd.reload.add(place.unit("a").name)
    plan = make_plan(files(place, "a"), place, OWNER, systemd)
    assert (plan.changed, plan.reload_needed, plan.units_changed) == (True, True, False)
    with pytest.raises(SlotFilesError, match=r"a.service LoadState=loaded NeedDaemonReload=yes"):
        _slot_deployment.reload(plan, systemd)
    assert ["systemctl", "daemon-reload"] in systemd.calls
    systemd.reload.clear()
    _slot_deployment.reload(plan, systemd)


def test_systemd_is_left_alone_when_no_unit_changed(place, systemd):
    converge(place, systemd, files(place, "a"))
    plan = make_plan(files(place, "a"), place, OWNER, systemd)
    systemd.calls.clear()
    _slot_deployment.reload(plan, systemd)
    assert systemd.calls == []


def test_a_systemd_that_does_not_answer_is_an_error(place, systemd):
    plan = make_plan(files(place, "a"), place, OWNER, systemd)
    systemd.answers = False
    with pytest.raises(SlotFilesError, match="daemon-reload ended with 1: System has not been booted"):
        _slot_deployment.reload(plan, systemd)


def test_check_mode_tells_a_switch_what_would_be_written(place, systemd):
    plan = make_plan([*files(place, "a"), *program(place, "x.py")], place, OWNER, systemd)
    told = {item["path"]: item["content"] for item in _slot_deployment.planned_files(plan, place)}
    assert told.items() >= {str(item.path): item.content for item in files(place, "a")}.items()
    assert not any(path.endswith((".py", ".conf", "b70ctl")) for path in told)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("etc/profiles/a.json", "{", "a.json is not JSON"),
        ("etc/profiles/a.env", "A=1\n", "a.env is no environment file: 'A=1'"),
        ("etc/profiles/a.env", 'A="x"y"\n', "is no environment file"),
        ("etc/profiles/a.env", 'A="$x"\n', "is no environment file"),
        ("etc/profiles/a.env", 'a="x"\n', "is no environment file"),
    ],
)
def test_nothing_is_written_when_one_file_is_wrong(place, systemd, tmp_path, name, content, message):
    wanted = [*files(place, "b"), RenderedFile(tmp_path / name, content)]
    with pytest.raises(SlotFilesError, match="nothing was written") as caught:
        converge(place, systemd, wanted)
    assert message in str(caught.value)
    assert not present(place)


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("b70-slot-main-a.service: Command /opt/b70/vllm is not executable: No such file or directory", 0),
        ("/usr/lib/systemd/system/other.service:3: Unknown key name 'X'", 0),
        ("other.service: Failed to load", 0),
        ("b70-slot-main-a.service: Command /opt/b70/vllm is not executable: Permission denied", 1),
        ("/FOLDER/b70-slot-main-a.service:7: Unknown key name 'Typ' in section 'Service', ignoring.", 1),
        ("Failed to create manager", 1),
    ],
)
def test_what_systemd_says_of_our_units_counts(text, complaints):
    found = _slot_deployment._complaints(1, text, {"b70-slot-main-a.service"}, "/FOLDER")
    assert len(found) == complaints
    assert not any("/FOLDER" in line for line in found)


def test_all_changed_units_are_verified_in_one_call(place, systemd):
    converge(place, systemd, files(place, "a", "b", "c"))
    calls = [call for call in systemd.calls if call[0] == "systemd-analyze"]
    assert len(calls) == 1
    assert len(calls[0]) == 3 + 3
    systemd.verify = (1, "", f"{place.unit('a').name}: Unit is broken")
    with pytest.raises(SlotFilesError, match="Unit is broken"):
        converge(
            place, systemd, [RenderedFile(place.unit("a"), f"{_slot_paths.MARKER}\n{UNIT}#\n"), *files(place, "b", "c")]
        )
    assert "#\n" not in place.unit("a").read_text()[-3:]


def test_a_host_without_the_checker_is_warned_about(place, systemd):
    systemd.verify = (127, "", "")
    assert "no systemd-analyze" in converge(place, systemd, files(place, "a")).warnings[0]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "etc/profiles/../x.json",
        "etc/profiles/a.txt",
        "units/ssh.service",
        "units/b70-slot-other-a.service",
    ],
)
def test_only_files_of_the_slot_are_accepted(place, systemd, tmp_path, path):
    with pytest.raises(SlotFilesError, match="is no file of slot main"):
        make_plan([RenderedFile(tmp_path / path, "")], place, OWNER, systemd)


def test_a_file_given_twice_is_refused(place, systemd):
    with pytest.raises(SlotFilesError, match="given twice"):
        make_plan(files(place, "a") * 2, place, OWNER, systemd)


def test_boot_entries_belong_to_the_slot_and_need_no_reload(place, systemd, tmp_path):
    (tmp_path / "tmpfiles.d").mkdir()
    wanted = [RenderedFile(tmp_path / "tmpfiles.d/b70-slot-main.conf", "d /run/b70\n")]
    plan = converge(place, systemd, wanted)
    assert plan.changed
    assert not plan.reload_needed
    assert not converge(place, systemd, wanted).changed


def test_a_missing_directory_is_named(place, systemd):
    shutil.rmtree(place.profiles_dir)
    with pytest.raises(SlotFilesError, match="does not exist; name it in directories"):
        converge(place, systemd, files(place, "a"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_real_checker_refuses_a_broken_unit(place):
    def run(argv: list[str]) -> tuple[int, str, str]:
        answer = subprocess.run(argv, capture_output=True, text=True, check=False)
        return answer.returncode, answer.stdout, answer.stderr

    missing = RenderedFile(place.unit("a"), f"{_slot_paths.MARKER}\n{UNIT}".replace("/bin/true", "/nowhere/vllm"))
    plan = _slot_deployment.SlotFilesPlan(writes=[missing], units=[missing])
    validate(plan, run)
    broken = RenderedFile(place.unit("a"), f"{_slot_paths.MARKER}\n{UNIT}Typ=exec\n")
    with pytest.raises(SlotFilesError, match="Typ"):
        validate(_slot_deployment.SlotFilesPlan(writes=[broken], units=[broken]), run)


def program(place: SlotPaths, *names: str) -> list[RenderedFile]:
    modules = [RenderedFile(place.program_dir / name, "") for name in names]
    return [
        *modules,
        RenderedFile(place.command, "#!/bin/true\n", "0755"),
        RenderedFile(place.controller, f"{_slot_paths.MARKER}\n{UNIT}"),
    ]


def test_the_program_comes_and_its_old_modules_go(place, systemd):
    systemd.active[place.controller.name] = "active"
    for folder in (place.program_dir / "host", place.command.parent):
        folder.mkdir(parents=True)
    converge(place, systemd, [*files(place, "a"), *program(place, "__init__.py", "old.py", "host/files.py")])
    assert place.command.stat().st_mode & 0o7777 == 0o755
    assert place.at_boot(place.controller).readlink() == place.controller
    wanted = [*files(place, "a"), *program(place, "__init__.py", "host/files.py")]
    plan = converge(place, systemd, wanted)
    assert plan.removals == [place.program_dir / "old.py"]
    assert not plan.units_changed
    again = converge(place, systemd, wanted)
    assert not again.changed
    # What verifies is no profile: without a catalogue it is not taken for one that has left it.
    assert converge(place, systemd, program(place, "__init__.py", "host/files.py")).kept == []
    assert place.controller.exists()


def test_a_controller_that_does_not_run_is_started(place, systemd):
    place.command.parent.mkdir()
    wanted = program(place)
    plan = converge(place, systemd, wanted)
    assert plan.starts
    assert place.at_boot(place.controller).readlink() == place.controller
    started = []

    def run(argv):
        started.append(argv)
        return 0, "", ""

    _slot_deployment.start(plan, place, run)
    assert started == [["systemctl", "start", "--no-block", place.controller.name]]

    def runs(argv):
        code, output, errors = systemd(argv)
        return code, output.replace("ActiveState=inactive", "ActiveState=active"), errors

    again = make_plan(wanted, place, OWNER, runs)
    assert (again.starts, again.changed) == (False, False)


def test_a_missing_link_for_the_boot_is_a_change(place, systemd):
    place.command.parent.mkdir()
    converge(place, systemd, program(place))
    place.at_boot(place.controller).unlink()
    plan = make_plan(program(place), place, OWNER, systemd)
    assert plan.changed
    assert f"{place.at_boot(place.controller)} -> {place.controller}" in diff(plan)[0]["after"]


def test_files_beside_the_program_are_refused(place, systemd):
    with pytest.raises(SlotFilesError, match="is no file of slot main"):
        make_plan([RenderedFile(place.program_dir / "../x.py", "")], place, OWNER, systemd)
