-- Version 2: batches, nonces that clients ask for, keys, the audit log, webhooks.

-- Accepted together under one idempotency key, which the first of them carries.
ALTER TABLE nonchalant.transactions ADD COLUMN batch TEXT;
CREATE INDEX transactions_of_a_batch ON nonchalant.transactions (batch, place) WHERE batch IS NOT NULL;

-- Each filter of a listing finds its own, newest first: nobody's question reads the whole table. What is live is few, and
-- found by the index of a lane's.
CREATE INDEX transactions_of_an_account ON nonchalant.transactions (address, place);
CREATE INDEX transactions_of_a_chain ON nonchalant.transactions (chain_id, place);
DROP INDEX nonchalant.transactions_by_nonce;
CREATE INDEX transactions_by_nonce ON nonchalant.transactions (nonce, address, chain_id) WHERE nonce IS NOT NULL;

-- The one nonce a client takes; any other would not be what it asked for.
ALTER TABLE nonchalant.transactions ADD COLUMN asked_nonce BIGINT;

-- Whom a client's nonce stands for: asked for again, it is the same transaction, or refused.
CREATE TABLE nonchalant.asked_nonces (
    chain_id BIGINT NOT NULL,
    address  TEXT COLLATE "C" NOT NULL,
    nonce    BIGINT NOT NULL,
    tx_id    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (chain_id, address, nonce)
);

CREATE INDEX asked_nonces_by_transaction ON nonchalant.asked_nonces (tx_id);

-- When it ended, by the store's clock, which all nodes share: what is kept is kept from there. NULL: it lives, or ended
-- before this version, and then its last change was its end.
ALTER TABLE nonchalant.transactions ADD COLUMN ended_at BIGINT;

-- Most moves change nothing that an index knows, and then none is written: so indexes go by what a state means for them,
-- never by the state itself, and a page has room for what its rows become.
ALTER TABLE nonchalant.transactions
    ADD COLUMN waits BOOLEAN NOT NULL GENERATED ALWAYS AS (state = 'queued') STORED,
    ADD COLUMN ended_as TEXT GENERATED ALWAYS AS (
        CASE WHEN state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired') THEN state END
    ) STORED,
    ADD COLUMN ended_since BIGINT GENERATED ALWAYS AS (
        CASE
            WHEN state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired')
            THEN coalesce(ended_at, updated_at)
        END
    ) STORED,
    SET (fillfactor = 60);
ALTER TABLE nonchalant.attempts SET (fillfactor = 60);
DROP INDEX nonchalant.transactions_to_assign, nonchalant.transactions_with_a_deadline, nonchalant.transactions_marked,
    nonchalant.transactions_live, nonchalant.transactions_ended;
CREATE INDEX transactions_to_assign ON nonchalant.transactions (chain_id, address, priority DESC, place)
    WHERE waits AND NOT held;
CREATE INDEX transactions_with_a_deadline ON nonchalant.transactions (valid_until) WHERE waits AND valid_until IS NOT NULL;
CREATE INDEX transactions_marked ON nonchalant.transactions (chain_id, address, place)
    WHERE waits AND attention IS NOT NULL;
CREATE INDEX transactions_live ON nonchalant.transactions (chain_id, address, waits) WHERE ended_as IS NULL;
CREATE INDEX transactions_ended ON nonchalant.transactions (chain_id, address, ended_since) WHERE ended_since IS NOT NULL;
CREATE INDEX transactions_ended_by_state ON nonchalant.transactions (ended_as, place) WHERE ended_as IS NOT NULL;
CREATE INDEX transactions_asking ON nonchalant.transactions (chain_id, address, asked_nonce)
    WHERE waits AND asked_nonce IS NOT NULL;

-- The same checks of new slots, for all that one statement binds: each of a batch has cost two questions.
DROP TRIGGER slots_have_their_transaction ON nonchalant.slots;
DROP FUNCTION nonchalant.check_new_slot();
CREATE FUNCTION nonchalant.check_new_slots() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        -- Not by a join, for which the whole table might be read.
        SELECT 1 FROM bound WHERE tx_id IS NOT NULL
            AND (SELECT TRUE FROM nonchalant.transactions AS t WHERE t.id = bound.tx_id) IS NULL
    ) THEN
        RAISE EXCEPTION 'there is no such transaction' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF EXISTS (
        SELECT 1 FROM bound WHERE nonce < (
            SELECT l.settled_below FROM nonchalant.lanes AS l
            WHERE l.chain_id = bound.chain_id AND l.address = bound.address
        )
    ) THEN
        RAISE EXCEPTION 'this nonce is final already' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER slots_have_their_transaction AFTER INSERT ON nonchalant.slots
REFERENCING NEW TABLE AS bound FOR EACH STATEMENT EXECUTE FUNCTION nonchalant.check_new_slots();

-- keys --

-- What one tenant may see is a small part of all.
CREATE INDEX transactions_of_a_tenant ON nonchalant.transactions (tenant, place);

CREATE TABLE nonchalant.keys (
    place      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         TEXT COLLATE "C" NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL UNIQUE,            -- of the secret, which nobody keeps
    tenant     TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    lanes      TEXT NOT NULL,
    rules      TEXT NOT NULL,                   -- how what comes with it is treated
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- audit --

-- Each entry holds the hash of the one before it: nobody can change or drop one unseen.
CREATE TABLE nonchalant.audit (
    position BIGINT PRIMARY KEY CHECK (position >= 1),
    at       BIGINT NOT NULL,
    actor    TEXT NOT NULL,                     -- a key's id, or a word for who acts without one
    name     TEXT NOT NULL,                     -- what he is called
    action   TEXT NOT NULL,
    subject  TEXT NOT NULL,
    data     TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash     TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TRIGGER audit_entries_never_change BEFORE UPDATE ON nonchalant.audit
FOR EACH ROW EXECUTE FUNCTION nonchalant.refuse('what was done stays written');

CREATE TRIGGER audit_entries_stay BEFORE DELETE ON nonchalant.audit
FOR EACH ROW EXECUTE FUNCTION nonchalant.refuse('what was done stays written');

CREATE TRIGGER audit_entries_are_not_truncated BEFORE TRUNCATE ON nonchalant.audit
FOR EACH STATEMENT EXECUTE FUNCTION nonchalant.refuse('what was done stays written');

-- Where it ends. Whoever writes an entry takes this row first: nodes follow one another.
CREATE TABLE nonchalant.audit_head (
    one      BIGINT PRIMARY KEY CHECK (one = 1),
    position BIGINT NOT NULL,
    hash     TEXT COLLATE "C" NOT NULL
);

INSERT INTO nonchalant.audit_head (one, position, hash) VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- events --

-- A commit tells all that it has to tell at once, and positions are given to such tellings: to give one to each event took
-- as long as to write it. `told` names the telling and the place in it; the position of an event is counted from the base.
CREATE TABLE nonchalant.tellings (
    telling BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    events  BIGINT NOT NULL CHECK (events BETWEEN 1 AND 1048576),
    repeats BOOLEAN NOT NULL,                    -- whether something in it may have been told before
    base    BIGINT                               -- the position of its first event; NULL: not given yet
);

DROP INDEX nonchalant.events_without_a_position;
ALTER TABLE nonchalant.events RENAME TO told_events;
ALTER TABLE nonchalant.told_events ALTER COLUMN told DROP IDENTITY;
INSERT INTO nonchalant.tellings (telling, events, repeats, base)
SELECT told, 1, fact IS NOT NULL, position FROM nonchalant.told_events;
SELECT setval(pg_get_serial_sequence('nonchalant.tellings', 'telling'), max(telling)) FROM nonchalant.tellings;
ALTER TABLE nonchalant.told_events DROP CONSTRAINT events_pkey, DROP COLUMN position;
UPDATE nonchalant.told_events SET told = told << 20;
ALTER TABLE nonchalant.told_events ADD PRIMARY KEY (told);
CREATE UNIQUE INDEX tellings_by_position ON nonchalant.tellings (base) WHERE base IS NOT NULL;
CREATE INDEX tellings_without_a_position ON nonchalant.tellings (telling) WHERE base IS NULL;

-- A telling goes with the last that was told in it, whoever takes that away.
CREATE FUNCTION nonchalant.drop_empty_tellings() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM nonchalant.tellings AS t USING (SELECT DISTINCT told >> 20 AS telling FROM gone) AS less
    WHERE t.telling = less.telling AND NOT EXISTS (
        SELECT 1 FROM nonchalant.told_events AS e WHERE e.told >= t.telling << 20 AND e.told < t.telling + 1 << 20
    );
    RETURN NULL;
END $$;
CREATE TRIGGER tellings_have_events AFTER DELETE ON nonchalant.told_events
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION nonchalant.drop_empty_tellings();

-- What a lane tells of itself, newest first.
CREATE INDEX events_of_a_lane ON nonchalant.told_events (chain_id, address, told) WHERE substr(kind, 1, 5) = 'lane.';

CREATE VIEW nonchalant.events AS
SELECT
    (
        SELECT t.base + (e.told & 1048575) FROM nonchalant.tellings AS t WHERE t.telling = e.told >> 20
    ) AS position,
    e.*
FROM nonchalant.told_events AS e;

-- Those after a position, in order. Each telling has something in it, so no more of them are looked at than events are
-- wanted; of the first, some may lie before. By indexes alone: a plan that was made while there were few events would go on
-- reading all of them.
CREATE FUNCTION nonchalant.told_after(after BIGINT, most BIGINT) RETURNS SETOF nonchalant.events LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
BEGIN ATOMIC
    SELECT told.* FROM (
        SELECT telling, base FROM nonchalant.tellings
        WHERE base >= coalesce((SELECT max(base) FROM nonchalant.tellings WHERE base <= after), 0)
        ORDER BY base LIMIT most + 1
    ) AS t
    CROSS JOIN LATERAL (
        SELECT t.base + (e.told & 1048575) AS position, e.* FROM nonchalant.told_events AS e
        WHERE e.told >= t.telling << 20 AND e.told < t.telling + 1 << 20
    ) AS told
    WHERE told.position > after
    ORDER BY t.base, told.told LIMIT most;
END;

-- Without a primary key, whoever replicates the tables by their rows needs all of one.
ALTER TABLE nonchalant.numbering REPLICA IDENTITY FULL;

-- The last position that retention took away: whoever stopped reading before it may have missed something.
ALTER TABLE nonchalant.meta ADD COLUMN forgotten BIGINT NOT NULL DEFAULT 0;

-- webhooks --

CREATE TABLE nonchalant.webhooks (
    id           TEXT COLLATE "C" PRIMARY KEY,
    tenant       TEXT,                           -- NULL: of everybody
    url          TEXT NOT NULL,
    secrets      TEXT NOT NULL,                  -- the live ones, newest first
    kinds        TEXT NOT NULL,                  -- which events; empty: all
    lanes        TEXT NOT NULL,                  -- of which lanes
    description  TEXT NOT NULL,
    position     BIGINT NOT NULL,               -- events up to here have their deliveries
    version      BIGINT NOT NULL DEFAULT 1,     -- rises when somebody changes it: whoever delivers reads it anew
    created_at   BIGINT NOT NULL,
    disabled_at  BIGINT,
    disabled_why TEXT CHECK ((disabled_why IS NULL) = (disabled_at IS NULL)),
    owner        TEXT,                           -- the node that delivers, while its time lasts
    owned_until  BIGINT NOT NULL DEFAULT 0
);

-- One a webhook and event. What the receiver knows it by is made of both, so it is the same at every try.
CREATE TABLE nonchalant.deliveries (
    webhook_id TEXT NOT NULL REFERENCES nonchalant.webhooks ON DELETE CASCADE,
    position   BIGINT NOT NULL,
    stream     TEXT NOT NULL,                    -- what is delivered in order: a transaction, or a lane
    kind       TEXT NOT NULL,
    body       TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    tries      BIGINT NOT NULL DEFAULT 0,
    next_at    BIGINT NOT NULL,
    status     BIGINT,                          -- what the receiver said last; NULL: nothing
    error      TEXT,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT CHECK ((state = 'pending') = (ended_at IS NULL)),
    PRIMARY KEY (webhook_id, position)
);

CREATE INDEX deliveries_to_make ON nonchalant.deliveries (webhook_id, position) WHERE state = 'pending';
CREATE INDEX deliveries_by_age ON nonchalant.deliveries (ended_at) WHERE ended_at IS NOT NULL;

-- what is ordinary --

-- {the functions of what is done at once}
