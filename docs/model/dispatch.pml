/* dispatch.pml: one dispatched call, from its accepted intent to its result.
 *
 * Dispatchers bid for the call in the attempt ledger, run its tool and put the outcome into the inbox; its owner takes that as
 * the result; a person settles what only a person can find out; the tool's own answer comes later (jobs); a cancel may come.
 * The ledger is its slots: what is in it follows from the order in which entries come. Each dispatcher may be frozen between any two
 * statements for as long as it likes, may crash and start again (CRASHES), and one may be gone for good (DEATHS).
 * A send lands within the grace after the last look at its deadline, or never.
 *
 *   CLASS    1 idempotent, 2 probe, 3 opaque          KEYPROBE  an idempotent tool has a probe, for when its key is gone
 *   UNKNOWN  entries of the ledger that time out and come later, or never
 *   CANCEL   the trajectory may be cancelled          JOB       the tool may say that it answers by itself
 *   RENEW    an attempt that surely did not happen may be followed by another (Tracklog does not do so yet)
 *   LIVE     with the formula that the call comes to its end
 *
 * Rules that are taken out, one at a time:
 *   NAME            a process's name in the place of a nonce         NOREADBACK   an acknowledged bid counts as won
 *   CALLDEADLINE    the deadline of the call, not of the attempt     FIRSTLOOK    the deadline is looked at before the events are read
 *   NOGRACE         probed, or a person asked, when the deadline has passed
 *   ASKATONCE       a person is asked at once                        ABSENTSAYS   what the probe missed is reported, without a slot
 *   LATEREPORTS     a winner that is late reports, without a slot    KEYEXPIRES   an idempotent call expires like another
 *   NOKEYLOOK       sent again without a look at the key's life      KEYEARLY     settled while somebody may still use the key
 *   FORGETFUL       the tool forgets a key a grace early             LOSERGOES    who has lost the slot leaves the call
 *   AGAIN           one's own attempt, used, counts as not used      DIRECT       the owner itself ends a cancelled call
 *   DONEFIRST       Done stands before the outcome is there          TIMELATER    a time is looked at after the ledger it is compared with
 */
#ifndef CLASS
#define CLASS 3
#endif
#ifndef ND
#define ND 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef UNKNOWN
#define UNKNOWN 0
#endif
#define IDEMPOTENT (CLASS==1)
#define PROBED (CLASS==2 || (CLASS==1 && HASPROBE))
#ifdef KEYPROBE
#define HASPROBE 1
#else
#define HASPROBE 0
#endif
#ifdef NOGRACE
#define DUE (clock>=1)
#elif defined(KEYEARLY)
#define DUE (clock==2 && (!pending || jobclock==2))
#else
#define DUE (clock==2 && (!IDEMPOTENT || keyclock==3) && (!pending || jobclock==2))
#endif
#define ATTEMPT 1
#define EXPIRED 2
#define OK 1
#define ASK 3
#define SENDS 2

byte kind[4]; byte who[4]; byte slots = 0;   /* the ledger: who holds each slot, as what */
bit done = 0; bit pending = 0;
bit binding = 0;                             /* pending, said before the attempt's deadline */
byte callclock = 0;                          /* of the call: 0 may be tried, 1 not any more */
byte clock = 0;                              /* of the attempt: 0 before its deadline, 1 before the grace is over, 2 after */
byte keyclock = 0;                           /* of the key: 0 surely lives for a grace, 1 lives, 2 may be forgotten, 3 and used no more */
byte jobclock = 0;
byte flying = 0; byte effects = 0; bit key = 0; bit was = 0;
bit cancelled = 0; bit asked = 0; byte known = 0; bit unknown = 0; byte result = 0; byte word = 0;
byte nonces = 0; byte crashes = CRASHES; byte deaths = DEATHS;
byte late = UNKNOWN; byte latekind = 0; byte lateslot = 0; byte latewho = 0;

#if CRASHES+DEATHS==1                        /* they are alike: whichever it is that crashes, or is gone, may be called the first */
#define FIRST (_pid==1)
#else
#define FIRST (true)
#endif
#define MISHAP if :: true :: d_step { FIRST && crashes>0 -> crashes-- }; goto start :: d_step { FIRST && deaths>0 -> deaths-- }; goto gone fi

inline comes(k, s, w) {                      /* an entry comes into the ledger */
  d_step {
    if
    :: !done && s==slots+1 && (s==1 || kind[s-1]==ATTEMPT) ->
       kind[s]=k; who[s]=w; slots=s; pending=0; binding=0; if :: k==ATTEMPT -> clock=0 :: else fi
    :: else
    fi
  }
}
inline lands() {                             /* a send comes to its tool */
  if
  :: IDEMPOTENT && key -> skip
  :: else -> key=1; effects++; was=1; assert(effects<=1); assert(result!=EXPIRED)
  fi
}

proctype Dispatcher() {
  byte me; byte n; byte k; byte want; byte slot; byte won; byte sends; byte says; byte absent; bit can; bit stop; bit found; bit looked; bit due;
start:
  skip;
  d_step { nonces++;
#ifdef NAME
    me=1;
#else
    me=nonces;
#endif
    n=0; k=0; want=0; slot=0; won=0; sends=0; says=0; can=0; absent=0; found=0; looked=0; due=0 }
look:
  MISHAP;
#ifdef TIMELATER
  d_step { n=slots; k=kind[slots]; stop=done; due=(!pending || jobclock==2) }
#else
  d_step { n=slots; k=kind[slots]; stop=done; due=DUE }
#endif
  if :: stop || result!=0 -> goto gone :: else fi;
  if :: can=cancelled :: skip fi;            /* news of a cancel come when they come */
  if
  :: n==0 && (can || callclock>0) -> want=EXPIRED; slot=1; goto enter
  :: n==0 && !can && callclock==0 -> want=ATTEMPT; slot=1; goto enter
  :: n>0 && k==EXPIRED -> says=EXPIRED; goto tell
  :: n>0 && k==ATTEMPT && won==n -> goto act
  :: n>0 && k==ATTEMPT && won!=n -> goto doubt
  fi;

enter:                                       /* an entry, again until the ledger has said who holds its slot */
  MISHAP;
  if
  :: comes(want, slot, me)
  :: d_step { late>0 && latekind==0 -> late--; latekind=want; lateslot=slot; latewho=me }
  fi;
  MISHAP;
#ifdef NOREADBACK
  if :: want==ATTEMPT -> won=slot; n=slot; goto act :: else fi;
#endif
  d_step { stop = (slots<slot && !done); if :: !stop && want==ATTEMPT && who[slot]==me && slots==slot && !done -> won=slot :: else fi }
  if :: stop -> goto enter :: else fi;
#ifdef LOSERGOES
  if :: want==ATTEMPT && won!=slot -> goto gone :: else fi;
#endif
  goto look;

act:                                         /* the slot is one's own, and was not used */
#ifdef CALLDEADLINE
#define PASSED (callclock>0)
#elif defined(FIRSTLOOK)
#define PASSED (looked && false)
#else
#define PASSED (clock>0 || slots>n)
#endif
#ifdef FIRSTLOOK
  looked = (clock==0);
  if :: !looked && !IDEMPOTENT -> want=EXPIRED; slot=n+1; goto enter :: else fi;
#endif
  if
  :: (PASSED || can) && !IDEMPOTENT ->
#ifdef LATEREPORTS
     says=EXPIRED; goto tell
#else
     want=EXPIRED; slot=n+1; goto enter
#endif
#ifdef KEYEXPIRES
  :: PASSED && IDEMPOTENT -> want=EXPIRED; slot=n+1; goto enter
#else
  :: PASSED && IDEMPOTENT -> goto doubt
#endif
  :: else
  fi;
  MISHAP;
  if :: result!=0 -> goto gone :: else fi;   /* the events, to an end that is asked for now */
  if :: cancelled && !IDEMPOTENT -> can=1; goto look :: else fi;
  MISHAP;
  if
  :: atomic { !PASSED && (!IDEMPOTENT || keyclock==0) ->
#ifndef AGAIN
       won=0;
#endif
       flying++ }
  :: !(!PASSED && (!IDEMPOTENT || keyclock==0)) -> goto look
  fi;
answer:
  MISHAP;
  if
  :: was -> says=OK; goto tell               /* it has answered */
  :: true -> goto look                       /* or it has not, or its answer was lost: in doubt */
#ifdef JOB
  :: d_step { was && n==slots && !done && kind[slots]==ATTEMPT -> pending=1; binding=(clock==0) }; goto look
#endif
  fi;

doubt:
  MISHAP;
#ifdef ASKATONCE
  if :: !PROBED && !IDEMPOTENT -> says=ASK; goto tell :: else fi;
#endif
#ifdef NOKEYLOOK
#define LIVES (true)
#else
#define LIVES (keyclock==0)
#endif
  if
  :: IDEMPOTENT && !pending && sends<SENDS && LIVES ->
     MISHAP;
     if
     :: atomic { LIVES -> flying++; sends++ }; goto answer
     :: !LIVES -> goto look
     fi
#ifdef TIMELATER
  :: due && clock==2 -> skip
#else
  :: due -> skip
#endif
  :: !due && (DUE || done || result!=0 || slots!=n) -> goto look
  fi;
  MISHAP;
  if
  :: absent==n -> want=EXPIRED; slot=n+1; absent=0; goto enter
#ifdef RENEW
  :: absent==n && n==1 -> want=ATTEMPT; slot=2; absent=0; goto enter
#endif
  :: absent!=n && PROBED ->
     found=(effects>0);                      /* the probe */
     MISHAP;
     if
     :: found -> says=OK; goto tell
#ifdef ABSENTSAYS
     :: !found -> says=EXPIRED; goto tell
#endif
     :: !found -> absent=n; goto look
     fi
  :: absent!=n && !PROBED -> says=ASK; goto tell
  fi;

tell:                                        /* the outcome into the inbox, then Done */
  MISHAP;
#ifdef DONEFIRST
  done=1;
  MISHAP;
#endif
  d_step {
    if
    :: says==ASK -> assert(!binding || jobclock==2); unknown=1
    :: says!=ASK && known==0 -> known=says
    :: says!=ASK && known!=0 -> assert(known==says)
    fi }
  MISHAP;
  done=1;
gone:
  skip
}

proctype Owner() {
end:
  do
  :: result!=0 -> break
#ifdef DIRECT
  :: d_step { result==0 && cancelled && known==0 -> result=EXPIRED }; assert(effects==0)
#endif
  :: d_step { result==0 && known!=0 -> result=known; assert(result!=OK || effects==1); assert(result!=EXPIRED || effects==0) }
  :: d_step { result==0 && unknown && !asked && known==0 -> asked=1 }
  :: d_step { result==0 && word!=0 -> result=word; assert(result!=OK || effects==1); assert(result!=EXPIRED || effects==0) }
  od
}
proctype Person() {                          /* looks whether it happened; says so some time later */
end: asked; word = (effects>0 -> OK : EXPIRED)
}
proctype Tool() {                            /* what is on its way lands; of a job comes an answer */
end:
  do
  :: d_step { flying>0 -> flying--; lands() }
#ifdef JOB
  :: d_step { pending && effects>0 && known==0 && result==0 -> known=OK }
#endif
#ifdef FORGETFUL
  :: d_step { keyclock>=1 && key -> key=0 }
#else
  :: d_step { keyclock>=2 && key -> key=0 }
#endif
  od
}
proctype Network() {
end:
  do
  :: latekind!=0 -> comes(latekind, lateslot, latewho); latekind=0
  :: latekind!=0 -> latekind=0
  od
}
proctype Time() {                            /* what is on its way when its time is over never lands */
end:
  do
  :: d_step { callclock==0 -> callclock=1 }
  :: d_step { slots>0 && kind[slots]==ATTEMPT && clock<2 -> clock++; if :: clock==2 && !IDEMPOTENT -> flying=0 :: else fi }
  :: d_step { slots>0 && kind[1]==ATTEMPT && keyclock<3 && IDEMPOTENT -> keyclock++; if :: keyclock==2 -> flying=0 :: keyclock==3 -> key=0 :: else fi }
  :: d_step { pending && jobclock<2 -> jobclock++ }
  od
}
proctype Cancel() {
#ifdef CANCEL
  cancelled=1
#else
  skip
#endif
}
init { atomic { byte i; for (i : 1 .. ND) { run Dispatcher() } run Owner(); run Person(); run Tool(); run Network(); run Time(); run Cancel() } }
#ifdef LIVE
ltl ends { <> (result!=0) }
#endif
