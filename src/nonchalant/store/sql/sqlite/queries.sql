-- Named queries for SQLite. Each says its purpose and carries its own guard.

-- count_commit --
-- Raise the store's own position, so that an older copy of it can be told.
UPDATE meta SET commits = commits + 1 RETURNING commits;

-- position --
-- Who this store is and how far it has come.
SELECT store_id, commits, incarnation FROM meta;

-- raise_incarnation --
-- The store is older than it once was: every lane must be reconciled.
UPDATE meta SET incarnation = incarnation + 1;

-- begin_positions --
-- SQLite remembers the last one from the first event on.
INSERT INTO sqlite_sequence (name, seq)
SELECT 'events', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events');

-- skip_positions --
-- Positions that were given to what is lost are not given again: somebody may have read them.
UPDATE sqlite_sequence SET seq = seq + :skipped WHERE name = 'events';

-- lock_audit --
-- Where the audit log ends; until the commit nobody else goes on there.
SELECT position, hash FROM audit_head WHERE one = 1;

-- insert_audit --
INSERT INTO audit (position, at, actor, name, action, subject, data, previous, hash)
VALUES (:position, :at, :actor, :name, :action, :subject, :data, :previous, :hash);

-- move_audit_head --
-- No row: it does not end there.
UPDATE audit_head SET position = :position, hash = :hash WHERE one = 1 AND hash = :previous;

-- audit_head --
SELECT position, hash FROM audit_head WHERE one = 1;

-- audit_after --
-- Entries in their order, a page at a time.
SELECT * FROM audit WHERE position > :after ORDER BY position LIMIT :limit;

-- insert_key --
-- No row: it is there already, by a commit whose outcome was not learnt.
INSERT INTO keys (id, name, digest, tenant, scopes, lanes, rules, created_at, expires_at)
VALUES (:id, :name, :digest, :tenant, :scopes, :lanes, :rules, :at, :expires_at)
ON CONFLICT (id) DO NOTHING RETURNING *;

-- some_key --
SELECT id FROM keys LIMIT 1;

-- live_keys --
-- Those that can be used now: neither revoked nor expired.
SELECT * FROM keys
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- keys --
-- A listing from the newest down, or the one that is named.
SELECT * FROM keys WHERE TRUE
    AND id = :id
    AND place < :before
ORDER BY place DESC LIMIT :limit;

-- revoke_key --
-- No row: it is revoked already, or there is none.
UPDATE keys SET revoked_at = :at WHERE id = :id AND revoked_at IS NULL RETURNING *;

-- declare_lane --
-- Make the lane exist. A new lane has nothing to reconcile, unless the store itself has lost commits.
INSERT INTO lanes (chain_id, address) VALUES (:chain_id, :address) ON CONFLICT DO NOTHING;

-- declare_lease --
INSERT INTO leases (chain_id, address) VALUES (:chain_id, :address) ON CONFLICT DO NOTHING;

-- room --
-- How a lane should be run, and how many transactions wait in it; counting stops at the limit. Naming all live states
-- opens the index to it.
SELECT
    :chain_id AS chain_id, :address AS address,
    (SELECT mode FROM controls WHERE chain_id = :chain_id AND address = :address) AS mode,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM transactions
            WHERE chain_id = :chain_id AND address = :address
                AND state IN ('queued', 'signed', 'sent', 'mined') AND state = 'queued'
            LIMIT :limit
        )
    ) AS depth;

-- insert_transaction --
-- No row: the id or the idempotency key is known already, or was before it was removed.
INSERT INTO transactions (
    id, chain_id, address, state, priority, tenant, idempotency_key, body_hash,
    payload, fees, metadata, simulate, valid_until, confirmations, on_superseded, asked_nonce, batch,
    created_at, updated_at
)
SELECT
    :id, :chain_id, :address, 'queued', :priority, :tenant, :idempotency_key, :body_hash,
    :payload, :fees, :metadata, :simulate, :valid_until, :confirmations, :on_superseded, :asked_nonce, :batch,
    :at, :at
WHERE NOT EXISTS (SELECT 1 FROM removed WHERE idempotency_key = :idempotency_key AND tenant = :tenant)
ON CONFLICT DO NOTHING
RETURNING id, place;

-- insert_signed --
-- What comes to a lane's owner while nothing waits there is accepted with its nonce, and never queued. No row: something
-- waits after all, the lane is to give out nothing, its deadline has passed, or its id or key is known, as above.
INSERT INTO transactions (
    id, chain_id, address, state, version, priority, tenant, idempotency_key, body_hash,
    payload, fees, metadata, valid_until, confirmations, on_superseded, nonce, hash, created_at, updated_at
)
SELECT
    :id, :chain_id, :address, :state, :version, :priority, :tenant, :idempotency_key, :body_hash,
    :payload, :fees, :metadata, :valid_until, :confirmations, :on_superseded, :nonce, :hash, :now, :updated_at
WHERE (:valid_until IS NULL OR :valid_until > :now)
    AND NOT EXISTS (
        SELECT 1 FROM transactions INDEXED BY transactions_to_assign
        WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0
    )
    AND NOT EXISTS (SELECT 1 FROM controls WHERE chain_id = :chain_id AND address = :address AND mode <> 'open')
    AND NOT EXISTS (SELECT 1 FROM removed WHERE idempotency_key = :idempotency_key AND tenant = :tenant)
ON CONFLICT DO NOTHING
RETURNING id, place, created_at;

-- known_request --
-- What an id or an idempotency key was used for.
SELECT :n AS n, transactions.* FROM transactions
WHERE id = :id OR (tenant = :tenant AND idempotency_key = :idempotency_key)
ORDER BY id = :id DESC LIMIT 1;

-- claim_nonce --
-- Whoever asks for it first, of all who ever asked. Nothing: somebody did.
INSERT INTO asked_nonces (chain_id, address, nonce, tx_id) VALUES (:chain_id, :address, :asked_nonce, :id)
ON CONFLICT DO NOTHING;

-- nonce_holder --
-- Whom a nonce was asked for, and what became of that one: nothing, if it was never accepted.
SELECT :n AS n, asked_nonces.tx_id AS holder, transactions.*
FROM asked_nonces LEFT JOIN transactions ON transactions.id = asked_nonces.tx_id
WHERE asked_nonces.chain_id = :chain_id AND asked_nonces.address = :address AND asked_nonces.nonce = :asked_nonce;

-- take_nonce --
-- From one that ended without it.
UPDATE asked_nonces SET tx_id = :id WHERE chain_id = :chain_id AND address = :address AND nonce = :asked_nonce;

-- leave_nonce --
-- It was not accepted after all.
DELETE FROM asked_nonces WHERE tx_id = :id;

-- forget_asked_nonces --
-- Nonces from there on will be given out again.
DELETE FROM asked_nonces WHERE chain_id = :chain_id AND address = :address AND nonce >= :nonce;

-- removed_request --
-- What an idempotency key was used for, by a transaction that is kept no more.
SELECT :n AS n, removed.* FROM removed WHERE idempotency_key = :idempotency_key AND tenant = :tenant;

-- lanes_with_work --
-- Lanes with something to assign or to watch, a wish to grant, or an ailment to look after, and who holds them now. Also
-- those of which something waits, held or not, that cannot be called off before the lane is compared with its chain. Each
-- index is walked from one busy lane to the next: neither lanes at rest nor long queues cost anything.
WITH RECURSIVE chains (chain_id) AS (
    SELECT min(chain_id) FROM lanes
    UNION ALL
    SELECT (SELECT min(chain_id) FROM lanes WHERE chain_id > chains.chain_id) FROM chains WHERE chain_id IS NOT NULL
), live (chain_id, address) AS (
    SELECT chain_id, '' FROM chains
    UNION ALL
    SELECT chain_id, (
        SELECT min(address) FROM transactions INDEXED BY transactions_live
        WHERE chain_id = live.chain_id AND address > live.address AND state IN ('queued', 'signed', 'sent', 'mined')
    )
    FROM live WHERE address IS NOT NULL
), bound (chain_id, address) AS (
    SELECT chain_id, '' FROM chains
    UNION ALL
    SELECT chain_id, (
        SELECT min(address) FROM slots INDEXED BY slots_unsettled
        WHERE chain_id = bound.chain_id AND address > bound.address AND settled = 0
    )
    FROM bound WHERE address IS NOT NULL
), waiting (chain_id, address) AS (
    SELECT lanes.chain_id, lanes.address FROM live
    CROSS JOIN lanes ON lanes.chain_id = live.chain_id AND lanes.address = live.address
    LEFT JOIN controls ON controls.chain_id = live.chain_id AND controls.address = live.address
    WHERE (
            coalesce(controls.mode, 'open') = 'open' AND EXISTS (
                SELECT 1 FROM transactions INDEXED BY transactions_to_assign
                WHERE chain_id = live.chain_id AND address = live.address AND state = 'queued' AND held = 0
            )
        )
        OR (
            (lanes.quarantined_below IS NOT NULL OR lanes.incarnation <> (SELECT incarnation FROM meta)) AND EXISTS (
                SELECT 1 FROM transactions
                WHERE chain_id = live.chain_id AND address = live.address
                    AND state IN ('queued', 'signed', 'sent', 'mined') AND state = 'queued'
            )
        )
        OR (
            :marked AND EXISTS (
                SELECT 1 FROM transactions INDEXED BY transactions_marked
                WHERE chain_id = live.chain_id AND address = live.address AND state = 'queued' AND attention IS NOT NULL
            )
        )
), busy (chain_id, address) AS (
    SELECT chain_id, address FROM waiting
    UNION SELECT chain_id, address FROM bound WHERE address > ''
    UNION SELECT chain_id, address FROM wishes INDEXED BY wishes_open WHERE reply IS NULL
    UNION SELECT chain_id, address FROM lanes INDEXED BY lanes_unhealthy WHERE unhealthy IS NOT NULL
)
SELECT
    busy.chain_id, busy.address, CASE WHEN leases.expires_at > :now THEN leases.owner END AS owner,
    CASE WHEN leases.owner IS NOT NULL THEN leases.expires_at - :now END AS ends_in
FROM busy LEFT JOIN leases ON leases.chain_id = busy.chain_id AND leases.address = busy.address
ORDER BY busy.chain_id, busy.address;

-- heartbeat --
INSERT INTO nodes (owner, expires_at) VALUES (:owner, :now + :ttl)
ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at;

-- forget_dead_nodes --
DELETE FROM nodes WHERE expires_at <= :now;

-- live_nodes --
SELECT count(*) AS n FROM nodes WHERE expires_at > :now;

-- acquire_lease --
-- Take what is free, expired or one's own, always with a new epoch. No row: another node holds it.
UPDATE leases SET owner = :owner, epoch = epoch + 1, expires_at = :now + :ttl
WHERE chain_id = :chain_id AND address = :address
    AND (owner IS NULL OR owner = :owner OR expires_at <= :now)
RETURNING epoch, :now AS now;

-- renew_leases --
-- Only the holder of this very epoch prolongs it, and only before it expires.
UPDATE leases SET expires_at = :now + :ttl
WHERE chain_id = :chain_id AND address = :address
    AND owner = :owner AND epoch = :epoch AND expires_at > :now
RETURNING chain_id, address;

-- release_lease --
UPDATE leases SET owner = NULL, expires_at = 0
WHERE chain_id = :chain_id AND address = :address AND owner = :owner AND epoch = :epoch;

-- release_node --
DELETE FROM nodes WHERE owner = :owner;

-- fence --
-- The first statement of every owner's transaction. No row: the lease is lost.
SELECT :now AS now FROM leases
WHERE chain_id = :chain_id AND address = :address
    AND owner = :owner AND epoch = :epoch AND expires_at > :now;

-- load_lane --
SELECT * FROM lanes WHERE chain_id = :chain_id AND address = :address;

-- load_slots --
-- By the index of what is not final: a lane's past must not slow its start.
SELECT * FROM slots INDEXED BY slots_unsettled
WHERE chain_id = :chain_id AND address = :address AND settled = 0 ORDER BY nonce;

-- load_attempts --
-- Every attempt of every slot that is not final, oldest first; none of whoever had the nonce before, and gave it back.
SELECT attempts.* FROM slots INDEXED BY slots_unsettled
CROSS JOIN attempts INDEXED BY attempts_of_a_slot
    ON attempts.chain_id = slots.chain_id AND attempts.address = slots.address AND attempts.nonce = slots.nonce
    AND attempts.tx_id IS slots.tx_id AND attempts.given_back = 0
WHERE slots.chain_id = :chain_id AND slots.address = :address AND slots.settled = 0
ORDER BY attempts.nonce, attempts.rowid;

-- load_transactions --
SELECT transactions.* FROM slots INDEXED BY slots_unsettled
CROSS JOIN transactions ON transactions.id = slots.tx_id
WHERE slots.chain_id = :chain_id AND slots.address = :address AND slots.settled = 0;

-- load_final --
-- The highest nonce that is final; one below may still be waited for.
SELECT max(nonce) AS nonce FROM slots
WHERE chain_id = :chain_id AND address = :address AND settled
    AND nonce >= (SELECT settled_below FROM lanes WHERE chain_id = :chain_id AND address = :address);

-- load_strangers --
SELECT * FROM strangers WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL ORDER BY nonce;

-- put_stranger --
-- Keep a stranger, or whom it was found to be a twin of; that never changes again.
INSERT INTO strangers (hash, chain_id, address, nonce, deed, tx_id, found_at)
VALUES (:hash, :chain_id, :address, :nonce, :deed, :tx_id, :now)
ON CONFLICT (hash) DO UPDATE SET tx_id = excluded.tx_id WHERE strangers.tx_id IS NULL;

-- bound_nonces --
SELECT nonce FROM slots
WHERE chain_id = :chain_id AND address = :address AND nonce >= :first AND nonce < :below;

-- known_attempts --
SELECT hash FROM attempts WHERE hash = :hash LIMIT 1;

-- queued --
-- What the owner may assign, found by state and never by a cursor; what it has put aside is left out, and so is what is
-- overdue by the store's clock and any node may end. Before the others, those that ask for a nonce of their own.
SELECT * FROM (
    SELECT * FROM transactions
    WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0 AND asked_nonce IS NOT NULL
        AND (
            valid_until IS NULL OR valid_until > :now
            OR EXISTS (
                SELECT 1 FROM strangers WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL
            )
        )
        AND NOT EXISTS (
            SELECT 1 FROM controls WHERE chain_id = :chain_id AND address = :address AND mode <> 'open'
        )
        AND id NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY asked_nonce LIMIT :asking
) AS asking
UNION ALL
SELECT * FROM (
    SELECT * FROM transactions
    WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0 AND asked_nonce IS NULL
        AND (
            valid_until IS NULL OR valid_until > :now
            OR EXISTS (
                SELECT 1 FROM strangers WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL
            )
        )
        AND NOT EXISTS (
            SELECT 1 FROM controls WHERE chain_id = :chain_id AND address = :address AND mode <> 'open'
        )
        AND id NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY priority DESC, place LIMIT :limit
) AS others;

-- marked --
SELECT * FROM transactions INDEXED BY transactions_marked
WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND attention IS NOT NULL AND place > :after
ORDER BY place LIMIT :limit;

-- hold_queued --
-- Take a queued row out of the line.
UPDATE transactions SET held = 1, version = version + 1, attention = :attention, updated_at = :at
WHERE id = :id AND state = 'queued';

-- queued_before --
SELECT 1 FROM transactions
WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0 AND place < :place
LIMIT 1;

-- update_transaction --
-- Guarded by the version that was read: still in that state, not held, same payload; and by the lane that is leased.
-- What gets a nonce must not be overdue. No row: someone else moved it.
UPDATE transactions SET
    state = :state, version = :version, held = :held, nonce = :nonce, hash = :hash, receipt = :receipt,
    deep = :deep, forked = :forked, failure = :failure, attention = :attention, updated_at = :updated_at,
    ended_at = CASE WHEN :state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired') THEN :now END
WHERE id = :id AND version = :version - 1 AND chain_id = :chain_id AND address = :address
    AND (state <> 'queued' OR :nonce IS NULL OR valid_until IS NULL OR valid_until > :now);

-- rewrite_transaction --
-- What the user asks for now. Apart from the moves, which are many, and which must not touch what cannot be read.
UPDATE transactions SET payload = :payload, earlier = :earlier, fees = :fees WHERE id = :id AND version = :version;

-- alter_queued --
-- From any node: only while it is queued, and as it was read. No row: it is not.
-- One statement, because after it the row may have ended, and then nothing touches it any more.
UPDATE transactions SET
    state = :state, version = :version, held = :held, attention = :attention, updated_at = :updated_at,
    payload = :payload, earlier = :earlier, fees = :fees,
    ended_at = CASE WHEN :state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired') THEN :now END
WHERE id = :id AND version = :version - 1 AND state = 'queued';

-- lock_lane --
-- With one writer, its owner waits already.
SELECT 1 WHERE FALSE;

-- may_have_run --
-- Whether what does one of these deeds may have run by a commit that this store has lost: its lane is not reconciled, or
-- a stranger did the same and is not held against anybody yet.
SELECT 1 FROM lanes
WHERE chain_id = :chain_id AND address = :address AND (
    quarantined_below IS NOT NULL
    OR incarnation <> (SELECT incarnation FROM meta)
    OR EXISTS (
        SELECT 1 FROM strangers INDEXED BY strangers_unmatched
        WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL
            AND deed IN (SELECT value FROM json_each(:deeds))
    )
);

-- twin --
-- What an account did, unknown to this store, that one of these deeds would be: held against nobody yet.
SELECT * FROM strangers INDEXED BY strangers_unmatched
WHERE chain_id = :chain_id AND address = :address AND tx_id IS NULL
    AND deed IN (SELECT value FROM json_each(:deeds))
ORDER BY nonce LIMIT 1;

-- overdue --
-- What any node may end. Not what may have run, by a commit that this store has lost: while its lane is not reconciled,
-- and once a person is to decide about it, or once nobody can read whether one is to.
SELECT transactions.* FROM transactions INDEXED BY transactions_with_a_deadline
JOIN lanes ON lanes.chain_id = transactions.chain_id AND lanes.address = transactions.address
WHERE state = 'queued' AND valid_until <= :now
    AND lanes.quarantined_below IS NULL AND lanes.incarnation = (SELECT incarnation FROM meta)
    AND (
        held = 0 OR iif(json_valid(transactions.attention), transactions.attention ->> 0, 'store_lost_commits')
            NOT IN ('same_payload_executed', 'store_lost_commits')
    )
ORDER BY valid_until LIMIT :limit;

-- expire_queued --
-- For a row that cannot be read. Not while something was done, unknown to this store, that this one may have been.
UPDATE transactions SET
    state = 'expired', held = 0, version = version + 1, attention = NULL, updated_at = :at, ended_at = :now
WHERE id = :id AND state = 'queued' AND valid_until <= :now
    AND NOT EXISTS (
        SELECT 1 FROM strangers INDEXED BY strangers_unmatched
        WHERE chain_id = transactions.chain_id AND address = transactions.address AND tx_id IS NULL
    );

-- insert_wish --
-- A wish about a transaction only while that has a slot. No row: it has none, or the wish is written already.
INSERT INTO wishes (id, chain_id, address, tx_id, kind, body, made_at)
SELECT :id, :chain_id, :address, :tx_id, :kind, :body, :now
WHERE :tx_id IS NULL
    OR EXISTS (SELECT 1 FROM transactions WHERE id = :tx_id AND state IN ('signed', 'sent', 'mined'))
ON CONFLICT DO NOTHING;

-- wish --
SELECT * FROM wishes WHERE id = :id;

-- open_wishes --
SELECT * FROM wishes INDEXED BY wishes_open
WHERE chain_id = :chain_id AND address = :address AND reply IS NULL ORDER BY place LIMIT :limit;

-- count_wishes --
SELECT count(*) AS n FROM (
    SELECT 1 FROM wishes INDEXED BY wishes_open
    WHERE chain_id = :chain_id AND address = :address AND reply IS NULL LIMIT :limit
);

-- reply_to_wish --
-- No row: it was withdrawn, or answered already.
UPDATE wishes SET reply = :reply WHERE id = :id AND chain_id = :chain_id AND address = :address AND reply IS NULL;

-- withdraw_wish --
DELETE FROM wishes WHERE id = :id AND reply IS NULL;

-- forget_replies --
DELETE FROM wishes WHERE reply IS NOT NULL AND made_at < :before;

-- control --
SELECT * FROM controls WHERE chain_id = :chain_id AND address = :address;

-- put_control --
-- Only by being opened does a lane leave a halt: somebody has looked.
INSERT INTO controls (chain_id, address, mode, reason, since) VALUES (:chain_id, :address, :mode, :reason, :at)
ON CONFLICT (chain_id, address) DO UPDATE SET mode = excluded.mode, reason = excluded.reason, since = excluded.since
WHERE controls.mode <> 'halted' OR excluded.mode IN ('open', 'halted');

-- believe_chain --
-- Whatever was final here before, the chain as it is now counts.
UPDATE lanes SET seen_hash = NULL WHERE chain_id = :chain_id AND address = :address;

-- halt_lanes --
-- Those that are not halted already.
INSERT INTO controls (chain_id, address, mode, reason, since)
SELECT chain_id, address, 'halted', :reason, :at FROM lanes WHERE chain_id = :chain_id
ON CONFLICT (chain_id, address) DO UPDATE SET mode = excluded.mode, reason = excluded.reason, since = excluded.since
WHERE controls.mode <> 'halted'
RETURNING address;

-- put_slot --
-- Bind a nonce, or write what became of the slot. A nonce that is bound to something else, or final, is refused.
INSERT INTO slots (chain_id, address, nonce, kind, tx_id, wanted, payload_version, holder, deadline, receipt)
VALUES (
    :chain_id, :address, :nonce, :kind, :tx_id, :wanted, :payload_version, :holder, :deadline, :receipt
)
ON CONFLICT (chain_id, address, nonce) DO UPDATE SET
    kind = excluded.kind, wanted = excluded.wanted, payload_version = excluded.payload_version,
    holder = excluded.holder, deadline = excluded.deadline, receipt = excluded.receipt
-- A reservation whose deadline passed is closed by a filler, never by anything else.
WHERE slots.settled = 0 AND slots.tx_id IS excluded.tx_id
    AND (slots.kind = excluded.kind OR (slots.kind = 'reservation' AND excluded.kind = 'filler'));

-- settle_slot --
-- It is final. No row: it is bound to something else, or was final before.
UPDATE slots SET settled = 1, settled_at = :now, receipt = :receipt
WHERE chain_id = :chain_id AND address = :address AND nonce = :nonce AND kind = :kind AND tx_id IS :tx_id
    AND settled = 0;

-- free_slot --
-- No row: it is not bound any more, or final.
DELETE FROM slots WHERE chain_id = :chain_id AND address = :address AND nonce = :nonce AND settled = 0;

-- unsettle_slots --
-- An operator gives up what was final: these nonces will be used again. The outcomes that rested on them stay.
DELETE FROM slots WHERE chain_id = :chain_id AND address = :address AND nonce >= :nonce AND settled = 1;

-- give_attempts_back --
-- What was signed for a slot that is freed stays known, and belongs to no slot any more.
UPDATE attempts SET given_back = 1
WHERE chain_id = :chain_id AND address = :address AND nonce = :nonce AND given_back = 0;

-- give_final_attempts_back --
-- The same for what was final, of the slots that `unsettle_slots` deletes after this.
UPDATE attempts SET given_back = 1
WHERE chain_id = :chain_id AND address = :address AND given_back = 0 AND nonce IN (
        SELECT nonce FROM slots WHERE chain_id = :chain_id AND address = :address AND nonce >= :nonce AND settled = 1
    );

-- insert_attempt --
-- Only for a live slot that is bound to the same transaction. The same bytes may be signed again after the slot was given
-- back; they stay the attempt they were, and are the slot's again. No row: the slot is bound to something else, or final.
INSERT INTO attempts (
    hash, chain_id, address, nonce, tx_id, kind, payload_version, fees, gas, raw, epoch, signed_at, floor,
    sent_at, answer
)
SELECT
    :hash, :chain_id, :address, :nonce, :tx_id, :kind, :payload_version, :fees, :gas, :raw, :epoch, :signed_at, :floor,
    :sent_at, :answer
FROM slots
WHERE chain_id = :chain_id AND address = :address AND nonce = :nonce AND settled = 0 AND tx_id IS :tx_id
ON CONFLICT (hash, coalesce(tx_id, '')) DO UPDATE SET answer = excluded.answer, given_back = 0
WHERE attempts.chain_id = excluded.chain_id AND attempts.address = excluded.address
    AND attempts.nonce = excluded.nonce AND attempts.raw = excluded.raw;

-- answer_attempt --
-- No row: the lane never signed it.
UPDATE attempts SET sent_at = :sent_at, answer = :answer
WHERE hash = :hash AND tx_id IS :tx_id AND chain_id = :chain_id AND address = :address;

-- update_lane --
-- No row: the lane was never declared. A hash that was forgotten stays so until another block is named: an owner that
-- read the lane before somebody resumed it would bring it back.
UPDATE lanes SET
    next_nonce = :next_nonce, settled_below = :settled_below, seen_block = :seen_block,
    seen_hash = iif(seen_hash IS NULL AND seen_block = :seen_block AND seen_block > 0, NULL, :seen_hash),
    incarnation = :incarnation, quarantined_below = :quarantined_below, window = :window, resets = :resets,
    confirmed_at = :confirmed_at, unhealthy = :unhealthy, attention = :attention
WHERE chain_id = :chain_id AND address = :address;

-- insert_event --
INSERT INTO events (kind, chain_id, address, tx_id, at, data, fact, times, since)
VALUES (:kind, :chain_id, :address, :tx_id, :at, :data, :fact, :times, :since);

-- first_told --
SELECT position, at, times, since FROM events WHERE fact = :fact ORDER BY position LIMIT 1;

-- drop_repeats --
-- The newest of the same fact gives way to the one that is told now; the first stays.
DELETE FROM events WHERE fact = :fact AND position > :first RETURNING times;

-- ended_before --
-- What ended so long ago and may be removed, lane by lane: all of its slots are final, and its lane is in order.
SELECT transactions.id FROM lanes
LEFT JOIN controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
CROSS JOIN transactions INDEXED BY transactions_ended
    ON transactions.chain_id = lanes.chain_id AND transactions.address = lanes.address
WHERE lanes.incarnation = :incarnation AND lanes.quarantined_below IS NULL AND coalesce(controls.mode, 'open') <> 'halted'
    AND transactions.state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired')
    AND coalesce(transactions.ended_at, transactions.updated_at) < :before
    AND NOT EXISTS (
        SELECT 1 FROM attempts INDEXED BY attempts_of_a_transaction
        JOIN slots
            ON slots.chain_id = attempts.chain_id AND slots.address = attempts.address AND slots.nonce = attempts.nonce
        WHERE attempts.tx_id = transactions.id AND slots.tx_id = transactions.id
            AND (slots.settled = 0 OR slots.nonce >= lanes.settled_below)
    )
LIMIT :limit;

-- keep_key --
-- So that the same request is never executed a second time.
INSERT INTO removed (idempotency_key, tenant, body_hash, id, removed_at)
SELECT idempotency_key, tenant, body_hash, id, :at FROM transactions
WHERE id = :id AND idempotency_key IS NOT NULL;

-- slots_of_a_transaction --
SELECT DISTINCT chain_id, address, nonce, tx_id FROM attempts WHERE tx_id = :id;

-- final_fillers --
-- Final slots that were nobody's transaction.
SELECT slots.chain_id, slots.address, slots.nonce, slots.tx_id FROM lanes
LEFT JOIN controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
CROSS JOIN slots INDEXED BY slots_of_nobody ON slots.chain_id = lanes.chain_id AND slots.address = lanes.address
WHERE lanes.incarnation = :incarnation AND lanes.quarantined_below IS NULL AND coalesce(controls.mode, 'open') <> 'halted'
    AND slots.tx_id IS NULL AND slots.settled = 1 AND slots.settled_at < :before AND slots.nonce < lanes.settled_below
LIMIT :limit;

-- remove_slot --
DELETE FROM slots
WHERE chain_id = :chain_id AND address = :address AND nonce = :nonce AND tx_id IS :tx_id AND settled = 1;

-- remove_attempts --
DELETE FROM attempts WHERE tx_id = :id;

-- remove_history --
DELETE FROM events WHERE tx_id = :id RETURNING position;

-- raise_forgotten --
UPDATE meta SET forgotten = max(forgotten, :position);

-- remove_transaction --
DELETE FROM transactions WHERE id = :id;

-- remove_loose_attempts --
-- Attempts of such slots, once the slots are gone.
DELETE FROM attempts WHERE hash IN (
    SELECT attempts.hash FROM lanes
    LEFT JOIN controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
    CROSS JOIN attempts INDEXED BY attempts_of_nobody
        ON attempts.chain_id = lanes.chain_id AND attempts.address = lanes.address
    WHERE lanes.incarnation = :incarnation AND lanes.quarantined_below IS NULL
        AND coalesce(controls.mode, 'open') <> 'halted'
        AND attempts.tx_id IS NULL AND attempts.signed_at < :before AND attempts.nonce < lanes.settled_below
        AND NOT EXISTS (
            SELECT 1 FROM slots
            WHERE chain_id = attempts.chain_id AND address = attempts.address AND nonce = attempts.nonce
                AND tx_id IS NULL
        )
    LIMIT :limit
);

-- remove_lane_events --
DELETE FROM events WHERE position IN (
    SELECT position FROM events INDEXED BY events_of_lanes WHERE tx_id IS NULL AND at < :before LIMIT :limit
) RETURNING position;

-- remove_strangers --
DELETE FROM strangers WHERE hash IN (SELECT hash FROM strangers WHERE found_at < :before LIMIT :limit);

-- forget_keys --
DELETE FROM removed WHERE (idempotency_key, tenant) IN (
    SELECT idempotency_key, tenant FROM removed WHERE removed_at < :before LIMIT :limit
);

-- transaction --
SELECT * FROM transactions WHERE id = :id;

-- transactions --
-- A listing from the newest down. A hash finds its transaction through any of its attempts. The line of a value that is
-- not asked for is left out, so that each listing finds its own index. `live` and `ended` say in so many words what a
-- state implies: an index of some states is not found by a value.
SELECT * FROM transactions
    INDEXED BY transactions_live -- :few
WHERE TRUE
    AND state = :state
    AND chain_id = :chain_id
    AND address = :address
    AND nonce = :nonce
    AND id IN (SELECT tx_id FROM attempts WHERE attempts.hash = :hash)
    AND idempotency_key = :idempotency_key
    AND batch = :batch
    AND state IN ('queued', 'signed', 'sent', 'mined') AND :live
    AND state IN ('confirmed', 'reverted', 'failed', 'cancelled', 'expired') AND :ended
    AND tenant = :tenant
    AND EXISTS (SELECT 1 FROM json_each(:may_use) AS may WHERE coalesce(may.value ->> 0, transactions.chain_id) = transactions.chain_id AND coalesce(may.value ->> 1, transactions.address) = transactions.address)
    AND place < :before
ORDER BY place DESC LIMIT :limit;

-- batch --
-- All that was accepted together, in the order in which it was asked for.
SELECT * FROM transactions WHERE batch = :batch ORDER BY place;

-- queued_ahead --
-- How many go before it, counted to a limit: whoever looks must not walk a whole queue.
SELECT :id AS id, count(*) AS n FROM (
    SELECT 1 FROM transactions INDEXED BY transactions_to_assign
    WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0 AND priority > :priority
    UNION ALL
    SELECT 1 FROM transactions INDEXED BY transactions_to_assign
    WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0
        AND priority = :priority AND place < :place
    LIMIT :limit
);

-- slot_of_transaction --
SELECT tx_id, wanted, payload_version FROM slots INDEXED BY one_live_slot_a_transaction
WHERE tx_id = :tx_id AND settled = 0;

-- first_open_slot --
-- The lowest nonce that no block is known to have executed.
SELECT slots.chain_id, slots.address, slots.nonce, slots.kind, slots.tx_id FROM slots INDEXED BY slots_unsettled
LEFT JOIN transactions ON transactions.id = slots.tx_id
WHERE slots.chain_id = :chain_id AND slots.address = :address AND slots.settled = 0
    AND slots.receipt IS NULL AND transactions.receipt IS NULL
ORDER BY slots.nonce LIMIT 1;

-- attempts --
SELECT * FROM attempts WHERE tx_id = :tx_id ORDER BY rowid;

-- history --
SELECT * FROM events WHERE tx_id = :tx_id ORDER BY position;

-- lane_history --
SELECT * FROM events
WHERE chain_id = :chain_id AND address = :address AND substr(kind, 1, 5) = 'lane.' AND position < :before
ORDER BY position DESC LIMIT :limit;

-- events_after --
SELECT * FROM events WHERE position > :position ORDER BY position LIMIT :limit;

-- event_range --
-- The last position that was given, whether or not its event is still there, and the last one that retention took away.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS last, forgotten FROM meta;

-- tenants --
SELECT id, tenant FROM transactions WHERE id = :id;

-- lanes --
-- All of them, those that a key may use, or the one that is named.
SELECT
    lanes.*, leases.owner, leases.epoch, leases.expires_at, controls.mode, controls.reason, controls.since, :now AS now
FROM lanes
JOIN leases ON leases.chain_id = lanes.chain_id AND leases.address = lanes.address
LEFT JOIN controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
WHERE TRUE
    AND lanes.chain_id = :chain_id AND lanes.address = :address
    AND EXISTS (SELECT 1 FROM json_each(:may_use) AS may WHERE coalesce(may.value ->> 0, lanes.chain_id) = lanes.chain_id AND coalesce(may.value ->> 1, lanes.address) = lanes.address)
ORDER BY lanes.chain_id, lanes.address;

-- backlog --
-- How much of what is live there is in each state, and since when its oldest was accepted. What is held waits for a
-- person, so it is told apart. The limit guards whoever has more to do than anybody can count in a moment; in the order
-- of the index, so that what has ended is never read.
SELECT chain_id, shown AS state, count(*) AS n, min(created_at) AS oldest, :now AS now
FROM (
    SELECT chain_id, created_at, CASE WHEN held = 1 THEN 'held' ELSE state END AS shown
    FROM transactions INDEXED BY transactions_live
    WHERE state IN ('queued', 'signed', 'sent', 'mined')
    ORDER BY chain_id, address, state LIMIT :limit
)
GROUP BY chain_id, shown;

-- lane_conditions --
-- How many lanes of each chain are not simply at work.
SELECT
    lanes.chain_id, count(quarantined_below) AS quarantined, count(unhealthy) AS unhealthy, count(attention) AS marked,
    count(CASE WHEN mode = 'paused' THEN 1 END) AS paused, count(CASE WHEN mode = 'draining' THEN 1 END) AS draining,
    count(CASE WHEN mode = 'halted' THEN 1 END) AS halted
FROM lanes
LEFT JOIN controls ON controls.chain_id = lanes.chain_id AND controls.address = lanes.address
GROUP BY lanes.chain_id;

-- numbering --
-- Where a lane's nonces stand, and how many of the queued will take whichever is next. Not those that are
-- marked: they cannot go now, others pass them, and nobody knows for how long. No row: it was never declared.
SELECT lanes.next_nonce, (
    SELECT count(*) FROM transactions AS waiting
    WHERE waiting.chain_id = lanes.chain_id AND waiting.address = lanes.address
    AND waiting.state = 'queued' AND waiting.held = 0 AND waiting.asked_nonce IS NULL AND waiting.attention IS NULL
) AS waiting
FROM lanes WHERE lanes.chain_id = :chain_id AND lanes.address = :address;

-- asked_for --
-- Nonces that queued ones wait for by name.
SELECT asked_nonce FROM transactions
WHERE chain_id = :chain_id AND address = :address AND state = 'queued' AND held = 0 AND asked_nonce IS NOT NULL;

-- live_states --
SELECT chain_id, address, state, count(*) AS n FROM transactions
WHERE chain_id = :chain_id AND address = :address AND state IN ('queued', 'signed', 'sent', 'mined')
GROUP BY state;

-- live_slots --
SELECT chain_id, address, kind, count(*) AS n FROM slots INDEXED BY slots_unsettled
WHERE chain_id = :chain_id AND address = :address AND settled = 0
GROUP BY kind;

-- reservations --
-- Nonces kept for others, with what their holder last said to have signed.
SELECT chain_id, address, slots.nonce, slots.deadline, (
    SELECT hash FROM attempts INDEXED BY attempts_of_a_slot
    WHERE attempts.chain_id = slots.chain_id AND attempts.address = slots.address AND attempts.nonce = slots.nonce
        AND kind = 'outside'
    ORDER BY attempts.rowid DESC LIMIT 1
) AS hash
FROM slots INDEXED BY slots_unsettled
WHERE chain_id = :chain_id AND address = :address AND settled = 0 AND holder IS NOT NULL AND kind = 'reservation'
ORDER BY nonce;

-- insert_webhook --
-- No row: it is there already, or there are as many as there may be.
INSERT INTO webhooks (id, tenant, url, secrets, kinds, lanes, description, position, created_at)
SELECT :id, :tenant, :url, :secrets, :kinds, :lanes, :description, :position, :now
WHERE (SELECT count(*) FROM webhooks) < :most
ON CONFLICT DO NOTHING
RETURNING id;

-- webhooks --
-- All of them, or the one that is named, with what waits at each.
SELECT
    webhooks.*, :now AS now,
    (SELECT count(*) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'pending') AS pending,
    (SELECT min(created_at) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'pending') AS waiting_since
FROM webhooks WHERE TRUE
    AND id = :id
ORDER BY created_at, id;

-- update_webhook --
-- No row: somebody else changed it, or removed it.
UPDATE webhooks SET
    url = :url, secrets = :secrets, kinds = :kinds, lanes = :lanes, tenant = :tenant, description = :description,
    disabled_at = :disabled_at, disabled_why = :disabled_why, version = version + 1
WHERE id = :id AND version = :version;

-- rewind_webhook --
-- Only back: what it has not come to yet is still to be delivered.
UPDATE webhooks SET position = min(position, :position), version = version + 1 WHERE id = :id;

-- disable_webhook --
UPDATE webhooks SET disabled_at = :now, disabled_why = :why, version = version + 1
WHERE id = :id AND disabled_at IS NULL;

-- remove_webhook --
DELETE FROM webhooks WHERE id = :id;

-- webhook_owners --
-- Who delivers for whom, and how many nodes live to share them.
SELECT
    id, version, disabled_at IS NOT NULL AS disabled, CASE WHEN owned_until > :now THEN owner END AS owner,
    (SELECT count(*) FROM nodes WHERE expires_at > :now) AS live_nodes
FROM webhooks ORDER BY id;

-- own_webhook --
-- Take one that nobody delivers for, or keep one's own. No row: another node does.
UPDATE webhooks SET owner = :owner, owned_until = :now + :ttl
WHERE id = :id AND disabled_at IS NULL AND (owner = :owner OR owned_until <= :now)
RETURNING id;

-- release_webhooks --
UPDATE webhooks SET owner = NULL, owned_until = 0 WHERE owner = :owner;

-- hold_webhook --
-- The first statement of whoever delivers. No row: another node does.
SELECT version, position FROM webhooks WHERE id = :id AND owner = :owner AND owned_until > :now;

-- advance_webhook --
UPDATE webhooks SET position = :position WHERE id = :id;

-- insert_delivery --
-- No row: it waits already. One that has ended is wanted once more.
INSERT INTO deliveries (webhook_id, position, stream, kind, body, state, next_at, created_at)
VALUES (:webhook_id, :position, :stream, :kind, :body, 'pending', :now, :now)
ON CONFLICT (webhook_id, position) DO UPDATE SET
    state = 'pending', tries = 0, next_at = excluded.next_at, status = NULL, error = NULL, ended_at = NULL
WHERE deliveries.state <> 'pending'
RETURNING *;

-- pending_deliveries --
SELECT * FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending' ORDER BY position LIMIT :limit;

-- record_delivery --
UPDATE deliveries SET
    state = :state, tries = :tries, next_at = :next_at, status = :status, error = :error, ended_at = :ended_at
WHERE webhook_id = :webhook_id AND position = :position AND state = 'pending';

-- hurry_deliveries --
-- What waits for another try has it now.
UPDATE deliveries SET next_at = :now WHERE webhook_id = :webhook_id AND state = 'pending' AND next_at > :now;

-- deliveries --
-- A log from the newest down.
SELECT * FROM deliveries WHERE webhook_id = :webhook_id
    AND state = :state
    AND position = :position
    AND position < :before
ORDER BY position DESC LIMIT :limit;

-- replay_delivery --
-- No row: there is none.
UPDATE deliveries SET state = 'pending', tries = 0, next_at = :now, status = NULL, error = NULL, ended_at = NULL
WHERE webhook_id = :webhook_id AND position = :position;

-- touch_webhook --
-- Whoever delivers reads it anew.
UPDATE webhooks SET version = version + 1 WHERE id = :id;

-- forget_deliveries --
DELETE FROM deliveries WHERE (webhook_id, position) IN (
    SELECT webhook_id, position FROM deliveries WHERE ended_at < :before LIMIT :limit
);

-- position_since --
-- The first event of this time or later.
SELECT position FROM events WHERE at >= :since ORDER BY position LIMIT 1;
