/* inline.pml: one call whose tool runs in the owner's process, over takeovers. There is no ledger: the claim arbitrates.
 *
 * An owner claims, intends, reads back, looks at the deadline, sends, and writes the result. Whoever finds the intent open when it
 * claims settles it by the class. Any of NW owners may be frozen at any time while another takes over.
 *
 *   CLASS   1 idempotent, 2 probe, 3 opaque           CLAIMS   claims in all
 * Rules that are taken out, one at a time:
 *   NOTREADBACK   sends when the intent was appended            NOGRACE    settles at once
 *   FIRSTLOOK     looks at the deadline, then reads back        KEYEXPIRES an idempotent call that is late is called expired
 *   NOKEYLOOK     sends again without a look at the key's life
 */
#ifndef CLASS
#define CLASS 3
#endif
#ifndef NW
#define NW 3
#endif
#ifndef CLAIMS
#define CLAIMS 3
#endif
#define OK 1
#define EXPIRED 2
#define ASK 3

byte epoch = 0; byte seq = 0; byte stands = 0;   /* the log's head; the call: 1 intended, 2 has its result */
byte clock = 0; byte keyclock = 0; byte flying = 0; byte effects = 0; bit key = 0;
byte result = 0; byte word = 0; byte claims = CLAIMS;

proctype Owner() {
  byte e; byte s; byte o; byte mine; byte says; bit in;
claim:
  atomic { claims>0 -> claims--; e=epoch; s=seq; o=stands };
  atomic { in=(e==epoch && s==seq); if :: in -> epoch++; seq++; mine=epoch :: else fi };
  if :: !in -> goto claim :: else -> s=s+1 fi;
  if
  :: o==0 -> skip
  :: o==1 -> goto settle
  :: o==2 -> goto over
  fi;
  atomic { in=(mine==epoch && s==seq); if :: in -> seq++; stands=1 :: else fi };    /* the intent */
#ifdef FIRSTLOOK
  if :: clock>0 -> says=EXPIRED; goto close :: else fi;
#endif
#ifndef NOTREADBACK
  if :: !in -> goto claim :: else fi;
#endif
  s=s+1;
  if
#ifdef FIRSTLOOK
  :: atomic { true -> flying++ }
#else
  :: atomic { clock==0 && (CLASS!=1 || keyclock==0) -> flying++ }
  :: !(clock==0 && (CLASS!=1 || keyclock==0)) -> says=EXPIRED; goto close
#endif
  fi;
  if :: effects>0 -> says=OK; goto close :: true -> goto settle fi;      /* answered, or not */

settle:
#if CLASS==1
#ifdef KEYEXPIRES
  if :: clock>0 -> says=EXPIRED; goto close :: else fi;
#endif
#ifdef NOKEYLOOK
  flying++; effects>0; says=OK; goto close;
#else
  if
  :: atomic { keyclock==0 -> flying++ };
     if :: effects>0 -> says=OK; goto close :: true fi
  :: keyclock>0
  fi;
#endif
#endif
#ifndef NOGRACE
  clock==2 && (CLASS!=1 || keyclock==3);
#endif
#if CLASS==2
  says = (effects>0 -> OK : EXPIRED); goto close;
#else
  says = ASK;
#endif
close:
  atomic { in=(mine==epoch && s==seq && stands==1);
    if
    :: in && says==ASK -> seq++; word=1
    :: in && says!=ASK -> seq++; stands=2; result=says; assert(result!=OK || effects==1); assert(result!=EXPIRED || effects==0)
    :: else
    fi };
  if :: !in -> goto claim :: else fi;
over:
  skip
}
proctype Person() {
end: word==1; word = (effects>0 -> OK+1 : EXPIRED+1);
  atomic { if :: result==0 -> result=word-1; stands=2; assert(result!=OK || effects==1); assert(result!=EXPIRED || effects==0) :: else fi }
}
proctype Tool() {
end:
  do
  :: atomic { flying>0 -> flying--; if :: CLASS==1 && key :: else -> key=1; effects++; assert(effects<=1); assert(result!=EXPIRED) fi }
  :: atomic { keyclock>=2 && key -> key=0 }
  od
}
proctype Time() {
end:
  do
  :: atomic { stands>0 && clock<2 -> clock++; if :: clock==2 && CLASS!=1 -> flying=0 :: else fi }
  :: atomic { CLASS==1 && stands>0 && keyclock<3 -> keyclock++; if :: keyclock==2 -> flying=0 :: keyclock==3 -> key=0 :: else fi }
  od
}
init { atomic { byte i; for (i : 1 .. NW) { run Owner() } run Person(); run Tool(); run Time() } }
