"""Mechanisms for one small table under any linear public facts: samplers with proved errors, and others for study."""
