# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import record
import run
from machine import LIMIT_S, assert_ends, kill_tree, wait_for

SHIPPED = dict(run.STEPS)
CHECKOUT = run.ROOT
AUTOGROUP = Path("/proc/self/autogroup")
PAGE = f"# What is proven\n\n{record.BEGIN}\n{record.END}\n\n## Not proven\n"


@pytest.fixture(autouse=True)
def own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(run, "JUNIT", tmp_path / "logs" / "junit")


def python(code: str, junit: bool = False, limit_s: float = 120) -> run.Command:
    return run.Command((sys.executable, "-c", code), limit_s, junit)


def junit_writer(name: str, tests: int, failures: int = 0, skipped: int = 0, code: int = 0) -> run.Command:
    counts = f'tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}"'
    text = f"<testsuites><testsuite {counts}/></testsuites>"
    file = run.JUNIT / name
    return python(
        f"import pathlib, sys; pathlib.Path({str(file)!r}).write_text({text!r}); sys.exit({code})", junit=True
    )


def until(said: Path) -> str:
    """Return code that waits until a file is there."""
    return f"import pathlib, time\nwhile not pathlib.Path({str(said)!r}).exists(): time.sleep(0.01)"


def steps(monkeypatch: pytest.MonkeyPatch, **commands: run.Command) -> None:
    """Have these steps, each in a lane of its own but for those whose names begin alike."""
    monkeypatch.setattr(run, "STEPS", {name: run.Step(name[:4], (command,)) for name, command in commands.items()})


def test_a_green_suite_ends_with_the_totals(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    steps(monkeypatch, lint=python(""), unit=junit_writer("unit.xml", 7, skipped=2))
    assert run.main([]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "6 passed, 0 failed"


def test_a_step_of_the_release_without_a_record_runs_only_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    more = run.Step(run.RELEASE, (junit_writer("more.xml", 5),))
    monkeypatch.setattr(run, "STEPS", {"unit": run.Step("quick", (junit_writer("unit.xml", 7),)), "more": more})
    for words, totals in (([], "7 passed, 0 failed"), (["more"], "5 passed, 0 failed")):
        assert run.main(words) == 0
        assert capfd.readouterr().out.splitlines()[-1] == totals


def test_the_first_failing_step_ends_its_lane_and_shows_its_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = python("import sys; print('line 3 is odd'); sys.exit(1)")
    # one lane alone: another that is done could take over the second step before the first has failed
    steps(monkeypatch, unit=broken, unit_more=junit_writer("unit_more.xml", 7))
    assert run.main([]) == 1
    out = capfd.readouterr().out
    assert "line 3 is odd" in out
    assert "unit_more    not run" in out
    assert out.splitlines()[-1] == "0 passed, 1 failed"


def test_a_failing_step_does_not_end_the_other_lane(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    steps(monkeypatch, unit=python("raise SystemExit(1)"), matrix=junit_writer("matrix.xml", 5))
    assert run.main([]) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "5 passed, 1 failed"


def test_a_lane_does_not_wait_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = tmp_path / "said"
    tell = python(f"import pathlib; pathlib.Path({str(said)!r}).touch()")
    steps(monkeypatch, matrix=python(until(said)), unit=python(""), unit_more=tell)
    assert run.main([]) == 0
    ended = [line.split()[0] for line in capfd.readouterr().out.splitlines() if " ok " in line]
    assert ended[0] == "unit"
    assert sorted(ended[1:3]) == ["matrix", "unit_more"]


def test_a_lane_that_is_done_takes_over_what_the_other_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = tmp_path / "said"
    tell = python(f"import pathlib; pathlib.Path({str(said)!r}).touch()")
    steps(monkeypatch, unit=python(""), matrix=python(until(said)), matrix_more=python(""), matrix_last=tell)
    assert run.main([]) == 0
    ended = [line.split()[0] for line in capfd.readouterr().out.splitlines() if " ok " in line]
    # in their order, which is the longest first; the first one waits for what the last one does
    assert ended[:2] == ["unit", "matrix_more"]
    assert sorted(ended[2:4]) == ["matrix", "matrix_last"]


def test_steps_keep_what_python_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    steps(monkeypatch, unit=python("import sys; sys.exit(sys.dont_write_bytecode)"))
    assert run.main(["unit"]) == 0


def test_every_command_of_a_failing_step_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        run, "STEPS", {"lint": run.Step("quick", (python("raise SystemExit(3)"), python("print('the second')")))}
    )
    assert run.main(["lint"]) == 1
    out = capfd.readouterr().out
    assert "the second" in out
    assert "ended with 3" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize(
    ("command", "totals"),
    [
        ((8, 3), "5 passed, 3 failed"),
        ((8, 0), "8 passed, 1 failed"),
    ],
    ids=["failed tests", "all passed, then it broke"],
)
def test_a_broken_test_run_has_failed(
    command: tuple[int, int], totals: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    steps(monkeypatch, unit=junit_writer("unit.xml", *command, code=1))
    assert run.main(["unit"]) == 1
    assert capfd.readouterr().out.splitlines()[-1] == totals


def test_a_run_without_a_test_has_failed_and_old_results_do_not_count(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run.JUNIT.mkdir(parents=True)
    (run.JUNIT / "unit.xml").write_text('<testsuites><testsuite tests="9"/></testsuites>')
    steps(monkeypatch, unit=python("", junit=True))
    assert run.main(["unit"]) == 1
    assert "ran no test" in capfd.readouterr().out


def test_a_command_that_does_not_end_is_stopped_with_its_children(tmp_path: Path) -> None:
    log = (tmp_path / "log").open("w+b")
    child = tmp_path / "child"
    command = run.Command(("sh", "-c", f"sleep 600 & echo $! > {child}; wait"), limit_s=2)
    reason = asyncio.run(run.run_command(command, log))
    assert "did not end within" in reason
    assert_ends(child)


def test_a_command_that_is_ended_may_tell_what_it_did() -> None:
    # Where pytest itself was started with the signal ignored, so is its child.
    code = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("begun", flush=True)
    time.sleep(900)
except KeyboardInterrupt:
    print("1 failed", flush=True)
"""

    async def told() -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        assert process.stdout
        assert await process.stdout.readline() == b"begun\n"
        await run.stop_group(process)
        return await process.stdout.read()

    assert asyncio.run(told()) == b"1 failed\n"


def test_a_run_that_is_told_to_end_ends_its_commands(tmp_path: Path) -> None:
    child = tmp_path / "child"
    hang = ("sh", "-c", f"echo $$ > {child}; exec sleep 900")
    code = f"""
import pathlib
import run
run.LOGS = pathlib.Path({str(tmp_path)!r})
run.JUNIT = run.LOGS / "junit"
run.STEPS = {{"lint": run.Step("lint", (run.Command({hang!r}, 900),))}}
run.main(["lint"])
"""
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(CHECKOUT / "tests")})
    try:
        wait_for(lambda: child.exists() and child.read_text(), "the command")
        process.terminate()
        assert process.wait(LIMIT_S) != 0
    finally:
        kill_tree(process)
        process.wait()
    assert_ends(child)


def test_a_test_that_hangs_is_named_and_ends_with_what_it_started(tmp_path: Path) -> None:
    child, log = tmp_path / "child", tmp_path / "log"
    hang = f"import subprocess\ndef test_hang(): subprocess.run(['sh', '-c', 'echo $$ > {child}; exec sleep 900'])\n"
    (tmp_path / "test_it.py").write_text(hang)
    command = run.pytest("it", "-n2", "-p", "no:cacheprovider", str(tmp_path / "test_it.py"), limit_s=2)
    with log.open("w+b") as output:
        assert "ended with 1" in asyncio.run(run.run_command(replace(command, limit_s=LIMIT_S), output))
    assert "crashed while running" in log.read_text()
    assert "in test_hang" in log.read_text()
    assert_ends(child)


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not share processors among sessions")
def test_the_niceness_of_a_step_counts_against_other_sessions(tmp_path: Path) -> None:
    command = python(f"""while not open("{AUTOGROUP}").read().strip().endswith("nice 7"): pass""")
    assert asyncio.run(run.run_command(command, (tmp_path / "log").open("w+b"), 7)) == ""


def test_a_running_step_is_described_by_the_last_line_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = tmp_path / "said"
    last_line = run.last_line

    def seen(log: Path) -> str:
        line = last_line(log)
        # The log begins with the command itself.
        if line.startswith("TASK"):
            said.touch()
        return line

    monkeypatch.setattr(run, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(run, "last_line", seen)
    steps(monkeypatch, slow=python(f"print('TASK [x]', flush=True)\n{until(said)}"), unit=python(""))
    assert run.main([]) == 0
    assert re.search(r"slow: \d+ s, TASK \[x\]", capfd.readouterr().out)


def test_the_slowest_tests_are_named_with_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = "".join(f'<testcase classname="c" name="t{n}" time="{n}"/>' for n in range(40))
    text = f'<testsuites><testsuite tests="40">{cases}</testsuite></testsuites>'
    write = python(f"import pathlib; pathlib.Path({str(run.JUNIT / 'unit.xml')!r}).write_text({text!r})", junit=True)
    steps(monkeypatch, unit=write)
    assert run.main(["unit"]) == 0
    lines = (run.LOGS / "slowest.txt").read_text().splitlines()
    assert len(lines) == 26
    assert lines[1].split() == ["39.0", "5.0%", "unit", "c::t39"]


def test_what_failed_is_named_before_the_totals(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        '<testsuites><testsuite tests="3" failures="1" errors="1" skipped="0">'
        '<testcase classname="a.b" name="test_good"/>'
        '<testcase classname="a.b" name="test_bad"><failure message="assert 1\n == 2">all of it</failure></testcase>'
        '<testcase classname="a.b" name="test_odd"><error message="no host"/></testcase></testsuite></testsuites>'
    )
    write = f"import pathlib, sys; pathlib.Path({str(run.JUNIT / 'unit.xml')!r}).write_text({text!r}); sys.exit(1)"
    steps(monkeypatch, unit=python(write, junit=True))
    assert run.main([]) == 1
    lines = capfd.readouterr().out.splitlines()
    begin = lines.index("FAILED unit: a.b::test_bad: assert 1 == 2")
    assert lines[begin + 1] == "FAILED unit: a.b::test_odd: no host"
    assert lines[-1] == "1 passed, 2 failed"
    assert begin < lines.index(run.HEAD, begin)


def test_every_result_counts_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    commands = (junit_writer("unit.xml", 7), junit_writer("unit-more.xml", 5))
    monkeypatch.setattr(run, "STEPS", {"unit": run.Step("quick", commands)})
    assert run.main(["unit"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "12 passed, 0 failed"


def test_an_unknown_step_is_refused_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["lnit"])
    assert "no such step: lnit (there are lint," in capsys.readouterr().err


def test_the_results_of_each_shipped_run_are_counted_in_its_own_step_and_nowhere_else() -> None:
    seen: set[str] = set()
    for name, step in SHIPPED.items():
        for command in step.commands:
            for argument in command.argv:
                if argument.startswith("--junitxml="):
                    file = Path(argument.partition("=")[2]).name
                    assert file.startswith(name), f"{file} is not counted in the step {name}"
                    assert file not in seen, f"two runs write {file}"
                    seen.add(file)


def test_no_test_file_is_run_by_two_steps() -> None:
    commands = [command for step in SHIPPED.values() for command in step.commands]
    files = [word for command in commands for word in command.argv if word.startswith("tests/system/")]
    assert len(files) == len(set(files))


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose release has one step, which covers the folder ``role`` and passes 5 tests."""
    release = run.Step(run.RELEASE, (junit_writer("more.xml", 5),), covers=("role",))
    monkeypatch.setattr(run, "STEPS", {"unit": run.Step("quick", (junit_writer("unit.xml", 7),)), "more": release})
    for name in ("role/tasks.yml", "docs/other.md", "tests/run.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("as it was\n")
    (tmp_path / record.PAGE).write_text(PAGE)
    (tmp_path / ".gitignore").write_text("logs\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "the first")
    return tmp_path


def test_the_record_is_written_with_the_page_and_of_a_commit_alone(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["--record"]) == 0
    assert "due before a release: make more (no pass is recorded)" in capfd.readouterr().out
    head = git(checkout, "rev-parse", "--short=12", "HEAD")
    known = record.load(checkout)
    assert (list(known), known["unit"].commit, known["unit"].tests) == (["unit"], head, 7)
    assert f"| `make unit` | {known['unit'].date} | {head} | 7 |" in (checkout / record.PAGE).read_text()
    # What it wrote itself is no change of the code.
    assert run.main(["more", "--record"]) == 0
    assert record.load(checkout)["more"].commit == head
    (checkout / "role/tasks.yml").write_text("changed\n")
    with pytest.raises(SystemExit):
        run.main(["--record"])
    assert "role/tasks.yml" in capfd.readouterr().err


def test_a_step_of_the_release_is_due_when_what_it_covers_has_changed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def says(*words: str) -> tuple[str, list[str]]:
        assert run.main(words) == 0
        lines = capfd.readouterr().out.splitlines()
        return lines[-1], [line for line in lines if line.startswith("due ")]

    assert run.main(["more", "--record"]) == 0
    (checkout / "docs/other.md").write_text("changed\n")
    assert says() == ("7 passed, 0 failed", [])
    (checkout / "role/tasks.yml").write_text("changed\n")
    # It is recorded to take no time, which counts as unknown, so it is only named.
    before = record.load(checkout)["more"]
    why = f"since {before.date}: role/tasks.yml"
    assert says() == ("7 passed, 0 failed", [f"due before a release: make more ({why})"])
    record.save(checkout, {"more": record.Pass(before.date, before.commit, 60, 5)})
    assert says() == ("12 passed, 0 failed", [])
    monkeypatch.setattr(run, "LIMIT_S", 50.0)
    assert says()[0] == "7 passed, 0 failed"
    git(checkout, "commit", "-qam", "the second")
    assert says("--release") == ("12 passed, 0 failed", [])
    assert record.load(checkout)["more"].commit == git(checkout, "rev-parse", "--short=12", "HEAD")


def test_a_failed_suite_runs_nothing_that_is_due_and_records_only_what_passed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = run.Step("other", (python("raise SystemExit(1)"),))
    monkeypatch.setattr(run, "STEPS", {**run.STEPS, "broken": broken})
    assert run.main(["--release"]) == 1
    assert list(record.load(checkout)) == ["unit"]
    assert capfd.readouterr().out.splitlines()[-1] == "7 passed, 1 failed"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(104.0, "4% slower than recorded"), (50.0, "50% faster than recorded"), (100.4, "as long as recorded")],
)
def test_seconds_are_compared_with_the_record(seconds: float, words: str) -> None:
    assert record.compared(seconds, record.Pass("2026-11-27", "0" * 12, 100, 1)) == words


def test_each_step_says_how_its_time_compares(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "STEPS", {**run.STEPS, "lint": run.Step("other", (python(""),))})
    record.save(checkout, {"unit": record.Pass("2026-11-27", "0" * 12, 900, 7)})
    assert run.main([]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("unit ")]
    assert lines
    assert all(line.endswith("100% faster than recorded") for line in lines)


def test_what_a_step_of_the_release_covers_is_there() -> None:
    covers = {name: step.covers for name, step in SHIPPED.items() if step.lane == run.RELEASE}
    assert all(covers.values())
    for name, paths in covers.items():
        for path in paths:
            assert git(CHECKOUT, "ls-files", "--", path), f"{name} covers {path}, which is not there"


def test_the_page_has_the_table_of_the_record() -> None:
    page = (CHECKOUT / record.PAGE).read_text()
    assert page == record.with_table(page, record.load(CHECKOUT))
