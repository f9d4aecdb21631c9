"""What comes of gossip, by calculation: equations 6.1 to 6.36, on arrays.

`chains` has those of one group (6.1 to 6.9), `hierarchy` sizes, interests and rounds of levels
(6.10 to 6.21, 6.28), `printed` the infection of a hierarchy as the thesis prints it (6.22 to 6.27),
`refined` the same so that it agrees with figure 6.6, `upkeep` what membership costs (6.29 to 6.36),
`aggregation` how surely events are correlated by gossip up the hierarchy.
What the thesis prints and cannot mean stands in functions whose names say so.

Source: EPFL 2503 §6.2, §6.4.1, §6.5.2, §6.6.2, §6.6.3.
"""
