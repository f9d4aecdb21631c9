"""The effect of gossip by calculation: equations 6.1 to 6.36, on arrays.

`markov_chain` has those of one group (6.1 to 6.9), `hierarchy` sizes, interests and rounds of
levels (6.10 to 6.21, 6.28), `printed_equations` the infection of a hierarchy as the thesis prints
it (6.22 to 6.27), `refined_equations` the same in agreement with figure 6.6, `membership_cost` the
cost of membership (6.29 to 6.36), `correlation` the chance of correlating events up the hierarchy.
Equations with misprints are in functions named accordingly.

Source: EPFL 2503 §6.2, §6.4.1, §6.5.2, §6.6.2, §6.6.3.
"""
