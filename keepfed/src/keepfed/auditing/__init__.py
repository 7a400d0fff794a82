"""Check the samples that a loader serves: shared among workers and ranks, mixed, undamaged."""
