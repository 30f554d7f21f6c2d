/* inbox.pml: what an owner makes of its inbox: the outcome of a dispatched call, and the decision about a held one.
 *
 * The outcome is put into the inbox once, when the intent was accepted: after it stands Done, and nobody says it again. The decision
 * is made once. Owners take each other over (CLAIMS in all); an event of an owner is accepted while it owns the trajectory.
 *
 *   HELD      the call is held: request, decision, intent
 *   EARLY     the person may decide before anything was asked: such a decision quotes no request
 * Rules that are taken out, one at a time:
 *   EAGER     the inbox is taken while an own event is undecided, by what is known without it
 *   UNBOUND   a decision need not quote the accepted request
 */
#ifndef CLAIMS
#define CLAIMS 3
#endif
byte epoch = 0; byte claims = CLAIMS;
byte stands = 0;                             /* 1 asked, 2 approved, 3 intended, 4 has its result */
bit decision = 0; bit quotes = 0; bit outcome = 0; bit tookdecision = 0; bit tookoutcome = 0;

/* One record of the inbox, by a view of where the call stands; what does not fit is refused, and so taken. */
inline take() {
  if
  :: atomic { decision && !tookdecision && mine==epoch -> tookdecision=1;
       if
#ifdef UNBOUND
       :: view==1 && stands==1 -> assert(quotes); stands=2
#else
       :: view==1 && stands==1 && quotes -> assert(quotes); stands=2
#endif
       :: else
       fi }
  :: atomic { outcome && !tookoutcome && mine==epoch -> tookoutcome=1; if :: view==3 && stands==3 -> stands=4 :: else fi }
  :: mine!=epoch
  :: mine==epoch && (!decision || tookdecision) && (!outcome || tookoutcome)
  fi
}
proctype Owner() {
  byte mine; byte view;
claim:
  atomic { claims>0 -> claims--; epoch++; mine=epoch };
  do
  :: mine!=epoch -> break                    /* it was taken over */
  :: stands==4 -> goto over
  :: mine==epoch && stands!=4 ->
     view=stands;
     if
#ifdef HELD
     :: view==0 -> atomic { mine==epoch && stands==0 -> stands=1 }
     :: view==2 ->
#else
     :: view==0 ->
#endif
#ifdef EAGER
        atomic { if :: mine==epoch && stands==view -> stands=3 :: else fi };     /* appended, and not read back yet */
        take()
#else
        atomic { if :: mine==epoch && stands==view -> stands=3 :: else fi }
#endif
     :: view==1 || view==3 -> take()
     fi
  od;
  if :: claims>0 -> goto claim :: else fi;
over:
  skip
}
proctype Dispatcher() { stands>=3; outcome=1 }
proctype Person() {
#ifdef HELD
#ifndef EARLY
  stands>=1;
#endif
  atomic { quotes=(stands>=1); decision=1 }
#else
  skip
#endif
}
init { atomic { run Owner(); run Owner(); run Dispatcher(); run Person() } }
#ifdef LIVE
ltl ends { <> (stands==4) }
#endif
