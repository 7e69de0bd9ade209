"""Prints why a load was not served: what every node of a cluster was doing while no change was acknowledged."""

import contextlib
import time

import psycopg2

from .workers import Workers

PAUSE_S = 2.0  # prints when a pause has lasted so long, and again whenever it has lasted that much longer
LOOK_S = 0.1

QUERIES = {
    "sessions": """
        SELECT pid, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid),
            clock_timestamp() - xact_start AS transaction, clock_timestamp() - query_start AS statement, left(query, 120)
        FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND (datname = current_database() OR wait_event_type IS DISTINCT FROM 'Activity')
        ORDER BY xact_start, query_start""",
    "locks that somebody waits for": """
        WITH waited AS (
            SELECT DISTINCT locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid
            FROM pg_locks WHERE NOT granted)
        SELECT l.pid, l.virtualtransaction, l.mode, l.granted, w.locktype, w.relation::regclass, w.page, w.tuple,
            w.transactionid, w.virtualxid, w.classid, w.objid, w.objsubid
        FROM waited w JOIN pg_locks l
            ON (l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid, l.objid,
                l.objsubid)
            IS NOT DISTINCT FROM
               (w.locktype, w.database, w.relation, w.page, w.tuple, w.virtualxid, w.transactionid, w.classid, w.objid,
                w.objsubid)
        ORDER BY w::text, l.granted DESC""",
    "prepared transactions": """
        SELECT transaction, gid, clock_timestamp() - prepared AS age FROM pg_prepared_xacts WHERE database = current_database()""",
    "what moving shards have sent": """
        SELECT pid, application_name, state, sent_lsn, write_lsn, flush_lsn, clock_timestamp() - reply_time AS replied,
            pg_current_wal_lsn() AS written
        FROM pg_stat_replication""",
    "what moving shards have received": """
        SELECT pid, subname, received_lsn, latest_end_lsn, clock_timestamp() - last_msg_receipt_time AS received,
            clock_timestamp() - latest_end_time AS ended
        FROM pg_stat_subscription""",
}


class Pauses(Workers):
    """Looks at a load while the block runs."""

    def __init__(self, load, server, database):
        """`load` is a Load on `server`, whose store is `database`."""
        super().__init__(1)
        self._load, self._server, self._database = load, server, database

    def _work(self, number):
        due_s, pause_s = PAUSE_S, 0.0
        while not self._stop.wait(LOOK_S):
            if pause_s < LOOK_S:
                refused, logs = self._load.refused.copy(), self._log_sizes()
            pause_s = self._load.unserved_s()
            if pause_s >= due_s:
                self._print_state(pause_s, refused, logs)
                logs = self._log_sizes()
                due_s += PAUSE_S
            elif pause_s < PAUSE_S < due_s:
                print(f"served again; {self._refused_since(refused)} refused during the pause", flush=True)
                due_s = PAUSE_S

    def _log_sizes(self):
        return [len(self._server.log_text()), *(node.log_size() for node in self._database.server.nodes)]

    def _refused_since(self, refused):
        return dict(self._load.refused - refused) or "nothing"

    def _print_state(self, pause_s, refused, logs):
        """Prints what `refused` and `logs`, from before the pause, did not have yet, and the state of every node."""
        print(f"---- {time.strftime('%H:%M:%S')}: no change acknowledged for {pause_s:.1f} s, "
              f"{self._refused_since(refused)} refused")
        print(f"-- quipu's log since then\n{self._server.log_text()[logs[0]:]}")
        for node, size in zip(self._database.server.nodes, logs[1:], strict=False):
            print(f"-- the node on port {node.port}; its log since then\n{node.log_since(size)}")
            for title, rows in self._state_of(node):
                print(f"-- {title} on port {node.port}", *(" | ".join(map(str, row)) for row in rows), sep="\n")
        print(end="", flush=True)

    def _state_of(self, node):
        """What QUERIES return on a node, which may be down."""
        try:
            with contextlib.closing(node.connect(self._database.name)) as connection, connection.cursor() as cursor:
                for title, sql in QUERIES.items():
                    cursor.execute(sql)
                    yield title, cursor.fetchall()
        except psycopg2.Error as problem:
            yield "state", [(str(problem).strip(),)]
