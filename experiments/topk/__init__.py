"""Pay-what-you-get top-k (Durfee and Rogers): what the account of draws saves, and what a month of selections needs."""
