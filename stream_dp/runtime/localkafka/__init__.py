"""A real Apache Kafka on loopback, for a developer's machine, the demo and the tests that need a broker."""
