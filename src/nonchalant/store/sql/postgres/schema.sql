-- The store on PostgreSQL, version 1. Constraints repeat the promises: what the code forgets, the database refuses.
-- `nonchalant.` stands for the installation's own schema: several can share a database.

CREATE TABLE nonchalant.meta (
    version           INTEGER NOT NULL,
    store_id          TEXT NOT NULL,
    system_identifier BIGINT,                    -- which server it was last seen on, and on which of its timelines
    timeline          BIGINT,
    home              BIGINT,                    -- and which table this was then: a dump that is restored makes new ones
    incarnation       BIGINT NOT NULL DEFAULT 0  -- rises each time the store was found to have lost commits
);

CREATE UNIQUE INDEX one_meta ON nonchalant.meta ((TRUE));

-- The store's clock, in milliseconds. Not the start of the transaction: a lease is judged at the moment of the question.
CREATE FUNCTION nonchalant.millis() RETURNS BIGINT LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT;

-- What every refusing trigger ends in; the reason is its argument.
CREATE FUNCTION nonchalant.refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TABLE nonchalant.lanes (
    chain_id          BIGINT NOT NULL,
    address           TEXT COLLATE "C" NOT NULL CHECK (address = lower(address)),
    next_nonce        BIGINT,
    settled_below     BIGINT NOT NULL DEFAULT 0,
    seen_block        BIGINT NOT NULL DEFAULT 0,
    seen_hash         TEXT,
    incarnation       BIGINT NOT NULL DEFAULT 0,
    quarantined_below BIGINT,
    "window"          BIGINT CHECK ("window" >= 1),
    resets            BIGINT NOT NULL DEFAULT 0,
    confirmed_at      BIGINT,
    unhealthy         TEXT,
    attention         TEXT,
    PRIMARY KEY (chain_id, address),
    CHECK (next_nonce IS NULL OR next_nonce >= settled_below)
);

CREATE INDEX lanes_unhealthy ON nonchalant.lanes (chain_id, address) WHERE unhealthy IS NOT NULL;

-- An operator may give it up; that is counted.
CREATE TRIGGER settled_bounds_rise BEFORE UPDATE OF settled_below ON nonchalant.lanes
FOR EACH ROW WHEN (NEW.settled_below < OLD.settled_below AND NEW.resets = OLD.resets)
EXECUTE FUNCTION nonchalant.refuse('what is final stays final');

-- Nothing but the lease; never deleted, and the epoch never decreases. Rows are rewritten at every renewal, in place.
CREATE TABLE nonchalant.leases (
    chain_id   BIGINT NOT NULL,
    address    TEXT COLLATE "C" NOT NULL,
    owner      TEXT,
    epoch      BIGINT NOT NULL DEFAULT 0,
    expires_at BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (chain_id, address)
) WITH (fillfactor = 50);

CREATE TRIGGER lease_epochs_rise BEFORE UPDATE OF epoch ON nonchalant.leases
FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION nonchalant.refuse('a lease epoch never decreases');

CREATE TRIGGER leases_stay BEFORE DELETE ON nonchalant.leases
FOR EACH ROW EXECUTE FUNCTION nonchalant.refuse('lease rows are never deleted');

-- What people say about a lane; its owner only reads it.
CREATE TABLE nonchalant.controls (
    chain_id BIGINT NOT NULL,
    address  TEXT COLLATE "C" NOT NULL,
    mode     TEXT NOT NULL CHECK (mode IN ('open', 'paused', 'draining', 'halted')),
    reason   TEXT NOT NULL,
    since    BIGINT NOT NULL,
    PRIMARY KEY (chain_id, address),
    FOREIGN KEY (chain_id, address) REFERENCES nonchalant.lanes
);

CREATE TABLE nonchalant.nodes (
    owner      TEXT PRIMARY KEY,
    expires_at BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE nonchalant.transactions (
    place           BIGINT PRIMARY KEY,
    id              TEXT COLLATE "C" NOT NULL UNIQUE,
    chain_id        BIGINT NOT NULL,
    address         TEXT COLLATE "C" NOT NULL,
    state           TEXT NOT NULL
        CHECK (state IN (
            'queued', 'signed', 'sent', 'mined', 'confirmed', 'reverted', 'failed', 'cancelled', 'expired'
        )),
    version         BIGINT NOT NULL DEFAULT 1,
    held            BOOLEAN NOT NULL DEFAULT FALSE CHECK (NOT held OR state = 'queued'),
    priority        SMALLINT NOT NULL CHECK (priority BETWEEN 0 AND 9),
    tenant          TEXT NOT NULL,
    idempotency_key TEXT,
    body_hash       TEXT NOT NULL,
    payload         TEXT NOT NULL,
    fees            TEXT NOT NULL,
    metadata        TEXT,
    simulate        BOOLEAN NOT NULL DEFAULT FALSE,
    earlier         TEXT,
    valid_until     BIGINT,
    confirmations   BIGINT CHECK (confirmations >= 1),
    on_superseded   TEXT CHECK (on_superseded IN ('requeue', 'hold')),
    nonce           BIGINT
        CHECK (state IN ('failed', 'cancelled', 'expired') OR (state = 'queued') = (nonce IS NULL)),
    hash            TEXT COLLATE "C" CHECK ((nonce IS NULL) = (hash IS NULL)),
    receipt         TEXT
        CHECK (
            state IN ('failed', 'cancelled', 'expired')
            OR (state IN ('mined', 'confirmed', 'reverted')) = (receipt IS NOT NULL)
        ),
    deep            TEXT CHECK (deep IS NULL OR receipt IS NOT NULL),
    forked          BOOLEAN NOT NULL DEFAULT FALSE,
    failure         TEXT CHECK (state = 'reverted' OR (state = 'failed') = (failure IS NOT NULL)),
    attention       TEXT,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    FOREIGN KEY (chain_id, address) REFERENCES nonchalant.lanes
);

-- Numbers are taken one by one, never ahead: a node's cache of them would contradict the order of acceptance.
CREATE SEQUENCE nonchalant.places OWNED BY nonchalant.transactions.place;

CREATE UNIQUE INDEX one_transaction_a_key ON nonchalant.transactions (idempotency_key, tenant)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX transactions_to_assign ON nonchalant.transactions (chain_id, address, priority DESC, place)
    WHERE state = 'queued' AND NOT held;
CREATE INDEX transactions_with_a_deadline ON nonchalant.transactions (valid_until)
    WHERE state = 'queued' AND valid_until IS NOT NULL;
CREATE INDEX transactions_marked ON nonchalant.transactions (chain_id, address, place)
    WHERE state = 'queued' AND attention IS NOT NULL;
CREATE INDEX transactions_live ON nonchalant.transactions (chain_id, address, state)
    WHERE state IN ('queued', 'signed', 'sent', 'mined');
CREATE INDEX transactions_by_nonce ON nonchalant.transactions (chain_id, address, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX transactions_ended ON nonchalant.transactions (chain_id, address, updated_at)
    WHERE state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired');

-- P7: an end is an end.
CREATE TRIGGER ends_are_final BEFORE UPDATE ON nonchalant.transactions
FOR EACH ROW WHEN (OLD.state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired'))
EXECUTE FUNCTION nonchalant.refuse('a terminal transaction never changes');

-- What is kept of a transaction that ended long ago: nobody's retry executes it again.
CREATE TABLE nonchalant.removed (
    idempotency_key TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    body_hash       TEXT NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    removed_at      BIGINT NOT NULL,
    PRIMARY KEY (idempotency_key, tenant)
);

CREATE INDEX removed_by_age ON nonchalant.removed (removed_at);

-- P1: the primary key gives a nonce one owner; the index below gives a transaction one live slot.
CREATE TABLE nonchalant.slots (
    chain_id BIGINT NOT NULL,
    address  TEXT COLLATE "C" NOT NULL,
    nonce    BIGINT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('transaction', 'filler', 'reservation')),
    tx_id    TEXT COLLATE "C" CHECK ((kind = 'transaction') = (tx_id IS NOT NULL)),
    wanted   TEXT NOT NULL CHECK (wanted IN ('payload', 'nothing', 'cancel', 'expiry')),
    payload_version BIGINT NOT NULL CHECK ((payload_version = 0) = (wanted <> 'payload' OR kind = 'filler')),
    holder   TEXT CHECK (holder IS NOT NULL OR kind <> 'reservation') CHECK (holder IS NULL OR kind <> 'transaction'),
    deadline BIGINT CHECK ((deadline IS NULL) = (holder IS NULL)),
    receipt  TEXT,
    settled  BOOLEAN NOT NULL DEFAULT FALSE,
    settled_at BIGINT CHECK (settled = (settled_at IS NOT NULL)),
    PRIMARY KEY (chain_id, address, nonce),
    FOREIGN KEY (chain_id, address) REFERENCES nonchalant.lanes
);

CREATE UNIQUE INDEX one_live_slot_a_transaction ON nonchalant.slots (tx_id) WHERE NOT settled AND tx_id IS NOT NULL;
CREATE INDEX slots_unsettled ON nonchalant.slots (chain_id, address, nonce) WHERE NOT settled;
CREATE INDEX slots_of_nobody ON nonchalant.slots (chain_id, address, settled_at) WHERE settled AND tx_id IS NULL;

-- In place of a foreign key, which would search all slots for those of each transaction that is removed.
CREATE FUNCTION nonchalant.check_new_slot() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.tx_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM nonchalant.transactions WHERE id = NEW.tx_id) THEN
        RAISE EXCEPTION 'there is no such transaction' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF EXISTS (
        SELECT 1 FROM nonchalant.lanes
        WHERE chain_id = NEW.chain_id AND address = NEW.address AND settled_below > NEW.nonce
    ) THEN
        RAISE EXCEPTION 'this nonce is final already' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER slots_have_their_transaction BEFORE INSERT ON nonchalant.slots
FOR EACH ROW EXECUTE FUNCTION nonchalant.check_new_slot();

-- P2, P8: only what has ended is ever removed, and nothing of a live slot.
CREATE FUNCTION nonchalant.keep_what_lives() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state IN ('queued', 'signed', 'sent', 'mined')
        OR EXISTS (SELECT 1 FROM nonchalant.slots WHERE tx_id = OLD.id AND NOT settled) THEN
        RAISE EXCEPTION 'nothing that is accepted is lost' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER what_lives_stays BEFORE DELETE ON nonchalant.transactions
FOR EACH ROW EXECUTE FUNCTION nonchalant.keep_what_lives();

CREATE FUNCTION nonchalant.check_settled_bound() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM nonchalant.slots
        WHERE chain_id = NEW.chain_id AND address = NEW.address AND NOT settled AND nonce < NEW.settled_below
    ) THEN
        RAISE EXCEPTION 'a slot below this bound is not final yet' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER no_settled_bound_above_a_live_slot BEFORE UPDATE OF settled_below ON nonchalant.lanes
FOR EACH ROW WHEN (NEW.settled_below <> OLD.settled_below) EXECUTE FUNCTION nonchalant.check_settled_bound();

CREATE TABLE nonchalant.attempts (
    number    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash      TEXT COLLATE "C" NOT NULL,
    chain_id  BIGINT NOT NULL,
    address   TEXT COLLATE "C" NOT NULL,
    nonce     BIGINT NOT NULL,
    tx_id     TEXT COLLATE "C",
    kind      TEXT NOT NULL CHECK (kind IN ('original', 'bump', 'cancel', 'filler', 'replacement', 'outside')),
    payload_version BIGINT NOT NULL CHECK ((payload_version = 0) = (kind IN ('cancel', 'filler'))),
    fees      TEXT NOT NULL,
    gas       BIGINT NOT NULL,
    raw       BYTEA NOT NULL,
    epoch     BIGINT NOT NULL,
    signed_at BIGINT NOT NULL,
    floor     BIGINT NOT NULL,
    sent_at   BIGINT,
    answer    TEXT,
    given_back BOOLEAN NOT NULL DEFAULT FALSE,  -- its slot was freed: whoever has the nonce next has nothing of it
    CHECK ((kind IN ('filler', 'outside')) = (tx_id IS NULL))
);

-- The same bytes may be signed again, for whoever has the nonce then: when it was given back, or its chain was reset.
CREATE UNIQUE INDEX one_attempt_a_transaction ON nonchalant.attempts (hash, coalesce(tx_id, ''));
CREATE INDEX attempts_of_a_slot ON nonchalant.attempts (chain_id, address, nonce);
CREATE INDEX attempts_of_a_transaction ON nonchalant.attempts (tx_id) WHERE tx_id IS NOT NULL;
CREATE INDEX attempts_of_nobody ON nonchalant.attempts (chain_id, address, signed_at) WHERE tx_id IS NULL;

-- P4: what was signed stays known.
CREATE TRIGGER attempts_are_append_only
BEFORE UPDATE OF hash, chain_id, address, nonce, tx_id, kind, payload_version, fees, gas, raw, epoch, signed_at, floor
    ON nonchalant.attempts
FOR EACH ROW EXECUTE FUNCTION nonchalant.refuse('an attempt never changes');

CREATE FUNCTION nonchalant.keep_attempts_of_live_slots() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM nonchalant.slots
        WHERE chain_id = OLD.chain_id AND address = OLD.address AND nonce = OLD.nonce AND NOT settled
            AND tx_id IS NOT DISTINCT FROM OLD.tx_id
    ) THEN
        RAISE EXCEPTION 'an attempt stays known until its slot is final'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER attempts_of_live_slots_stay BEFORE DELETE ON nonchalant.attempts
FOR EACH ROW EXECUTE FUNCTION nonchalant.keep_attempts_of_live_slots();

-- What an account executed unknown to this store: the next request that does the same is held.
CREATE TABLE nonchalant.strangers (
    hash     TEXT COLLATE "C" PRIMARY KEY,
    chain_id BIGINT NOT NULL,
    address  TEXT COLLATE "C" NOT NULL,
    nonce    BIGINT NOT NULL,
    deed     TEXT NOT NULL,
    tx_id    TEXT COLLATE "C",
    found_at BIGINT NOT NULL
);

CREATE INDEX strangers_unmatched ON nonchalant.strangers (chain_id, address) WHERE tx_id IS NULL;
CREATE INDEX strangers_by_age ON nonchalant.strangers (found_at);

-- What people want of what only the owner may write; answered in the owner's commit.
CREATE TABLE nonchalant.wishes (
    place    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id       TEXT COLLATE "C" NOT NULL UNIQUE,
    chain_id BIGINT NOT NULL,
    address  TEXT COLLATE "C" NOT NULL,
    tx_id    TEXT COLLATE "C",
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    made_at  BIGINT NOT NULL,
    reply    TEXT,
    FOREIGN KEY (chain_id, address) REFERENCES nonchalant.lanes
);

CREATE INDEX wishes_open ON nonchalant.wishes (chain_id, address, place) WHERE reply IS NULL;
CREATE INDEX wishes_answered ON nonchalant.wishes (made_at) WHERE reply IS NOT NULL;

-- `told` is taken while the transaction runs, so it becomes visible out of order: whoever read 2 would never see 1.
-- Readers go by `position`, which one numbering writer at a time gives to what is committed.
CREATE TABLE nonchalant.events (
    told     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position BIGINT UNIQUE,
    kind     TEXT NOT NULL,
    chain_id BIGINT NOT NULL,
    address  TEXT COLLATE "C" NOT NULL,
    tx_id    TEXT COLLATE "C",
    at       BIGINT NOT NULL,
    data     TEXT NOT NULL,
    fact     TEXT,                               -- what makes two of them the same; NULL: each counts by itself
    times    BIGINT NOT NULL DEFAULT 1,          -- how often it was told, this time included
    since    BIGINT                              -- when it was told first, if it was told before
);

CREATE INDEX events_without_a_position ON nonchalant.events (told) WHERE position IS NULL;
CREATE INDEX events_of_a_transaction ON nonchalant.events (tx_id) WHERE tx_id IS NOT NULL;
CREATE INDEX events_of_lanes ON nonchalant.events (at) WHERE tx_id IS NULL;
CREATE INDEX events_by_fact ON nonchalant.events (fact, told) WHERE fact IS NOT NULL;

-- The last position that was given. Its row is the numbering writer's lock.
CREATE TABLE nonchalant.numbering (last BIGINT NOT NULL) WITH (fillfactor = 10);
INSERT INTO nonchalant.numbering VALUES (0);
