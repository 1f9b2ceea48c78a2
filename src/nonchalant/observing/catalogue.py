"""Every metric there is: name, kind, labels, and what it means. The reference is written from this table, and the
dashboard and the alerts may name nothing else.

`over` says how the same metric of several nodes is read: each node tells its own part (`sum`), or all tell of the same
store or chain (`max`). `most` bounds the series that one node keeps of it; what would be beyond that is counted under
`other`, so that nobody's input, and no number of lanes, makes a page without end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nonchalant.words import TERMINAL_STATES, AttemptKind

PREFIX: Final = "nonchalant_"
OTHER: Final = "other"

# Lanes of which a node tells singly: those that it works now and that have most to tell. All of them are in the sums.
MOST_LANES: Final = 100

# From a commit on a fast disk to a hung one; from a local signer to finality on a slow chain.
QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SLOW: Final = (0.005, 0.015, 0.05, 0.15, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 150.0, 300.0, 900.0, 1800.0, 3600.0)
SIZES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Over(StrEnum):
    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Metric:
    """One row. By identity: it is looked up for every single count."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    over: Over = Over.SUM
    buckets: tuple[float, ...] = ()
    most: int = 200

    def __repr__(self) -> str:
        return self.name


def _counter(name: str, help: str, *labels: str, most: int = 200) -> Metric:  # noqa: A002 - Prometheus' own word
    return Metric(name=PREFIX + name, kind=Kind.COUNTER, help=help, labels=labels, most=most)


def _gauge(name: str, help: str, *labels: str, over: Over = Over.SUM, most: int = 200) -> Metric:  # noqa: A002
    return Metric(name=PREFIX + name, kind=Kind.GAUGE, help=help, labels=labels, over=over, most=most)


def _histogram(name: str, help: str, *labels: str, buckets: tuple[float, ...]) -> Metric:  # noqa: A002
    return Metric(name=PREFIX + name, kind=Kind.HISTOGRAM, help=help, labels=labels, buckets=buckets, most=100)


# --- transactions ---

ACCEPTED: Final = _counter("accepted_total", "Transactions that were accepted.", "chain")
INTAKE_ANSWERS: Final = _counter(
    "intake_answers_total",
    "What was answered to requests: `accepted`, `repeated` (the idempotency key was known), or why not.",
    "answer",
)
ENDED: Final = _counter("ended_total", "Transactions that ended, by the state they ended in.", "chain", "state")
ATTEMPTS: Final = _counter(
    "attempts_total",
    "Attempts that were signed, by kind: `bump` counts bumps, `filler` what closed gaps.",
    "chain",
    "kind",
)
REFUSALS: Final = _counter(
    "refusals_total", "Attempts that a node refused, by the class of its reason.", "chain", "reason"
)
REORGED: Final = _counter(
    "reorged_total", "Transactions whose block left the chain: they are in flight again.", "chain"
)
SUPERSEDED: Final = _counter("superseded_total", "Transactions whose nonce somebody else used, at finality.", "chain")
ATTENTION: Final = _counter(
    "attention_total",
    "Marks that were set, on a `transaction` or a `lane`, by code.",
    "of",
    "code",
)
WAY: Final = _histogram(
    "way_seconds",
    "How long transactions took for each part of their way: `accepted_signed`, `signed_sent`, `sent_mined`,"
    " `mined_final`, and all of it, `accepted_final`. A part that began on another node or before a restart is left out"
    " where nothing stored tells when.",
    "chain",
    "part",
    buckets=SLOW,
)
STAGE: Final = _histogram(
    "stage_seconds",
    "How long stages took when there was something to do: `accept` (a caller waits for this), `sign`, and those of a"
    " lane.",
    "stage",
    buckets=QUICK,
)
INTAKE_BATCH: Final = _histogram("intake_batch_size", "Requests that shared one commit.", buckets=SIZES)
INTAKE_WAITING: Final = _gauge("intake_waiting", "Requests that wait for their commit.")

# --- what there is to do, in the whole store ---

LIVE: Final = _gauge(
    "live_transactions",
    "Transactions that have not ended, by state; `held` are queued ones that wait for a person. Counted to 100,000.",
    "chain",
    "state",
    over=Over.MAX,
)
OLDEST: Final = _gauge(
    "oldest_unmined_seconds",
    "Age of the oldest transaction that is not mined and not held; 0: there is none.",
    "chain",
    over=Over.MAX,
)
LANES: Final = _gauge(
    "lanes",
    "Lanes that are `paused`, `draining` or `halted`, `quarantined`, `unhealthy`, or `marked` for attention.",
    "chain",
    "condition",
    over=Over.MAX,
)

# --- lanes that this node works ---

IN_FLIGHT: Final = _gauge("in_flight", "Nonces that are given out and that no block is known to have used.", "chain")
GAPS: Final = _gauge("nonce_gaps", "Nonces bound to nothing that something signed waits behind.", "chain")
LANES_WORKED: Final = _gauge("lanes_worked", "Lanes that this node works now.", "chain")
LANE_IN_FLIGHT: Final = _gauge(
    "lane_in_flight", "As `nonchalant_in_flight`, of one lane.", "chain", "address", most=MOST_LANES
)
LANE_GAPS: Final = _gauge(
    "lane_nonce_gaps", "As `nonchalant_nonce_gaps`, of one lane.", "chain", "address", most=MOST_LANES
)
LANE_OLDEST: Final = _gauge(
    "lane_oldest_unmined_seconds",
    "Age of the oldest transaction of one lane that has a nonce and is not mined.",
    "chain",
    "address",
    most=MOST_LANES,
)
LANE_BALANCE: Final = _gauge(
    "lane_balance_wei", "What the account had when it was last looked at.", "chain", "address", most=MOST_LANES
)
LANE_RESTARTS: Final = _counter(
    "lane_restarts_total",
    "Lanes that were loaded anew after an error: `expected` (the store, mostly), `unexpected`, or `poisoned` by one"
    " transaction.",
    "why",
)

# --- ownership ---

LEASES: Final = _gauge("leases_held", "Lanes that this node has leased.")
LEASE_CHANGES: Final = _counter(
    "lease_changes_total",
    "Leases that were `taken`, `refused` (another node was faster), `lost` or `released`.",
    "change",
)
FENCED: Final = _counter(
    "fence_rejections_total", "Writes that the store refused because the lease was another's by then."
)
NODES: Final = _gauge("nodes", "Nodes that live, as this one last heard.", over=Over.MAX)

# --- the store ---

STORE: Final = _histogram("store_seconds", "How long the store took, by what it was asked.", "operation", buckets=QUICK)
STORE_ERRORS: Final = _counter(
    "store_errors_total",
    "Questions that the store did not answer: `unavailable`, `commit_unknown`, `unreadable`, or `unexpected`.",
    "error",
)
ROWS_MOVED: Final = _counter(
    "rows_moved_total", "Commits that were built anew because somebody else had changed a row meanwhile."
)
WAKES_LOST: Final = _counter(
    "wakes_lost_total", "How often the connection was lost on which nodes wake each other (PostgreSQL)."
)
WAKES_CONNECTED: Final = _gauge(
    "wakes_connected", "1: wake-ups from other nodes are heard (PostgreSQL); 0: only the sweep finds their work."
)

# --- chains and endpoints ---

HEAD: Final = _gauge("chain_head", "The newest block that is linked.", "chain", over=Over.MAX)
FINAL: Final = _gauge("chain_final", "The newest block that is final.", "chain", over=Over.MAX)
TROUBLED: Final = _gauge(
    "chain_troubled", "1: the chain cannot be followed now, so nothing is settled; the log says why.", "chain",
    over=Over.MAX,
)  # fmt: skip
CHAIN_REORGS: Final = _counter("chain_reorgs_total", "How often blocks that were linked were replaced.", "chain")
ENDPOINT_UP: Final = _gauge("endpoint_up", "1: it answered when it was last asked for its head.", "chain", "endpoint")
ENDPOINT_HEAD: Final = _gauge("endpoint_head", "The block it last called its head.", "chain", "endpoint")
ENDPOINT_LAG: Final = _gauge(
    "endpoint_lag_blocks", "How many blocks it is behind the best endpoint of its chain.", "chain", "endpoint"
)
ENDPOINT_CALLS: Final = _counter(
    "endpoint_calls_total",
    "Questions to an endpoint, by what was asked: `ok`, `refused` (it answered with an error), or `unreachable`.",
    "chain",
    "endpoint",
    "call",
    "outcome",
    most=1000,
)
ENDPOINT_SECONDS: Final = _histogram(
    "endpoint_seconds", "How long an endpoint took to answer.", "chain", "endpoint", buckets=QUICK
)
SENDS: Final = _counter(
    "sends_total",
    "Signed transactions handed to an endpoint, by its answer: `accepted`, `refused` or `unknown`.",
    "chain",
    "endpoint",
    "answer",
)

# --- webhooks that this node delivers for ---

WEBHOOK_LAG: Final = _gauge(
    "webhook_lag_seconds", "Age of the oldest delivery that its receiver has not taken; 0: there is none.", "webhook"
)
WEBHOOK_WAITING: Final = _gauge(
    "webhook_waiting", "Deliveries that wait, for their turn or for another try.", "webhook"
)
WEBHOOK_TRIES: Final = _counter(
    "webhook_tries_total",
    "Deliveries that were tried: `delivered`, `failed` (it is tried again), or `given_up`.",
    "outcome",
)
WEBHOOK_SECONDS: Final = _histogram(
    "webhook_seconds", "How long deliveries took from the event to the receiver's word that it has it.", buckets=SLOW
)

# --- calls ---

CALLS: Final = _counter(
    "http_requests_total",
    "Calls that were answered, by route and status; paths that do not exist are `none`.",
    "method",
    "route",
    "status",
    most=500,
)
CALL_SECONDS: Final = _histogram(
    "http_request_seconds",
    "How long calls took. Those that wait for a change by their own wish are left out; of a stream, the time to its beginning counts.",
    "route",
    buckets=QUICK,
)
CALLS_UNDER_WAY: Final = _gauge("http_requests_under_way", "Calls that are being answered now.")

# --- this process ---

BUILD: Final = _gauge("build_info", "1, with the version that runs.", "version", "python", "store")

# What prometheus-client tells of the process, as it does everywhere.
_PROCESS: Final = tuple(
    Metric(name=f"process_{name}", kind=kind, help=about)
    for name, kind, about in (
        ("cpu_seconds_total", Kind.COUNTER, "Processor time, user and system."),
        ("resident_memory_bytes", Kind.GAUGE, "Memory in use."),
        ("virtual_memory_bytes", Kind.GAUGE, "Address space in use."),
        ("start_time_seconds", Kind.GAUGE, "When the process started, since the Unix epoch."),
        ("open_fds", Kind.GAUGE, "Open file descriptors."),
        ("max_fds", Kind.GAUGE, "How many it may open."),
    )
)

OWN: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
CATALOGUE: Final = (*OWN, *_PROCESS)

# What is there before it happens: nobody can tell a first one from a start without the zero before it.
ZEROS: Final[dict[Metric, tuple[str, ...]]] = {
    INTAKE_ANSWERS: ("accepted", "repeated", "queue_full"),
    LANE_RESTARTS: ("expected", "unexpected", "poisoned"),
    WEBHOOK_TRIES: ("delivered", "failed", "given_up"),
    LEASE_CHANGES: ("taken", "refused", "lost", "released"),
    STORE_ERRORS: ("unavailable", "commit_unknown", "unreadable", "unexpected"),
}
# The same for each chain.
ZEROS_OF_A_CHAIN: Final[dict[Metric, tuple[str, ...]]] = {
    ACCEPTED: (),
    REORGED: (),
    SUPERSEDED: (),
    ENDED: tuple(sorted(TERMINAL_STATES)),
    ATTEMPTS: tuple(AttemptKind),
}


def series_of(metric: Metric) -> tuple[str, ...]:
    """What a query may call it."""
    if metric.kind is Kind.HISTOGRAM:
        return tuple(f"{metric.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
    return (metric.name,)
