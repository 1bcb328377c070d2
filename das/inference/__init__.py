"""For those who use the data: intervals and valid inference that know the noise; see ``README.md``.

Everything here is post-processing of what was released, and costs no budget, except where a module says that it reads
confidential data.
"""
