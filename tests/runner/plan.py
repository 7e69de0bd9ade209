"""Every job that a run may have: what it runs, on which build, with which servers.

`quick` is make test: every promise once. `rest` is what make test-full adds: threads under TSan, long faults, attacks,
images, packages.

In make test, programs that test functions run under ASan and UBSan, and the end-to-end tests run on a build without
sanitizers: they start the program thousands of times, which takes three times as long under ASan. make test-full and
.ci/run test on build-coverage, which has both sanitizers and also counts the lines it runs, so that measuring costs no second
run. Only the proof and the many random cases run on build-plain there.
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN, ASAN, TSAN, COVERAGE, NO_TREE = "build-plain", "build-asan", "build-tsan", "build-coverage", None
# Line numbers for reports, and no more: full debug information and -O2 take twice as long to compile.
FAST_BUILD = ["-Ddebug=false", "-Dc_args=-g1", "-Doptimization=1"]
FASTEST_BUILD = ["-Ddebug=false", "-Dc_args=-g1", "-Doptimization=0"]  # for programs that do little
TREES = {
    PLAIN: FAST_BUILD,
    ASAN: ["-Db_sanitize=address,undefined", *FASTEST_BUILD],
    COVERAGE: ["-Db_coverage=true", "-Db_sanitize=address,undefined", *FAST_BUILD],
    TSAN: ["-Db_sanitize=thread", *FAST_BUILD],
}
TSAN_OPTIONS = {"TSAN_OPTIONS": "halt_on_error=1 second_deadlock_stack=1"}
E2E_WORKERS = 4  # most tests wait most of the time: for servers, commits, leases
# The files that take longest begin first, so that none of them is left alone at the end.
E2E_FIRST = ["readme", "copy", "verify", "counters_outage", "startup", "operator_cli", "gateway_kafka", "verify_plans",
             "gateway_kafka_loss", "compose", "examples", "sender_webhook", "pots_locks", "attack", "kubernetes", "tls",
             "secrets", "sender", "entitlements_outage", "entitlements_operator", "entitlements_crash",
             "counters_events", "http2_attacks", "gateway_crash", "entitlements_batch", "gateway_outage",
             "access_tokens", "erase_user", "notifications_webhook", "idempotency", "operator_servers",
             "gateway_storms", "pots_routes", "pots_wire"]

E2E_PROGRAMS = ("quipu", "tests/unit/stream_server", "tests/unit/proto_echo", "tests/contract/message_repository_contract",
                "tests/contract/conversation_contract", "tests/contract/counter_repository_contract")

# Each port's suite and the engines it runs on.
CONTRACTS = {
    "store": ("sqlite", "postgres"),
    "idempotency": ("sqlite", "postgres"),
    "announce": ("sqlite", "postgres"),
    "claim": ("sqlite", "postgres"),
    "count_repository": ("sqlite", "postgres"),
    "counter_repository": ("sqlite", "postgres"),
    "entitlement_repository": ("sqlite", "postgres"),
    "gateway_repository": ("sqlite", "postgres"),
    "conversation": ("sqlite", "postgres"),
    "eraser": ("sqlite", "postgres"),
    "message_repository": ("sqlite", "postgres"),
    "notification_repository": ("sqlite", "postgres"),
    "outbound_repository": ("sqlite", "postgres"),
    "pot_repository": ("sqlite", "postgres"),
    "verify": ("sqlite", "postgres"),
    "cache": ("memory", "redis"),
    "bus": ("local", "kafka", "nats", "rabbitmq"),
    "notifier": ("log", "webhook"),
}
# Engines without a server are named in the environment; the others by tests/engines/with_server.py.
WITHOUT_SERVER = {
    "sqlite": {"QUIPU_CONTRACT_STORE": "sqlite:"},
    "memory": {"QUIPU_CONTRACT_CACHE": "memory:"},
    "local": {"QUIPU_CONTRACT_BUS": "local:"},
    "log": {"QUIPU_CONTRACT_CHANNEL": "log"},
    "webhook": {"QUIPU_CONTRACT_CHANNEL": "webhook"},
}
SHARED = ("postgres", "rabbitmq", "kafka")  # started once per run
CLUSTER = "citus"  # too, for make test-citus: the suites and stories of the store, on several nodes
CITUS_E2E = ["acceptance", "concurrency", "counters_events", "counters_flow", "counters_routes", "counts_batch",
             "counts_bounds", "counts_list", "counts_routes", "counts_transfers", "crash", "dialogs_conversations",
             "dialogs_idempotency", "dialogs_routes", "entitlements_audit", "entitlements_batch",
             "entitlements_concurrency", "entitlements_crash", "entitlements_idempotency", "entitlements_operator",
             "entitlements_retention", "entitlements_routes", "entitlements_sources", "gateway_concurrency",
             "gateway_crash", "gateway_idempotency", "gateway_limits", "gateway_messages", "gateway_modes",
             "gateway_send", "gateway_take", "idempotency", "locked_rows", "notifications_intake", "pots_concurrency",
             "pots_idempotency", "pots_routes", "sender", "verify", "verify_unread", "erase_user", "citus",
             "citus_any_node", "citus_commit", "citus_faults"]

# Tests of SQLite, of an older schema, or of how one server locks and plans, have nothing to say of a cluster.
OF_THIS_SCHEMA = "not sqlite and not older and not version_before and not version_without and not on_one_server"

# Suites that also run through the wrapper of --trace-store: together they call every verb of the store's ports.
TRACED = ["store", "idempotency", "announce", "claim", "count_repository", "counter_repository",
          "entitlement_repository", "gateway_repository", "message_repository", "notification_repository",
          "outbound_repository", "pot_repository", "verify", "conversation", "eraser"]

# Tests whose point is several threads; the rest would only be slower under TSan.
TSAN_UNIT = ["lane", "loop", "command", "effects", "gateway_storm", "stream", "hub", "tls", "token_cache"]
TSAN_CONTRACTS = [("announce", "sqlite"), ("announce", "postgres"), ("claim", "sqlite"), ("claim", "postgres"),
                  ("bus", "nats")]
TSAN_FAULTS = ["nats_faults", "nats_delivery_faults", "redis_waker_faults"]
TSAN_E2E = ["test_access_keys.py", "test_concurrency.py", "test_counts_batch.py", "test_drain.py",
            "test_gateway_concurrency.py", "test_http2.py", "test_pots_concurrency.py", "test_tls_certificates.py"]

# Tests with random cases, whose number QUIPU_EFFORT decides (tests/support/effort.h).
RANDOM_UNIT = ["counts", "gateway", "gateway_storm", "limits", "pot_draw", "tls", "unread"]
FULL_EFFORT = {"QUIPU_EFFORT": "full"}


@dataclasses.dataclass
class Job:
    """One program to run. `name` is what people type to run it alone, e.g. contract/claim/postgres."""

    name: str
    kind: str
    runner: str  # cmocka, plain or pytest: how its report is read
    command: list
    tree: str = ASAN
    engine: str = "-"
    env: dict = dataclasses.field(default_factory=dict)
    needs: tuple = ()  # shared servers
    slots: int = 1  # how many jobs it counts as
    seconds: int = 10  # a guess that is used until it was measured: the longest jobs begin first
    targets: tuple = ()  # the programs that it needs of the tree; empty: all


def programs(folder, table):
    """The names in a list or dictionary of a folder's meson.build, so that nothing must be built to know them."""
    text = (ROOT / "tests" / folder / "meson.build").read_text()
    body = re.search(rf"^{table} = [\[{{]\n(.*?)^[\]}}]", text, re.MULTILINE | re.DOTALL).group(1)
    return re.findall(r"^  '(\w+)'", body, re.MULTILINE)


def with_server(engine, command):
    return ["/usr/bin/python3", str(ROOT / "tests/engines/with_server.py"), engine, *command]


def cmocka(name, kind, tree, program, engine="-", env=None):
    command = [f"{tree}/tests/{program}"]
    env = {**WITHOUT_SERVER.get(engine, {}), **(env or {})}
    if engine != "-" and engine not in WITHOUT_SERVER:
        command = with_server(engine, command)
    needs = (engine,) if engine in (*SHARED, CLUSTER) else ()
    return Job(name, kind, "cmocka", command, tree, engine, env, needs, targets=(f"tests/{program}",))


def unit(tree=ASAN, kind="unit", only=None, env=None):
    return [cmocka(f"{kind}/test_{name}" if kind == "unit" else f"{kind}/unit/test_{name}", kind, tree,
                   f"unit/test_{name}", env=env)
            for name in only or programs("unit", "unit_tests")]


def fuzz(tree=ASAN, kind="fuzz"):
    return [Job(f"{kind}/{name}", kind, "plain", [f"{tree}/tests/fuzz/replay_{name}", f"tests/fuzz/corpus/{name}"], tree,
                targets=(f"tests/fuzz/replay_{name}",))
            for name in programs("fuzz", "fuzz_targets")]


def contract(tree=ASAN, kind="contract", only=None, env=None):
    pairs = only or [(port, engine) for port, engines in CONTRACTS.items() for engine in engines]
    name = "contract" if kind == "contract" else f"{kind}/contract"
    return [cmocka(f"{name}/{port}/{engine}", kind, tree, f"contract/{port}_contract", engine, env)
            for port, engine in pairs]


def traced(tree=ASAN, kind="contract"):
    """Each suite once, on the engine that starts quickest: the wrapper does not know which one it wraps."""
    name = "contract" if kind == "contract" else f"{kind}/contract"
    return [cmocka(f"{name}/{port}/traced", kind, tree, f"contract/{port}_contract", "sqlite",
                   {"QUIPU_CONTRACT_TRACE": "1"})
            for port in TRACED]


def faults(tree=ASAN, kind="faults", only=None, env=None):
    name = "faults" if kind == "faults" else f"{kind}/faults"
    return [cmocka(f"{name}/{program}", kind, tree, f"contract/{program}", env=env)
            for program in only or special_programs()]


def special_programs():
    """What is special to single engines: everything in tests/contract that is no port's suite. It starts its servers."""
    return [name for name in programs("contract", "contract_tests") if not name.endswith("_contract")]


def pytest(name, kind, arguments, tree=PLAIN, env=None, slots=1, seconds=10):
    env = {"QUIPU": f"{ROOT}/{tree}/quipu", **(env or {})} if tree else env or {}
    return Job(name, kind, "pytest", list(arguments), tree, env=env, needs=SHARED if tree else (), slots=slots,
               seconds=seconds, targets=E2E_PROGRAMS)


def e2e_files():
    first = [f"tests/e2e/test_{name}.py" for name in E2E_FIRST]
    return first + sorted({str(path.relative_to(ROOT)) for path in ROOT.glob("tests/e2e/test_*.py")} - set(first))


def e2e(tree=PLAIN, kind="e2e", marked="not full", workers=E2E_WORKERS):
    return pytest(kind, kind, ["-n", str(workers), "--dist", "loadfile", "-m", marked, *e2e_files()], tree,
                  slots=workers, seconds=400)


def citus(tree=None):
    """What make test-citus runs. Tests of the store's ports and stories of every service."""
    ports = [(port, CLUSTER) for port, engines in CONTRACTS.items() if "postgres" in engines]
    files = [f"tests/e2e/test_{name}.py" for name in CITUS_E2E]
    stories = pytest("citus/e2e", "citus", ["-n", "2", "--dist", "loadfile", "-m", "not full", "-k",
                                            OF_THIS_SCHEMA, *files], tree or PLAIN, {"QUIPU_TEST_CITUS": "1"}, slots=2)
    stories.needs = (*stories.needs, CLUSTER)
    return [*contract(tree or ASAN, "citus", ports), stories]


def high_availability(tree=None):
    """What make test-ha runs: stories in which one of several servers dies. They take too many servers for make test."""
    return [pytest("ha", "ha", ["tests/e2e/ha"], tree or PLAIN)]


def targets(jobs, tree):
    """What has to be built of a tree for these jobs; empty: all of it."""
    wanted = [job.targets for job in jobs if job.tree == tree]
    return [] if () in wanted else sorted({target for targets in wanted for target in targets})


def tsan():
    files = [f"tests/e2e/{name}" for name in TSAN_E2E]
    return (unit(TSAN, "tsan", TSAN_UNIT, TSAN_OPTIONS) + faults(TSAN, "tsan", TSAN_FAULTS, TSAN_OPTIONS)
            + contract(TSAN, "tsan", TSAN_CONTRACTS, TSAN_OPTIONS)
            + [pytest("tsan/e2e", "tsan", ["-n", "2", "--dist", "loadfile", *files], TSAN,
                      {**TSAN_OPTIONS, **FULL_EFFORT}, slots=2)])


def quick(tree=None):
    layers = pytest("layers", "layers", ["tests/layers"], NO_TREE)
    judges = pytest("prove-checks", "prove-checks", ["-m", "not full", "tests/prove/tests"], NO_TREE)
    programs_tree = tree or ASAN
    return [e2e(tree or PLAIN), *contract(programs_tree), *traced(programs_tree), *unit(programs_tree), *fuzz(programs_tree),
            layers, judges]


def random():
    """Tests with random cases, with twenty times the cases that make test has under the sanitizers. They look for wrong
    answers, for which sanitizers only make them many times slower."""
    return unit(PLAIN, "random", RANDOM_UNIT, FULL_EFFORT)


def proof():
    """Without sanitizers, which cannot run beside the libraries that change the clock and the disk of a process."""
    job = pytest("prove", "prove", ["-m", "full", "tests/prove/tests"], PLAIN, seconds=300)
    return dataclasses.replace(job, needs=(), targets=("quipu", "tests/prove/prove-load"))


def rest(tree=None):
    long = e2e(tree or PLAIN, kind="e2e-full", marked="full", workers=2)
    image = pytest("image", "image", ["tests/image"], NO_TREE)
    package = pytest("package", "package", ["tests/package"], NO_TREE, seconds=300)
    return [long, proof(), image, package, *faults(tree or ASAN), *random(), *tsan()]


SETS = {"quick": quick, "rest": rest, "citus": citus, "ha": high_availability,
        "full": lambda tree: quick(tree) + rest(tree)}
