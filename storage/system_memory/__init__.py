"""System memory: what a network of agents has observed and can evidence."""
