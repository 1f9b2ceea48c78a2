-------------------------------- MODULE Lane --------------------------------
(* One lane: who may write it, what is signed for its nonces, and what the chain makes of it.                      *)
(*                                                                                                                 *)
(* A node decides from its own copy of the lane and commits later. In between it may be paused, lose its lease,    *)
(* die, or never learn whether its commit took effect. Bytes that were handed over may be mined at any later time. *)
(* README.md maps every action to the code, and says what is left out.                                             *)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS
    Nodes, Txs,
    MaxNonce,    \* nonces 0 .. MaxNonce - 1
    MaxEpoch,    \* how often the lease is taken
    MaxLost,     \* commits whose outcome nobody learns
    MaxReorg,    \* reorganisations of the chain
    MaxForeign,  \* uses of the key by somebody else
    MaxBack,     \* slots that are given back
    MaxEvict,    \* transactions that every pool forgets
    Cancelling,  \* whether people cancel
    Bumping,     \* whether prices are raised
    Broken       \* the rules that do not hold, to see what they are good for

Rules == {
    "fenced",          \* a commit names its owner and epoch, and the store refuses old ones
    "locked",          \* nobody takes the lease between that check and the end of the commit
    "retaken",         \* after a commit of unknown outcome the lease is taken anew before the lane is read
    "rows guarded",    \* a commit changes a queued row only if it is still queued
    "recorded first",  \* bytes are committed before they are handed over
    "unknown is left", \* what got no answer counts as handed over
    "old is left",     \* so does whatever an earlier owner signed
    "final only",      \* a slot is given up only on what is final
    "blocks read",     \* nobody concludes from a missing receipt that something did not run
    "all watched",     \* every attempt of a slot is looked for, not only the newest
    "wanted only",     \* once something is cancelled, only what cancels it is sent
    "nonce closed",    \* and that is signed, whatever else happens
    "sent again",      \* whoever takes a lane over sends what it finds signed
    "filled"           \* a hole below something signed is closed without new traffic
}
ASSUME Broken \subseteq Rules
Holds(rule) == rule \notin Broken

Nonces == 0 .. MaxNonce - 1
\* What a slot can be bound to, beside a transaction.
Free == "free"
Filler == "filler"
Settled == "settled"
Foreign == "foreign"
Ends == {"executed", "cancelled", "failed"}

VARIABLES
    \* the store
    lease,   \* [epoch, owner]
    lane,    \* [slots: nonce -> what it is bound to, unwanted: nonces to be cancelled, attempts: all ever committed]
    state,   \* transaction -> "queued", "bound" or one of Ends
    late,    \* commits of unknown outcome that may still take effect
    \* the nodes
    desk,    \* node -> NoDesk, or [epoch, lane: its copy, left: what it handed over, job: what it is about to commit,
             \*         checked: only where "locked" is broken]
    \* the chain
    net,     \* what pools may hold: may be mined at any time
    chain,   \* what was executed, nonce by nonce
    final,   \* how much of that is final
    \* the bounds
    used     \* how often each bounded thing happened

store == <<lease, lane, state, late>>
world == <<net, chain, final>>
vars == <<store, desk, world, used>>

Idle == [do |-> "nothing"]
NoDesk == [epoch |-> 0]

Init ==
    /\ lease = [epoch |-> 0, owner |-> "nobody"]
    /\ lane = [slots |-> [k \in Nonces |-> Free], unwanted |-> {}, attempts |-> {}]
    /\ state = [t \in Txs |-> "queued"]
    /\ late = {}
    /\ desk = [n \in Nodes |-> NoDesk]
    /\ net = {} /\ chain = <<>> /\ final = 0
    /\ used = [lost |-> 0, reorg |-> 0, foreign |-> 0, back |-> 0, evict |-> 0]

Use(what, most) == used[what] < most /\ used' = [used EXCEPT ![what] = @ + 1]

-----------------------------------------------------------------------------
(* Ownership. A lease may run out at any moment, so whoever has no desk may take it at any moment.                 *)

Holder(n) == desk[n] # NoDesk /\ lease = [epoch |-> desk[n].epoch, owner |-> n]
SitDown(e) == [epoch |-> e, lane |-> lane, left |-> {}, job |-> Idle, checked |-> FALSE]

Take(n) ==
    /\ desk[n] = NoDesk /\ lease.epoch < MaxEpoch
    /\ lease' = [epoch |-> lease.epoch + 1, owner |-> n]
    /\ desk' = [desk EXCEPT ![n] = SitDown(lease.epoch + 1)]
    /\ UNCHANGED <<lane, state, late, world, used>>

\* Killed, stopped, or by its own clock too late: what a node knew of the lane is gone. Not in the last epoch, because
\* somebody must be left to go on.
StandUp(n) ==
    /\ desk[n] # NoDesk /\ lease.epoch < MaxEpoch
    /\ desk' = [desk EXCEPT ![n] = NoDesk]
    /\ UNCHANGED <<store, world, used>>

-----------------------------------------------------------------------------
(* Attempts.                                                                                                       *)

Attempt(k, who, kind, e) == [nonce |-> k, who |-> who, kind |-> kind, epoch |-> e]
At(l, k) == {a \in l.attempts : a.nonce = k /\ a.who = l.slots[k]}
Signed(l, k, kind) == \E a \in At(l, k) : a.kind = kind
Bound(l, k) == l.slots[k] \in Txs
Taken(l, k) == l.slots[k] \in Txs \cup {Filler}

\* The one attempt that is sent: the newest of what should run at the slot.
SentKind(l, k) ==
    CASE l.slots[k] = Filler -> Filler
      [] k \in l.unwanted /\ (Holds("wanted only") \/ Signed(l, k, "cancel")) -> "cancel"
      [] Signed(l, k, "bump") -> "bump"
      [] OTHER -> "original"
Newest(l, k) == {a \in At(l, k) : a.kind = SentKind(l, k)}

\* Whether any node may hold these bytes, as the owner of a desk knows.
HasLeft(d, a) == a \in d.left \/ (a.epoch # d.epoch /\ Holds("old is left"))

-----------------------------------------------------------------------------
(* Decisions. Each is made from the node's own copy of the lane and from the chain as it is now, and is on the     *)
(* desk as a job until it is committed.                                                                            *)

Count == Len(chain)
Holes(l) == {k \in Nonces : l.slots[k] = Free /\ k >= Count}
Lowest(set) == {k \in set : \A j \in set : k <= j}

Idling(n) == desk[n] # NoDesk /\ desk[n].job = Idle
Plan(n, do, k, who, to) ==
    /\ desk' = [desk EXCEPT ![n].job = [do |-> do, nonce |-> k, who |-> who, to |-> to]]
    /\ UNCHANGED <<store, world>>

Assign(n) ==
    /\ Idling(n) /\ UNCHANGED used
    /\ \E t \in Txs : \E k \in Lowest(Holes(desk[n].lane)) :
        state[t] = "queued" /\ Plan(n, "assign", k, t, "bound")

Fill(n) ==
    /\ Idling(n) /\ UNCHANGED used
    /\ LET l == desk[n].lane IN \E k \in Holes(l) :
        Holds("filled") /\ (\E j \in Nonces : j > k /\ Taken(l, j)) /\ Plan(n, "fill", k, Filler, Free)

\* People may ask at any time; deadlines, and bytes that no node takes, end in the same way.
Grant(n) ==
    /\ Idling(n) /\ UNCHANGED used
    /\ LET l == desk[n].lane IN \E k \in Nonces :
        Cancelling /\ Bound(l, k) /\ k \notin l.unwanted /\ Plan(n, "grant", k, l.slots[k], "bound")

Outbid(n) ==
    /\ Idling(n) /\ UNCHANGED used
    /\ LET l == desk[n].lane IN \E k \in l.unwanted :
        Holds("nonce closed") /\ k >= Count /\ ~Signed(l, k, "cancel") /\ Plan(n, "outbid", k, l.slots[k], "bound")

Bump(n) ==
    /\ Idling(n) /\ UNCHANGED used
    /\ LET l == desk[n].lane IN \E k \in Nonces :
        /\ Bumping /\ Bound(l, k) /\ k \notin l.unwanted /\ k >= Count /\ ~Signed(l, k, "bump")
        /\ Plan(n, "bump", k, l.slots[k], "bound")

\* Nothing of the slot ever left: every node refused the bytes, or an operator resets the lane before they were sent.
GiveBack(n) ==
    /\ Idling(n) /\ Use("back", MaxBack)
    /\ LET l == desk[n].lane IN \E k \in Nonces : \E to \in {"failed", "queued"} :
        /\ Taken(l, k) /\ \A a \in At(l, k) : ~HasLeft(desk[n], a)
        /\ Plan(n, "give back", k, l.slots[k], IF k \in l.unwanted THEN "cancelled" ELSE to)

\* What ran at a nonce that is used for good, as far as its owner looks for it.
Consumed(k) == k < (IF Holds("final only") THEN final ELSE Count)
Watched(l, k) == IF Holds("all watched") THEN At(l, k) ELSE Newest(l, k)
Found(l, k) == IF chain[k + 1] \in Watched(l, k) THEN chain[k + 1].kind ELSE Foreign
Answers(l, k) == {Found(l, k)} \cup (IF Holds("blocks read") THEN {} ELSE {Foreign})
Outcome(l, k, ran) ==
    CASE l.slots[k] = Filler -> Free
      [] ran \in {"original", "bump"} -> "executed"
      [] k \in l.unwanted -> "cancelled"
      [] OTHER -> "queued"

Settle(n) ==
    /\ Idling(n) /\ UNCHANGED used
    /\ LET l == desk[n].lane IN \E k \in Nonces :
        Taken(l, k) /\ Consumed(k) /\ \E ran \in Answers(l, k) : Plan(n, "settle", k, l.slots[k], Outcome(l, k, ran))

-----------------------------------------------------------------------------
(* Commits. The store judges the lease and the guards of each row; then all of a commit happens, or nothing.       *)

Valid(n, e) == ~Holds("fenced") \/ lease = [epoch |-> e, owner |-> n]

RowsMatch(job) ==
    CASE job.do = "assign" -> lane.slots[job.nonce] = Free /\ (Holds("rows guarded") => state[job.who] = "queued")
      [] job.do = "fill" -> lane.slots[job.nonce] \in {Free, Filler}
      [] OTHER -> lane.slots[job.nonce] = job.who

Changed(l, job, e) == [
    slots |-> [l.slots EXCEPT ![job.nonce] =
        CASE job.do = "settle" -> Settled
          [] job.do = "give back" -> Free
          [] OTHER -> job.who],
    unwanted |->
        CASE job.do = "grant" -> l.unwanted \cup {job.nonce}
          [] job.do \in {"settle", "give back"} -> l.unwanted \ {job.nonce}
          [] OTHER -> l.unwanted,
    attempts |->
        CASE job.do = "assign" -> l.attempts \cup {Attempt(job.nonce, job.who, "original", e)}
          [] job.do = "fill" -> l.attempts \cup {Attempt(job.nonce, Filler, Filler, e)}
          [] job.do = "outbid" -> l.attempts \cup {Attempt(job.nonce, job.who, "cancel", e)}
          [] job.do = "bump" -> l.attempts \cup {Attempt(job.nonce, job.who, "bump", e)}
          [] OTHER -> l.attempts]

Apply(job, e) ==
    /\ lane' = Changed(lane, job, e)
    /\ state' = IF job.who \in Txs THEN [state EXCEPT ![job.who] = job.to] ELSE state

\* The bug: a check that holds no lock, after which the lease may be taken before the commit ends.
Check(n) ==
    /\ ~Holds("locked") /\ Holder(n) /\ desk[n].job # Idle
    /\ desk' = [desk EXCEPT ![n].checked = TRUE]
    /\ UNCHANGED <<store, world, used>>

Commit(n) ==
    /\ desk[n] # NoDesk /\ desk[n].job # Idle
    /\ LET d == desk[n]
           valid == d.checked \/ Valid(n, d.epoch)
           decided == [d EXCEPT !.job = Idle, !.checked = FALSE]
       IN IF valid /\ RowsMatch(d.job)
          THEN /\ Apply(d.job, d.epoch)
               /\ desk' = [desk EXCEPT ![n] = [decided EXCEPT !.lane = Changed(d.lane, d.job, d.epoch)]]
          \* Refused by the fence, the node has lost the lane; by a row, it decides again.
          ELSE /\ desk' = [desk EXCEPT ![n] = IF valid THEN decided ELSE NoDesk]
               /\ UNCHANGED <<lane, state>>
    /\ UNCHANGED <<lease, late, world, used>>

\* The node never learns what became of its commit, which may yet take effect.
Lose(n) ==
    /\ desk[n] # NoDesk /\ desk[n].job # Idle /\ lease.epoch < MaxEpoch
    /\ Use("lost", MaxLost)
    /\ late' = late \cup {[job |-> desk[n].job, node |-> n, epoch |-> desk[n].epoch]}
    /\ desk' = [desk EXCEPT ![n] = IF Holds("retaken") THEN NoDesk ELSE SitDown(desk[n].epoch)]
    /\ UNCHANGED <<lease, lane, state, world>>

EndLate ==
    /\ \E it \in late :
        /\ late' = late \ {it}
        /\ IF Valid(it.node, it.epoch) /\ RowsMatch(it.job) THEN Apply(it.job, it.epoch) ELSE UNCHANGED <<lane, state>>
    /\ UNCHANGED <<lease, desk, world, used>>

\* A queued transaction is everybody's: any node cancels it by one guarded update.
CancelQueued(t) ==
    /\ Cancelling /\ state[t] = "queued"
    /\ state' = [state EXCEPT ![t] = "cancelled"]
    /\ UNCHANGED <<lease, lane, late, desk, world, used>>

-----------------------------------------------------------------------------
(* Bytes. A node that does not know that it has lost the lane sends too: no store can refuse a packet. What every  *)
(* node of the chain refuses is as good as never sent, and only the answers tell: see GiveBack.                    *)

Known(d, a) == Holds("sent again") \/ a.epoch = d.epoch

Send(n) ==
    /\ desk[n] # NoDesk /\ desk[n].job = Idle
    /\ \E k \in Nonces : \E a \in Newest(desk[n].lane, k) :
        /\ k >= Count /\ a \notin net /\ Known(desk[n], a)
        /\ net' = net \cup {a}
        /\ desk' = IF Holds("unknown is left") THEN [desk EXCEPT ![n].left = @ \cup {a}] ELSE desk
    /\ UNCHANGED <<store, chain, final, used>>

\* The bug: handing over what is only about to be committed.
SendUnrecorded(n) ==
    /\ ~Holds("recorded first") /\ desk[n] # NoDesk /\ desk[n].job # Idle /\ desk[n].job.do = "assign"
    /\ net' = net \cup {Attempt(desk[n].job.nonce, desk[n].job.who, "original", desk[n].epoch)}
    /\ UNCHANGED <<store, desk, chain, final, used>>

-----------------------------------------------------------------------------
(* The chain.                                                                                                      *)

Mine ==
    /\ Count < MaxNonce
    /\ \E a \in net : a.nonce = Count /\ chain' = Append(chain, a)
    /\ UNCHANGED <<store, desk, net, final, used>>

\* Somebody else uses the key. What he sent stays in pools, as ours does.
UseKey ==
    /\ Count < MaxNonce /\ Use("foreign", MaxForeign)
    /\ LET a == Attempt(Count, Foreign, Foreign, 0) IN chain' = Append(chain, a) /\ net' = net \cup {a}
    /\ UNCHANGED <<store, desk, final>>

Finalise ==
    /\ final < Count /\ final' = final + 1
    /\ UNCHANGED <<store, desk, net, chain, used>>

Reorganise ==
    /\ final < Count /\ Use("reorg", MaxReorg)
    /\ \E length \in final .. Count - 1 : chain' = SubSeq(chain, 1, length)
    /\ UNCHANGED <<store, desk, net, final>>

Evict ==
    /\ Use("evict", MaxEvict)
    /\ \E a \in net : net' = net \ {a}
    /\ UNCHANGED <<store, desk, chain, final>>

-----------------------------------------------------------------------------
(* All of it. Every bound is reached some day and nothing can be done twice, so no behaviour goes on for ever: it  *)
(* is enough to demand that some progress is made while any is possible.                                           *)

Progress ==
    \/ \E n \in Nodes :
        \/ Take(n) \/ Commit(n) \/ Send(n)
        \/ Assign(n) \/ Fill(n) \/ Grant(n) \/ Outbid(n) \/ Bump(n) \/ GiveBack(n) \/ Settle(n)
    \/ Mine \/ Finalise

Trouble ==
    \/ \E n \in Nodes : StandUp(n) \/ Check(n) \/ Lose(n) \/ SendUnrecorded(n)
    \/ \E t \in Txs : CancelQueued(t)
    \/ EndLate \/ UseKey \/ Reorganise \/ Evict

Next == Progress \/ Trouble
Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Progress)
Symmetry == Permutations(Nodes) \cup Permutations(Txs)

-----------------------------------------------------------------------------
(* The promises.                                                                                                   *)

Ours == {a \in net : a.who # Foreign}
Runs(t) == {i \in 1 .. Count : chain[i].who = t /\ chain[i].kind \in {"original", "bump"}}

\* P1: what left for one nonce is for one transaction, or for the filler; a transaction has one slot.
OneOwner ==
    /\ \A a, b \in Ours : a.nonce = b.nonce => a.who = b.who
    /\ \A j, k \in Nonces : Bound(lane, j) /\ lane.slots[j] = lane.slots[k] => j = k
\* P2: a transaction is either waiting, or has its slot, or has ended.
NothingLost == \A t \in Txs : state[t] = "bound" <=> \E k \in Nonces : lane.slots[k] = t
\* P3
AtMostOnce == \A t \in Txs : Cardinality(Runs(t)) <= 1
\* P4
Recorded == Ours \subseteq lane.attempts
\* P6: nobody else writes what an owner has: its copy is the store's.
CopyExact == \A n \in Nodes : Holder(n) => desk[n].lane = lane
\* P7: an end is a fact. What is called executed runs in a final block; what ended otherwise runs nowhere.
Truthful == \A t \in Txs :
    /\ state[t] = "executed" => \E i \in Runs(t) : i <= final
    /\ state[t] \in {"cancelled", "failed"} => Runs(t) = {}
\* P6 again: only the owner of the lease changes the lane.
OnlyTheOwner == [][lane' # lane =>
    \/ \E n \in Nodes : Holder(n) /\ desk'[n] # desk[n]
    \/ \E it \in late \ late' : lease = [epoch |-> it.epoch, owner |-> it.node]]_vars
\* Once it has granted a cancel, the owner hands the payload over no more.
CancelMeant == [][net' # net => \A n \in Nodes : Holder(n) /\ desk'[n] # desk[n] =>
    \A a \in net' \ net : a.nonce \in lane.unwanted => a.kind = "cancel"]_vars
\* P2, P7: an end is for good.
EndsStay == [][\A t \in Txs : state[t] \in Ends => state'[t] = state[t]]_vars
\* P2 and P5, once trouble stops: everything ends, gaps or not.
EverythingEnds == <>[](\A t \in Txs : state[t] \in Ends)

-----------------------------------------------------------------------------
(* Not promises: each of these is false, and TLC must find out, so that we know how far the model reaches.         *)

\* Nobody runs at a second nonce after somebody else took the first one.
NeverElsewhere == \A t \in Txs : state[t] = "executed" => \A a, b \in net : a.who = t /\ b.who = t => a.nonce = b.nonce
\* No filler is ever executed.
NeverFilled == \A i \in 1 .. Count : chain[i].who # Filler
\* No cancel wins; no cancel comes too late.
NeverCancelled == \A i \in 1 .. Count : chain[i].kind # "cancel"
NeverTooLate == \A k \in lane.unwanted : k < final => chain[k + 1].kind \notin {"original", "bump"}
\* What a former owner signed, and its successor never sent, is not executed.
NeverInherited == \A n \in Nodes : Holder(n) => \A i \in 1 .. Count : chain[i].who # Foreign =>
    chain[i].epoch = desk[n].epoch \/ chain[i] \in desk[n].left
=============================================================================
