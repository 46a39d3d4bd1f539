"""Public records: models, bytes and schemas, and what a reader works out from them."""
