/* ledger.pml: the attempt ledger with its entries, as it is read, trimmed, and (wrongly) compacted. Two opaque calls in one partition.
 *
 * A dispatcher takes the partition up: it asks for the ledger's end, reads the events, then the ledger to that end; of calls whose
 * intent it has not read it keeps nothing. It goes on from there, and passes over what was trimmed. A trimmer deletes prefixes.
 * Everybody may be frozen between any two statements.
 *
 *   ND       dispatchers that care for call 1          ROUNDS   how often it is trimmed
 *   CANCEL   the trajectory of call 1 may be cancelled while that is open
 *   KEYED    call 1 is idempotent: a cancel does not keep its winner from sending; its tool forgets the key some time after the result
 * Rules that are taken out, one at a time:
 *   EVENTSFIRST   the trimmer reads the events before it asks for the ledger's end
 *   ALLDONE       it trims below the first entry whose call has no Done
 *   LASTDONE      it trims below the last Done
 *   NOTREAD       the events are not read between winning a slot and the send
 *   BYCALL        compacted: the last entry of a call is kept         BYSLOT   of a call and slot
 *   CANCELREAD    who reads of a cancel between winning a slot and the send reads no further
 *   TAKENLATE     a dispatcher asks for the ledger's end after it has read the events
 */
#ifndef ND
#define ND 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define ENTRIES 8
#define ATTEMPT 1
#define DONE 2

byte whose[ENTRIES]; byte kind[ENTRIES]; byte who[ENTRIES]; bit cleaned[ENTRIES];
byte end = 0; byte first = 0;
byte stands[3];                              /* of each call: 0 not intended, 1 open, 2 has its result */
byte effects[3]; byte said[3];
bit cancelled = 0; bit key = 0;

inline append(k) { d_step { whose[end]=1; kind[end]=k; who[end]=_pid; end++ } }

/* Reads on from `at` to `upto`, passing over what was trimmed: who holds the slot, and whether it is done. */
inline read(upto) {
  d_step {
    if :: at<first -> at=first :: else fi;
    do
    :: at<upto ->
       if :: whose[at]==1 && !cleaned[at] && knows && kind[at]==ATTEMPT && holder==0 -> holder=who[at]
          :: whose[at]==1 && !cleaned[at] && knows && kind[at]==DONE -> done=1
          :: else fi;
       at++
    :: at>=upto -> break
    od
  }
}

proctype Dispatcher() {
  byte at; byte from; byte holder; bit done; bit knows;
#ifdef TAKENLATE
  knows = (stands[1]>0);
  if :: stands[1]==2 -> goto over :: else fi;
  from = end;
#else
  from = end;
  knows = (stands[1]>0);
  if :: stands[1]==2 -> goto over :: else fi;
#endif
  read(from);
  stands[1]>0; knows=1;                      /* its intent is read, now or later */
  read(end);
  if
  :: done -> goto over
  :: !done && holder!=0 -> goto doubt
  :: else
  fi;
  append(ATTEMPT);
  read(end);
  if
  :: done -> goto over
  :: !done && holder!=_pid -> goto doubt
  :: else
  fi;
#if defined(CANCELREAD)
  if :: stands[1]==2 && !cancelled -> goto over :: else fi;
#elif !defined(NOTREAD)
  if :: stands[1]==2 -> goto over :: else fi;
#endif
#ifndef KEYED
  if :: cancelled -> goto doubt :: else fi;
#endif
  d_step { if :: !key -> effects[1]++; assert(effects[1]<=1) :: else fi;
#ifdef KEYED
    key=1
#endif
  };
  said[1]=1;
  append(DONE);
  goto over;
doubt:                                       /* after the grace a person is asked */
  said[1]=1;
over:
  skip;
  d_step { at=0; from=0; holder=0; done=0; knows=0 }
}
proctype Owner() { stands[1]=1; said[1]!=0; stands[1]=2 }
proctype Cancel() {
#ifdef CANCEL
  if :: d_step { stands[1]==1 -> cancelled=1 } :: stands[1]==2 fi
#else
  skip
#endif
}
proctype Tool() { stands[1]==2; key=0 }
proctype Other() {                           /* all that is seen of call 2 */
  stands[2]=1;
  d_step { whose[end]=2; kind[end]=ATTEMPT; who[end]=_pid; end++ };
  d_step { whose[end]=2; kind[end]=DONE; who[end]=_pid; end++ };
  stands[2]=2
}
proctype Trimmer() { byte b; byte upto; bit one; bit two; byte rounds;
  do
  :: rounds<ROUNDS -> rounds++;
#ifdef EVENTSFIRST
     d_step { one=(stands[1]==1); two=(stands[2]==1) };
     upto=end;
#else
     upto=end;
     d_step { one=(stands[1]==1); two=(stands[2]==1) };
#endif
     d_step { b=first;
#if defined(ALLDONE)
       one=1; two=1;
       do :: b<upto -> if :: kind[b]==DONE && whose[b]==1 -> one=0 :: kind[b]==DONE && whose[b]==2 -> two=0 :: else fi; b++ :: else -> break od;
       b=first;
#elif defined(LASTDONE)
       b=upto; do :: b>first && kind[b-1]!=DONE -> b-- :: else -> break od; if :: b>first -> b-- :: else fi; one=1; two=1;
#endif
#ifndef LASTDONE
       do :: b<upto && !(whose[b]==1 && one) && !(whose[b]==2 && two) -> b++ :: else -> break od;
#endif
       first=b; b=0; upto=0; one=0; two=0 }
  :: break
  od }
proctype Cleaner() {
#if defined(BYCALL) || defined(BYSLOT)
  byte b; byte l;
  do
  :: b<end -> l=b+1;
     do
     :: l<end -> d_step {
          if
#ifdef BYCALL
          :: whose[b]==whose[l] -> cleaned[b]=1
#else
          :: whose[b]==whose[l] && kind[b]==kind[l] -> cleaned[b]=1
#endif
          :: else
          fi; l++ }
     :: true -> break
     od; b++
  :: true -> break
  od
#else
  skip
#endif
}
init { atomic { byte i; for (i : 1 .. ND) { run Dispatcher() } run Other(); run Trimmer(); run Cleaner(); run Owner(); run Cancel(); run Tool() } }
