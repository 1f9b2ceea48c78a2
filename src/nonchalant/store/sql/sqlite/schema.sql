-- The store on SQLite, version 1. Constraints repeat the promises: what the code forgets, the database refuses.

CREATE TABLE meta (
    store_id    TEXT NOT NULL,
    commits     INTEGER NOT NULL DEFAULT 0,      -- rises with each commit: an older copy of the file shows
    incarnation INTEGER NOT NULL DEFAULT 0       -- rises each time an older copy was found
) STRICT;

CREATE TABLE lanes (
    chain_id          INTEGER NOT NULL,
    address           TEXT NOT NULL CHECK (address = lower(address)),
    next_nonce        INTEGER,
    settled_below     INTEGER NOT NULL DEFAULT 0,
    seen_block        INTEGER NOT NULL DEFAULT 0,
    seen_hash         TEXT,
    incarnation       INTEGER NOT NULL DEFAULT 0,
    quarantined_below INTEGER,
    window            INTEGER CHECK (window >= 1),
    resets            INTEGER NOT NULL DEFAULT 0,
    confirmed_at      INTEGER,
    unhealthy         TEXT,
    attention         TEXT,
    PRIMARY KEY (chain_id, address),
    CHECK (next_nonce IS NULL OR next_nonce >= settled_below)
) STRICT;

CREATE INDEX lanes_unhealthy ON lanes (chain_id, address) WHERE unhealthy IS NOT NULL;

-- An operator may give it up; that is counted.
CREATE TRIGGER settled_bounds_rise BEFORE UPDATE OF settled_below ON lanes
WHEN NEW.settled_below < OLD.settled_below AND NEW.resets = OLD.resets
BEGIN
    SELECT RAISE(ABORT, 'what is final stays final');
END;

-- Nothing but the lease; never deleted, and the epoch never decreases.
CREATE TABLE leases (
    chain_id   INTEGER NOT NULL,
    address    TEXT NOT NULL,
    owner      TEXT,
    epoch      INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (chain_id, address)
) STRICT;

CREATE TRIGGER lease_epochs_rise BEFORE UPDATE OF epoch ON leases WHEN NEW.epoch < OLD.epoch
BEGIN
    SELECT RAISE(ABORT, 'a lease epoch never decreases');
END;

CREATE TRIGGER leases_stay BEFORE DELETE ON leases
BEGIN
    SELECT RAISE(ABORT, 'lease rows are never deleted');
END;

-- What people say about a lane; its owner only reads it.
CREATE TABLE controls (
    chain_id INTEGER NOT NULL,
    address  TEXT NOT NULL,
    mode     TEXT NOT NULL CHECK (mode IN ('open', 'paused', 'draining', 'halted')),
    reason   TEXT NOT NULL,
    since    INTEGER NOT NULL,
    PRIMARY KEY (chain_id, address),
    FOREIGN KEY (chain_id, address) REFERENCES lanes
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    owner      TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE transactions (
    place           INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE,
    chain_id        INTEGER NOT NULL,
    address         TEXT NOT NULL,
    state           TEXT NOT NULL
        CHECK (state IN (
            'queued', 'signed', 'sent', 'mined', 'confirmed', 'reverted', 'failed', 'cancelled', 'expired'
        )),
    version         INTEGER NOT NULL DEFAULT 1,
    held            INTEGER NOT NULL DEFAULT 0 CHECK (held = 0 OR state = 'queued'),
    priority        INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    tenant          TEXT NOT NULL,
    idempotency_key TEXT,
    body_hash       TEXT NOT NULL,
    payload         TEXT NOT NULL,
    fees            TEXT NOT NULL,
    metadata        TEXT,
    simulate        INTEGER NOT NULL DEFAULT 0,
    earlier         TEXT,
    valid_until     INTEGER,
    confirmations   INTEGER CHECK (confirmations >= 1),
    on_superseded   TEXT CHECK (on_superseded IN ('requeue', 'hold')),
    nonce           INTEGER
        CHECK (state IN ('failed', 'cancelled', 'expired') OR (state = 'queued') = (nonce IS NULL)),
    hash            TEXT CHECK ((nonce IS NULL) = (hash IS NULL)),
    receipt         TEXT
        CHECK (
            state IN ('failed', 'cancelled', 'expired')
            OR (state IN ('mined', 'confirmed', 'reverted')) = (receipt IS NOT NULL)
        ),
    deep            TEXT CHECK (deep IS NULL OR receipt IS NOT NULL),
    forked          INTEGER NOT NULL DEFAULT 0,
    failure         TEXT CHECK (state = 'reverted' OR (state = 'failed') = (failure IS NOT NULL)),
    attention       TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    FOREIGN KEY (chain_id, address) REFERENCES lanes
) STRICT;

CREATE UNIQUE INDEX one_transaction_a_key ON transactions (idempotency_key, tenant) WHERE idempotency_key IS NOT NULL;
CREATE INDEX transactions_to_assign ON transactions (chain_id, address, priority DESC, place)
    WHERE state = 'queued' AND held = 0;
CREATE INDEX transactions_with_a_deadline ON transactions (valid_until)
    WHERE state = 'queued' AND valid_until IS NOT NULL;
CREATE INDEX transactions_marked ON transactions (chain_id, address, place)
    WHERE state = 'queued' AND attention IS NOT NULL;
CREATE INDEX transactions_live ON transactions (chain_id, address, state)
    WHERE state IN ('queued', 'signed', 'sent', 'mined');
CREATE INDEX transactions_by_nonce ON transactions (chain_id, address, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX transactions_ended ON transactions (chain_id, address, updated_at)
    WHERE state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired');

-- P7: an end is an end.
CREATE TRIGGER ends_are_final BEFORE UPDATE ON transactions
WHEN OLD.state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired')
BEGIN
    SELECT RAISE(ABORT, 'a terminal transaction never changes');
END;

-- What is kept of a transaction that ended long ago: nobody's retry executes it again.
CREATE TABLE removed (
    idempotency_key TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    body_hash       TEXT NOT NULL,
    id              TEXT NOT NULL,
    removed_at      INTEGER NOT NULL,
    PRIMARY KEY (idempotency_key, tenant)
) STRICT, WITHOUT ROWID;

CREATE INDEX removed_by_age ON removed (removed_at);

-- P1: the primary key gives a nonce one owner; the index below gives a transaction one live slot.
CREATE TABLE slots (
    chain_id INTEGER NOT NULL,
    address  TEXT NOT NULL,
    nonce    INTEGER NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('transaction', 'filler', 'reservation')),
    tx_id    TEXT CHECK ((kind = 'transaction') = (tx_id IS NOT NULL)),
    wanted   TEXT NOT NULL CHECK (wanted IN ('payload', 'nothing', 'cancel', 'expiry')),
    payload_version INTEGER NOT NULL CHECK ((payload_version = 0) = (wanted <> 'payload' OR kind = 'filler')),
    holder   TEXT CHECK (holder IS NOT NULL OR kind <> 'reservation') CHECK (holder IS NULL OR kind <> 'transaction'),
    deadline INTEGER CHECK ((deadline IS NULL) = (holder IS NULL)),
    receipt  TEXT,
    settled  INTEGER NOT NULL DEFAULT 0,
    settled_at INTEGER CHECK ((settled_at IS NULL) = (settled = 0)),
    PRIMARY KEY (chain_id, address, nonce),
    FOREIGN KEY (chain_id, address) REFERENCES lanes
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX one_live_slot_a_transaction ON slots (tx_id) WHERE settled = 0 AND tx_id IS NOT NULL;
CREATE INDEX slots_unsettled ON slots (chain_id, address, nonce) WHERE settled = 0;
CREATE INDEX slots_of_nobody ON slots (chain_id, address, settled_at) WHERE settled = 1 AND tx_id IS NULL;

-- In place of a foreign key, which would search all slots for those of each transaction that is removed.
CREATE TRIGGER slots_have_their_transaction BEFORE INSERT ON slots
WHEN NEW.tx_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM transactions WHERE id = NEW.tx_id)
BEGIN
    SELECT RAISE(ABORT, 'there is no such transaction');
END;

-- P2, P8: only what has ended is ever removed, and nothing of a live slot.
CREATE TRIGGER what_lives_stays BEFORE DELETE ON transactions
WHEN OLD.state IN ('queued', 'signed', 'sent', 'mined')
    OR EXISTS (SELECT 1 FROM slots INDEXED BY one_live_slot_a_transaction WHERE tx_id = OLD.id AND settled = 0)
BEGIN
    SELECT RAISE(ABORT, 'nothing that is accepted is lost');
END;

CREATE TRIGGER no_slot_below_the_settled_bound BEFORE INSERT ON slots
WHEN NEW.nonce < (SELECT settled_below FROM lanes WHERE chain_id = NEW.chain_id AND address = NEW.address)
BEGIN
    SELECT RAISE(ABORT, 'this nonce is final already');
END;

CREATE TRIGGER no_settled_bound_above_a_live_slot BEFORE UPDATE OF settled_below ON lanes
WHEN EXISTS (
    SELECT 1 FROM slots INDEXED BY slots_unsettled
    WHERE chain_id = NEW.chain_id AND address = NEW.address AND settled = 0 AND nonce < NEW.settled_below
)
BEGIN
    SELECT RAISE(ABORT, 'a slot below this bound is not final yet');
END;

CREATE TABLE attempts (
    hash      TEXT NOT NULL,
    chain_id  INTEGER NOT NULL,
    address   TEXT NOT NULL,
    nonce     INTEGER NOT NULL,
    tx_id     TEXT,
    kind      TEXT NOT NULL CHECK (kind IN ('original', 'bump', 'cancel', 'filler', 'replacement', 'outside')),
    payload_version INTEGER NOT NULL CHECK ((payload_version = 0) = (kind IN ('cancel', 'filler'))),
    fees      TEXT NOT NULL,
    gas       INTEGER NOT NULL,
    raw       BLOB NOT NULL,
    epoch     INTEGER NOT NULL,
    signed_at INTEGER NOT NULL,
    floor     INTEGER NOT NULL,
    sent_at   INTEGER,
    answer    TEXT,
    given_back INTEGER NOT NULL DEFAULT 0,  -- its slot was freed: whoever has the nonce next has nothing of it
    CHECK ((kind IN ('filler', 'outside')) = (tx_id IS NULL))
) STRICT;

-- The same bytes may be signed again, for whoever has the nonce then: when it was given back, or its chain was reset.
CREATE UNIQUE INDEX one_attempt_a_transaction ON attempts (hash, coalesce(tx_id, ''));
CREATE INDEX attempts_of_a_slot ON attempts (chain_id, address, nonce);
CREATE INDEX attempts_of_a_transaction ON attempts (tx_id) WHERE tx_id IS NOT NULL;
CREATE INDEX attempts_of_nobody ON attempts (chain_id, address, signed_at) WHERE tx_id IS NULL;

-- P4: what was signed stays known.
CREATE TRIGGER attempts_are_append_only
BEFORE UPDATE OF hash, chain_id, address, nonce, tx_id, kind, payload_version, fees, gas, raw, epoch, signed_at, floor
    ON attempts
BEGIN
    SELECT RAISE(ABORT, 'an attempt never changes');
END;

CREATE TRIGGER attempts_of_live_slots_stay BEFORE DELETE ON attempts
WHEN EXISTS (
    SELECT 1 FROM slots
    WHERE chain_id = OLD.chain_id AND address = OLD.address AND nonce = OLD.nonce AND settled = 0
        AND tx_id IS OLD.tx_id
)
BEGIN
    SELECT RAISE(ABORT, 'an attempt stays known until its slot is final');
END;

-- What an account executed unknown to this store: the next request that does the same is held.
CREATE TABLE strangers (
    hash     TEXT PRIMARY KEY,
    chain_id INTEGER NOT NULL,
    address  TEXT NOT NULL,
    nonce    INTEGER NOT NULL,
    deed     TEXT NOT NULL,
    tx_id    TEXT,
    found_at INTEGER NOT NULL
) STRICT;

CREATE INDEX strangers_unmatched ON strangers (chain_id, address) WHERE tx_id IS NULL;
CREATE INDEX strangers_by_age ON strangers (found_at);

-- What people want of what only the owner may write; answered in the owner's commit.
CREATE TABLE wishes (
    place    INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    chain_id INTEGER NOT NULL,
    address  TEXT NOT NULL,
    tx_id    TEXT,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    made_at  INTEGER NOT NULL,
    reply    TEXT,
    FOREIGN KEY (chain_id, address) REFERENCES lanes
) STRICT;

CREATE INDEX wishes_open ON wishes (chain_id, address) WHERE reply IS NULL;
CREATE INDEX wishes_answered ON wishes (made_at) WHERE reply IS NOT NULL;

-- SQLite has one writer, so the rowid is a position that never becomes visible out of order.
CREATE TABLE events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL,
    chain_id INTEGER NOT NULL,
    address  TEXT NOT NULL,
    tx_id    TEXT,
    at       INTEGER NOT NULL,
    data     TEXT NOT NULL,
    fact     TEXT,                               -- what makes two of them the same; NULL: each counts by itself
    times    INTEGER NOT NULL DEFAULT 1,         -- how often it was told, this time included
    since    INTEGER                             -- when it was told first, if it was told before
) STRICT;

CREATE INDEX events_of_a_transaction ON events (tx_id, position) WHERE tx_id IS NOT NULL;
CREATE INDEX events_of_lanes ON events (at) WHERE tx_id IS NULL;
CREATE INDEX events_by_fact ON events (fact, position) WHERE fact IS NOT NULL;
