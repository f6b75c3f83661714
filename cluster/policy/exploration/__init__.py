"""Exploration that pays: which engine tries which depth, when, and for how long.

Two things are worth exploring:

- A trial. The goodput of another depth could well beat the present one, given how uncertain its step time is and the
  acceptance at its deeper positions. One short trial settles it. So different trials follow each other closely, and the same
  one is repeated only at ever longer intervals.
- A recheck. The draft may have become better while a shallow depth, or depth 0, hides it. No past measurement excludes that. So
  each engine rechecks from time to time the shallowest deeper depth that would pay if acceptance were high. The interval
  doubles while rechecks disappoint, and starts over when one pays. It stops growing where rechecks cost next to nothing.

One engine of a cohort at a time, the canary, explores for as few ticks as bring enough steps. The others learn from it through
the models. The goodput that exploration is expected to cost is paid from a credit, which fills at a small share of the fleet's
time.
"""
