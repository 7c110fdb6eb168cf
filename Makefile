# One command for each thing that a person wants to do; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

# The Python that the development environment is made from: 3.11 or newer.
PYTHON ?= /usr/bin/python3
# How many lab hosts there are to be at least; without it what there is, else one.
HOSTS ?=
# With RECORD=1 the steps that pass are recorded in tests/record.json.
WRITE := $(if $(RECORD),--record)

export PYTHON
export LC_ALL := C.UTF-8
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Like pip on Debian, uv is to trust what this machine trusts, a company's proxy included.
export UV_SYSTEM_CERTS := true

LAB := $(PYTHON) tests/lab/lab.py
STEPS := lint unit frontdoor checks page sanity molecule scenarios matrices \
  interpreted fresh shipping sanity-all lab engines fleet vendor bare removal promotion source weights kinds slots nodes watched exhaustive

.PHONY: help demo test release endurance bench bench-converge bench-switch venv prerequisites lab-up lab-down lab-status $(STEPS) format new-profile docs chat site changelog lock build clean

help: ## this list
	@echo "make TARGET; the ones to start with are demo and test"
	sed -nE 's/^([a-z-]+):[^#]*## (.*)/  \1\t\2/p' Makefile | expand -t 18

demo: prerequisites venv ## a lab host from nothing to a verified model, and a completion through its frontdoor
	@python tests/tools/torch_source.py
	$(LAB) up $(if $(HOSTS),--hosts $(HOSTS))
	ansible-playbook -i inventory/lab.yml site.yml
	python tests/demo.py

test: prerequisites venv ## the steps from lint to matrices, in four lanes at once; what is due, as far as there is time
	@python tests/tools/torch_source.py
	sh tests/tools/browser.sh
	python tests/run.py $(WRITE)

release: prerequisites venv ## make test, and all steps of the release that are due; takes up to a day
	@python tests/tools/torch_source.py
	sh tests/tools/browser.sh
	python tests/run.py --release

prerequisites: ## install or name what this machine needs (root on Debian or Ubuntu)
	@sh tests/tools/prerequisites.sh
	$(LAB) prerequisites --install

venv: ## the development environment in .venv, exactly as locked
	@sh tests/tools/prerequisites.sh
	sh tests/tools/venv.sh

lab-up: ## start lab hosts: make lab-up HOSTS=3
	@$(LAB) up $(if $(HOSTS),--hosts $(HOSTS))

lab-down: ## remove the lab hosts and everything that belongs to them
	@$(LAB) down

lab-status: ## what the lab is made of now
	@$(LAB) status

lint: ## ruff, mypy, yamllint, ansible-lint (profile production), changelog
unit: ## pure logic, in milliseconds; the verification of engines over HTTP
frontdoor: ## the frontdoor on loopback, compiled as on most hosts
page: ## the frontdoor's page in a browser
checks: ## the rules of the house, and the built tarball
sanity: ## ansible-test sanity for the plugins that changed
molecule: ## a real host with the real engine: bare, converged, switches that must pass or fail
scenarios: ## a real host with a simulated engine: what happens around a switch, replicas, three plays of the frontdoor
matrices: ## the same: faults, kills and reboots in each phase of a switch
interpreted: ## release: all tests of the frontdoor, interpreted
fresh: ## release: new examples for each property
shipping: ## release: what is seldom broken: the site, the package and its images, mirrors, the chat page from its sources
sanity-all: ## release: ansible-test sanity for everything
lab: ## release: the lab itself: hosts that are broken on purpose and repaired
engines: ## release: every shipped profile against the command lines of the real vLLM releases that stacks pin
fleet: ## release: rollouts and their rollbacks, on four real hosts with a simulated engine
vendor: ## release: driver and compiler on a bare host, from the vendors as the lab plays them
bare: ## release: bare hosts with one, two and four cards become a served model, with nothing set but a mirror
removal: ## release: a served host is left as it was before, with its weights or without
promotion: ## release: a benchmark, an evaluation and a promotion on the real engine, a kill of it, models that think
source: ## release: a stack from source and a mirror, on hosts that reach nothing else
weights: ## release: downloads from the lab's hub, and weights that hosts take from each other
kinds: ## release: llama.cpp from its sources and engines from images on a host, and switches between all of them
slots: ## release: several models on a host, and a model that runs on another host
nodes: ## release: two and three hosts that serve one model on the real engine
watched: ## release: the watchdog and the role monitoring beside the real engine
exhaustive: ## release: all scenarios; takes hours
$(STEPS): venv
	@python tests/run.py $(WRITE) $@

endurance: venv ## the frontdoor's trials in full size; takes hours, its results are recorded in tests/load/README.md
	@python tests/load/endure.py all

bench-converge: venv ## what the preflight of 1, 10 and 50 simulated hosts costs the controller, against the record: make bench-converge [RECORD=1]
	@python tests/tools/bench_converge.py --hosts 1 10 50 $(if $(RECORD),--record)

bench-switch: venv ## what a switch takes beyond its engine: make bench-switch B70_LAB=scenarios HOST=scenarios1 A=sim-a B=sim-b, or what the ways take: WAYS="A,B C,D"
	@B70_LAB=$(or $(B70_LAB),lab) python tests/scenarios/overhead.py $(if $(WAYS),ways) $(or $(HOST),lab1) $(or $(WAYS),$(or $(A),tiny-a) $(or $(B),tiny-b))

bench: venv ## the frontdoor against nginx, with every target: make bench [BEFORE=GITREF]; wants a machine that does nothing else
	@python tests/load/bench.py --all --write $(if $(BEFORE),--before $(BEFORE))

format: venv ## let ruff format and sort
	@ruff check --fix --quiet . || true
	ruff format .

new-profile: venv ## a profile of your own: make new-profile NAME=... [FROM=PROFILE_OR_EXAMPLE] [DIR=FOLDER]
	@ansible-playbook playbooks/new_profile.yml -e profile=$(NAME) $(if $(FROM),-e b70_from=$(FROM)) $(if $(DIR),-e b70_profile_dir=$(abspath $(DIR)))

docs: venv ## write the tables in READMEs and docs from their data
	@python tests/tools/role_docs.py
	python tests/tools/model_table.py
	python tests/tools/doctor_docs.py
	python tests/tools/pair_docs.py
	python tests/tools/code_docs.py
	python tests/tools/dashboards.py

chat: ## the frontdoor's chat page from its sources; wants Node 18 or newer with npm
	@sh tests/tools/chat_page.sh

site: venv ## the documentation as a site in .cache/site/html, with the reference of every plugin and role
	@python tests/tools/docs_site.py

changelog: venv ## write CHANGELOG.md from changelogs/fragments for the version in galaxy.yml
	@antsibull-changelog release --update-existing

lock: venv ## resolve requirements/*.in anew into the hashed locks
	@for name in uv dev; do
	  uv pip compile --quiet --system-certs --upgrade --universal --python-version 3.11 --generate-hashes \
	    --custom-compile-command 'make lock' requirements/$$name.in --output-file requirements/$$name.txt
	done
	for lock in model_weights/files/hub/requirements frontdoor/files/frontdoor/build-requirements frontdoor/files/frontdoor/compile-requirements; do
	  uv pip compile --quiet --system-certs --upgrade --universal --python-version 3.11 --generate-hashes \
	    --custom-compile-command 'make lock' roles/$$lock.in --output-file roles/$$lock.txt
	done

build: venv ## the collection's tarball in .cache/build
	@ansible-galaxy collection build --force --output-path .cache/build

clean: ## remove .venv, caches and logs (not the lab: make lab-down)
	rm -rf .venv .cache .ansible
