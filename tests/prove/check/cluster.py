"""Where everything lies when the checks begin: the load has ended, the outboxes are empty, the servers still run."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Forgotten:
    """What an engine was made to forget: everything that it confirmed in this interval may be gone."""

    engine: str
    since_us: int
    until_us: int


@dataclasses.dataclass
class Cluster:
    store_url: str  # the folder of SQLite's files, or postgres://…
    kafka: str | None = None  # host:port, of the engine itself and not of a proxy; None: the local bus
    nats: str | None = None
    rabbitmq: str | None = None
    redis: str | None = None
    servers: list = dataclasses.field(default_factory=list)  # host:port of every Quipu
    quipu: str | None = None  # the binary, for `quipu verify`
    key: str | None = None  # an API key, as it is sent
    key_file: str | None = None
    window_unit_us: int = 1_000_000  # --gateway-window-unit
    settle_s: float = 30  # how long what follows a change may take
    forgotten: list = dataclasses.field(default_factory=list)

    @property
    def is_sqlite(self):
        return not self.store_url.startswith("postgres")

    def forgot(self, engine, since_us, until_us):
        """Whether an engine may have forgotten what it confirmed between these times."""
        return any(f.engine == engine and f.since_us <= until_us and since_us <= f.until_us for f in self.forgotten)
