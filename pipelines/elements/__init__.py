"""What travels between Beam steps, and how it is encoded."""
