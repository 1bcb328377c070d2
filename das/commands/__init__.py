"""The verbs of ``das``, one module a group of them; each lists its commands, and ``das/cli.py`` collects them."""
