"""The simulator: a seeded world in virtual time that tries to break the promises."""
