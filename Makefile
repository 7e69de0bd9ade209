# make run and make test are all that a newcomer needs; each installs what it misses.

BUILD = build
ADDRESS = 127.0.0.1:8080

.PHONY: all run build test bench coverage format check-format fuzz clean

all: build

run: build
	@echo "Try, in another terminal:"
	@echo "  curl -X POST http://$(ADDRESS)/api/v1/internal/counts -H 'Content-Type: application/json' -d '{\"itemId\":\"visits\"}'"
	@echo "  curl -X POST http://$(ADDRESS)/api/v1/counts/visits/increase"
	@echo "  curl http://$(ADDRESS)/api/v1/internal/counts/visits"
	@exec $(BUILD)/quipu serve --listen $(ADDRESS)

build:
	@scripts/deps.sh build
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD) -Dbench=true >/dev/null
	@ninja --quiet -C $(BUILD)

test:
	@scripts/deps.sh test
	@tests/run.py

bench: build
	@scripts/deps.sh bench
	@bench/bench.py

coverage:
	@scripts/deps.sh test
	@tests/run.py --coverage

format:
	@scripts/deps.sh test
	@clang-format -i $$(git ls-files '*.c' '*.h')

check-format:
	@clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')

# Ten minutes for each fuzz target; not part of make test, which replays the corpus.
fuzz:
	@scripts/deps.sh test
	@tests/fuzz/run.sh

clean:
	@rm -rf build build-asan build-tsan build-coverage build-fuzz build-clang
