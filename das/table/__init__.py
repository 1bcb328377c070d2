"""Release of one small table under any linear facts: exact samplers, and mechanisms for analysis."""
