"""The servers that tests run against: private, on free ports of loopback, with temporary data.

One module per engine; `process` says how each is started and ended, `ports` how it keeps its port. `shared` hands out
what a whole run has in common: tests/run.py starts PostgreSQL, RabbitMQ and Kafka once, and every test gets a database,
a virtual host or topics of its own. What starts in a moment (Redis, NATS) and what a test wants to stop, kill or freeze
is started for that test alone.

    tests/engines/with_server.py ENGINE COMMAND…    runs one command with a server, see there
"""
