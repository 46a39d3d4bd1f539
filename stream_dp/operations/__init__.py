"""What operators do, as functions from a plan and a client to data; nothing here prints or asks."""
