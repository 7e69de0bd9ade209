# Newcomers only need make run and make test; both install missing packages.

BUILD = build
ADDRESS = 127.0.0.1:8080

PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
UNITDIR = $(PREFIX)/lib/systemd/system
MANDIR = $(PREFIX)/share/man/man1
COMPLETIONDIR = $(PREFIX)/share/bash-completion/completions

.PHONY: all run build test test-full test-citus test-ha test-image mutants prove prove-planted bench coverage docs screenshots image deb release install uninstall format check-format fuzz clean

all: build

run: build
	@echo "Try, in another terminal:"
	@echo "  curl -X POST http://$(ADDRESS)/api/v1/internal/counts -H 'Idempotency-Key: create-visits' -H 'Content-Type: application/json' -d '{\"itemId\":\"visits\"}'"
	@echo "  curl -X POST http://$(ADDRESS)/api/v1/counts/visits/increase"
	@echo "  curl http://$(ADDRESS)/api/v1/internal/counts/visits"
	@exec $(BUILD)/quipu serve --listen $(ADDRESS)

build:
	@scripts/deps.sh build
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD) -Dbench=true >/dev/null
	@ninja --quiet -C $(BUILD)

# Tests every promise once, in minutes. tests/README.md says how to run a part.
test:
	@scripts/deps.sh test
	@tests/run.py quick

# Adds the rest: threads under TSan, long fault tests, attacks, images, packages, coverage.
test-full:
	@scripts/deps.sh test full image deb
	@tests/run.py full --tree build-coverage

# Runs the suites and stories of the store on a private Citus cluster. Citus is found by pg_config (or PG_CONFIG=…).
test-citus:
	@scripts/deps.sh test
	@tests/run.py citus

# Kills one of several servers of each engine under load: PostgreSQL, Redis, Kafka, NATS, RabbitMQ.
test-ha:
	@scripts/deps.sh test
	@tests/run.py ha

# Builds the images and runs the program inside them.
test-image:
	@scripts/deps.sh test image
	@tests/run.py image

# Plants known faults, one at a time, and expects the suite that each one names to notice it.
mutants:
	@scripts/deps.sh test
	@tests/mutants/run.py

# Breaks everything under load and then checks every answer; ARGS="--minutes 3 --seed 7 --only gateway --store sqlite".
prove: build
	@scripts/deps.sh test
	@tests/prove/prove.py --build $(BUILD) $(ARGS)

# Plants mistakes, one at a time, and expects the proof to find each of them.
prove-planted:
	@scripts/deps.sh test
	@tests/prove/planted.py $(ARGS)

bench: build
	@scripts/deps.sh bench
	@bench/bench.py

# make test, on a build that counts which lines run. Fails below the minimums in tests/runner/coverage.py.
coverage:
	@scripts/deps.sh test
	@tests/run.py quick --tree build-coverage

# Renews the pictures of docs/CONSOLE.md and README.md.
screenshots: build
	@scripts/deps.sh full
	@scripts/screenshots.py $(BUILD)/quipu docs/images

# Generates the page of options from the program's own table.
docs: build
	@$(BUILD)/quipu help configuration > docs/CONFIGURATION.md

# Builds quipu, count-processing-service and one image for each other role, with docker, podman or buildah.
image:
	@scripts/image.sh

# Builds a Debian package in build-deb/.
deb:
	@scripts/deps.sh build deb
	@scripts/deb.sh build-deb

# Builds sources, package, image, bill of materials and checksums of the last commit in dist/.
release:
	@scripts/deps.sh build deb image
	@scripts/release.sh dist

# Installs the result of make build. Builds only if there is none, so that root need not build.
install: $(BUILD)/quipu
	@install -d $(addprefix $(DESTDIR),$(BINDIR) $(UNITDIR) $(MANDIR) $(COMPLETIONDIR))
	@install -m 755 $(BUILD)/quipu $(DESTDIR)$(BINDIR)/quipu
	@sed 's|/usr/local/bin/|$(BINDIR)/|' deploy/quipu.service > $(DESTDIR)$(UNITDIR)/quipu.service
	@$(BUILD)/quipu help man > $(DESTDIR)$(MANDIR)/quipu.1
	@$(BUILD)/quipu help bash > $(DESTDIR)$(COMPLETIONDIR)/quipu
	@cd $(DESTDIR)/ && chmod 644 .$(UNITDIR)/quipu.service .$(MANDIR)/quipu.1 .$(COMPLETIONDIR)/quipu

# Keeps settings (/etc/quipu) and data (/var/lib/quipu).
uninstall:
	@rm -f $(addprefix $(DESTDIR),$(BINDIR)/quipu $(UNITDIR)/quipu.service $(MANDIR)/quipu.1 $(COMPLETIONDIR)/quipu)

$(BUILD)/quipu:
	@$(MAKE) --no-print-directory build

format:
	@scripts/deps.sh test
	@clang-format -i $$(git ls-files '*.c' '*.h')

check-format:
	@clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')

# Ten minutes per fuzz target. Not part of make test, which only replays the corpus.
fuzz:
	@scripts/deps.sh test
	@tests/fuzz/run.sh

clean:
	@rm -rf build build-plain build-asan build-tsan build-coverage build-fuzz build-clang build-image build-deb build-package build-soak build-pycache build-mutants build-planted build-prove build-times.json dist
