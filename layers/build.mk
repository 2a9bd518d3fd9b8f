# What the Makefiles of layers and functions share when `sam build` runs them (BuildMethod: makefile). ARTIFACTS_DIR is
# set by SAM. Neither Docker nor the runtime's own Python is needed:
#
#   GPULEASE_BUILD_PYTHON    a Python with pip (default: python3)
#   GPULEASE_BUILD_PLATFORM  lambda = wheels for the Lambda runtime, on whatever computer (default)
#                            host = wheels for GPULEASE_BUILD_PYTHON itself, for a stand-in of AWS on this computer
#   GPULEASE_RUNTIME_PYTHON  a Python of the runtime's version (default: python3.13); without one nothing is precompiled

SHELL := /bin/sh
GPULEASE_BUILD_PYTHON ?= python3
GPULEASE_BUILD_PLATFORM ?= lambda
GPULEASE_RUNTIME_PYTHON ?= python3.13
RUNTIME_VERSION := 3.13

ifeq ($(GPULEASE_BUILD_PLATFORM),host)
COMPILER := $(GPULEASE_BUILD_PYTHON)
WHEELS :=
RIGHT_VERSION := True
else
COMPILER := $(GPULEASE_RUNTIME_PYTHON)
WHEELS := --implementation cp --python-version $(RUNTIME_VERSION) \
          --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64
RIGHT_VERSION := "%d.%d" % sys.version_info[:2] == "$(RUNTIME_VERSION)"
endif

# $(call install,requirements file,folder): exactly what the file pins, ready-made wheels only, without what no function
# imports: commands, and the top-level test packages that one wheel brings along.
define install
	$(GPULEASE_BUILD_PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --no-compile --no-deps \
	  --only-binary=:all: $(WHEELS) --target "$(2)" --requirement $(1)
	rm -rf "$(2)/bin" "$(2)/tests" "$(2)/integrity_tests"
endef

# $(call precompile,folder,its path in Lambda): a deployed layer is read-only, so without this every cold start compiles everything anew.
# The hash mode does not look at file times, which SAM's archives do not keep.
define precompile
	find "$(1)" -name __pycache__ -type d -prune -exec rm -rf {} +
	@if $(COMPILER) -c 'import sys; sys.exit(not ($(RIGHT_VERSION)))' >/dev/null 2>&1; then \
	  $(COMPILER) -m compileall -q --invalidation-mode unchecked-hash -s "$(1)" -p "$(2)" "$(1)"; \
	else \
	  echo "Not precompiled: $(COMPILER) is no Python $(RUNTIME_VERSION). Cold starts take longer." >&2; \
	fi
endef
