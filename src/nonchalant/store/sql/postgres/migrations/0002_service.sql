-- Version 2: batches, nonces that clients ask for, keys, the audit log, webhooks.

-- Accepted together under one idempotency key, which the first of them carries.
ALTER TABLE nonchalant.transactions ADD COLUMN batch TEXT;
CREATE INDEX transactions_of_a_batch ON nonchalant.transactions (batch, place) WHERE batch IS NOT NULL;

-- Each filter of a listing finds its own, newest first: nobody's question reads the whole table. What is live is few, and
-- found by the index of a lane's.
CREATE INDEX transactions_of_an_account ON nonchalant.transactions (address, place);
CREATE INDEX transactions_of_a_chain ON nonchalant.transactions (chain_id, place);

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

-- What becomes of a transaction on its way changes nothing that an index of it knows: then a move writes one row and no
-- index at all, if the page has room for it. So what waits has a table of its own, nonces are found through attempts, and of
-- those that ended only the unusual are found by how they did.
ALTER TABLE nonchalant.transactions
    ADD COLUMN other_end TEXT GENERATED ALWAYS AS (
        CASE WHEN state IN ('reverted', 'failed', 'cancelled', 'expired') THEN state END
    ) STORED,
    SET (fillfactor = 45);
ALTER TABLE nonchalant.attempts SET (fillfactor = 45);
DROP INDEX nonchalant.transactions_to_assign, nonchalant.transactions_with_a_deadline, nonchalant.transactions_marked,
    nonchalant.transactions_live, nonchalant.transactions_ended, nonchalant.transactions_by_nonce;
CREATE INDEX transactions_ended_otherwise ON nonchalant.transactions (other_end, place) WHERE other_end IS NOT NULL;

-- One row for each that is queued, written by triggers below and by nobody else. The line is walked in its own order.
CREATE TABLE nonchalant.waiting (
    chain_id    BIGINT NOT NULL,
    address     TEXT COLLATE "C" NOT NULL,
    held        BOOLEAN NOT NULL,
    priority    SMALLINT NOT NULL,
    place       BIGINT NOT NULL,
    asked_nonce BIGINT,
    valid_until BIGINT,
    marked      BOOLEAN NOT NULL
);

CREATE UNIQUE INDEX waiting_in_line ON nonchalant.waiting (chain_id, address, held, priority DESC, place);
ALTER TABLE nonchalant.waiting REPLICA IDENTITY USING INDEX waiting_in_line;
CREATE INDEX waiting_with_a_deadline ON nonchalant.waiting (valid_until) WHERE valid_until IS NOT NULL;
CREATE INDEX waiting_marked ON nonchalant.waiting (chain_id, address, place) WHERE marked;
CREATE INDEX waiting_asking ON nonchalant.waiting (chain_id, address, asked_nonce) WHERE asked_nonce IS NOT NULL;

INSERT INTO nonchalant.waiting (chain_id, address, held, priority, place, asked_nonce, valid_until, marked)
SELECT chain_id, address, held, priority, place, asked_nonce, valid_until, attention IS NOT NULL
FROM nonchalant.transactions WHERE state = 'queued';

-- What is accepted is of a lane that exists, and lines up. All of a statement at once: a foreign key asks for each row, and
-- locks the lane.
CREATE FUNCTION nonchalant.line_up() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT chain_id, address FROM accepted) AS lane
        WHERE (SELECT TRUE FROM nonchalant.lanes AS l WHERE l.chain_id = lane.chain_id AND l.address = lane.address) IS NULL
    ) THEN
        RAISE EXCEPTION 'there is no such lane' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    INSERT INTO nonchalant.waiting (chain_id, address, held, priority, place, asked_nonce, valid_until, marked)
    SELECT chain_id, address, held, priority, place, asked_nonce, valid_until, attention IS NOT NULL
    FROM accepted WHERE state = 'queued';
    RETURN NULL;
END $$;
CREATE TRIGGER what_is_accepted_lines_up AFTER INSERT ON nonchalant.transactions
REFERENCING NEW TABLE AS accepted FOR EACH STATEMENT EXECUTE FUNCTION nonchalant.line_up();

CREATE FUNCTION nonchalant.move_in_line() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'queued' THEN
        DELETE FROM nonchalant.waiting
        WHERE chain_id = OLD.chain_id AND address = OLD.address AND held = OLD.held AND priority = OLD.priority
            AND place = OLD.place;
    END IF;
    IF NEW.state = 'queued' THEN
        INSERT INTO nonchalant.waiting (chain_id, address, held, priority, place, asked_nonce, valid_until, marked)
        VALUES (
            NEW.chain_id, NEW.address, NEW.held, NEW.priority, NEW.place, NEW.asked_nonce, NEW.valid_until,
            NEW.attention IS NOT NULL
        );
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER who_moves_changes_the_line AFTER UPDATE ON nonchalant.transactions
FOR EACH ROW WHEN (OLD.state = 'queued' OR NEW.state = 'queued') EXECUTE FUNCTION nonchalant.move_in_line();

ALTER TABLE nonchalant.transactions DROP CONSTRAINT transactions_chain_id_address_fkey;
ALTER TABLE nonchalant.slots DROP CONSTRAINT slots_chain_id_address_fkey;
CREATE TRIGGER lanes_stay BEFORE DELETE ON nonchalant.lanes
FOR EACH ROW EXECUTE FUNCTION nonchalant.refuse('lanes are never deleted');
CREATE TRIGGER lanes_are_who_they_are BEFORE UPDATE OF chain_id, address ON nonchalant.lanes
FOR EACH ROW WHEN (NEW.chain_id <> OLD.chain_id OR NEW.address <> OLD.address)
EXECUTE FUNCTION nonchalant.refuse('a lane stays the account it is');

-- What ended before a time and may be removed, at most so many: from the oldest on, behind a place at which an earlier walk
-- stopped. The last row has no id, and the place to go on at; 0 if the walk is at its end, which is where all that it looked
-- at was accepted after that time (what is dated later than now says nothing). It looks at no more than take a moment: much of
-- what is old may live still, or be of a lane that is not in order.
CREATE FUNCTION nonchalant.ended_before(before BIGINT, of_incarnation BIGINT, most BIGINT, behind BIGINT, looks BIGINT)
RETURNS TABLE (id TEXT, walked BIGINT) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    old RECORD;
    found BIGINT := 0;
    looked BIGINT := 0;
    any_old BOOLEAN := FALSE;
    reached BIGINT := 0;
    now BIGINT := nonchalant.millis();
BEGIN
    FOR old IN SELECT t.* FROM nonchalant.transactions AS t WHERE t.place > behind ORDER BY t.place LIMIT looks LOOP
        EXIT WHEN found >= most;
        looked := looked + 1;
        reached := old.place;
        any_old := any_old OR old.created_at < before OR old.created_at > now;
        IF old.state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired')
            AND coalesce(old.ended_at, old.updated_at) < before
            AND EXISTS (
                SELECT 1 FROM nonchalant.lanes AS l
                LEFT JOIN nonchalant.controls AS c ON c.chain_id = l.chain_id AND c.address = l.address
                WHERE l.chain_id = old.chain_id AND l.address = old.address
                    AND l.incarnation = of_incarnation AND l.quarantined_below IS NULL
                    AND coalesce(c.mode, 'open') <> 'halted'
                    AND NOT EXISTS (
                        SELECT 1 FROM nonchalant.attempts AS a
                        JOIN nonchalant.slots AS s
                            ON s.chain_id = a.chain_id AND s.address = a.address AND s.nonce = a.nonce
                        WHERE a.tx_id = old.id AND s.tx_id = old.id AND (NOT s.settled OR s.nonce >= l.settled_below)
                    )
            ) THEN
            id := old.id;
            found := found + 1;
            RETURN NEXT;
        END IF;
    END LOOP;
    id := NULL;
    walked := CASE WHEN found >= most OR (looked >= looks AND any_old) THEN reached ELSE 0 END;
    RETURN NEXT;
END $$;

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
        -- Of no lane, or final there.
        SELECT 1 FROM bound WHERE (
            SELECT l.settled_below <= bound.nonce FROM nonchalant.lanes AS l
            WHERE l.chain_id = bound.chain_id AND l.address = bound.address
        ) IS NOT TRUE
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
