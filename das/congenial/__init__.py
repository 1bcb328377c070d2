"""The congenial method: noise on a tree of counts, conditioned on the public facts; it reads confidential counts."""
