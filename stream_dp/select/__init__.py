"""Private selections of the top k; import neither the ledger nor the noise families."""
