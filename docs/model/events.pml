/* events.pml: the event log of one trajectory: claims, and chains of events that are appended without waiting.
 *
 * Each start of a writer has a number. Its entry 0 is its claim, 1 to CHAIN are its events, each hanging on the one before. The log
 * is what follows from the order in which entries come: its head. What is sent comes in order; a copy may stay behind and come
 * whenever it likes (COPIES), and an entry may be lost (LOSSES). A writer may give up at any time and start anew: what it has sent
 * goes on its way. WRITERS run side by side, with STARTS in all.
 *
 *   TOGETHER   the claim is sent together with what follows it (Tracklog does not do so)      LIVE   a chain comes to its end
 * Rules that are taken out, one at a time:
 *   BYNAME     a claim is judged by the name of the head's owner, which all starts of a process share
 *   BYTRY      an entry is judged by its last try: a second copy was not accepted
 *   ALLGONE    the last is excluded, so all are                 BYHEAD     accepted is what the head has passed
 *   LASTWORD   the report of the last is believed for all       ONLYLAST   only the last is sent again
 *   NOPREV     what an entry hangs on is not compared           OTHEREPOCH excluded when the head has another epoch
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef STARTS
#define STARTS 2
#endif
#ifndef CHAIN
#define CHAIN 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef COPIES
#define COPIES 1
#endif
#define ALL(i) ((2<<(i))-1)
#define NAMED(n,i) ((n)*8+(i)+1)

typedef Start {
  byte epoch; byte seq; byte prev;           /* the head that its claim was built on */
  byte accepted;                             /* bits, of the entries */
#ifdef LASTWORD
  byte came;
#endif
#ifdef BYTRY
  byte again;                                /* came once more after it was accepted */
#endif
  byte sent; byte loose;                     /* bits: under way in order, copies that may come at any time */
  byte gone                                  /* bits: the writer was sure that they never will be accepted */
}
Start s[STARTS];
byte epoch = 0; byte seq = 0; byte head = 0; byte starts = 0; byte losses = LOSSES; byte copies = COPIES;
byte believers[STARTS+2]; bit ended = 0;

inline comes(n, i) {
  if
#ifdef BYTRY
  :: s[n].accepted & (1<<i) -> s[n].again = s[n].again | (1<<i)
#else
  :: s[n].accepted & (1<<i)
#endif
  :: else ->
#ifdef LASTWORD
     s[n].came = s[n].came | (1<<i);
#endif
     if
#ifdef NOPREV
     :: epoch == s[n].epoch + (i>0) && seq == s[n].seq + i ->
#else
     :: epoch == s[n].epoch + (i>0) && seq == s[n].seq + i && head == (i==0 -> s[n].prev : NAMED(n,i-1)) ->
#endif
        assert((s[n].gone & (1<<i)) == 0);
        assert(i==0 || (s[n].accepted & (1<<(i-1))));        /* what it hangs on is there */
        s[n].accepted = s[n].accepted | (1<<i); seq++; head=NAMED(n,i);
        if :: i==0 -> epoch++ :: else fi
     :: else
     fi
  fi
}

proctype Writer() {
  byte n; byte first; byte last; byte mine; bit yes; bit no;
begin:
  atomic { starts<STARTS -> n=starts; starts++; s[n].epoch=epoch; s[n].seq=seq; s[n].prev=head; first=0;
#ifdef TOGETHER
    last=CHAIN
#else
    last=0
#endif
  }
send:
  atomic { s[n].sent==0 ->                   /* in order, from the first that is missing */
#ifdef ONLYLAST
    first=last;
#endif
    s[n].sent = ALL(last) & ~(ALL(first)>>1) }
look:                                        /* the log is read to its end */
  atomic {
    first=0; do :: first<=last && (s[n].accepted & (1<<first)) -> first++ :: else -> break od;
    mine = s[n].epoch + (first>0);
    yes = ((s[n].accepted & ALL(last)) == ALL(last));
    no = (!yes && (epoch>mine || (epoch==mine && seq>=s[n].seq+first+1)));
#ifdef BYHEAD
    if :: !yes && epoch>=s[n].epoch+1 && seq>=s[n].seq+last+1 -> yes=1; no=0 :: else fi;
#endif
#ifdef LASTWORD
    if :: (s[n].came & (1<<last)) -> yes=1; no=0 :: else fi;
#endif
#ifdef BYTRY
    if :: (s[n].again & (1<<last)) -> yes=0; no=1 :: else fi;
#endif
#ifdef OTHEREPOCH
    if :: !yes && epoch!=s[n].epoch+(last>0) -> no=1 :: else fi;
#endif
#ifdef BYNAME
    if :: last==0 && !yes && epoch==s[n].epoch+1 -> yes=1; no=0 :: else fi;
#endif
    if
    :: yes && last==0 ->
       believers[s[n].epoch+1]++; assert(believers[s[n].epoch+1]<=1)
    :: yes && last>0 -> assert((s[n].accepted & ALL(last)) == ALL(last))
    :: no ->
#ifdef ALLGONE
       s[n].gone = ALL(last);
#elif defined(BYTRY)
       s[n].gone = (1<<last);
#else
       s[n].gone = ALL(last) & ~s[n].accepted;
#endif
       assert((s[n].gone & s[n].accepted)==0)
    :: else
    fi;
    first=(yes || no -> 0 : first); mine=0 }
  if
  :: yes && last==CHAIN -> ended=1; yes=0; n=0; last=0; goto over
  :: yes && last<CHAIN -> yes=0; first=last+1; last=CHAIN; goto send
  :: no -> no=0; last=0; n=0; goto begin
  :: !yes && !no -> goto send                /* once nothing is under way */
  :: !yes && !no && s[n].sent!=0 -> goto look
#ifndef LIVE
  :: !yes && !no -> first=0; last=0; n=0; goto begin   /* it gives up, or its process ends */
#endif
  fi;
over:
  skip
}
proctype Wire(byte n) { byte i;
end:
  do
  :: atomic { s[n].sent!=0 ->
       i=0; do :: !(s[n].sent & (1<<i)) -> i++ :: else -> break od;
       s[n].sent = s[n].sent & ~(1<<i);
       if
       :: comes(n,i)
       :: copies>0 -> copies--; s[n].loose = s[n].loose | (1<<i); comes(n,i)
       :: copies>0 -> copies--; s[n].loose = s[n].loose | (1<<i)
       :: losses>0 -> losses--
       fi; i=0 }
  :: atomic { s[n].loose!=0 ->
       i=0; do :: !(s[n].loose & (1<<i)) -> i++ :: else -> break od;
       s[n].loose = s[n].loose & ~(1<<i); comes(n,i); i=0 }
  od
}
init { atomic { byte k; for (k : 1 .. WRITERS) { run Writer() } for (k : 1 .. STARTS) { run Wire(k-1) } } }
#ifdef LIVE
ltl ends { <> (ended) }
#endif
