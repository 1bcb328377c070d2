"""Valid inference from released numbers: posteriors, maximum likelihood and regression that know the noise.

Everything here is post-processing of what was released, and costs no budget, except where a module says that it reads
confidential data. ``README.md`` beside this file says which question each method answers.
"""
