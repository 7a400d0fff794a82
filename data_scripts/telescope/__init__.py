"""The neutrino telescope: its detector, and simulated events."""
