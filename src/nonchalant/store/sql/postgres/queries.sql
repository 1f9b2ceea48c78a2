-- Named queries for PostgreSQL, the same names as on SQLite. Each says its purpose and carries its own guard.
-- What is asked for many at once comes as arrays, one value a row. `nonchalant.` stands for the installation's schema.
-- The time is the database's own, at the moment it is looked at.

-- moment --
SELECT nonchalant.millis() AS now;

-- lock_audit --
-- Where the audit log ends; until the commit nobody else goes on there.
SELECT position, hash FROM nonchalant.audit_head WHERE one = 1 FOR UPDATE;

-- insert_audit --
INSERT INTO nonchalant.audit (position, at, actor, name, action, subject, data, previous, hash)
VALUES (:position, :at, :actor, :name, :action, :subject, :data, :previous, :hash);

-- move_audit_head --
-- No row: it does not end there.
UPDATE nonchalant.audit_head SET position = :position, hash = :hash WHERE one = 1 AND hash = :previous;

-- audit_head --
SELECT position, hash FROM nonchalant.audit_head WHERE one = 1;

-- audit_after --
-- Entries in their order, a page at a time.
SELECT * FROM nonchalant.audit WHERE position > :after ORDER BY position LIMIT :limit;

-- insert_key --
-- No row: it is there already, by a commit whose outcome was not learnt.
INSERT INTO nonchalant.keys (id, name, digest, tenant, scopes, lanes, rules, created_at, expires_at)
VALUES (:id, :name, :digest, :tenant, :scopes, :lanes, :rules, :at, :expires_at::BIGINT)
ON CONFLICT (id) DO NOTHING RETURNING *;

-- some_key --
SELECT id FROM nonchalant.keys LIMIT 1;

-- live_keys --
-- Those that can be used now: neither revoked nor expired.
SELECT * FROM nonchalant.keys
WHERE id = ANY (:id::TEXT[]) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > nonchalant.millis());

-- keys --
-- A listing from the newest down, or the one that is named.
SELECT * FROM nonchalant.keys WHERE TRUE
    AND id = :id
    AND place < :before
ORDER BY place DESC LIMIT :limit;

-- revoke_key --
-- No row: it is revoked already, or there is none.
UPDATE nonchalant.keys SET revoked_at = :at WHERE id = :id AND revoked_at IS NULL RETURNING *;

-- share_keys --
-- Who accepts and who removes old transactions exclude each other: a key goes from one table to another, and whoever
-- looks at both in between finds it in neither.
SELECT pg_advisory_xact_lock_shared(hashtextextended('nonchalant.keys', 0)), nonchalant.millis() AS now;

-- try_keys --
-- The same, for whoever holds leases: if somebody is in the way, he does without.
SELECT pg_try_advisory_xact_lock_shared(hashtextextended('nonchalant.keys', 0));

-- own_keys --
SELECT pg_advisory_xact_lock(hashtextextended('nonchalant.keys', 0)), nonchalant.millis() AS now;

-- position --
-- Who this store is, and how often it was found to have lost commits.
SELECT store_id, incarnation, system_identifier, timeline, home FROM nonchalant.meta;

-- place --
-- Where this server stands: which one it is, on which of its timelines, and how far its log goes; and which table of which
-- database this is: a dump that is restored makes new tables, and a copy of a database is a new one.
SELECT
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
    (
        SELECT database.oid::BIGINT << 32 | meta.tableoid::BIGINT FROM nonchalant.meta, pg_database AS database
        WHERE database.datname = current_database()
    ) AS home,
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::BIT(32)::BIGINT AS timeline,
    (pg_current_wal_insert_lsn() - '0/0'::PG_LSN)::BIGINT AS wal;

-- settle_down --
-- The first start on this server.
UPDATE nonchalant.meta SET
    system_identifier = :system_identifier, timeline = :timeline,
    home = database.oid::BIGINT << 32 | meta.tableoid::BIGINT
FROM pg_database AS database WHERE database.datname = current_database() AND meta.system_identifier IS NULL;

-- raise_incarnation --
-- The store has lost commits: every lane must be reconciled. No row: another node has raised it since.
UPDATE nonchalant.meta SET
    incarnation = greatest(incarnation, :seen) + 1, timeline = :timeline,
    system_identifier = coalesce(:system_identifier, system_identifier),
    home = database.oid::BIGINT << 32 | meta.tableoid::BIGINT
FROM pg_database AS database WHERE database.datname = current_database() AND meta.incarnation <= :seen
RETURNING incarnation;

-- skip_positions --
-- Positions that were given to what is lost are not given again: somebody may have read them.
UPDATE nonchalant.numbering SET last = last + :skipped;

-- end_leases --
-- Whoever holds one has a copy of the lane in memory that the store does not know any more.
WITH held AS (
    SELECT chain_id, address FROM nonchalant.leases WHERE owner IS NOT NULL
    ORDER BY chain_id, address FOR NO KEY UPDATE
)
UPDATE nonchalant.leases AS l SET owner = NULL, expires_at = 0, epoch = epoch + 1
FROM held WHERE l.chain_id = held.chain_id AND l.address = held.address;

-- declare_lane --
-- Make the lane exist. A new lane has nothing to reconcile, unless the store itself has lost commits.
INSERT INTO nonchalant.lanes (chain_id, address)
SELECT * FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) ON CONFLICT DO NOTHING;

-- declare_lease --
INSERT INTO nonchalant.leases (chain_id, address)
SELECT * FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) ON CONFLICT DO NOTHING;

-- room --
-- How a lane should be run, and how many transactions wait in it; counting stops at the limit.
SELECT
    lane.chain_id, lane.address,
    (SELECT mode FROM nonchalant.controls AS c WHERE c.chain_id = lane.chain_id AND c.address = lane.address) AS mode,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM nonchalant.waiting AS w
            WHERE w.chain_id = lane.chain_id AND w.address = lane.address
            LIMIT lane.most
        ) AS waiting
    ) AS depth
FROM unnest(:chain_id::BIGINT[], :address::TEXT[], :limit::BIGINT[]) AS lane (chain_id, address, most);

-- insert_transaction --
-- No row: the id or the idempotency key is known already, or was before it was removed. Places are taken in the order of
-- the batch; rows are written in the order of their keys, so that two batches with the same ones never wait for each
-- other in a circle.
WITH new AS MATERIALIZED (
    SELECT ordered.*, nextval('nonchalant.places') AS place FROM (
        SELECT * FROM unnest(
            :n::BIGINT[], :id::TEXT[], :chain_id::BIGINT[], :address::TEXT[], :priority::SMALLINT[], :tenant::TEXT[],
            :idempotency_key::TEXT[], :body_hash::TEXT[], :payload::TEXT[], :fees::TEXT[], :metadata::TEXT[],
            :simulate::BOOLEAN[], :valid_until::BIGINT[], :confirmations::BIGINT[], :on_superseded::TEXT[],
            :asked_nonce::BIGINT[], :batch::TEXT[]
        ) AS given (
            n, id, chain_id, address, priority, tenant, idempotency_key, body_hash, payload, fees, metadata, simulate,
            valid_until, confirmations, on_superseded, asked_nonce, batch
        )
        ORDER BY n
    ) AS ordered
)
INSERT INTO nonchalant.transactions (
    place, id, chain_id, address, state, priority, tenant, idempotency_key, body_hash,
    payload, fees, metadata, simulate, valid_until, confirmations, on_superseded, asked_nonce, batch,
    created_at, updated_at
)
SELECT
    place, id, chain_id, address, 'queued', priority, tenant, idempotency_key, body_hash,
    payload, fees, metadata, simulate, valid_until, confirmations, on_superseded, asked_nonce, batch,
    :at::BIGINT, :at::BIGINT
FROM new
WHERE NOT EXISTS (
    SELECT 1 FROM nonchalant.removed AS r WHERE r.idempotency_key = new.idempotency_key AND r.tenant = new.tenant
)
ORDER BY idempotency_key, tenant, id
ON CONFLICT DO NOTHING
RETURNING id, place;

-- insert_signed --
-- What comes to a lane's owner while nothing waits there is accepted with its nonce, and never queued. Fewer rows: something
-- waits after all, the lane is to give out nothing, a deadline has passed, or an id or a key is known, as above.
WITH moment AS MATERIALIZED (SELECT nonchalant.millis() AS now),
new AS MATERIALIZED (
    SELECT ordered.*, nextval('nonchalant.places') AS place FROM (
        SELECT :chain_id::BIGINT AS chain_id, :address::TEXT AS address, given.*
        FROM unnest(
            :id::TEXT[], :priority::SMALLINT[], :tenant::TEXT[], :idempotency_key::TEXT[], :body_hash::TEXT[],
            :payload::TEXT[], :fees::TEXT[], :metadata::TEXT[], :valid_until::BIGINT[], :confirmations::BIGINT[],
            :on_superseded::TEXT[], :version::BIGINT[], :state::TEXT[], :nonce::BIGINT[], :hash::TEXT[],
            :updated_at::BIGINT[]
        ) WITH ORDINALITY AS given (
            id, priority, tenant, idempotency_key, body_hash, payload, fees, metadata, valid_until, confirmations,
            on_superseded, version, state, nonce, hash, updated_at, n
        )
        ORDER BY n
    ) AS ordered
)
INSERT INTO nonchalant.transactions (
    place, id, chain_id, address, state, version, priority, tenant, idempotency_key, body_hash,
    payload, fees, metadata, valid_until, confirmations, on_superseded, nonce, hash, created_at, updated_at
)
SELECT
    place, id, chain_id, address, state, version, priority, tenant, idempotency_key, body_hash,
    payload, fees, metadata, valid_until, confirmations, on_superseded, nonce, hash, now, updated_at
FROM new, moment
WHERE (valid_until IS NULL OR valid_until > now)
    AND NOT EXISTS (
        SELECT 1 FROM nonchalant.waiting AS w
        WHERE w.chain_id = new.chain_id AND w.address = new.address AND NOT w.held
    )
    AND NOT EXISTS (
        SELECT 1 FROM nonchalant.controls AS c
        WHERE c.chain_id = new.chain_id AND c.address = new.address AND c.mode <> 'open'
    )
    AND NOT EXISTS (
        SELECT 1 FROM nonchalant.removed AS r WHERE r.idempotency_key = new.idempotency_key AND r.tenant = new.tenant
    )
ORDER BY idempotency_key, tenant, id
ON CONFLICT DO NOTHING
RETURNING id, place, created_at;

-- known_request --
-- What an id or an idempotency key was used for.
SELECT asked.n, known.* FROM unnest(
    :n::BIGINT[], :id::TEXT[], :tenant::TEXT[], :idempotency_key::TEXT[]
) AS asked (n, id, tenant, idempotency_key)
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT 1 AS rank, t.* FROM nonchalant.transactions AS t WHERE t.id = asked.id
        UNION ALL
        SELECT 2 AS rank, t.* FROM nonchalant.transactions AS t
        WHERE t.idempotency_key = asked.idempotency_key AND t.tenant = asked.tenant
    ) AS found ORDER BY rank LIMIT 1
) AS known;

-- claim_nonce --
-- Whoever asks for it first, of all who ever asked; another node that asks at the same time is waited for.
INSERT INTO nonchalant.asked_nonces (chain_id, address, nonce, tx_id)
SELECT * FROM unnest(:chain_id::BIGINT[], :address::TEXT[], :asked_nonce::BIGINT[], :id::TEXT[])
ON CONFLICT DO NOTHING;

-- nonce_holder --
-- Whom a nonce was asked for, and what became of that one: nothing, if it was never accepted. Nobody else takes it
-- meanwhile.
SELECT asked.n, held.tx_id AS holder, t.*
FROM unnest(:n::BIGINT[], :chain_id::BIGINT[], :address::TEXT[], :asked_nonce::BIGINT[])
    AS asked (n, chain_id, address, nonce)
JOIN nonchalant.asked_nonces AS held USING (chain_id, address, nonce)
LEFT JOIN nonchalant.transactions AS t ON t.id = held.tx_id
FOR UPDATE OF held;

-- take_nonce --
-- From one that ended without it.
UPDATE nonchalant.asked_nonces AS held SET tx_id = asked.id
FROM unnest(:chain_id::BIGINT[], :address::TEXT[], :asked_nonce::BIGINT[], :id::TEXT[])
    AS asked (chain_id, address, nonce, id)
WHERE held.chain_id = asked.chain_id AND held.address = asked.address AND held.nonce = asked.nonce;

-- leave_nonce --
-- It was not accepted after all.
DELETE FROM nonchalant.asked_nonces WHERE tx_id = ANY (:id::TEXT[]);

-- forget_asked_nonces --
-- Nonces from there on will be given out again.
DELETE FROM nonchalant.asked_nonces WHERE chain_id = :chain_id AND address = :address AND nonce >= :nonce;

-- removed_request --
-- What an idempotency key was used for, by a transaction that is kept no more.
SELECT asked.n, removed.* FROM unnest(
    :n::BIGINT[], :tenant::TEXT[], :idempotency_key::TEXT[]
) AS asked (n, tenant, idempotency_key)
JOIN nonchalant.removed ON removed.idempotency_key = asked.idempotency_key AND removed.tenant = asked.tenant;

-- lanes_with_work --
-- Lanes with something to assign or to watch, a wish to grant, or an ailment to look after, and who holds them now. Also
-- those of which something waits, held or not, that cannot be called off before the lane is compared with its chain. Each
-- index is walked from one busy lane to the next, and what is asked of each of them is a subquery of its own, because a
-- join may read a whole table: neither lanes at rest nor long queues cost anything.
WITH RECURSIVE queues AS (
    (SELECT chain_id, address FROM nonchalant.waiting ORDER BY chain_id, address LIMIT 1)
    UNION ALL
    SELECT next.* FROM queues CROSS JOIN LATERAL (
        SELECT w.chain_id, w.address FROM nonchalant.waiting AS w
        WHERE (w.chain_id, w.address) > (queues.chain_id, queues.address)
        ORDER BY w.chain_id, w.address LIMIT 1
    ) AS next
), bound AS (
    (SELECT chain_id, address FROM nonchalant.slots WHERE NOT settled ORDER BY chain_id, address LIMIT 1)
    UNION ALL
    SELECT next.* FROM bound CROSS JOIN LATERAL (
        SELECT s.chain_id, s.address FROM nonchalant.slots AS s
        WHERE NOT s.settled AND (s.chain_id, s.address) > (bound.chain_id, bound.address)
        ORDER BY s.chain_id, s.address LIMIT 1
    ) AS next
), waiting AS (
    SELECT chain_id, address FROM queues
    WHERE (
            coalesce(
                (
                    SELECT c.mode FROM nonchalant.controls AS c
                    WHERE c.chain_id = queues.chain_id AND c.address = queues.address
                ),
                'open'
            ) = 'open'
            AND (
                SELECT TRUE FROM nonchalant.waiting AS w
                WHERE w.chain_id = queues.chain_id AND w.address = queues.address AND NOT w.held
                LIMIT 1
            )
        )
        OR (
            SELECT l.quarantined_below IS NOT NULL OR l.incarnation < (SELECT incarnation FROM nonchalant.meta)
            FROM nonchalant.lanes AS l WHERE l.chain_id = queues.chain_id AND l.address = queues.address
        )
        OR (
            :marked::BOOLEAN
            AND (
                SELECT TRUE FROM nonchalant.waiting AS w
                WHERE w.chain_id = queues.chain_id AND w.address = queues.address AND w.marked
                LIMIT 1
            )
        )
), busy AS (
    SELECT chain_id, address FROM waiting
    UNION SELECT chain_id, address FROM bound
    UNION SELECT chain_id, address FROM nonchalant.wishes WHERE reply IS NULL
    UNION SELECT chain_id, address FROM nonchalant.lanes WHERE unhealthy IS NOT NULL
)
SELECT busy.chain_id, busy.address, CASE WHEN lease.ends_in > 0 THEN lease.owner END AS owner, lease.ends_in
FROM busy LEFT JOIN LATERAL (
    SELECT l.owner, CASE WHEN l.owner IS NOT NULL THEN l.expires_at - nonchalant.millis() END AS ends_in
    FROM nonchalant.leases AS l WHERE l.chain_id = busy.chain_id AND l.address = busy.address LIMIT 1
) AS lease ON TRUE
ORDER BY busy.chain_id, busy.address;

-- beat --
-- Say that this node lives, forget those that do not, and see how many do and where the server stands; in one statement,
-- because a node at rest does it all the time. It may be run twice, and waits for the flush like every other commit. Whoever
-- beats at this very moment is locked, and left alone.
WITH mine AS (
    INSERT INTO nonchalant.nodes (owner, expires_at) VALUES (:owner, nonchalant.millis() + :ttl)
    ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
), dead AS (
    DELETE FROM nonchalant.nodes WHERE owner IN (
        SELECT owner FROM nonchalant.nodes
        WHERE owner <> :owner AND expires_at <= nonchalant.millis() FOR UPDATE SKIP LOCKED
    )
)
SELECT
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::BIT(32)::BIGINT AS timeline,
    (pg_current_wal_insert_lsn() - '0/0'::PG_LSN)::BIGINT AS wal,
    database.oid::BIGINT << 32 | meta.tableoid::BIGINT AS home, meta.incarnation,
    (
        SELECT count(*) FROM nonchalant.nodes WHERE owner <> :owner AND expires_at > nonchalant.millis()
    ) + 1 AS live_nodes,
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'local', TRUE) END
FROM nonchalant.meta, pg_database AS database WHERE database.datname = current_database();

-- acquire_lease --
-- Take what is free, expired or one's own, always with a new epoch. No row: another node holds it.
UPDATE nonchalant.leases SET owner = :owner, epoch = epoch + 1, expires_at = nonchalant.millis() + :ttl
WHERE chain_id = :chain_id AND address = :address
    AND (owner IS NULL OR owner = :owner OR expires_at <= nonchalant.millis())
RETURNING epoch, nonchalant.millis() AS now;

-- renew_leases --
-- Only the holder of this very epoch prolongs it, and only before it expires. What a transaction has locked is skipped:
-- one busy lane must not keep the others waiting.
WITH held AS (
    SELECT l.chain_id, l.address FROM nonchalant.leases AS l
    JOIN unnest(:chain_id::BIGINT[], :address::TEXT[], :owner::TEXT[], :epoch::BIGINT[])
        AS mine (chain_id, address, owner, epoch)
        ON mine.chain_id = l.chain_id AND mine.address = l.address AND mine.owner = l.owner AND mine.epoch = l.epoch
    WHERE l.expires_at > nonchalant.millis()
    ORDER BY l.chain_id, l.address
    FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE nonchalant.leases AS l SET expires_at = nonchalant.millis() + :ttl
FROM held WHERE l.chain_id = held.chain_id AND l.address = held.address
RETURNING l.chain_id, l.address;

-- held_leases --
-- Those of an owner that have not expired; who has them locked does not matter.
SELECT l.chain_id, l.address FROM nonchalant.leases AS l
JOIN unnest(:chain_id::BIGINT[], :address::TEXT[], :owner::TEXT[], :epoch::BIGINT[])
    AS mine (chain_id, address, owner, epoch)
    ON mine.chain_id = l.chain_id AND mine.address = l.address AND mine.owner = l.owner AND mine.epoch = l.epoch
WHERE l.expires_at > nonchalant.millis();

-- renew_lease --
-- The same for one that was locked; waits its turn. The row is read again under the lock, so is the clock.
WITH held AS MATERIALIZED (
    SELECT chain_id, address, expires_at FROM nonchalant.leases
    WHERE chain_id = :chain_id AND address = :address AND owner = :owner AND epoch = :epoch
    FOR NO KEY UPDATE
)
UPDATE nonchalant.leases AS l SET expires_at = nonchalant.millis() + :ttl
FROM held WHERE l.chain_id = held.chain_id AND l.address = held.address AND held.expires_at > nonchalant.millis()
RETURNING l.chain_id, l.address;

-- release_lease --
WITH held AS (
    SELECT l.chain_id, l.address FROM nonchalant.leases AS l
    JOIN unnest(:chain_id::BIGINT[], :address::TEXT[], :owner::TEXT[], :epoch::BIGINT[])
        AS mine (chain_id, address, owner, epoch)
        ON mine.chain_id = l.chain_id AND mine.address = l.address AND mine.owner = l.owner AND mine.epoch = l.epoch
    ORDER BY l.chain_id, l.address
    FOR NO KEY UPDATE OF l
)
UPDATE nonchalant.leases AS l SET owner = NULL, expires_at = 0
FROM held WHERE l.chain_id = held.chain_id AND l.address = held.address;

-- release_node --
DELETE FROM nonchalant.nodes WHERE owner = :owner;

-- fence --
-- The first statement of every owner's transaction. No row: the lease is lost. The lock keeps a take-over waiting until
-- this transaction has ended; without it, a stale write could commit after the take-over. The expiry is judged once the
-- lock is held, not while it is waited for. With it comes where the server stands: one that lost commits is told.
WITH held AS MATERIALIZED (
    SELECT expires_at FROM nonchalant.leases
    WHERE chain_id = :chain_id AND address = :address AND owner = :owner AND epoch = :epoch
    FOR NO KEY UPDATE
)
SELECT
    nonchalant.millis() AS now,
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::BIT(32)::BIGINT AS timeline,
    (pg_current_wal_insert_lsn() - '0/0'::PG_LSN)::BIGINT AS wal,
    database.oid::BIGINT << 32 | meta.tableoid::BIGINT AS home
FROM held, nonchalant.meta, pg_database AS database
WHERE database.datname = current_database() AND held.expires_at > nonchalant.millis();

-- fence_all --
-- The same for the commits of several lanes at once: how many of these leases are held.
WITH held AS MATERIALIZED (
    SELECT l.expires_at FROM nonchalant.leases AS l
    JOIN unnest(:chain_id::BIGINT[], :address::TEXT[], :owner::TEXT[], :epoch::BIGINT[])
        AS mine (chain_id, address, owner, epoch)
        ON mine.chain_id = l.chain_id AND mine.address = l.address AND mine.owner = l.owner AND mine.epoch = l.epoch
    ORDER BY l.chain_id, l.address
    FOR NO KEY UPDATE OF l
)
SELECT
    (SELECT count(*) FROM held WHERE expires_at > nonchalant.millis()) AS leases,
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::BIT(32)::BIGINT AS timeline,
    (pg_current_wal_insert_lsn() - '0/0'::PG_LSN)::BIGINT AS wal,
    database.oid::BIGINT << 32 | meta.tableoid::BIGINT AS home
FROM nonchalant.meta, pg_database AS database
WHERE database.datname = current_database();

-- load_lane --
SELECT * FROM nonchalant.lanes WHERE chain_id = :chain_id AND address = :address;

-- load_slots --
SELECT * FROM nonchalant.slots WHERE chain_id = :chain_id AND address = :address AND NOT settled ORDER BY nonce;

-- load_attempts --
-- Every attempt of every slot that is not final, oldest first; none of whoever had the nonce before, and gave it back.
SELECT a.* FROM nonchalant.slots AS s
JOIN nonchalant.attempts AS a
    ON a.chain_id = s.chain_id AND a.address = s.address AND a.nonce = s.nonce
    AND a.tx_id IS NOT DISTINCT FROM s.tx_id AND NOT a.given_back
WHERE s.chain_id = :chain_id AND s.address = :address AND NOT s.settled
ORDER BY a.nonce, a.number;

-- load_transactions --
SELECT t.* FROM nonchalant.slots AS s
JOIN nonchalant.transactions AS t ON t.id = s.tx_id
WHERE s.chain_id = :chain_id AND s.address = :address AND NOT s.settled
ORDER BY s.nonce;

-- load_final --
-- The highest nonce that is final; one below may still be waited for.
SELECT max(nonce) AS nonce FROM nonchalant.slots
WHERE chain_id = :chain_id AND address = :address AND settled
    AND nonce >= (SELECT settled_below FROM nonchalant.lanes WHERE chain_id = :chain_id AND address = :address);

-- load_strangers --
SELECT * FROM nonchalant.strangers WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL ORDER BY nonce;

-- put_stranger --
-- Keep a stranger, or whom it was found to be a twin of; that never changes again.
INSERT INTO nonchalant.strangers AS s (hash, chain_id, address, nonce, deed, tx_id, found_at)
SELECT new.*, nonchalant.millis() FROM unnest(
    :hash::TEXT[], :chain_id::BIGINT[], :address::TEXT[], :nonce::BIGINT[], :deed::TEXT[], :tx_id::TEXT[]
) AS new (hash, chain_id, address, nonce, deed, tx_id)
ON CONFLICT (hash) DO UPDATE SET tx_id = excluded.tx_id WHERE s.tx_id IS NULL;

-- bound_nonces --
SELECT nonce FROM nonchalant.slots
WHERE chain_id = :chain_id AND address = :address AND nonce >= :first AND nonce < :below;

-- known_attempts --
SELECT hash FROM nonchalant.attempts WHERE hash = ANY (:hash::TEXT[]);

-- queued --
-- What the owner may assign, found by what waits and never by a cursor; what it has put aside is left out, and so is what is
-- overdue by the store's clock and any node may end. Before the others, those that ask for a nonce of their own.
SELECT found.* FROM unnest(:chain_id::BIGINT[], :address::TEXT[], :limit::BIGINT[]) AS lane (chain_id, address, most)
CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT t.* FROM nonchalant.waiting AS w JOIN nonchalant.transactions AS t ON t.place = w.place
        WHERE w.chain_id = lane.chain_id AND w.address = lane.address AND NOT w.held AND w.asked_nonce IS NOT NULL
            AND (
                w.valid_until IS NULL OR w.valid_until > nonchalant.millis()
                OR EXISTS (
                    SELECT 1 FROM nonchalant.strangers AS s
                    WHERE s.chain_id = lane.chain_id AND s.address = lane.address AND s.tx_id IS NULL
                )
            )
            AND t.id <> ALL (:skip::TEXT[])
        ORDER BY w.asked_nonce LIMIT :asking
    ) AS asking
    UNION ALL
    SELECT * FROM (
        SELECT t.* FROM nonchalant.waiting AS w JOIN nonchalant.transactions AS t ON t.place = w.place
        WHERE w.chain_id = lane.chain_id AND w.address = lane.address AND NOT w.held AND w.asked_nonce IS NULL
            AND (
                w.valid_until IS NULL OR w.valid_until > nonchalant.millis()
                OR EXISTS (
                    SELECT 1 FROM nonchalant.strangers AS s
                    WHERE s.chain_id = lane.chain_id AND s.address = lane.address AND s.tx_id IS NULL
                )
            )
            AND t.id <> ALL (:skip::TEXT[])
        ORDER BY w.priority DESC, w.place LIMIT lane.most
    ) AS others
) AS found
WHERE NOT EXISTS (
    SELECT 1 FROM nonchalant.controls AS c
    WHERE c.chain_id = lane.chain_id AND c.address = lane.address AND c.mode <> 'open'
);

-- marked --
SELECT t.* FROM nonchalant.waiting AS w JOIN nonchalant.transactions AS t ON t.place = w.place
WHERE w.chain_id = :chain_id AND w.address = :address AND w.marked AND w.place > :after
ORDER BY w.place LIMIT :limit;

-- hold_queued --
-- Take queued rows out of the line.
UPDATE nonchalant.transactions
SET held = TRUE, version = version + 1, attention = :attention::TEXT, updated_at = :at
WHERE id = ANY (:id::TEXT[]) AND state = 'queued';

-- queued_before --
SELECT 1 FROM nonchalant.waiting
WHERE chain_id = :chain_id AND address = :address AND NOT held AND place < :place
LIMIT 1;

-- update_transaction --
-- Guarded by the version that was read: still in that state, not held, same payload; and by the lane that is leased.
-- What gets a nonce must not be overdue. Fewer rows: someone else moved one. It is found by its place, which is shorter than
-- its id, and a batch has them beside each other. The lane stands in each row, where OFFSET 0 keeps it, and is compared in a
-- way that no index serves, like the id: else all of a lane's rows would be read for each.
UPDATE nonchalant.transactions AS t SET
    state = new.state, version = new.version, held = new.held, nonce = new.nonce, hash = new.hash,
    receipt = new.receipt, deep = new.deep, forked = new.forked, failure = new.failure, attention = new.attention,
    updated_at = new.updated_at,
    ended_at = CASE WHEN new.state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired') THEN nonchalant.millis() END
FROM (
    SELECT :chain_id::BIGINT AS chain_id, :address::TEXT AS address, given.*
    FROM unnest(
        :id::TEXT[], :place::BIGINT[], :version::BIGINT[], :state::TEXT[], :held::BOOLEAN[], :nonce::BIGINT[],
        :hash::TEXT[], :receipt::TEXT[], :deep::TEXT[], :forked::BOOLEAN[], :failure::TEXT[], :attention::TEXT[],
        :updated_at::BIGINT[]
    ) AS given (id, place, version, state, held, nonce, hash, receipt, deep, forked, failure, attention, updated_at)
    OFFSET 0
) AS new
WHERE t.place = new.place AND t.id IS NOT DISTINCT FROM new.id AND t.version = new.version - 1
    AND t.chain_id IS NOT DISTINCT FROM new.chain_id AND t.address IS NOT DISTINCT FROM new.address
    AND (t.state <> 'queued' OR new.nonce IS NULL OR t.valid_until IS NULL OR t.valid_until > nonchalant.millis());

-- rewrite_transaction --
-- What the user asks for now. Apart from the moves, which are many, and which must not touch what cannot be read.
UPDATE nonchalant.transactions AS t SET payload = new.payload, earlier = new.earlier, fees = new.fees
FROM unnest(:id::TEXT[], :version::BIGINT[], :payload::TEXT[], :earlier::TEXT[], :fees::TEXT[])
    AS new (id, version, payload, earlier, fees)
WHERE t.id = new.id AND t.version = new.version;

-- alter_queued --
-- From any node: only while it is queued, and as it was read. No row: it is not.
-- One statement, because after it the row may have ended, and then nothing touches it any more.
UPDATE nonchalant.transactions AS t SET
    state = new.state, version = new.version, held = new.held, attention = new.attention,
    updated_at = new.updated_at, payload = new.payload, earlier = new.earlier, fees = new.fees,
    ended_at = CASE WHEN new.state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired') THEN nonchalant.millis() END
FROM unnest(
    :id::TEXT[], :version::BIGINT[], :state::TEXT[], :held::BOOLEAN[], :attention::TEXT[], :updated_at::BIGINT[],
    :payload::TEXT[], :earlier::TEXT[], :fees::TEXT[]
) AS new (id, version, state, held, attention, updated_at, payload, earlier, fees)
WHERE t.id = new.id AND t.version = new.version - 1 AND t.state = 'queued';

-- lock_lane --
-- Keep its owner from committing until this transaction has ended.
SELECT 1 FROM nonchalant.leases WHERE chain_id = :chain_id AND address = :address FOR NO KEY UPDATE;

-- may_have_run --
-- Whether what does one of these deeds may have run by a commit that this store has lost: its lane is not reconciled, or
-- a stranger did the same and is not held against anybody yet.
SELECT 1 FROM nonchalant.lanes AS l
WHERE l.chain_id = :chain_id AND l.address = :address AND (
    l.quarantined_below IS NOT NULL
    OR l.incarnation <> (SELECT incarnation FROM nonchalant.meta)
    OR EXISTS (
        SELECT 1 FROM nonchalant.strangers AS s
        WHERE s.chain_id = :chain_id AND s.address = :address AND s.tx_id IS NULL AND s.deed = ANY (:deeds::TEXT[])
    )
);

-- twin --
-- What an account did, unknown to this store, that one of these deeds would be: held against nobody yet.
SELECT * FROM nonchalant.strangers
WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL AND deed = ANY (:deeds::TEXT[])
ORDER BY nonce LIMIT 1;

-- overdue --
-- What any node may end. Not what may have run, by a commit that this store has lost: while its lane is not reconciled,
-- and once a person is to decide about it, or once nobody can read whether one is to.
SELECT t.* FROM nonchalant.waiting AS w JOIN nonchalant.transactions AS t ON t.place = w.place
WHERE w.valid_until <= nonchalant.millis()
    -- Not by a join, which might begin with the lanes.
    AND (
        SELECT l.quarantined_below IS NULL AND l.incarnation = (SELECT incarnation FROM nonchalant.meta)
        FROM nonchalant.lanes AS l WHERE l.chain_id = t.chain_id AND l.address = t.address
    )
    -- By its text, of which the code is the beginning: what cannot be read must not stop the others.
    AND (
        NOT t.held
        OR (t.attention ~ '^\["' AND t.attention !~ '^\["(same_payload_executed|store_lost_commits)"')
    )
ORDER BY w.valid_until LIMIT :limit;

-- expire_queued --
-- For a row that cannot be read. Not while something was done, unknown to this store, that this one may have been.
UPDATE nonchalant.transactions AS t
SET state = 'expired', held = FALSE, version = version + 1, attention = NULL, updated_at = :at,
    ended_at = nonchalant.millis()
WHERE id = :id AND state = 'queued' AND valid_until <= nonchalant.millis()
    AND NOT EXISTS (
        SELECT 1 FROM nonchalant.strangers AS s
        WHERE s.chain_id = t.chain_id AND s.address = t.address AND s.tx_id IS NULL
    );

-- insert_wish --
-- A wish about a transaction only while that has a slot. No row: it has none, or the wish is written already.
INSERT INTO nonchalant.wishes (id, chain_id, address, tx_id, kind, body, made_at)
SELECT :id::TEXT, :chain_id::BIGINT, :address::TEXT, :tx_id::TEXT, :kind::TEXT, :body::TEXT, nonchalant.millis()
WHERE :tx_id::TEXT IS NULL
    OR EXISTS (
        SELECT 1 FROM nonchalant.transactions WHERE id = :tx_id::TEXT AND state IN ('signed', 'sent', 'mined')
    )
ON CONFLICT DO NOTHING;

-- wish --
SELECT * FROM nonchalant.wishes WHERE id = :id;

-- open_wishes --
SELECT w.* FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) AS lane (chain_id, address)
CROSS JOIN LATERAL (
    SELECT * FROM nonchalant.wishes AS w
    WHERE w.chain_id = lane.chain_id AND w.address = lane.address AND w.reply IS NULL ORDER BY w.place LIMIT :limit
) AS w
ORDER BY w.chain_id, w.address, w.place;

-- count_wishes --
SELECT count(*) AS n FROM (
    SELECT 1 FROM nonchalant.wishes
    WHERE chain_id = :chain_id AND address = :address AND reply IS NULL LIMIT :limit
) AS open;

-- reply_to_wish --
-- Fewer rows: one was withdrawn, or answered already.
UPDATE nonchalant.wishes AS w SET reply = new.reply
FROM unnest(:id::TEXT[], :reply::TEXT[]) AS new (id, reply)
WHERE w.id = new.id AND w.chain_id = :chain_id AND w.address = :address AND w.reply IS NULL;

-- withdraw_wish --
DELETE FROM nonchalant.wishes WHERE id = :id AND reply IS NULL;

-- forget_replies --
DELETE FROM nonchalant.wishes WHERE reply IS NOT NULL AND made_at < :before;

-- control --
SELECT * FROM nonchalant.controls WHERE chain_id = :chain_id AND address = :address;

-- put_control --
-- Only by being opened does a lane leave a halt: somebody has looked.
INSERT INTO nonchalant.controls AS c (chain_id, address, mode, reason, since)
VALUES (:chain_id, :address, :mode, :reason, :at)
ON CONFLICT (chain_id, address) DO UPDATE SET mode = excluded.mode, reason = excluded.reason, since = excluded.since
WHERE c.mode <> 'halted' OR excluded.mode IN ('open', 'halted');

-- believe_chain --
-- Whatever was final here before, the chain as it is now counts.
UPDATE nonchalant.lanes SET seen_hash = NULL WHERE chain_id = :chain_id AND address = :address;

-- halt_lanes --
-- Those that are not halted already.
INSERT INTO nonchalant.controls AS c (chain_id, address, mode, reason, since)
SELECT chain_id, address, 'halted', :reason::TEXT, :at::BIGINT FROM nonchalant.lanes WHERE chain_id = :chain_id ORDER BY address
ON CONFLICT (chain_id, address) DO UPDATE SET mode = excluded.mode, reason = excluded.reason, since = excluded.since
WHERE c.mode <> 'halted'
RETURNING address;

-- put_slot --
-- Bind a nonce, or write what became of the slot. A nonce that is bound to something else, or final, is refused.
INSERT INTO nonchalant.slots AS s (
    chain_id, address, nonce, kind, tx_id, wanted, payload_version, holder, deadline, receipt
)
SELECT chain_id, address, nonce, kind, tx_id, wanted, payload_version, holder, deadline, receipt FROM (
    SELECT :chain_id::BIGINT AS chain_id, :address::TEXT AS address, given.*
    FROM unnest(
        :nonce::BIGINT[], :kind::TEXT[], :tx_id::TEXT[], :wanted::TEXT[], :payload_version::BIGINT[], :holder::TEXT[],
        :deadline::BIGINT[], :receipt::TEXT[]
    ) AS given (nonce, kind, tx_id, wanted, payload_version, holder, deadline, receipt)
) AS new
ON CONFLICT (chain_id, address, nonce) DO UPDATE SET
    kind = excluded.kind, wanted = excluded.wanted, payload_version = excluded.payload_version,
    holder = excluded.holder, deadline = excluded.deadline, receipt = excluded.receipt
-- A reservation whose deadline passed is closed by a filler, never by anything else.
WHERE NOT s.settled AND s.tx_id IS NOT DISTINCT FROM excluded.tx_id
    AND (s.kind = excluded.kind OR (s.kind = 'reservation' AND excluded.kind = 'filler'));

-- settle_slot --
-- It is final. Fewer rows: one is bound to something else, or was final before. Each is found by its whole key, as above; not
-- by the index of what is not final, which was empty when the table was analysed, and so is read whole for each row.
UPDATE nonchalant.slots AS s SET settled = TRUE, settled_at = nonchalant.millis(), receipt = new.receipt
FROM (
    SELECT :chain_id::BIGINT AS chain_id, :address::TEXT AS address, given.*
    FROM unnest(:nonce::BIGINT[], :kind::TEXT[], :tx_id::TEXT[], :receipt::TEXT[]) AS given (nonce, kind, tx_id, receipt)
    OFFSET 0
) AS new
WHERE s.chain_id = new.chain_id AND s.address = new.address AND s.nonce = new.nonce AND s.kind = new.kind
    AND s.tx_id IS NOT DISTINCT FROM new.tx_id AND NOT coalesce(s.settled, FALSE);

-- free_slot --
-- Fewer rows: one is not bound any more, or final.
DELETE FROM nonchalant.slots
WHERE chain_id = :chain_id AND address = :address AND nonce = ANY (:nonce::BIGINT[]) AND NOT settled;

-- unsettle_slots --
-- An operator gives up what was final: these nonces will be used again. The outcomes that rested on them stay.
DELETE FROM nonchalant.slots WHERE chain_id = :chain_id AND address = :address AND nonce >= :nonce AND settled;

-- give_attempts_back --
-- What was signed for a slot that is freed stays known, and belongs to no slot any more.
UPDATE nonchalant.attempts SET given_back = TRUE
WHERE chain_id = :chain_id AND address = :address AND nonce = ANY (:nonce::BIGINT[]) AND NOT given_back;

-- give_final_attempts_back --
-- The same for what was final, of the slots that `unsettle_slots` deletes after this.
UPDATE nonchalant.attempts AS a SET given_back = TRUE
FROM nonchalant.slots AS s
WHERE s.chain_id = :chain_id AND s.address = :address AND s.nonce >= :nonce AND s.settled
    AND a.chain_id = s.chain_id AND a.address = s.address AND a.nonce = s.nonce AND NOT a.given_back;

-- insert_attempt --
-- Only for a live slot that is bound to the same transaction. The same bytes may be signed again after the slot was given
-- back; they stay the attempt they were, and are the slot's again. Fewer rows: a slot is bound to something else, or final.
INSERT INTO nonchalant.attempts AS a (
    hash, chain_id, address, nonce, tx_id, kind, payload_version, fees, gas, raw, epoch, signed_at, floor,
    sent_at, answer
)
SELECT
    new.hash, s.chain_id, s.address, new.nonce, new.tx_id, new.kind, new.payload_version, new.fees, new.gas,
    new.raw, new.epoch, new.signed_at, new.floor, new.sent_at, new.answer
FROM (
    SELECT :chain_id::BIGINT AS chain_id, :address::TEXT AS address, given.*
    FROM unnest(
        :hash::TEXT[], :nonce::BIGINT[], :tx_id::TEXT[], :kind::TEXT[], :payload_version::BIGINT[], :fees::TEXT[],
        :gas::BIGINT[], :raw::BYTEA[], :epoch::BIGINT[], :signed_at::BIGINT[], :floor::BIGINT[], :sent_at::BIGINT[],
        :answer::TEXT[]
    ) WITH ORDINALITY AS given (
        hash, nonce, tx_id, kind, payload_version, fees, gas, raw, epoch, signed_at, floor, sent_at, answer, n
    )
    OFFSET 0
) AS new
JOIN nonchalant.slots AS s
    ON s.chain_id = new.chain_id AND s.address = new.address AND s.nonce = new.nonce
    AND NOT coalesce(s.settled, FALSE) AND s.tx_id IS NOT DISTINCT FROM new.tx_id
ORDER BY new.n
ON CONFLICT (hash, coalesce(tx_id, '')) DO UPDATE SET answer = excluded.answer, given_back = FALSE
WHERE a.chain_id = excluded.chain_id AND a.address = excluded.address
    AND a.nonce = excluded.nonce AND a.raw = excluded.raw;

-- answer_attempt --
-- Fewer rows: the lane never signed one of them. It is compared as above.
UPDATE nonchalant.attempts AS a SET sent_at = new.sent_at, answer = new.answer
FROM (
    SELECT :chain_id::BIGINT AS chain_id, :address::TEXT AS address, given.*
    FROM unnest(:hash::TEXT[], :tx_id::TEXT[], :sent_at::BIGINT[], :answer::TEXT[]) AS given (hash, tx_id, sent_at, answer)
    OFFSET 0
) AS new
WHERE a.hash = new.hash AND coalesce(a.tx_id, '') = coalesce(new.tx_id, '')
    AND a.chain_id IS NOT DISTINCT FROM new.chain_id AND a.address IS NOT DISTINCT FROM new.address;

-- update_lane --
-- No row: the lane was never declared. A hash that was forgotten stays so until another block is named: an owner that
-- read the lane before somebody resumed it would bring it back.
UPDATE nonchalant.lanes AS l SET
    next_nonce = new.next_nonce, settled_below = new.settled_below, seen_block = new.seen_block,
    seen_hash = CASE
        WHEN l.seen_hash IS NULL AND l.seen_block = new.seen_block AND l.seen_block > 0 THEN NULL ELSE new.seen_hash
    END,
    incarnation = new.incarnation, quarantined_below = new.quarantined_below, "window" = new."window",
    resets = new.resets, confirmed_at = new.confirmed_at, unhealthy = new.unhealthy, attention = new.attention
FROM unnest(
    :chain_id::BIGINT[], :address::TEXT[], :next_nonce::BIGINT[], :settled_below::BIGINT[], :seen_block::BIGINT[],
    :seen_hash::TEXT[], :incarnation::BIGINT[], :quarantined_below::BIGINT[], :window::BIGINT[], :resets::BIGINT[],
    :confirmed_at::BIGINT[], :unhealthy::TEXT[], :attention::TEXT[]
) AS new (
    chain_id, address, next_nonce, settled_below, seen_block, seen_hash, incarnation, quarantined_below, "window",
    resets, confirmed_at, unhealthy, attention
)
WHERE l.chain_id = new.chain_id AND l.address = new.address;

-- insert_event --
-- Without a position: that is given to what is committed.
WITH telling AS (
    INSERT INTO nonchalant.tellings (events, repeats) VALUES (:count, :repeats) RETURNING telling
)
INSERT INTO nonchalant.told_events (told, kind, chain_id, address, tx_id, at, data, fact)
SELECT telling << 20 | n - 1, kind, chain_id, address, tx_id, at, data, fact FROM telling, unnest(
    :kind::TEXT[], :chain_id::BIGINT[], :address::TEXT[], :tx_id::TEXT[], :at::BIGINT[], :data::TEXT[], :fact::TEXT[]
) WITH ORDINALITY AS new (kind, chain_id, address, tx_id, at, data, fact, n)
ORDER BY n;

-- unnumbered --
SELECT 1 FROM nonchalant.tellings WHERE base IS NULL LIMIT 1;

-- lock_numbering --
-- One writer at a time gives positions; what it can see when it has the lock, it numbers, and nobody sees a number before
-- all lower ones are visible.
SELECT last FROM nonchalant.numbering FOR UPDATE;

-- number_events --
-- In the order in which they were told: what caused another was told before it. No more at once than take a moment.
WITH fresh AS (
    SELECT telling, (sum(events) OVER (ORDER BY telling) - events)::BIGINT AS before FROM (
        SELECT telling, events FROM nonchalant.tellings WHERE base IS NULL ORDER BY telling LIMIT :limit
    ) AS lowest
)
UPDATE nonchalant.tellings AS t SET base = :last + 1 + fresh.before FROM fresh WHERE t.telling = fresh.telling;

-- join_repeats --
-- The newest of those that tell the same says how often it was told, and since when. What is committed meanwhile has no
-- position yet, and is left for the next time.
WITH fresh AS (
    SELECT e.fact, max(e.told) AS newest, count(*) AS n FROM nonchalant.tellings AS t
    JOIN nonchalant.told_events AS e ON e.told >= t.telling << 20 AND e.told < t.telling + 1 << 20
    WHERE t.base > :last AND t.repeats AND e.fact IS NOT NULL GROUP BY e.fact
), told AS (
    SELECT
        fresh.fact, fresh.newest, fresh.n + coalesce(max(e.times) FILTER (WHERE t.base <= :last), 0) AS times,
        min(e.told) AS first
    FROM fresh
    JOIN nonchalant.told_events AS e ON e.fact = fresh.fact
    JOIN nonchalant.tellings AS t ON t.telling = e.told >> 20 AND t.base IS NOT NULL
    GROUP BY fresh.fact, fresh.newest, fresh.n
)
UPDATE nonchalant.told_events AS e SET times = told.times, since = coalesce(first.since, first.at)
FROM told JOIN nonchalant.told_events AS first ON first.told = told.first
WHERE e.told = told.newest AND told.newest <> told.first;

-- drop_repeats --
-- What lies between the first and the newest of the same fact goes.
WITH fresh AS (
    SELECT DISTINCT e.fact FROM nonchalant.tellings AS t
    JOIN nonchalant.told_events AS e ON e.told >= t.telling << 20 AND e.told < t.telling + 1 << 20
    WHERE t.base > :last AND t.repeats AND e.fact IS NOT NULL
), numbered AS (
    SELECT e.fact, e.told FROM fresh
    JOIN nonchalant.told_events AS e ON e.fact = fresh.fact
    JOIN nonchalant.tellings AS t ON t.telling = e.told >> 20 AND t.base IS NOT NULL
), between_them AS (
    SELECT told FROM (
        SELECT told, min(told) OVER (PARTITION BY fact) AS first, max(told) OVER (PARTITION BY fact) AS newest FROM numbered
    ) AS ranked WHERE told <> first AND told <> newest
)
DELETE FROM nonchalant.told_events AS e USING between_them WHERE e.told = between_them.told;

-- end_numbering --
-- By what was given, not by how many: retention may have taken one of them away meanwhile.
UPDATE nonchalant.numbering SET last = greatest(
    last, (SELECT base + events - 1 FROM nonchalant.tellings WHERE base IS NOT NULL ORDER BY base DESC LIMIT 1)
);

-- ended_before --
-- What ended so long ago and may be removed: all of its slots are final, and its lane is in order. The last row says where to
-- go on.
SELECT id, walked FROM nonchalant.ended_before(:before, :incarnation, :limit, :behind, :looks);

-- keep_key --
-- So that the same request is never executed a second time.
INSERT INTO nonchalant.removed (idempotency_key, tenant, body_hash, id, removed_at)
SELECT idempotency_key, tenant, body_hash, id, :at::BIGINT FROM nonchalant.transactions
WHERE id = ANY (:id::TEXT[]) AND idempotency_key IS NOT NULL;

-- slots_of_a_transaction --
SELECT DISTINCT chain_id, address, nonce, tx_id FROM nonchalant.attempts WHERE tx_id = ANY (:id::TEXT[]);

-- final_fillers --
-- Final slots that were nobody's transaction.
SELECT s.chain_id, s.address, s.nonce, s.tx_id FROM nonchalant.lanes AS l
LEFT JOIN nonchalant.controls AS c ON c.chain_id = l.chain_id AND c.address = l.address
JOIN nonchalant.slots AS s ON s.chain_id = l.chain_id AND s.address = l.address
WHERE l.incarnation = :incarnation AND l.quarantined_below IS NULL AND coalesce(c.mode, 'open') <> 'halted'
    AND s.tx_id IS NULL AND s.settled AND s.settled_at < :before AND s.nonce < l.settled_below
LIMIT :limit;

-- remove_slot --
DELETE FROM nonchalant.slots AS s
USING unnest(:chain_id::BIGINT[], :address::TEXT[], :nonce::BIGINT[], :tx_id::TEXT[])
    AS old (chain_id, address, nonce, tx_id)
WHERE s.chain_id = old.chain_id AND s.address = old.address AND s.nonce = old.nonce
    AND s.tx_id IS NOT DISTINCT FROM old.tx_id AND s.settled;

-- remove_attempts --
DELETE FROM nonchalant.attempts WHERE tx_id = ANY (:id::TEXT[]);

-- remove_history --
WITH gone AS (
    DELETE FROM nonchalant.told_events WHERE tx_id = ANY (:id::TEXT[]) RETURNING told
)
SELECT t.base + (gone.told & 1048575) AS position
FROM gone JOIN nonchalant.tellings AS t ON t.telling = gone.told >> 20;

-- raise_forgotten --
UPDATE nonchalant.meta SET forgotten = greatest(forgotten, :position);

-- remove_transaction --
DELETE FROM nonchalant.transactions WHERE id = ANY (:id::TEXT[]);

-- remove_loose_attempts --
-- Attempts of such slots, once the slots are gone.
DELETE FROM nonchalant.attempts WHERE number IN (
    SELECT a.number FROM nonchalant.lanes AS l
    LEFT JOIN nonchalant.controls AS c ON c.chain_id = l.chain_id AND c.address = l.address
    JOIN nonchalant.attempts AS a ON a.chain_id = l.chain_id AND a.address = l.address
    WHERE l.incarnation = :incarnation AND l.quarantined_below IS NULL AND coalesce(c.mode, 'open') <> 'halted'
        AND a.tx_id IS NULL AND a.signed_at < :before AND a.nonce < l.settled_below
        AND NOT EXISTS (
            SELECT 1 FROM nonchalant.slots AS s
            WHERE s.chain_id = a.chain_id AND s.address = a.address AND s.nonce = a.nonce AND s.tx_id IS NULL
        )
    LIMIT :limit
);

-- remove_lane_events --
WITH gone AS (
    DELETE FROM nonchalant.told_events WHERE told = ANY (
        ARRAY (SELECT told FROM nonchalant.told_events WHERE tx_id IS NULL AND at < :before LIMIT :limit)
    ) RETURNING told
)
SELECT t.base + (gone.told & 1048575) AS position
FROM gone JOIN nonchalant.tellings AS t ON t.telling = gone.told >> 20;

-- remove_strangers --
DELETE FROM nonchalant.strangers WHERE hash IN (
    SELECT hash FROM nonchalant.strangers WHERE found_at < :before LIMIT :limit
);

-- forget_keys --
DELETE FROM nonchalant.removed WHERE (idempotency_key, tenant) IN (
    SELECT idempotency_key, tenant FROM nonchalant.removed WHERE removed_at < :before LIMIT :limit
);

-- transaction --
SELECT * FROM nonchalant.transactions WHERE id = :id;

-- transactions --
-- A listing from the newest down. A hash finds its transaction through any of its attempts, and so does a nonce. The line of
-- a value that is not asked for is left out, so that each listing finds its own index. `lives`, `waits`, `flies` and `unusual`
-- say in so many words what a state implies: what is live waits or has a slot, and most of what has ended is confirmed.
SELECT * FROM nonchalant.transactions WHERE TRUE
    AND state = :state
    AND chain_id = :chain_id
    AND address = :address
    AND nonce = :nonce
    AND id IN (SELECT a.tx_id FROM nonchalant.lanes AS l JOIN nonchalant.attempts AS a ON a.chain_id = l.chain_id AND a.address = l.address WHERE a.nonce = :nonce
        AND a.nonce = :nonce AND l.chain_id = :chain_id
        AND a.nonce = :nonce AND l.address = :address
        AND a.nonce = :nonce)
    AND id IN (SELECT tx_id FROM nonchalant.attempts WHERE attempts.hash = :hash)
    AND idempotency_key = :idempotency_key
    AND batch = :batch
    AND place IN (SELECT w.place FROM nonchalant.waiting AS w WHERE :lives::BOOLEAN
        AND :lives::BOOLEAN AND w.chain_id = :chain_id
        AND :lives::BOOLEAN AND w.address = :address
        UNION ALL SELECT t.place FROM nonchalant.slots AS s JOIN nonchalant.transactions AS t ON t.id = s.tx_id WHERE NOT s.settled AND :lives::BOOLEAN
        AND :lives::BOOLEAN AND s.chain_id = :chain_id
        AND :lives::BOOLEAN AND s.address = :address
        AND :lives::BOOLEAN)
    AND place IN (SELECT w.place FROM nonchalant.waiting AS w WHERE :waits::BOOLEAN
        AND :waits::BOOLEAN AND w.chain_id = :chain_id
        AND :waits::BOOLEAN AND w.address = :address
        AND :waits::BOOLEAN)
    AND id IN (SELECT s.tx_id FROM nonchalant.slots AS s WHERE NOT s.settled AND :flies::BOOLEAN
        AND :flies::BOOLEAN AND s.chain_id = :chain_id
        AND :flies::BOOLEAN AND s.address = :address
        AND :flies::BOOLEAN)
    AND other_end = :state AND :unusual::BOOLEAN
    AND tenant = :tenant
    AND EXISTS (SELECT 1 FROM jsonb_array_elements(:may_use::TEXT::JSONB) AS may WHERE coalesce((may ->> 0)::BIGINT, transactions.chain_id) = transactions.chain_id AND coalesce(may ->> 1, transactions.address) = transactions.address)
    AND place < :before
ORDER BY place DESC LIMIT :limit;

-- batch --
-- All that was accepted together, in the order in which it was asked for.
SELECT * FROM nonchalant.transactions WHERE batch = :batch ORDER BY place;

-- queued_ahead --
-- How many go before it, counted to a limit: whoever looks must not walk a whole queue.
SELECT mine.id, (
    SELECT count(*) FROM (
        SELECT 1 FROM nonchalant.waiting AS w
        WHERE w.chain_id = mine.chain_id AND w.address = mine.address AND NOT w.held
            AND w.priority > mine.priority
        UNION ALL
        SELECT 1 FROM nonchalant.waiting AS w
        WHERE w.chain_id = mine.chain_id AND w.address = mine.address AND NOT w.held
            AND w.priority = mine.priority AND w.place < mine.place
        LIMIT :limit
    ) AS ahead
) AS n
FROM unnest(:id::TEXT[], :chain_id::BIGINT[], :address::TEXT[], :priority::SMALLINT[], :place::BIGINT[])
    AS mine (id, chain_id, address, priority, place);

-- slot_of_transaction --
SELECT tx_id, wanted, payload_version FROM nonchalant.slots WHERE tx_id = ANY (:tx_id::TEXT[]) AND NOT settled;

-- first_open_slot --
-- The lowest nonce that no block is known to have executed.
SELECT lane.chain_id, lane.address, first.nonce, first.kind, first.tx_id
FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) AS lane (chain_id, address)
CROSS JOIN LATERAL (
    SELECT s.nonce, s.kind, s.tx_id FROM nonchalant.slots AS s
    LEFT JOIN nonchalant.transactions AS t ON t.id = s.tx_id
    WHERE s.chain_id = lane.chain_id AND s.address = lane.address AND NOT s.settled
        AND s.receipt IS NULL AND t.receipt IS NULL
    ORDER BY s.nonce LIMIT 1
) AS first;

-- attempts --
SELECT * FROM nonchalant.attempts WHERE tx_id = ANY (:tx_id::TEXT[]) ORDER BY number;

-- history --
SELECT * FROM nonchalant.events WHERE tx_id = :tx_id AND position IS NOT NULL ORDER BY position;

-- lane_history --
-- In the order in which they were told, from the newest down, or from the one at a position.
SELECT * FROM nonchalant.events
WHERE chain_id = :chain_id AND address = :address AND substr(kind, 1, 5) = 'lane.' AND position IS NOT NULL
    AND told < CASE
        WHEN :before > (SELECT last FROM nonchalant.numbering) THEN 9223372036854775807
        ELSE (
            SELECT (t.telling << 20) + least(:before - t.base, 1048576) FROM nonchalant.tellings AS t
            WHERE t.base <= :before ORDER BY t.base DESC LIMIT 1
        )
    END
ORDER BY told DESC LIMIT :limit;

-- events_after --
SELECT * FROM nonchalant.told_after(:position, :limit);

-- event_range --
-- The last position that was given, whether or not its event is still there, and the last one that retention took away.
SELECT last, forgotten FROM nonchalant.numbering, nonchalant.meta;

-- tenants --
SELECT id, tenant FROM nonchalant.transactions WHERE id = ANY (:id::TEXT[]);

-- lanes --
-- All of them, those that a key may use, or the one that is named.
SELECT
    lanes.*, leases.owner, leases.epoch, leases.expires_at, controls.mode, controls.reason, controls.since,
    nonchalant.millis() AS now
FROM nonchalant.lanes
JOIN nonchalant.leases ON leases.chain_id = lanes.chain_id AND leases.address = lanes.address
LEFT JOIN nonchalant.controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
WHERE TRUE
    AND lanes.chain_id = :chain_id AND lanes.address = :address
    AND EXISTS (SELECT 1 FROM jsonb_array_elements(:may_use::TEXT::JSONB) AS may WHERE coalesce((may ->> 0)::BIGINT, lanes.chain_id) = lanes.chain_id AND coalesce(may ->> 1, lanes.address) = lanes.address)
ORDER BY lanes.chain_id, lanes.address;

-- backlog --
-- How much of what is live there is in each state, and since when its oldest was accepted. What is held waits for a
-- person, so it is told apart. The limit guards whoever has more to do than anybody can count in a moment; what has ended is
-- never read.
SELECT chain_id, shown AS state, count(*) AS n, min(created_at) AS oldest, nonchalant.millis() AS now
FROM (
    SELECT t.chain_id, t.created_at, CASE WHEN t.held THEN 'held' ELSE t.state END AS shown FROM (
        SELECT place FROM nonchalant.waiting LIMIT :limit
    ) AS w JOIN nonchalant.transactions AS t ON t.place = w.place
    UNION ALL
    SELECT t.chain_id, t.created_at, t.state FROM (
        SELECT tx_id FROM nonchalant.slots WHERE NOT settled AND tx_id IS NOT NULL LIMIT :limit
    ) AS s JOIN nonchalant.transactions AS t ON t.id = s.tx_id
    WHERE t.state IN ('signed', 'sent', 'mined')
    LIMIT :limit
) AS live
GROUP BY chain_id, shown;

-- lane_conditions --
-- How many lanes of each chain are not simply at work.
SELECT
    lanes.chain_id, count(quarantined_below) AS quarantined, count(unhealthy) AS unhealthy, count(attention) AS marked,
    count(CASE WHEN mode = 'paused' THEN 1 END) AS paused, count(CASE WHEN mode = 'draining' THEN 1 END) AS draining,
    count(CASE WHEN mode = 'halted' THEN 1 END) AS halted
FROM nonchalant.lanes
LEFT JOIN nonchalant.controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
GROUP BY lanes.chain_id;

-- numbering --
-- Where a lane's nonces stand, and how many of the queued will take whichever is next. Not those that are
-- marked: they cannot go now, others pass them, and nobody knows for how long. No row: it was never declared.
SELECT lanes.next_nonce, (
    SELECT count(*) FROM nonchalant.waiting
    WHERE waiting.chain_id = lanes.chain_id AND waiting.address = lanes.address
    AND NOT waiting.held AND waiting.asked_nonce IS NULL AND NOT waiting.marked
) AS waiting
FROM nonchalant.lanes WHERE lanes.chain_id = :chain_id AND lanes.address = :address;

-- asked_for --
-- Nonces that queued ones wait for by name.
SELECT asked_nonce FROM nonchalant.waiting
WHERE chain_id = :chain_id AND address = :address AND NOT held AND asked_nonce IS NOT NULL;

-- live_states --
SELECT lane.chain_id, lane.address, live.state, live.n
FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) AS lane (chain_id, address)
CROSS JOIN LATERAL (
    SELECT 'queued' AS state, count(*) AS n FROM nonchalant.waiting AS w
    WHERE w.chain_id = lane.chain_id AND w.address = lane.address HAVING count(*) > 0
    UNION ALL
    SELECT t.state, count(*) FROM nonchalant.slots AS s JOIN nonchalant.transactions AS t ON t.id = s.tx_id
    WHERE s.chain_id = lane.chain_id AND s.address = lane.address AND NOT s.settled
        AND t.state IN ('signed', 'sent', 'mined')
    GROUP BY t.state
) AS live;

-- live_slots --
SELECT lane.chain_id, lane.address, s.kind, count(*) AS n
FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) AS lane (chain_id, address)
JOIN nonchalant.slots AS s ON s.chain_id = lane.chain_id AND s.address = lane.address
WHERE NOT s.settled
GROUP BY lane.chain_id, lane.address, s.kind;

-- reservations --
-- Nonces kept for others, with what their holder last said to have signed.
SELECT s.chain_id, s.address, s.nonce, s.deadline, (
    SELECT a.hash FROM nonchalant.attempts AS a
    WHERE a.chain_id = s.chain_id AND a.address = s.address AND a.nonce = s.nonce AND a.kind = 'outside'
    ORDER BY a.number DESC LIMIT 1
) AS hash
FROM unnest(:chain_id::BIGINT[], :address::TEXT[]) AS lane (chain_id, address)
JOIN nonchalant.slots AS s ON s.chain_id = lane.chain_id AND s.address = lane.address
WHERE NOT s.settled AND s.holder IS NOT NULL AND s.kind = 'reservation'
ORDER BY s.chain_id, s.address, s.nonce;

-- insert_webhook --
-- No row: it is there already, or there are as many as there may be.
INSERT INTO nonchalant.webhooks (id, tenant, url, secrets, kinds, lanes, description, position, created_at)
SELECT
    :id::TEXT, :tenant::TEXT, :url::TEXT, :secrets::TEXT, :kinds::TEXT, :lanes::TEXT, :description::TEXT, :position::BIGINT,
    nonchalant.millis()
WHERE (SELECT count(*) FROM nonchalant.webhooks) < :most
ON CONFLICT DO NOTHING
RETURNING id;

-- webhooks --
-- All of them, or the one that is named, with what waits at each.
SELECT
    webhooks.*, nonchalant.millis() AS now,
    (SELECT count(*) FROM nonchalant.deliveries WHERE webhook_id = webhooks.id AND state = 'pending') AS pending,
    (
        SELECT min(created_at) FROM nonchalant.deliveries WHERE webhook_id = webhooks.id AND state = 'pending'
    ) AS waiting_since
FROM nonchalant.webhooks WHERE TRUE
    AND id = :id
ORDER BY created_at, id;

-- update_webhook --
-- No row: somebody else changed it, or removed it.
UPDATE nonchalant.webhooks SET
    url = :url, secrets = :secrets, kinds = :kinds, lanes = :lanes, tenant = :tenant, description = :description,
    disabled_at = :disabled_at, disabled_why = :disabled_why, version = version + 1
WHERE id = :id AND version = :version;

-- rewind_webhook --
-- Only back: what it has not come to yet is still to be delivered.
UPDATE nonchalant.webhooks SET position = least(position, :position), version = version + 1 WHERE id = :id;

-- disable_webhook --
UPDATE nonchalant.webhooks SET disabled_at = nonchalant.millis(), disabled_why = :why, version = version + 1
WHERE id = :id AND disabled_at IS NULL;

-- remove_webhook --
DELETE FROM nonchalant.webhooks WHERE id = :id;

-- webhook_owners --
-- Who delivers for whom, and how many nodes live to share them.
SELECT
    id, version, disabled_at IS NOT NULL AS disabled, CASE WHEN owned_until > nonchalant.millis() THEN owner END AS owner,
    (SELECT count(*) FROM nonchalant.nodes WHERE expires_at > nonchalant.millis()) AS live_nodes
FROM nonchalant.webhooks ORDER BY id;

-- own_webhook --
-- Take one that nobody delivers for, or keep one's own. No row: another node does.
UPDATE nonchalant.webhooks SET owner = :owner, owned_until = nonchalant.millis() + :ttl
WHERE id IN (
    SELECT id FROM nonchalant.webhooks
    WHERE id = ANY (:id::TEXT[]) AND disabled_at IS NULL AND (owner = :owner OR owned_until <= nonchalant.millis())
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING id;

-- release_webhooks --
UPDATE nonchalant.webhooks SET owner = NULL, owned_until = 0 WHERE owner = :owner;

-- hold_webhook --
-- The first statement of whoever delivers. No row: another node does.
SELECT version, position FROM nonchalant.webhooks
WHERE id = :id AND owner = :owner AND owned_until > nonchalant.millis()
FOR NO KEY UPDATE;

-- advance_webhook --
UPDATE nonchalant.webhooks SET position = :position WHERE id = :id;

-- insert_delivery --
-- No row: it waits already. One that has ended is wanted once more.
INSERT INTO nonchalant.deliveries (webhook_id, position, stream, kind, body, state, next_at, created_at)
SELECT :webhook_id::TEXT, told.position, told.stream, told.kind, told.body, 'pending', nonchalant.millis(), nonchalant.millis()
FROM unnest(:position::BIGINT[], :stream::TEXT[], :kind::TEXT[], :body::TEXT[]) AS told (position, stream, kind, body)
ON CONFLICT (webhook_id, position) DO UPDATE SET
    state = 'pending', tries = 0, next_at = excluded.next_at, status = NULL, error = NULL, ended_at = NULL
WHERE deliveries.state <> 'pending'
RETURNING *;

-- pending_deliveries --
SELECT * FROM nonchalant.deliveries WHERE webhook_id = :webhook_id AND state = 'pending' ORDER BY position LIMIT :limit;

-- record_delivery --
UPDATE nonchalant.deliveries AS d SET
    state = said.state, tries = said.tries, next_at = said.next_at, status = said.status, error = said.error,
    ended_at = said.ended_at
FROM unnest(
    :position::BIGINT[], :state::TEXT[], :tries::BIGINT[], :next_at::BIGINT[], :status::BIGINT[], :error::TEXT[],
    :ended_at::BIGINT[]
) AS said (position, state, tries, next_at, status, error, ended_at)
WHERE d.webhook_id = :webhook_id AND d.position = said.position AND d.state = 'pending';

-- hurry_deliveries --
-- What waits for another try has it now.
UPDATE nonchalant.deliveries SET next_at = nonchalant.millis()
WHERE webhook_id = :webhook_id AND state = 'pending' AND next_at > nonchalant.millis();

-- deliveries --
-- A log from the newest down.
SELECT * FROM nonchalant.deliveries WHERE webhook_id = :webhook_id
    AND state = :state
    AND position = :position
    AND position < :before
ORDER BY position DESC LIMIT :limit;

-- replay_delivery --
-- No row: there is none.
UPDATE nonchalant.deliveries SET
    state = 'pending', tries = 0, next_at = nonchalant.millis(), status = NULL, error = NULL, ended_at = NULL
WHERE webhook_id = :webhook_id AND position = :position;

-- touch_webhook --
-- Whoever delivers reads it anew.
UPDATE nonchalant.webhooks SET version = version + 1 WHERE id = :id;

-- forget_deliveries --
DELETE FROM nonchalant.deliveries WHERE (webhook_id, position) IN (
    SELECT webhook_id, position FROM nonchalant.deliveries WHERE ended_at < :before LIMIT :limit
);

-- position_since --
-- The first event of this time or later.
SELECT t.base + (e.told & 1048575) AS position FROM nonchalant.tellings AS t
JOIN nonchalant.told_events AS e ON e.told >= t.telling << 20 AND e.told < t.telling + 1 << 20
WHERE t.base IS NOT NULL AND e.at >= :since
ORDER BY t.base, e.told LIMIT 1;
