# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about roles and playbooks. Each takes the root of a tree and returns what breaks it, one line per finding."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

# What an operator may say on the command line of a playbook beside variables with our prefix.
PLAYBOOK_WORDS = frozenset({"profile"})
PATHS = Path("roles/paths/vars/main.yml")
PATHS_IN_CODE = ("plugins/module_utils/_paths.py", "plugins/module_utils/_slot/words/types.py")
WORD = re.compile(r"\w+")
HANDED_ON = re.compile(r"\{\{ (\w+) \| default\(omit\) \}\}")
BLOCKS = ("block", "rescue", "always")


class Loader(yaml.SafeLoader):
    """Reads Ansible's own tags (!unsafe, !vault) as plain values."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))


def load(file: Path) -> Any:
    """Return the content of a YAML file; None when it is missing or empty."""
    return yaml.load(file.read_text(), Loader) if file.is_file() else None


def roles(root: Path) -> Iterator[Path]:
    """Yield the folder of every role, sorted."""
    yield from sorted(path for path in (root / "roles").glob("*") if path.is_dir())


def walk_tasks(tasks: Any) -> Iterator[dict[str, Any]]:
    """Yield every task of a task list, those inside blocks included."""
    for task in tasks or []:
        if isinstance(task, dict):
            yield task
            for part in BLOCKS:
                yield from walk_tasks(task.get(part))


def entry_points(role: Path) -> dict[str, dict[str, Any]]:
    """Return the role's argument specs: entry point -> option -> its specification."""
    specs = (load(role / "meta" / "argument_specs.yml") or {}).get("argument_specs") or {}
    return {name: (spec or {}).get("options") or {} for name, spec in specs.items()}


def module_options(root: Path, module: str) -> dict[str, dict[str, Any]]:
    """Return the options of a module of ours, with those of its documentation fragments."""
    options: dict[str, dict[str, Any]] = {}
    found = [(root / f"plugins/modules/{module}.py", "DOCUMENTATION")]
    while found:
        file, name = found.pop()
        said = yaml.safe_load(re.findall(rf'{name} = r?"""(.*?)"""', file.read_text(), re.DOTALL)[0])
        options |= said.get("options") or {}
        for fragment in said.get("extends_documentation_fragment") or []:
            stem, _dot, part = fragment.removeprefix("arcpro.b70.").partition(".")
            found.append((root / f"plugins/doc_fragments/{stem}.py", part.upper() or "DOCUMENTATION"))
    return options


def handed_on(role: Path) -> dict[str, tuple[str, str]]:
    """Return the variables that a role hands to a module of ours where they are set: name -> (module, option)."""
    return {
        found[1]: (module.rpartition(".")[2], option)
        for file in sorted((role / "tasks").glob("*.yml"))
        for task in walk_tasks(load(file))
        for module, given in task.items()
        if module.startswith("arcpro.b70.") and isinstance(given, dict)
        for option, value in given.items()
        if (found := HANDED_ON.fullmatch(str(value)))
    }


def check_role_defaults(root: Path) -> list[str]:
    """Defaults and argument specs name the same variables with the same values; only required ones have no default, and
    those that are handed to a module, whose documentation the specs then agree with."""
    found = []
    for role in roles(root):
        defaults = load(role / "defaults" / "main.yml") or {}
        points, handed = entry_points(role), handed_on(role)
        if "main" not in points and (role / "tasks").is_dir():
            found.append(f"{role.name}: meta/argument_specs.yml has no entry point main")
        options: dict[str, Any] = {}
        for point, specs in points.items():
            for name, spec in specs.items():
                options.setdefault(name, spec)
                if not spec.get("description") or not spec.get("type"):
                    found.append(f"{role.name}: {point}: {name} has no type or no description")
                if spec.get("required"):
                    if name in defaults:
                        found.append(f"{role.name}: {point}: {name} is required and has a default")
                elif name in handed:
                    module, option = handed[name]
                    said = module_options(root, module)[option]
                    if wrong := [key for key in ("type", "choices", "default") if spec.get(key) != said.get(key)]:
                        found.append(
                            f"{role.name}: {point}: {name} and {option} of {module} differ: {', '.join(wrong)}"
                        )
                elif name not in defaults:
                    found.append(f"{role.name}: {point}: {name} is not in defaults/main.yml")
                elif spec.get("default") != defaults[name]:
                    found.append(
                        f"{role.name}: {point}: {name} is {spec.get('default')!r} in argument_specs.yml"
                        f" and {defaults[name]!r} in defaults/main.yml"
                    )
        found += [f"{role.name}: {name} is not in meta/argument_specs.yml" for name in defaults if name not in options]
    return found


def shared_paths(root: Path) -> dict[str, str]:
    """Return the paths that more than one role knows, by their name in the role that is their one home."""
    return dict((load(root / PATHS) or {}).get("__paths_own") or {})


def check_shared_paths(root: Path) -> list[str]:
    """No role writes a shared path down again, and the roles that use one depend on their home."""
    found = []
    words = "|".join(re.escape(path) for path in sorted(shared_paths(root).values(), reverse=True)) or r"(?!)"
    literal = re.compile(rf"(?:{words})(?![\w.-])")
    for role in [*roles(root), root]:  # the templates of roles are at the root
        texts = {}
        for part in ("defaults", "vars", "tasks", "handlers", "templates"):
            texts.update({file: file.read_text() for file in sorted((role / part).rglob("*")) if file.is_file()})
        for file, text in texts.items():
            for number, line in enumerate(text.splitlines(), 1):
                hit = literal.search(line)
                if hit and file != root / PATHS and not line.lstrip().startswith("#"):
                    found.append(f"{file.relative_to(root)}:{number}: {hit[0]} has its home in {PATHS}")
        needs = [item.get("role") for item in (load(role / "meta" / "main.yml") or {}).get("dependencies") or []]
        uses = role not in (root, root / "roles/paths") and any("__paths_" in text for text in texts.values())
        if uses and "arcpro.b70.paths" not in needs:
            found.append(f"{role.name}: uses __paths_* and does not depend on arcpro.b70.paths in meta/main.yml")
    return found


def check_shared_paths_in_code(root: Path) -> list[str]:
    """No plugin writes a shared path down again but in its documentation, and Python's home has the roles' paths."""
    found = []
    wanted = shared_paths(root)
    known: set[str] = set()
    for file in sorted((root / "plugins").rglob("*.py")):
        home = str(file.relative_to(root)) in PATHS_IN_CODE
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                path = next((path for path in wanted.values() if f"{node.value}/".startswith(f"{path}/")), "")
                known.update({path} if home else ())
                if path and not home:
                    found.append(f"{file.relative_to(root)}:{node.lineno}: {path} has its home in {PATHS_IN_CODE[0]}")
    missing = set(wanted.values()) - known
    return found + [f"{PATHS_IN_CODE[0]}: lacks {path}" for path in sorted(missing)]


def check_role_shapes(root: Path) -> list[str]:
    """A role with mappings or lists among its options refuses text in their place, which Ansible lets pass."""
    found = []
    for role in roles(root):
        kinds = {spec.get("type") for specs in entry_points(role).values() for spec in specs.values()}
        tasks = "".join(file.read_text() for file in sorted(role.glob("tasks/*.yml")))
        if kinds & {"dict", "list"} and "arcpro.b70.b70_role_arguments:" not in tasks:
            found.append(f"{role.name}: no task has arcpro.b70.b70_role_arguments")
    return found


def check_role_entry_points(root: Path) -> list[str]:
    """Every task file that a playbook or another role enters by name has an argument spec."""
    found = []
    files = [*sorted((root / "playbooks").glob("*.yml")), *sorted((root / "roles").glob("*/tasks/*.yml"))]
    for file in files:
        for task in walk_tasks(play_tasks(load(file))):
            for action in ("ansible.builtin.include_role", "ansible.builtin.import_role"):
                target = task.get(action)
                if isinstance(target, dict):
                    name = str(target.get("name", "")).rpartition(".")[2]
                    point = str(target.get("tasks_from", "main")).removesuffix(".yml")
                    if "{{" not in name + point and point not in entry_points(root / "roles" / name):
                        found.append(f"{file.relative_to(root)}: role {name} has no argument spec for {point}")
    return found


def check_accounts(root: Path) -> list[str]:
    """A task about an account says whether it has a home: ansible.builtin.user makes missing homes by default, also for
    an account that exists."""
    found = []
    for file in sorted(root.glob("roles/*/tasks/*.yml")):
        for task in walk_tasks(load(file)):
            account = task.get("ansible.builtin.user")
            if isinstance(account, dict) and "create_home" not in account and account.get("state") != "absent":
                found.append(f"{file.relative_to(root)}: {task.get('name')} does not say create_home")
    return found


def check_reports(root: Path) -> list[str]:
    """Check that reports are printed by b70_print: without our ansible.cfg, debug shows joined lines as one line."""
    return [
        f"{file.relative_to(root)}: {task.get('name')} joins its lines"
        for file in sorted(root.glob("roles/*/tasks/*.yml"))
        for task in walk_tasks(load(file))
        if r"join('\n')" in str((task.get("ansible.builtin.debug") or {}).get("msg"))
    ]


def check_passed_variables(root: Path) -> list[str]:
    """A role gives another role no variable that follows from that same variable: such a template never ends."""
    found = []
    for role in roles(root):
        defaults = load(role / "defaults" / "main.yml") or {}
        for file in sorted((role / "tasks").glob("*.yml")):
            for task in walk_tasks(load(file)):
                for name, value in (task.get("vars") or {}).items():
                    source = WORD.findall(str(value))
                    if any(name in WORD.findall(str(defaults.get(word, ""))) for word in source):
                        found.append(f"{file.relative_to(root)}: {name} follows from itself")
    return found


def play_tasks(content: Any) -> list[Any]:
    """Return the tasks of a playbook's plays, or the content itself when it is a task file."""
    tasks: list[Any] = []
    for item in content or []:
        if isinstance(item, dict) and "hosts" in item:
            for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                tasks += item.get(part) or []
        else:
            tasks.append(item)
    return tasks


def defined_names(task: dict[str, Any]) -> Iterator[str]:
    """Yield the variables that one task defines for later tasks."""
    if isinstance(task.get("register"), str):
        yield task["register"]
    facts = task.get("ansible.builtin.set_fact")
    if isinstance(facts, dict):
        yield from (name for name in facts if name != "cacheable")
    loop_var = (task.get("loop_control") or {}).get("loop_var")
    if loop_var:
        yield str(loop_var)


def check_prefixes(root: Path) -> list[str]:
    """Variables carry the name of their role; those of a playbook start with b70_ or with the name of a role or of an
    entry point."""
    found = []
    names = {name for role in roles(root) for name in (role.name, *entry_points(role))}
    for role in roles(root):
        allowed = (f"{role.name}_", f"__{role.name}_")
        for part in ("defaults", "vars"):
            for file in sorted((role / part).glob("*.yml")):
                for name in load(file) or {}:
                    # b70_* are inputs of the whole fleet, which any role may give a default.
                    if not name.startswith((*allowed, "b70_")):
                        found.append(f"{file.relative_to(root)}: {name} does not start with {role.name}_")
        for file in sorted(role.glob("tasks/*.yml")) + sorted(role.glob("handlers/*.yml")):
            for task in walk_tasks(load(file)):
                for name in defined_names(task):
                    if not name.startswith(allowed):
                        found.append(f"{file.relative_to(root)}: {name} does not start with __{role.name}_")
    known = ("b70_", "__b70_", *(f"{name}_" for name in names))
    for file in sorted((root / "playbooks").glob("*.yml")):
        for play in load(file) or []:
            given = list(play.get("vars") or {})
            for entry in play.get("roles") or []:
                given += list(entry.get("vars") or {}) if isinstance(entry, dict) else []
            for task in walk_tasks(play_tasks([play])):
                given += [*defined_names(task), *(task.get("vars") or {})]
            for name in given:
                if not name.startswith(known) and name not in PLAYBOOK_WORDS:
                    found.append(f"{file.relative_to(root)}: {name} starts neither with b70_ nor with a role's name")
    return found


def check_root_playbooks(root: Path) -> list[str]:
    """A playbook at the root imports the one of the same name in playbooks/, and does nothing else."""
    found = []
    for file in sorted(root.glob("*.yml")):
        content = load(file)
        if not isinstance(content, list):
            continue
        wanted = f"playbooks/{file.name}"
        for play in content:
            if set(play) - {"name"} != {"ansible.builtin.import_playbook"}:
                found.append(f"{file.name}: does more than import {wanted}")
            elif play["ansible.builtin.import_playbook"] != wanted:
                found.append(f"{file.name}: imports {play['ansible.builtin.import_playbook']}, not {wanted}")
        if not (root / wanted).is_file():
            found.append(f"{file.name}: there is no {wanted}")
    return found


OUR_HOSTS = (
    r"\{\{ (?P<checked>lookup\('arcpro\.b70\.target', )?b70_\w+"
    r" \| default\('b70_(?:hosts|control|load_balancers|monitoring)'\)(?(checked)|.* if groups\[)"
)
# Empty where no play has made it.
MADE_GROUP = r"\{\{ *'(?P<made>b70_\w+)' if '(?P=made)' in groups else '!all' *\}\}"


def check_playbook_hosts(root: Path) -> list[str]:
    """Check that the hosts of a play are a variable with a group of ours as default, the group that a play before made
    of such hosts, or the controller. A group of ours without hosts fails, unless the play is for some sites only."""
    found = []
    for file in sorted((root / "playbooks").glob("*.yml")):
        for play in load(file) or []:
            if (play.get("hosts"), play.get("connection")) == ("localhost", "local"):
                continue
            if "hosts" in play and not re.search(f"{OUR_HOSTS}|{MADE_GROUP}", str(play["hosts"])):
                found.append(
                    f"{file.relative_to(root)}: hosts is {play['hosts']!r}, "
                    "not the lookup arcpro.b70.target of a b70_ variable with a group of ours as default"
                )
    return found
