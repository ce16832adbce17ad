# Two commands: `make demo` and `make test`. Both set up what they need in .venv first.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: demo test setup lint format types layers lock clean bench

demo: $(STAMP)
	@$(BIN)/python scripts/demo.py

test: $(STAMP) lint types layers
	@$(BIN)/python -m pytest -m "not postgresql and not slow and not browser and not s3"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh "$(PYTHON)" "$(VENV)"

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP)
	@$(BIN)/mypy

layers: $(STAMP)
	@$(BIN)/lint-imports

bench: $(STAMP)
	@$(BIN)/python -m benchmarks

lock: $(STAMP)
	@$(BIN)/uv pip compile pyproject.toml --extra tasks --extra postgresql --group dev --universal --python-version 3.11 \
		--no-header --no-annotate --no-emit-index-url -q -o requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo
